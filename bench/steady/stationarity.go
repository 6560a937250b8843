package steady

import (
	"fmt"
)

// Stationarity says whether the runs of one combination of settings and policy
// reached a steady state. The zero value is unknown.
type Stationarity struct {
	// State is overloaded where at least half of the runs are, steady where more
	// than half are, else transient; "": unknown.
	State State
	// Runs, Steady, Transient and Overloaded count the runs of known state.
	Runs, Steady, Transient, Overloaded int
	// Offered and Sustains are mean rates of the runs for which they are known,
	// requests/s; NaN: unknown.
	Offered, Sustains float64
}

// Judge says whether metrics that need a steady state can be compared: those of
// runs of unknown state can.
func (s Stationarity) Judge() bool { return s.State == "" || s.State == Steady }

// Mark is the state as tables show it; overload is loud.
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

// String words the state: "overloaded (sustains 12.1 of 16 requests/s)".
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

// Counts counts the runs by state; nil: unknown.
func (s Stationarity) Counts() map[string]int {
	if s.Runs == 0 {
		return nil
	}
	return map[string]int{string(Steady): s.Steady, string(Transient): s.Transient, string(Overloaded): s.Overloaded}
}

// rate prints requests/s with three digits.
func rate(x float64) string { return fmt.Sprintf("%.3g", x) }

// StateNote explains the marks.
const StateNote = "OVERLOADED: requests arrive faster than the workers finish them (in parentheses: the rate that the workers sustain). " +
	"Latencies grow with the length of the run and get no verdict. transient: the run is too short, or its load changes too much, to extrapolate; no verdict either"
