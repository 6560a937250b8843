package epp

import (
	"fmt"
	"math"
	"time"
)

// utilization is utilization-detector: full by queue and KV cache.
type utilization struct {
	Queue     int      `json:"queueDepthThreshold"`
	KV        float64  `json:"kvCacheUtilThreshold"`
	Staleness duration `json:"metricsStalenessThreshold"`
	Headroom  float64  `json:"headroom"`
}

func (u *utilization) check() error {
	switch {
	case u.Queue <= 0:
		return fmt.Errorf("queueDepthThreshold must be strictly positive, got %d", u.Queue)
	case !(u.KV > 0 && u.KV <= 1):
		return fmt.Errorf("kvCacheUtilThreshold must be above 0 and at most 1, got %g", u.KV)
	case u.Staleness <= 0:
		return fmt.Errorf("metricsStalenessThreshold must be strictly positive, got %s", time.Duration(u.Staleness))
	case u.Headroom < 0:
		return fmt.Errorf("headroom must be at least 0, got %g", u.Headroom)
	}
	return nil
}

func (u *utilization) stale(e *Endpoint) bool { return e.Age > time.Duration(u.Staleness).Seconds() }

func (u *utilization) saturation(c *cycle) float64 {
	if len(c.eps) == 0 {
		return 1
	}
	sum := 0.0
	for i := range c.eps {
		if e := &c.eps[i]; u.stale(e) {
			sum++
		} else {
			sum += max(float64(e.Waiting)/float64(u.Queue), e.KV/u.KV)
		}
	}
	return sum / float64(len(c.eps))
}

// filter keeps the endpoints below the thresholds, or where there are none all.
func (u *utilization) filter(c *cycle, in []int32) []int32 {
	below := func(i int32) bool {
		e := &c.eps[i]
		return !u.stale(e) && float64(e.Waiting) < float64(u.Queue)*(1+u.Headroom) && e.KV < u.KV*(1+u.Headroom)
	}
	for _, i := range in {
		if below(i) {
			return keep(in, below)
		}
	}
	return in
}

// concurrency is concurrency-detector: full by requests or tokens in flight.
type concurrency struct {
	Mode      string  `json:"concurrencyMode"`
	Requests  int64   `json:"maxConcurrency"`
	MaxTokens int64   `json:"maxTokenConcurrency"`
	Headroom  float64 `json:"headroom"`
}

func (d *concurrency) check(dialect Dialect) error {
	switch {
	case d.Mode != "requests" && d.Mode != "tokens" && (d.Mode != "hybrid" || dialect == GIE):
		return fmt.Errorf("concurrencyMode %q: expected requests or tokens (%s: or hybrid)", d.Mode, LLMD)
	case d.Requests <= 0:
		return fmt.Errorf("maxConcurrency must be strictly positive, got %d", d.Requests)
	case d.MaxTokens <= 0:
		return fmt.Errorf("maxTokenConcurrency must be strictly positive, got %d", d.MaxTokens)
	case d.Headroom < 0:
		return fmt.Errorf("headroom must be at least 0, got %g", d.Headroom)
	}
	return nil
}

func (d *concurrency) saturation(c *cycle) float64 {
	if len(c.eps) == 0 {
		return 1
	}
	requests, tokens, worst := 0.0, 0.0, 0.0
	for i := range c.eps {
		r := float64(c.flight.Requests(c.eps[i].ID)) / float64(d.Requests)
		t := float64(c.flight.Tokens(c.eps[i].ID)) / float64(d.MaxTokens)
		requests, tokens, worst = requests+r, tokens+t, worst+max(r, t)
	}
	n := float64(len(c.eps))
	switch d.Mode {
	case "tokens":
		return tokens / n
	case "hybrid":
		return worst / n
	}
	return requests / n
}

// filter keeps the endpoints below the limits. Where there are none the request is refused.
func (d *concurrency) filter(c *cycle, in []int32) []int32 {
	maxRequests := int64(float64(d.Requests) * (1 + d.Headroom))
	maxTokens := int64(float64(d.MaxTokens) * (1 + d.Headroom))
	return keep(in, func(i int32) bool {
		id := c.eps[i].ID
		return (d.Mode == "tokens" || c.flight.Requests(id) < maxRequests) &&
			(d.Mode == "requests" || c.flight.Tokens(id) < maxTokens)
	})
}

// probabilisticAdmitter refuses sheddable requests with a chance that grows with saturation (llm-d).
type probabilisticAdmitter struct{}

func (probabilisticAdmitter) admit(c *cycle, saturation float64) *Rejection {
	if c.r.Priority < 0 && c.rng.Float64() < min(1, 300*math.Pow(saturation, 5)) {
		return saturated
	}
	return nil
}

// duration is one as Go writes it: 150ms.
type duration time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = duration(v)
	return err
}
