package steady

import (
	"fmt"
	"slices"
)

// A Stationarity summarises the states of the runs of one combination of settings and
// policy. The zero value means unknown.
type Stationarity struct {
	// State is Overloaded if at least half of the runs are, Steady if more than half are,
	// else Transient. "" means unknown.
	State State
	// Runs, Steady, Transient and Overloaded count the runs of known state.
	Runs, Steady, Transient, Overloaded int
	// Needed is the largest [Assessment.Needed] of the transient runs; 0: unknown.
	Needed int64
	// TooShort are the means, and P99 TTFT, for whose intervals most of the runs are too short, if State is Steady. The
	// few long queues that determine them are missing in some of the runs, so intervals over seeds are too narrow, too.
	TooShort []TooShort
	// Offered and Sustains are the mean offered and sustainable rates of the runs for which
	// they are known, requests/s. NaN means unknown.
	Offered, Sustains float64
}

// Judge reports whether metrics that need a steady state can be compared. They can if the
// state is Steady or unknown.
func (s Stationarity) Judge() bool { return s.State == "" || s.State == Steady }

// Short returns the metric with the given JSON name for whose intervals most of the runs are too short; false: they are
// long enough.
func (s Stationarity) Short(metric string) (TooShort, bool) {
	i := slices.IndexFunc(s.TooShort, func(t TooShort) bool { return t.Metric == metric })
	if i < 0 {
		return TooShort{}, false
	}
	return s.TooShort[i], true
}

// Mark returns the state as tables show it: "-" if unknown, and overload in capitals, such
// as "OVERLOADED (12.1/s)" with the sustainable rate.
func (s Stationarity) Mark() string {
	switch {
	case s.State == "":
		return "-"
	case s.State != Overloaded:
		return string(s.State)
	case s.Sustains > 0:
		return fmt.Sprintf("OVERLOADED (%s/s)", rate(s.Sustains))
	}
	return "OVERLOADED"
}

// String returns the state with its rates, such as
// "overloaded (sustains 12.1 of 16 requests/s)". If some runs are in another state, the number of runs follows.
func (s Stationarity) String() string {
	text := string(s.State)
	if s.State == Overloaded && s.Sustains > 0 {
		text += " (sustains " + rate(s.Sustains)
		if s.Offered > 0 {
			text += " of " + rate(s.Offered)
		}
		text += " requests/s)"
	}
	if n := map[State]int{Steady: s.Steady, Transient: s.Transient, Overloaded: s.Overloaded}[s.State]; n < s.Runs {
		text += fmt.Sprintf(", %d of %d runs", n, s.Runs)
	}
	return text
}

// Counts returns the number of runs by state; nil if unknown.
func (s Stationarity) Counts() map[string]int {
	if s.Runs == 0 {
		return nil
	}
	return map[string]int{string(Steady): s.Steady, string(Transient): s.Transient, string(Overloaded): s.Overloaded}
}

// rate formats a rate with three digits.
func rate(x float64) string { return fmt.Sprintf("%.3g", x) }

// StateNote explains the texts of Stationarity.Mark, for reports.
const StateNote = "OVERLOADED: requests arrive faster than the workers finish them (in parentheses: the rate that the workers sustain). " +
	"Latencies grow with the length of the run and get no verdict. transient: the run is too short, or its load changes too much, to extrapolate; no verdict either"
