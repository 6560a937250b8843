// Package steady says whether a run reached a steady state: whether its means
// would stay where they are if the run went on.
//
//	rec := steady.NewRecorder()
//	... rec.Done(&request) for each request, in any order ...
//	a := rec.Assess(steady.Options{})
//
// An open-loop benchmark sends requests whether or not the workers keep up. Where
// they do not, queues grow until the last request was sent, and every latency
// measures the length of the run. Where they do, but only just, a short run says
// little about a long one.
package steady

// State says whether a run reached a steady state.
type State string

// The states of a run.
const (
	// Steady runs can be extrapolated: more requests would give the same means,
	// within their confidence intervals.
	Steady State = "steady"
	// Transient runs are too short, or their load changes too much, to say so.
	Transient State = "transient"
	// Overloaded runs receive more requests than they finish: queues grow.
	Overloaded State = "overloaded"
)

// Assessment says whether a run reached a steady state.
type Assessment struct {
	State State `json:"state"`
	// Reason says in a few words why a run is not steady.
	Reason string `json:"reason,omitempty"`
	// Warmup is the time from the start of the run until the steady state, s:
	// what --warmup auto leaves out.
	Warmup float64 `json:"warmup_s"`
	// Excluded is the time at the start of the run whose requests were left out of
	// all metrics, s (see --warmup).
	Excluded float64 `json:"excluded_s,omitempty"`
	// LastArrival is the time at which the last request arrives, s.
	LastArrival float64 `json:"last_arrival_s"`
	// OfferedRate is the mean arrival rate, requests/s; 0: all came at once.
	OfferedRate float64 `json:"offered_rate,omitempty"`
	// SustainableRate is the largest arrival rate that the workers keep up with,
	// requests/s; 0: unknown, as in runs that were never saturated.
	SustainableRate float64 `json:"sustainable_rate,omitempty"`
	// EffectiveSamples is the number of independent requests that would give a
	// mean TTFT of the same accuracy.
	EffectiveSamples float64 `json:"effective_samples"`
	// Intervals are confidence intervals of means within this one run, by batch
	// means; empty unless the run is steady.
	Intervals []Interval `json:"intervals,omitempty"`
}

// Interval is the 95 % confidence interval of a mean.
type Interval struct {
	Metric string  `json:"metric"` // by its JSON name, as in mean_ttft_ms
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}

// Judge says whether latencies of the run can be compared: a run of unknown
// state can.
func (a *Assessment) Judge() bool { return a == nil || a.State == Steady }
