package sweep

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"lorasim/bench/result"
	"lorasim/bench/stats"
	"lorasim/bench/steady"
)

// Names of the numbers that say whether a run reached a steady state.
const (
	stateName    = "steady.state" // index in states; no number to show
	warmupName   = "steady.warmup_s"
	samplesName  = "steady.effective_samples"
	offeredName  = "steady.offered_rate"
	sustainsName = "steady.sustainable_rate"
)

// states are the states of a run by their number in the files of cells.
var states = []steady.State{steady.Steady, steady.Transient, steady.Overloaded}

// steadyValues are the numbers of an assessment; rates that are not known are absent.
func steadyValues(a *steady.Assessment) (out []Value) {
	if a == nil {
		return nil
	}
	out = []Value{{warmupName, a.Warmup}, {samplesName, a.EffectiveSamples}}
	for _, v := range []Value{{offeredName, a.OfferedRate}, {sustainsName, a.SustainableRate}} {
		if v.Value > 0 {
			out = append(out, v)
		}
	}
	if i := slices.Index(states, a.State); i >= 0 {
		out = append(out, Value{stateName, float64(i)})
	}
	return out
}

// stateOf is the state with a number; "": unknown.
func stateOf(number float64) steady.State {
	if i := int(number); i >= 0 && i < len(states) {
		return states[i]
	}
	return ""
}

// Stationarity says whether the runs of one combination of settings and policy
// reached a steady state. The zero value is unknown.
type Stationarity struct {
	// State is overloaded where at least half of the runs are, steady where more
	// than half are, else transient; "": unknown.
	State steady.State
	// Runs, Steady, Transient and Overloaded count the runs of known state.
	Runs, Steady, Transient, Overloaded int
	// Offered and Sustains are mean rates of the runs for which they are known,
	// requests/s; NaN: unknown.
	Offered, Sustains float64
}

// StationarityOf sums up the runs whose numbers value returns, by name, one for
// each run.
func StationarityOf(value func(name string) []float64) Stationarity {
	s := Stationarity{Offered: stats.Mean(value(offeredName)).Mean, Sustains: stats.Mean(value(sustainsName)).Mean}
	for _, x := range value(stateName) {
		if math.IsNaN(x) {
			continue
		}
		switch s.Runs++; stateOf(x) {
		case steady.Steady:
			s.Steady++
		case steady.Overloaded:
			s.Overloaded++
		default:
			s.Transient++
		}
	}
	switch {
	case s.Runs == 0:
	case 2*s.Overloaded >= s.Runs:
		s.State = steady.Overloaded
	case 2*s.Steady > s.Runs:
		s.State = steady.Steady
	default:
		s.State = steady.Transient
	}
	return s
}

// Judge says whether metrics that need a steady state can be compared: those of
// runs of unknown state can.
func (s Stationarity) Judge() bool { return s.State == "" || s.State == steady.Steady }

// Mark is the state as tables show it; overload is loud.
func (s Stationarity) Mark() string {
	switch {
	case s.State == "":
		return "-"
	case s.State != steady.Overloaded:
		return string(s.State)
	case s.Sustains > 0:
		return fmt.Sprintf("OVERLOADED (%s/s)", rate(s.Sustains))
	}
	return "OVERLOADED"
}

// String words the state: "overloaded (sustains 12.1 of 16 requests/s)".
func (s Stationarity) String() string {
	text := string(s.State)
	if s.State == steady.Overloaded && s.Sustains > 0 {
		text += " (sustains " + rate(s.Sustains)
		if s.Offered > 0 {
			text += " of " + rate(s.Offered)
		}
		text += " requests/s)"
	}
	if n := map[steady.State]int{steady.Steady: s.Steady, steady.Transient: s.Transient, steady.Overloaded: s.Overloaded}[s.State]; n < s.Runs {
		text += fmt.Sprintf(", %d of %d runs", n, s.Runs)
	}
	return text
}

// rate prints requests/s with three digits.
func rate(x float64) string { return fmt.Sprintf("%.3g", x) }

// StateNote explains the marks.
const StateNote = "OVERLOADED: requests arrive faster than the workers finish them (in parentheses: the rate that the workers sustain). " +
	"Latencies grow with the length of the run and get no verdict. transient: the run is too short, or its load changes too much, to extrapolate; no verdict either"

// NeedsSteady says whether a metric measures the length of a run that is not in a
// steady state: latencies, what follows from them, and requests in flight. Counts,
// durations and throughputs are about the run as it was.
func NeedsSteady(metric string) bool {
	return strings.HasSuffix(metric, "_ms") || strings.HasPrefix(metric, "goodput.") ||
		slices.Contains([]string{result.Concurrency.String(), "fairness.normalized_latency", "ttft_per_output_token_s", "oracle.mean_e2e_regret"}, metric)
}

// runStates counts the runs by state; nil: unknown.
func (s Stationarity) runStates() map[string]int {
	if s.Runs == 0 {
		return nil
	}
	return map[string]int{string(steady.Steady): s.Steady, string(steady.Transient): s.Transient, string(steady.Overloaded): s.Overloaded}
}
