package advise

import (
	"fmt"
	"math"

	"lorasim/bench/result"
	"lorasim/internal/suggest"
)

// An Objective is the score by which candidates are compared. The score of a run is
//
//	E2E ln(mean E2E) + TTFT ln(mean TTFT) + P99TTFT ln(P99 TTFT) + lossWeight x (share of requests without success)
//
// or, with Goodput, the share of the requests that miss the SLO. Lower is better.
type Objective struct {
	Name               string
	E2E, TTFT, P99TTFT float64 // weights of the logarithms
	Goodput            bool
}

// lossWeight: a run that loses 1 % of its requests scores like one whose latencies are
// all 5 % longer. Without it a policy would gain by losing slow requests.
const lossWeight = 5

// noLatency is the latency of runs without one success, ms.
const noLatency = 1e9

// objectives are the available objectives; the default is first.
var objectives = []Objective{
	{Name: "balanced", E2E: 1, TTFT: 0.35, P99TTFT: 0.15},
	{Name: "e2e", E2E: 1},
	{Name: "ttft", TTFT: 1},
	{Name: "p99-ttft", P99TTFT: 1},
	{Name: "goodput", Goodput: true},
}

// Objectives returns the names of the objectives; the default is first.
func Objectives() (names []string) {
	for _, o := range objectives {
		names = append(names, o.Name)
	}
	return names
}

// ParseObjective returns the objective with the given name.
func ParseObjective(name string) (Objective, error) {
	for _, o := range objectives {
		if o.Name == name {
			return o, nil
		}
	}
	return Objective{}, suggest.Unknown("objective", name, Objectives())
}

// String describes the objective.
func (o Objective) String() string {
	switch o.Name {
	case "balanced":
		return "balanced (log mean E2E + 0.35 log mean TTFT + 0.15 log P99 TTFT)"
	case "goodput":
		return "goodput (share of requests within the SLO)"
	}
	return o.Name + " (log " + map[string]string{"e2e": "mean E2E", "ttft": "mean TTFT",
		"p99-ttft": "P99 TTFT"}[o.Name] + ")"
}

// score is the score of a run.
func (o Objective) score(f *Figures) float64 {
	if o.Goodput {
		return 1 - f.Good
	}
	ln := func(weight, ms float64) float64 {
		if weight == 0 {
			return 0
		}
		return weight * math.Log(max(ms, 1e-3))
	}
	return ln(o.E2E, f.E2E) + ln(o.TTFT, f.TTFT) + ln(o.P99TTFT, f.P99TTFT) + lossWeight*(1-f.Completed)
}

// Percent converts a difference of two scores to percent or, with Goodput, percentage points. Positive is worse.
func (o Objective) Percent(diff float64) float64 {
	if o.Goodput {
		return 100 * diff
	}
	return 100 * math.Expm1(diff)
}

// fromPercent is the inverse of Percent.
func (o Objective) fromPercent(percent float64) float64 {
	if o.Goodput {
		return percent / 100
	}
	return math.Log1p(percent / 100)
}

// unit is the unit of differences of scores.
func (o Objective) unit() string {
	if o.Goodput {
		return "points"
	}
	return "%"
}

// signed prints a difference with its unit.
func (o Objective) signed(diff float64) string {
	return fmt.Sprintf("%+.1f %s", o.Percent(diff), o.unit())
}

// Figures are the metrics of one run of a candidate.
type Figures struct {
	Score              float64
	TTFT, P99TTFT, E2E float64 // ms
	Good               float64 // share of the requests within the SLO; NaN: no SLO
	Completed          float64 // share of the requests
	Regret             float64 // excess of the mean E2E over the lower bound, as a share of the bound; NaN: unknown
	Steady             []result.Value
	// Err is the reason why the candidate did not run; nil: it ran.
	Err error
}

// figuresOf takes the figures from a result.
func figuresOf(res *result.Result, o Objective) Figures {
	f := Figures{Good: math.NaN(), Regret: math.NaN(), TTFT: noLatency, P99TTFT: noLatency, E2E: noLatency}
	completed, _ := res.Metrics.Get(result.Completed)
	if e := res.Endings(); e != nil && e.Requests+e.Unsent > 0 {
		f.Completed = completed / float64(e.Requests+e.Unsent)
	}
	if completed > 0 {
		f.TTFT, _ = res.Metrics.Get(result.MeanTTFT)
		f.P99TTFT, _ = res.Metrics.Get(result.P99TTFT)
		f.E2E, _ = res.Metrics.Get(result.MeanE2E)
	}
	if e := res.Extra; e != nil && e.Goodput != nil {
		f.Good = e.Goodput.Share
	}
	if e := res.Extra; e != nil && e.Oracle != nil {
		f.Regret = e.Oracle.E2ERegret
	}
	f.Steady = result.Values(&result.Result{Steady: res.Steady})
	f.Score = o.score(&f)
	return f
}
