package result

import (
	"math"
	"testing"

	"lorasim/bench/steady"
)

// Overloaded from half of the runs on, steady only if more than half are.
func TestStateOfRuns(t *testing.T) {
	const s, tr, o = 0, 1, 2
	nan := math.NaN()
	for _, c := range []struct {
		runs []float64
		want string
	}{
		{nil, ""}, {[]float64{nan, nan}, ""}, {[]float64{s}, "steady"}, {[]float64{tr}, "transient"},
		{[]float64{o}, "overloaded"},
		{[]float64{s, o}, "overloaded, 1 of 2 runs"}, {[]float64{s, tr}, "transient, 1 of 2 runs"},
		{[]float64{s, s, o}, "steady, 2 of 3 runs"},
		{[]float64{s, tr, o}, "transient, 1 of 3 runs"}, {[]float64{o, nan, s, o}, "overloaded, 2 of 3 runs"},
		{[]float64{s, s, o, o}, "overloaded, 2 of 4 runs"},
	} {
		if got := StationarityOf(numbers(map[string][]float64{SteadyStateName: c.runs})).String(); got != c.want {
			t.Errorf("%v: %q, expected %q", c.runs, got, c.want)
		}
	}
	full := StationarityOf(
		numbers(map[string][]float64{SteadyStateName: {o, o}, offeredName: {16, 16.02}, sustainsName: {12.1, nan}}))
	if full.String() != "overloaded (sustains 12.1 of 16 requests/s)" || full.Mark() != "OVERLOADED (12.1/s)" ||
		full.Judge() {
		t.Errorf("%s, %s", full, full.Mark())
	}
	if one := (steady.Stationarity{State: steady.Overloaded, Sustains: nan}); one.String() != "overloaded" ||
		one.Mark() != "OVERLOADED" {
		t.Errorf("%s, %s", one, one.Mark())
	}
}

func numbers(of map[string][]float64) func(string) []float64 {
	return func(name string) []float64 { return of[name] }
}

// A state has a number among the values, and the number its state.
func TestStateNumber(t *testing.T) {
	for _, s := range states {
		if got := StateOf(ValueOf(Values(&Result{Steady: &steady.Assessment{State: s}}), SteadyStateName)); got != s {
			t.Errorf("%s: %q", s, got)
		}
	}
	unknown := Values(&Result{Steady: &steady.Assessment{State: "?"}})
	if got := ValueOf(unknown, SteadyStateName); !math.IsNaN(got) || StateOf(-1) != "" ||
		StateOf(float64(len(states))) != "" {
		t.Errorf("a number for an unknown state: %v", got)
	}
}

// TestTooShortOverRuns: a mean is too short if more than half of the steady runs have no interval of it; it needs the
// median of what they need. So is P99 TTFT. Estimates over the runs use the smallest part of any of them.
func TestTooShortOverRuns(t *testing.T) {
	run := func(short int64, floor float64) []Value {
		a := &steady.Assessment{State: steady.Steady, Floors: []steady.Floor{{Metric: "mean_ttft_ms", Least: floor}}}
		if short > 0 {
			a.Tail = 2 * short
			a.TooShort = []steady.TooShort{{Metric: "mean_ttft_ms", Needed: short}}
		}
		return steadyValues(a)
	}
	for _, c := range []struct {
		runs   [][]Value
		needed int64
	}{
		{[][]Value{run(4000, 50), run(9000, 40), run(0, 50)}, 6500},
		{[][]Value{run(4000, 50), run(0, 40), run(0, 50), run(7000, 50)}, 0},
	} {
		value := func(name string) []float64 {
			out := make([]float64, len(c.runs))
			for i, r := range c.runs {
				if out[i] = ValueOf(r, name); name == "mean_ttft_ms" {
					out[i] = float64(60 + 10*i)
				}
			}
			return out
		}
		s, short := StationarityOf(value).Short("mean_ttft_ms")
		if short != (c.needed > 0) || s.Needed != c.needed {
			t.Errorf("%+v, %v, expected %d", s, short, c.needed)
		}
		if tail, _ := StationarityOf(value).Short(steady.P99TTFT); tail.Needed != 2*c.needed {
			t.Errorf("P99 TTFT: %+v, expected twice %d", tail, c.needed)
		}
		e := OverRuns("", "mean_ttft_ms", value)
		if !(e.High-e.Mean > e.Mean-e.Low) || e.Low < 40 || math.IsNaN(e.Mean) {
			t.Errorf("%+v, expected an interval above 40 that is longer upward", e)
		}
	}
}
