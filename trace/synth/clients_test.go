package synth

import (
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"lorasim/internal/testutil"
	"lorasim/trace"
)

// plain is n requests at time 0 over k adapters.
func plain(n, k int) *trace.Workload {
	w := &trace.Workload{Adapters: trace.Names(k, []int{8})}
	for i := range n {
		w.Requests = append(w.Requests, trace.Request{ID: int64(i), Adapter: trace.BaseModel})
	}
	return w
}

func drain(t *testing.T, src trace.Source, err error) []trace.Request {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if src.Len() < 0 {
		t.Error("the number of requests is not known any more")
	}
	var rs []trace.Request
	for {
		r, err := src.Next()
		if errors.Is(err, io.EOF) {
			return rs
		}
		if err != nil {
			t.Fatal(err)
		}
		rs = append(rs, r)
	}
}

// paceOf is the gaps before each request, the first from time 0, and their mean
// and coefficient of variation.
func paceOf(rs []trace.Request) (gaps []float64, mean, cv float64) {
	at, sum, squares := 0.0, 0.0, 0.0
	for _, r := range rs {
		g := r.Arrival - at
		gaps, at = append(gaps, g), r.Arrival
		sum, squares = sum+g, squares+g*g
	}
	n := float64(len(rs))
	mean = sum / n
	return gaps, mean, math.Sqrt(max(squares/n-mean*mean, 0)) / mean
}

func TestPace(t *testing.T) {
	const n = 20000
	for _, c := range []struct {
		name string
		p    Pace
		cv   float64
	}{
		{"exponential", Pace{Rate: 4, Burstiness: 1}, 1},
		{"in bursts", Pace{Rate: 4, Burstiness: 0.25}, 2},
		{"even", Pace{Rate: 4, Burstiness: 4}, 0.5},
		{"equal", Pace{Rate: 4, Burstiness: inf}, 0},
	} {
		src, err := Paced(plain(n, 1).Source(), c.p, n, 3)
		rs := drain(t, src, err)
		_, _, cv := paceOf(rs)
		testutil.Near(t, c.name+": variation", cv, c.cv, 0.05*c.cv+1e-9)
		// scaled to the rate, whatever was drawn
		testutil.Near(t, c.name+": the last request", rs[n-1].Arrival, n/4.0, 1e-6)
		if rs[0].Arrival == 0 {
			t.Errorf("%s: the first request comes at once", c.name)
		}
	}
	// as sglang sends: at once, then exponential gaps whose sum is left to chance
	src, err := Paced(plain(n, 1).Source(), Pace{Rate: 4, Burstiness: 1, FromZero: true}, 0, 3)
	rs := drain(t, src, err)
	_, mean, cv := paceOf(rs)
	testutil.Near(t, "sglang: mean gap", mean, 0.25, 0.01)
	testutil.Near(t, "sglang: variation", cv, 1, 0.05)
	if rs[0].Arrival != 0 || rs[n-1].Arrival == n/4.0 {
		t.Errorf("sglang: from %v to %v", rs[0].Arrival, rs[n-1].Arrival)
	}
	src, err = Paced(plain(3, 1).Source(), Pace{Rate: inf, Burstiness: 1}, 3, 3)
	if rs := drain(t, src, err); rs[2].Arrival != 0 {
		t.Errorf("rate inf: %v", rs)
	}
}

// With equal gaps the times of a ramp-up can be written down: the gap before
// request i is 1/r_i, also before the first.
func TestRamp(t *testing.T) {
	for _, c := range []struct {
		strategy string
		rates    []float64
	}{
		{LinearRamp, []float64{2, 4, 6, 8, 10}},
		{ExponentialRamp, []float64{2, 2 * math.Pow(5, 0.25), 2 * math.Sqrt(5), 2 * math.Pow(5, 0.75), 10}},
	} {
		src, err := Paced(plain(5, 1).Source(), Pace{Rate: 1, Burstiness: inf, Ramp: Ramp{c.strategy, 2, 10}}, 5, 1)
		gaps, _, _ := paceOf(drain(t, src, err))
		for i, rate := range c.rates {
			testutil.Near(t, c.strategy, gaps[i], 1/rate, 1e-12)
		}
	}
	// gaps that vary have these means, and are not scaled
	const n = 40000
	src, err := Paced(plain(n, 1).Source(), Pace{Burstiness: 1, Ramp: Ramp{LinearRamp, 1, 3}}, n, 1)
	rs := drain(t, src, err)
	// the integral of 1/(1+2x)
	testutil.Near(t, "the time of a linear ramp-up", rs[n-1].Arrival, n*math.Log(3)/2, 0.02*n)
	if rs[n-1].Arrival == math.Round(rs[n-1].Arrival) {
		t.Error("the times are scaled")
	}
}

func TestPaceErrors(t *testing.T) {
	_, err := Paced(plain(1, 1).Source(), Pace{Rate: 1, Burstiness: 1}, 0, 1)
	if err == nil || !strings.Contains(err.Error(), "depends on the number of req") {
		t.Errorf("error %v", err)
	}
}

func TestAssigned(t *testing.T) {
	const n, k = 60000, 4
	for _, c := range []struct {
		distribution string
		alpha        float64
		shares       [k]float64
	}{
		{UniformAdapters, 1.5, [k]float64{.25, .25, .25, .25}},
		{SkewedAdapters, 2, [k]float64{8. / 15, 4. / 15, 2. / 15, 1. / 15}},
		{DistinctAdapters, 1.5, [k]float64{.25, .25, .25, .25}},
	} {
		rs := drain(t, Assigned(plain(n, k).Source(), c.distribution, c.alpha, 7), nil)
		for a, share := range c.shares {
			got := count(rs, func(r trace.Request) bool { return r.Adapter == int32(a) }) / n
			testutil.Near(t, c.distribution, got, share, 0.01)
		}
		if c.distribution == DistinctAdapters {
			for i, r := range rs {
				if int(r.Adapter) != i%k {
					t.Fatalf("request %d has adapter %d", i, r.Adapter)
				}
			}
		}
	}
}
