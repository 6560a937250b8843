package result

import (
	"fmt"

	"lorasim/internal/format"
	"lorasim/router/push"
	"lorasim/sim/record"
)

// Pushes describes the new versions of adapters that came during a run, and how old the versions were that served the
// requests. The driver sets the first fields, a Collector those of requests.
type Pushes struct {
	Published   int64   `json:"published"`    // new versions
	Loads       int64   `json:"loads"`        // versions loaded on workers by pushes
	FailedLoads int64   `json:"failed_loads"` // loads that failed
	MeanTime    float64 `json:"mean_time_s"`  // from publication until all holders had the version
	CutOver     int64   `json:"cut_over"`     // requests that continued with another version

	Requests      int64   `json:"requests"` // admitted requests for adapters with new versions
	MeanStaleness float64 `json:"mean_staleness"`
	P99Staleness  float64 `json:"p99_staleness"`
	MaxStaleness  float64 `json:"max_staleness"`
	MeanAge       float64 `json:"mean_age_s"`
	P99Age        float64 `json:"p99_age_s"`
	Waited        int64   `json:"waited"` // requests that waited for a version
	Wait          float64 `json:"wait_s"` // the sum of their waits

	Lost *PushLoss `json:"lost,omitempty"` // nil: unknown
}

// PushLoss is the cost of new versions, as shares of the same run without new versions.
type PushLoss struct {
	Throughput float64 `json:"throughput"` // output throughput lost
	E2E        float64 `json:"mean_e2e"`   // mean E2E latency added
	TTFT       float64 `json:"mean_ttft"`  // mean TTFT added
}

// CountPushes returns the counts of a rollout.
func CountPushes(s *push.Stats) *Pushes {
	return &Pushes{Published: s.Published, Loads: s.Loads, FailedLoads: s.Failed,
		MeanTime: ratio(s.Time, float64(s.Complete))}
}

// SetPushLoss compares a run with the same run without new versions.
func (r *Result) SetPushLoss(without *Result) {
	added := func(m ID) float64 {
		with, _ := r.Metrics.Get(m)
		base, _ := without.Metrics.Get(m)
		return ratio(with-base, base)
	}
	r.Extra.Pushes.Lost = &PushLoss{-added(OutputThroughput), added(MeanE2E), added(MeanTTFT)}
}

// text describes the new versions in a line; "" if there were none.
func (p *Pushes) text() string {
	if p == nil {
		return ""
	}
	text := fmt.Sprintf("%d new, on all holders after %s s; age mean %s s, P99 %s s; mean %s behind, at most %.0f",
		p.Published, format.Digits(p.MeanTime), format.Digits(p.MeanAge), format.Digits(p.P99Age),
		format.Digits(p.MeanStaleness), p.MaxStaleness)
	if l := p.Lost; l != nil {
		text += fmt.Sprintf("; pushes change throughput by %+.1f %%, mean E2E by %+.1f %%, mean TTFT by %+.1f %%",
			-100*l.Throughput, 100*l.E2E, 100*l.TTFT)
	}
	return text
}

// staleness counts how far behind the newest versions the requests were.
type staleness struct {
	behind []int64 // requests by versions behind
	age    distribution
	waited int64
	wait   float64 // s
}

func (s *staleness) add(r *record.Request) {
	for int(r.Behind) >= len(s.behind) {
		s.behind = append(s.behind, 0)
	}
	s.behind[r.Behind]++
	s.age.add(record.Ticks(r.VersionAge))
	if r.VersionWait > 0 {
		s.waited++
		s.wait += r.VersionWait
	}
}

// enter sets the fields of requests.
func (s *staleness) enter(p *Pushes) {
	p.Requests, p.Waited, p.Wait = s.age.n, s.waited, s.wait
	sum, seen, rank := int64(0), int64(0), (s.age.n-1)*99/100
	for k, n := range s.behind {
		sum += int64(k) * n
		if seen <= rank && rank < seen+n {
			p.P99Staleness = float64(k)
		}
		seen += n
		p.MaxStaleness = float64(k)
	}
	p.MeanStaleness = ratio(float64(sum), float64(s.age.n))
	a := s.age.stats()
	p.MeanAge, p.P99Age = a.Mean/1000, a.P99/1000
}
