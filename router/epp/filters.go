package epp

import (
	"fmt"
	"math"
	"net"
	"slices"
	"strings"
)

// labelFilter keeps endpoints by the labels of their pods.
type labelFilter struct {
	Labels      map[string]string `json:"matchLabels"`
	Expressions []labelExpression `json:"matchExpressions"`
}

type labelExpression struct {
	Key      string   `json:"key"`
	Operator string   `json:"operator"`
	Values   []string `json:"values"`
}

func (f *labelFilter) check() error {
	for _, x := range f.Expressions {
		if !slices.Contains([]string{"In", "NotIn", "Exists", "DoesNotExist"}, x.Operator) {
			return fmt.Errorf("operator %q: expected In, NotIn, Exists or DoesNotExist", x.Operator)
		}
	}
	return nil
}

func (f *labelFilter) filter(c *cycle, in []int32) []int32 {
	return keep(in, func(i int32) bool {
		labels := c.eps[i].Labels
		for k, v := range f.Labels {
			if got, ok := labels[k]; !ok || got != v {
				return false
			}
		}
		return !slices.ContainsFunc(f.Expressions, func(x labelExpression) bool { return !x.holds(labels) })
	})
}

func (x *labelExpression) holds(labels map[string]string) bool {
	v, ok := labels[x.Key]
	switch x.Operator {
	case "In":
		return ok && slices.Contains(x.Values, v)
	case "NotIn":
		return !ok || !slices.Contains(x.Values, v)
	case "Exists":
		return ok
	}
	return !ok
}

// roleLabel says which part of disaggregated serving a pod does.
const roleLabel = "llm-d.ai/role"

// roleFilter keeps the endpoints of some roles, and where unlabelled is set those without one.
type roleFilter struct {
	roles      []string
	unlabelled bool
}

func (f roleFilter) filter(c *cycle, in []int32) []int32 {
	return keep(in, func(i int32) bool {
		role, ok := c.eps[i].Labels[roleLabel]
		if !ok {
			return f.unlabelled
		}
		return slices.Contains(f.roles, role)
	})
}

// affinityFilter keeps endpoints that have cached most of the prompt, unless they are too busy.
type affinityFilter struct {
	Threshold   float64 `json:"affinityThreshold"`
	Explore     float64 `json:"explorationProbability"`
	MaxTTFT     float64 `json:"maxTTFTPenaltyMs"`
	MaxTokens   int64   `json:"maxTokensInFlightPenalty"` // llm-d after the stored version
	Source      string  `json:"ttftSource"`
	PeakPrefill float64 `json:"peakPrefillThroughput"`
	dialect     Dialect
}

// check implements checked, by the rules of GIE v1.5.0.
func (f *affinityFilter) check() error {
	switch {
	case f.Threshold > 1:
		return fmt.Errorf("affinityThreshold must be at most 1, got %g", f.Threshold)
	case f.Explore < 0 || f.Explore > 1:
		return fmt.Errorf("explorationProbability must be in [0, 1], got %g", f.Explore)
	case f.MaxTTFT < 0:
		return fmt.Errorf("maxTTFTPenaltyMs must be at least 0, got %g", f.MaxTTFT)
	}
	return nil
}

func (f *affinityFilter) filter(c *cycle, in []int32) []int32 {
	if f.Explore > 0 && c.rng.Float64() < f.Explore {
		return in
	}
	sticky, most := 0, math.MaxFloat64
	stickyTTFT, otherTTFT := most, most
	stickyTokens, otherTokens := int64(math.MaxInt64), int64(math.MaxInt64)
	for _, i := range in {
		ttft, tokens := f.ttft(c, i), c.flight.Tokens(c.eps[i].ID)
		if c.match(i).share() >= f.Threshold {
			sticky++
			stickyTTFT, stickyTokens = min(stickyTTFT, ttft), min(stickyTokens, tokens)
		} else {
			otherTTFT, otherTokens = min(otherTTFT, ttft), min(otherTokens, tokens)
		}
	}
	if sticky == 0 || sticky == len(in) {
		return in
	}
	if f.MaxTTFT > 0 && stickyTTFT-otherTTFT > f.MaxTTFT || f.MaxTokens > 0 && stickyTokens-otherTokens > f.MaxTokens {
		return in
	}
	return keep(in, func(i int32) bool { return c.match(i).share() >= f.Threshold })
}

// ttft is the predicted time to the first token, ms.
func (f *affinityFilter) ttft(c *cycle, i int32) float64 {
	l := c.eps[i].Latency
	switch {
	case f.dialect == LLMD && f.Source != "latencyPrediction":
		return float64(c.flight.Tokens(c.eps[i].ID)) / f.PeakPrefill * 1000
	case l != nil:
		return l.TTFT
	}
	return math.MaxFloat64
}

// tierFilter keeps the endpoints that are predicted to meet both objectives, if there are any.
type tierFilter struct {
	Explore float64 `json:"epsilonExploreNeg"`
}

func (f *tierFilter) filter(c *cycle, in []int32) []int32 {
	meets := func(i int32) bool { l := c.eps[i].Latency; return l != nil && l.meets() }
	good := 0
	for _, i := range in {
		if meets(i) {
			good++
		}
	}
	if good == 0 || good == len(in) {
		return in
	}
	other := f.Explore > 0 && c.rng.Float64() < f.Explore
	return keep(in, func(i int32) bool { return meets(i) != other })
}

// utilizationFilter keeps endpoints below limits of metrics.
type utilizationFilter struct {
	Conditions []struct {
		Metric string  `json:"metric"`
		Max    float64 `json:"maxValue"`
	} `json:"conditions"`
	Fallback bool `json:"fallbackOnEmpty"`
}

var utilizationMetrics = []string{"active-requests", "running-requests", "waiting-queue", "kv-cache-utilization"}

func (f *utilizationFilter) check() error {
	if len(f.Conditions) == 0 {
		return fmt.Errorf("conditions: expected at least one")
	}
	for _, x := range f.Conditions {
		if !slices.Contains(utilizationMetrics, x.Metric) {
			return fmt.Errorf("metric %q: expected one of %s", x.Metric, strings.Join(utilizationMetrics, ", "))
		}
	}
	return nil
}

func (f *utilizationFilter) below(c *cycle, i int32) bool {
	e := &c.eps[i]
	for _, x := range f.Conditions {
		v := 0.0
		switch x.Metric {
		case "active-requests":
			v = float64(c.flight.Requests(e.ID))
		case "running-requests":
			v = float64(e.Running)
		case "waiting-queue":
			v = float64(e.Waiting)
		default:
			v = e.KV
		}
		if v > x.Max {
			return false
		}
	}
	return true
}

func (f *utilizationFilter) filter(c *cycle, in []int32) []int32 {
	below := func(i int32) bool { return f.below(c, i) }
	if f.Fallback && !slices.ContainsFunc(in, below) {
		return in
	}
	return keep(in, below)
}

// testingFilter keeps the endpoints that the header of conformance tests names: IP, or IP:port.
type testingFilter struct{}

func (testingFilter) filter(c *cycle, in []int32) []int32 {
	return keep(in, func(i int32) bool {
		for s := range strings.SplitSeq(c.r.Selected, ",") {
			s = strings.TrimSpace(s)
			if s != "" && (s == c.eps[i].Address || s == host(c.eps[i].Address)) {
				return true
			}
		}
		return false
	})
}

// host is an address without its port.
func host(address string) string {
	if h, _, err := net.SplitHostPort(address); err == nil {
		return h
	}
	return address
}
