package autoscale

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"testing"

	"lorasim/internal/testutil"
	"lorasim/sim/tick"
	"lorasim/trace"
)

// wants is a need that is given.
type wants []float64

func (w *wants) Need(Look) float64 {
	n := (*w)[0]
	*w = (*w)[1:]
	return n
}

// Kubernetes' rule, by hand: a look every 15 s, of 10 % tolerance and with 60 s until
// there may be fewer. The cluster follows at once.
func TestAutoscaler(t *testing.T) {
	nan := math.NaN()
	for name, c := range map[string]struct {
		start int
		need  []float64
		want  []int
	}{
		"rounds up":               {2, []float64{2.3, 3.31}, []int{3, 4}},
		"within the tolerance":    {10, []float64{10.9, 11, 11.01, 10.9}, []int{10, 10, 12, 12}},
		"within it for long":      {10, []float64{9, 9, 9, 9, 9, 9}, []int{10, 10, 10, 10, 10, 10}},
		"not known":               {3, []float64{nan, nan, 4}, []int{3, 3, 4}},
		"doubles at most":         {8, []float64{90, 90, 17}, []int{16, 32, 32}},
		"by 4 where that is more": {1, []float64{90, 90, 12}, []int{5, 10, 12}},
		// the start counts as a look at 0 s; that of 30 s says 4, until 90 s
		"fewer only later": {4, []float64{2, 4, 1, 2, 1.2, 1, 1}, []int{4, 4, 4, 4, 4, 2, 2}},
		"none":             {2, []float64{0, 0, 0, 0, 0}, []int{2, 2, 2, 0, 0}},
		"much":             {1, []float64{math.Inf(1), 1e300}, []int{5, 10}},
	} {
		need := wants(c.need)
		a, n := &Autoscaler{Need: &need, Tolerance: 0.1, Stabilize: 60}, c.start
		var got []int
		for i := range c.need {
			n = a.Want(Look{Now: float64(15 * (i + 1)), Workers: n})
			got = append(got, n)
			n = max(n, 1)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, expected %v", name, got, c.want)
		}
	}
}

// Within 15 s the cluster doubles once, or gains 4, however often it is looked at: the number 15 s ago counts.
func TestAutoscalerLooksOften(t *testing.T) {
	need := wants{90, 90, 90, 90, 90}
	a, n := &Autoscaler{Need: &need, Stabilize: 60}, 1
	for i, want := range []int{5, 5, 5, 10, 10} { // at 20 s, 10 s ago it had 5
		if n = a.Want(Look{Now: float64(5 * (i + 1)), Workers: n}); n != want {
			t.Errorf("%d workers at %d s, expected %d", n, 5*(i+1), want)
		}
	}
}

// A look counts for less than the stabilization time, also where that is shorter than the time of growth.
func TestAutoscalerStabilizesBriefly(t *testing.T) {
	need := wants{6, 1}
	a, n := &Autoscaler{Need: &need, Stabilize: 10}, 4
	for i, want := range []int{6, 1} {
		if n = a.Want(Look{Now: float64(10 * (i + 1)), Workers: n}); n != want {
			t.Errorf("%d workers at %d s, expected %d", n, 10*(i+1), want)
		}
	}
}

func TestReactive(t *testing.T) {
	if got := (Reactive{6}).Need(Look{Workers: 3, InFlight: 27}); got != 4.5 {
		t.Errorf("27 requests in flight need %v workers for 6, expected 4.5", got)
	}
}

// By Little's law: 6 requests that take 3 s each are 2 a second.
func TestCapacity(t *testing.T) {
	given, learnt := Capacity{PerWorker: 2.5}, Capacity{Target: 6}
	if got := given.workers(10); got != 4 {
		t.Errorf("10 requests/s need %v workers of 2.5, expected 4", got)
	}
	if got := learnt.workers(10); !math.IsNaN(got) {
		t.Errorf("%v workers before any request has ended, expected NaN", got)
	}
	learnt.learn(Look{Ended: 4, Response: 3})
	learnt.learn(Look{})
	if got := learnt.workers(10); got != 5 {
		t.Errorf("10 requests/s need %v workers of 2, expected 5", got)
	}
	learnt.learn(Look{Ended: 1, Response: 6}) // 3 + 0.3 x 3 s
	testutil.Near(t, "workers", learnt.workers(10), 6.5, 1e-12)
}

func TestHolt(t *testing.T) {
	near := func(name string, got, want float64) {
		t.Helper()
		testutil.Near(t, name, got, want, 1e-12)
	}
	h := Holt{Alpha: 0.5, Beta: 0.5}
	h.Add(10)
	near("one value", h.Predict(3), 10)
	h.Add(14) // level 12, trend 1
	near("two", h.Predict(1), 13)
	near("two, later", h.Predict(4), 16)
	h.Add(5) // level (5+13)/2 = 9, trend (-3+1)/2 = -1
	near("three", h.Predict(2), 7)
	near("not below 0", h.Predict(20), 0)

	// a period of 10, 20, 30: level 20, season -10, 0, 10
	s := Holt{Alpha: 0.5, Beta: 0, Gamma: 0.5, Period: 3}
	for _, x := range []float64{10, 20, 30} {
		s.Add(x)
	}
	for k, want := range []float64{10, 20, 30, 10} {
		near("season", s.Predict(k+1), want)
	}
	s.Add(14) // level (14+10+20)/2 = 22, season of the first -10 + (14-22+10)/2 = -9
	near("next", s.Predict(1), 22)
	near("a period on", s.Predict(3), 13)
}

func TestForecast(t *testing.T) {
	f := &Forecast{Capacity: Capacity{PerWorker: 2}, Holt: Holt{Alpha: 1, Beta: 1}, Every: 10, ColdStart: 25}
	if got := f.Need(Look{Arrived: 40}); got != 2 {
		t.Errorf("%v workers for 4 requests/s, expected 2", got)
	}
	// 60 after 40: 80, 100, 120 and, after the 3 intervals that a start takes, 140
	if got := f.Need(Look{Arrived: 60}); got != 7 {
		t.Errorf("%v workers, expected 7", got)
	}
	// down to 50: 40, 30, ... of which the first is the most
	if got := f.Need(Look{Arrived: 50}); got != 2 {
		t.Errorf("%v workers, expected 2", got)
	}
}

func arrivals(at ...float64) *trace.Workload {
	w := &trace.Workload{}
	for i, x := range at {
		w.Requests = append(w.Requests, trace.Request{ID: int64(i), Arrival: x, Prompt: 1, Output: 1})
	}
	return w
}

func TestAheadChangesNothing(t *testing.T) {
	w := arrivals(0, 1, 9.5, 10, 12, 35, 40)
	a := &Ahead{Source: w.Source(), Every: 10 * tick.Second}
	for i, want := range map[int]int64{1: 2} { // before anything was read
		if got := a.Count(i); got != want {
			t.Errorf("interval %d: %d arrivals, expected %d", i, got, want)
		}
	}
	for i := range w.Requests {
		if r, err := a.Next(); err != nil || r != w.Requests[i] {
			t.Fatalf("request %d: %+v, %v", i, r, err)
		}
		for k, want := range []int64{3, 2, 0, 1, 1, 0} {
			if got := a.Count(k); got != want {
				t.Errorf("interval %d: %d arrivals, expected %d", k, got, want)
			}
		}
	}
	if _, err := a.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("%v at the end", err)
	}
	if len(a.read) != 0 {
		t.Errorf("%d requests are held at the end", len(a.read))
	}
}

func TestKnown(t *testing.T) {
	var at []float64
	for i, n := range []int{2, 2, 4, 8, 8, 0, 0, 0} { // arrivals in 10 s
		for k := range n {
			at = append(at, float64(10*i)+float64(k))
		}
	}
	k := &Known{Capacity: Capacity{PerWorker: 0.1}, Arrivals: &Ahead{Source: arrivals(at...).Source(),
		Every: 10 * tick.Second}, Every: 10, ColdStart: 10}
	// At 10 s the next interval is 1. Around it are 0 to 2 (there is none before) with
	// a mean of 8/3, around 2 are 0 to 3: 16/4. At 20 s: 16/4, 22/4; then 22/4, 20/4; 20/4, 16/4.
	for i, want := range []float64{4, 5.5, 5.5, 5, 4, 2, 0} {
		testutil.Near(t, fmt.Sprintf("look %d: need", i+1), k.Need(Look{Now: float64(10 * (i + 1))}), want, 1e-9)
	}
}
