// Package steady tests whether a run reached a steady state, so that a longer run would have
// the same means. A [Recorder] counts the requests of a run and returns an [Assessment]:
//
//	rec := steady.NewRecorder(false)
//	... rec.Done(&request) for each request, in any order ...
//	a := rec.Assess()
//
// An open-loop benchmark sends requests whether or not the workers keep up. If they do not,
// queues grow until the last request is sent, and every latency measures the length of the
// run. If they barely keep up, a short run says little about a long one.
package steady

// A State is the state of a run.
type State string

// The states of a run.
const (
	// Steady runs can be extrapolated. More requests give the same means, within their
	// confidence intervals.
	Steady State = "steady"
	// Transient runs are too short to extrapolate, or their load changes too much.
	Transient State = "transient"
	// Overloaded runs receive requests faster than they finish them, so queues grow.
	Overloaded State = "overloaded"
)

// An Assessment says whether a run reached a steady state.
type Assessment struct {
	State State `json:"state"`
	// Reason is a short reason why the run is not steady.
	Reason string `json:"reason,omitempty"`
	// Needed is the estimated number of requests of a run that would not be transient; 0 for other states.
	Needed int64 `json:"requests_needed,omitempty"`
	// Warmup is the time from the start of the run until the steady state, s. The option
	// --warmup auto leaves it out.
	Warmup float64 `json:"warmup_s"`
	// Excluded is the time at the start of the run that the metrics leave out, s (see
	// --warmup).
	Excluded float64 `json:"excluded_s,omitempty"`
	// LastArrival is the time at which the last request arrives, s.
	LastArrival float64 `json:"last_arrival_s"`
	// OfferedRate is the mean arrival rate, requests/s; 0 if all requests arrive at once.
	OfferedRate float64 `json:"offered_rate,omitempty"`
	// SustainableRate is the largest arrival rate that the workers sustain, requests/s. 0
	// means unknown, as in runs that were never saturated.
	SustainableRate float64 `json:"sustainable_rate,omitempty"`
	// EffectiveSamples is the number of independent requests that give a mean TTFT of the
	// same accuracy.
	EffectiveSamples float64 `json:"effective_samples"`
	// Intervals are confidence intervals of means within this run, by batch means. It is
	// empty unless the run is steady.
	Intervals []Interval `json:"intervals,omitempty"`
	// TooShort are the means without an interval, since a steady run is too short for it.
	TooShort []TooShort `json:"too_short,omitempty"`
	// Floors are the smallest means of parts of the run, for intervals over runs.
	Floors []Floor `json:"-"`

	// Tail is the estimated number of requests of a run whose P99 TTFT is comparable over seeds; 0: this run's is.
	Tail int64 `json:"-"`

	dispersion float64 // index of dispersion of the arrivals
}

// An Interval is the 95 % confidence interval of a mean.
type Interval struct {
	Metric string  `json:"metric"` // JSON name, such as mean_ttft_ms
	Low    float64 `json:"low"`    // ms
	High   float64 `json:"high"`   // ms
}

// Longer returns the estimated number of requests of a run that tells what this one does not: its state if it is
// transient, else the interval of mean E2E. 0: the run tells both, or no longer run would.
func (a *Assessment) Longer() int64 {
	if a.State == Transient {
		return a.Needed
	}
	for _, s := range a.TooShort {
		if s.Metric == meanE2E {
			return s.Needed
		}
	}
	return 0
}

// Judge reports whether latencies of the run can be compared. They can if the run is Steady,
// or if a is nil (unknown).
func (a *Assessment) Judge() bool { return a == nil || a.State == Steady }
