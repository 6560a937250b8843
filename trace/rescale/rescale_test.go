package rescale

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"lorasim/trace"
)

// workload has requests with gaps of a gamma-like law: exponential ones to a power.
func workload(n int, power float64, seed uint64) *trace.Workload {
	rng := rand.New(rand.NewPCG(seed, 1))
	w := &trace.Workload{Adapters: trace.Names(4, []int{8})}
	at := 3.5
	for i := range n {
		w.Requests = append(w.Requests, trace.Request{ID: int64(i), Arrival: at, Adapter: int32(i % 4),
			Prompt: int32(i + 1), Output: 7})
		at += math.Pow(rng.ExpFloat64(), power)
	}
	return w
}

func times(t interface{ Fatal(...any) }, w *trace.Workload, o Options) []trace.Request {
	got, err := trace.Collect(Times(w.Source(), o))
	if err != nil {
		t.Fatal(err)
	}
	return got.Requests
}

func gapsOf(rs []trace.Request) (gaps []float64) {
	for i := 1; i < len(rs); i++ {
		gaps = append(gaps, rs[i].Arrival-rs[i-1].Arrival)
	}
	return gaps
}

// Whatever the factors: requests keep their order, ids and contents; rate
// changes the length of the workload as it says, and cv does not change it.
func TestTimesKeepRequests(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := workload(rapid.IntRange(1, 5000).Draw(t, "n"), rapid.Float64Range(0, 2).Draw(t, "power"),
			rapid.Uint64().Draw(t, "seed"))
		o := Options{Rate: rapid.Float64Range(0.1, 10).Draw(t, "rate"), CV: rapid.Float64Range(0.1, 1).Draw(t, "cv")}
		got := times(t, w, o)
		if len(got) != len(w.Requests) {
			t.Fatalf("%d requests, want %d", len(got), len(w.Requests))
		}
		for i, r := range got {
			if i > 0 && r.Arrival < got[i-1].Arrival {
				t.Fatalf("request %d arrives at %v, before the one before (%v)", i, r.Arrival, got[i-1].Arrival)
			}
			if r.Arrival = w.Requests[i].Arrival; r != w.Requests[i] {
				t.Fatalf("request %d is %+v, want %+v", i, r, w.Requests[i])
			}
		}
		for _, i := range []int{0, len(got) - 1} {
			if want := w.Requests[i].Arrival / o.Rate; math.Abs(got[i].Arrival-want) > 1e-9*want {
				t.Fatalf("request %d arrives at %v, want %v", i, got[i].Arrival, want)
			}
		}
	})
}

// The coefficient of variation of the gaps is multiplied, to 2 %: the rates of
// blocks, which stay, have a part in it.
func TestCVIsMultiplied(t *testing.T) {
	for _, power := range []float64{0.5, 1, 1.5} {
		w := workload(20*Block+77, power, 5)
		_, was, _ := moments(gapsOf(w.Requests))
		for _, factor := range []float64{0.25, 0.5, 0.9, 1.1, 1.5, 2, 3} {
			_, is, _ := moments(gapsOf(times(t, w, Options{CV: factor})))
			if math.Abs(is/was/factor-1) > 0.02 {
				t.Errorf("power %v, factor %v: the coefficient of variation is %.4f, was %.4f", power, factor, is, was)
			}
		}
	}
}

// A rate that changes over the day stays as it is.
func TestCVKeepsSlowChanges(t *testing.T) {
	w := workload(30*Block, 1, 9)
	for i := range w.Requests {
		x := &w.Requests[i]
		x.Arrival += 3000 * math.Sin(x.Arrival/5000) * 0.9
	}
	slices.SortFunc(w.Requests, func(a, b trace.Request) int { return int(a.Arrival) - int(b.Arrival) })
	got := times(t, w, Options{CV: 2.5})
	for i := Block - 1; i < len(got); i += Block {
		if d := math.Abs(got[i].Arrival - w.Requests[i].Arrival); d > 1e-6 {
			t.Fatalf("request %d moved by %v s", i, d)
		}
	}
}

func TestCVOfSpecialGaps(t *testing.T) {
	at := func(ts ...float64) *trace.Workload {
		w := &trace.Workload{}
		for i, x := range ts {
			w.Requests = append(w.Requests, trace.Request{ID: int64(i), Arrival: x})
		}
		return w
	}
	for name, w := range map[string]*trace.Workload{"equal gaps": at(0, 1, 2, 3, 4), "all at once": at(2, 2, 2),
		"one request": at(7), "none": at()} {
		for _, factor := range []float64{0.5, 4} {
			if got := times(t, w, Options{CV: factor}); !slices.Equal(got, append([]trace.Request{}, w.Requests...)) {
				t.Errorf("%s times %v: %v", name, factor, got)
			}
		}
	}
	if _, err := trace.Collect(Times(at(0, 0, 0, 0, 9).Source(), Options{CV: 2})); err == nil ||
		!strings.Contains(err.Error(), "can reach at most 1.73") {
		t.Errorf("a burst that holds everything: %v", err)
	}
	got := times(t, at(0, 0, 0, 2, 4, 4, 4, 6, 9), Options{CV: 1.2}) // times in whole seconds
	for i := 1; i < len(got); i++ {
		if got[i].Arrival < got[i-1].Arrival {
			t.Fatal(got)
		}
	}
}
