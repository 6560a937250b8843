package result

import (
	"fmt"
	"math"
	"slices"

	"lorasim/bench/stats"
	"lorasim/bench/steady"
	"lorasim/internal/format"
)

// SteadyNotes returns lines that say why the run's latencies cannot be trusted. It returns
// nil if the run was steady, or if that is unknown.
func (r *Result) SteadyNotes() []string {
	a := r.Steady
	if a == nil || a.State == steady.Steady {
		return nil
	}
	line := fmt.Sprintf("%s: %s", a.State, a.Reason)
	if a.State == steady.Transient {
		if a.SustainableRate > 0 {
			line += fmt.Sprintf("; %s requests/s are sustainable", format.Digits(a.SustainableRate))
		}
		return []string{line, "note: a longer run, or another seed, may give other latencies"}
	}
	if a.SustainableRate > 0 {
		line = fmt.Sprintf("%s: %s requests/s are sustainable; %s", a.State, format.Digits(a.SustainableRate), a.Reason)
		if a.OfferedRate > 0 {
			line = fmt.Sprintf("%s: %s requests/s offered, %s sustainable; %s",
				a.State, format.Digits(a.OfferedRate), format.Digits(a.SustainableRate), a.Reason)
		}
	}
	return []string{line, "note: latencies grow with the length of the run; only throughput describes the workers"}
}

// steady prints the section on the steady state.
func (p *printer) steady(a *steady.Assessment) {
	if a == nil {
		return
	}
	p.title("Steady State")
	p.row("State", string(a.State))
	p.metrics(offeredName, sustainsName)
	if a.Excluded > 0 {
		p.rowf("Warm-up left out (s)", "%.2f", a.Excluded)
	}
	if a.State != steady.Steady {
		return
	}
	if a.Excluded == 0 {
		p.metrics(warmupName)
	}
	p.metrics(samplesName)
	for _, in := range a.Intervals {
		if m, ok := IDOf(in.Metric); ok {
			p.rowf(m.Metric().Title+", 95 % interval", "%.2f..%.2f", in.Low, in.High)
		}
	}
	for _, s := range a.TooShort {
		if m, ok := IDOf(s.Metric); ok {
			p.row(m.Metric().Title+", 95 % interval", s.String())
		}
	}
}

// Names of the values of a steady.Assessment; see Values.
const (
	SteadyStateName = "steady.state" // number of the state; see StateOf
	warmupName      = "steady.warmup_s"
	samplesName     = "steady.effective_samples"
	offeredName     = "steady.offered_rate"
	sustainsName    = "steady.sustainable_rate"
	neededName      = "steady.requests_needed"
	shortName       = "steady.too_short." // then the name of a metric: requests that its interval needs
	floorName       = "steady.floor."     // then the name of a mean: see steady.Floor
)

// states are the states of a run by their numbers, which are stored in the files of cells.
var states = []steady.State{steady.Steady, steady.Transient, steady.Overloaded}

// steadyValues returns the values of an assessment. Unknown rates are absent.
func steadyValues(a *steady.Assessment) (out []Value) {
	if a == nil {
		return nil
	}
	out = []Value{{warmupName, a.Warmup}, {samplesName, a.EffectiveSamples}}
	for _, v := range []Value{{offeredName, a.OfferedRate}, {sustainsName, a.SustainableRate},
		{neededName, float64(a.Needed)}} {
		if v.Value > 0 {
			out = append(out, v)
		}
	}
	for _, s := range a.TooShort {
		out = append(out, Value{shortName + s.Metric, float64(s.Needed)})
	}
	if a.Tail > 0 {
		out = append(out, Value{shortName + steady.P99TTFT, float64(a.Tail)})
	}
	for _, f := range a.Floors {
		out = append(out, Value{floorName + f.Metric, f.Least})
	}
	if i := slices.Index(states, a.State); i >= 0 {
		out = append(out, Value{SteadyStateName, float64(i)})
	}
	return out
}

// StateOf returns the state with the given number, the value SteadyStateName; "" if the
// number is out of range.
func StateOf(number float64) steady.State {
	if i := int(number); i >= 0 && i < len(states) {
		return states[i]
	}
	return ""
}

// OverRuns estimates a metric over the runs of several seeds. value returns the values of the given name, one per run;
// NaN means unknown.
func OverRuns(of stats.Sampling, metric string, value func(name string) []float64) stats.Estimate {
	return steady.OverRuns(of, metric, value(metric), value(floorName+metric))
}

// StationarityOf summarises the assessments of several runs. value returns the values of
// the given name, one per run; NaN means unknown.
func StationarityOf(value func(name string) []float64) steady.Stationarity {
	s := steady.Stationarity{
		Offered: stats.Mean(value(offeredName)).Mean, Sustains: stats.Mean(value(sustainsName)).Mean,
	}
	for _, x := range value(neededName) {
		if x > float64(s.Needed) { // nor NaN
			s.Needed = int64(x)
		}
	}
	for _, x := range value(SteadyStateName) {
		if math.IsNaN(x) {
			continue
		}
		switch s.Runs++; StateOf(x) {
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
	if s.State == steady.Steady {
		s.TooShort = tooShort(value, s.Steady)
	}
	return s
}

// tooShort returns the metrics for whose intervals more than half of the steady runs are too short, with the median of
// the requests that they need.
func tooShort(value func(name string) []float64, runs int) (list []steady.TooShort) {
	for _, metric := range append(steady.Means(), steady.P99TTFT) {
		needed := slices.DeleteFunc(slices.Clone(value(shortName+metric)), math.IsNaN)
		if 2*len(needed) > runs {
			list = append(list, steady.TooShort{Metric: metric, Needed: int64(stats.QuantileOf(needed, 0.5))})
		}
	}
	return list
}
