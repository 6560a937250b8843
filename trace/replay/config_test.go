package replay

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"lorasim/trace"
	"lorasim/trace/internal/renewal"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// run replays a histogram to its end.
func run(t testing.TB, c Config, histogram [][]int64) []trace.Request {
	t.Helper()
	src, err := c.ReplayHistogram(trace.Names(len(histogram), nil), histogram)
	if err != nil {
		t.Fatal(err)
	}
	w, err := trace.Collect(src)
	if err != nil {
		t.Fatal(err)
	}
	return w.Requests
}

func forEachDistribution(t *testing.T, f func(t *testing.T, d string, cv float64)) {
	for _, d := range []string{renewal.Exponential, renewal.Gamma, renewal.Pareto, renewal.Weibull} {
		for _, cv := range []float64{0.3, 1, 4} {
			if d == renewal.Exponential && cv != 1 {
				continue
			}
			t.Run(fmt.Sprint(d, " cv ", cv), func(t *testing.T) { f(t, d, cv) })
		}
	}
}

func countByAdapter(rs []trace.Request, adapters int) []float64 {
	n := make([]float64, adapters)
	for _, r := range rs {
		n[r.Adapter]++
	}
	return n
}

func repeat(counts []int64, n int) [][]int64 {
	h := make([][]int64, len(counts))
	for k, c := range counts {
		for range n {
			h[k] = append(h[k], c)
		}
	}
	return h
}

// TestRatesAndShares: over many short intervals the number of requests is that
// of the total rate, and each adapter has its share of it.
func TestRatesAndShares(t *testing.T) {
	counts := []int64{1, 3, 0, 12, 4}
	forEachDistribution(t, func(t *testing.T, d string, cv float64) {
		c := Default()
		c.Interval, c.TotalRate, c.Distribution, c.CV, c.RateScale, c.Seed = 1, 2, d, []float64{cv}, 1.5, 11
		const intervals = 1440
		n := countByAdapter(run(t, c, repeat(counts, intervals)), len(counts))
		for k, count := range counts {
			// The number of arrivals of a renewal process varies by about CV
			// times its square root, and less in short intervals if CV > 1.
			want := 3.0 * 60 * intervals * float64(count) / 20
			if tolerance := 4 * max(cv, 1) * math.Sqrt(want); math.Abs(n[k]-want) > tolerance {
				t.Errorf("adapter %d has %v requests, expected %v within %v", k, n[k], want, tolerance)
			}
		}
	})
}

// TestCV measures the gaps of each adapter in one long interval.
func TestCV(t *testing.T) {
	for _, d := range []string{renewal.Gamma, renewal.Weibull} {
		c := Default()
		c.Interval, c.TotalRate, c.Distribution, c.CV = 6000, 1, d, []float64{0.375, 3}
		rs := run(t, c, [][]int64{{1}, {1}, {1}})
		last := []float64{-1, -1, -1}
		var n, sum, squares [3]float64
		for _, r := range rs {
			if last[r.Adapter] >= 0 {
				gap := r.Arrival - last[r.Adapter]
				n[r.Adapter]++
				sum[r.Adapter] += gap
				squares[r.Adapter] += gap * gap
			}
			last[r.Adapter] = r.Arrival
		}
		for k, want := range []float64{0.375, 3, 0.375} {
			mean := sum[k] / n[k]
			got := math.Sqrt(squares[k]/n[k]-mean*mean) / mean
			if math.Abs(got-want) > 0.03*want {
				t.Errorf("%s: adapter %d has CV %v, expected %v within 3 %%", d, k, got, want)
			}
		}
	}
}

// TestOwnRates: without a total rate the window gives as many requests as the
// trace had, silent intervals included.
func TestOwnRates(t *testing.T) {
	c := Default()
	c.Interval = 10
	rs := run(t, c, [][]int64{{4000, 0, 100}, {1000, 0, 300}})
	perInterval := make([]float64, 3)
	for _, r := range rs {
		perInterval[int(r.Arrival/600)]++
	}
	for i, want := range []float64{5000, 0, 400} {
		if math.Abs(perInterval[i]-want) > 4*math.Sqrt(want) {
			t.Errorf("interval %d has %v requests, expected %v within 4 times its root", i, perInterval[i], want)
		}
	}
}

// TestEmptyIntervals: with a total rate, intervals without traffic take no time.
func TestEmptyIntervals(t *testing.T) {
	c := Default()
	c.Interval, c.TotalRate = 10, 5
	with := run(t, c, [][]int64{{0, 7, 0, 0, 3}, {0, 1, 0, 0, 9}})
	if last := with[len(with)-1].Arrival; last < 1190 || last >= 1200 {
		t.Errorf("the last of two intervals with traffic ends with a request at %v s, expected just before 1200 s",
			last)
	}
}

// TestShortLastInterval: the last interval of a window may be shorter.
func TestShortLastInterval(t *testing.T) {
	c := Default()
	c.Interval, c.TotalRate = 10, 5
	src, err := c.source(trace.Names(1, nil), [][]int64{{1, 1}}, 15)
	if err != nil {
		t.Fatal(err)
	}
	w, err := trace.Collect(src)
	if err != nil {
		t.Fatal(err)
	}
	if last := w.Requests[len(w.Requests)-1].Arrival; last < 890 || last >= 900 {
		t.Errorf("the last request of 15 minutes is at %v s", last)
	}
}

// TestAdaptersAreIndependent: more traffic of one adapter leaves the requests
// of the others where they were.
func TestAdaptersAreIndependent(t *testing.T) {
	c := Default()
	c.CV = []float64{2}
	times := func(h [][]int64) (ts []float64) {
		for _, r := range run(t, c, h) {
			if r.Adapter == 0 {
				ts = append(ts, r.Arrival)
			}
		}
		return ts
	}
	alone, together := times([][]int64{{50, 70}, {0, 0}}), times([][]int64{{50, 70}, {10, 900}})
	if len(alone) < 20 {
		t.Fatalf("only %d requests", len(alone))
	}
	if d := cmp.Diff(alone, together); d != "" {
		t.Error(d)
	}
}

func TestStreamsDiffer(t *testing.T) {
	seen := map[uint64]string{}
	for seed := range uint64(8) {
		for a := range uint64(8) {
			for b := range uint64(8) {
				var pcg rand.PCG
				seedPCG(&pcg, seed, a, b)
				v := pcg.Uint64()
				if other := seen[v]; other != "" {
					t.Fatalf("streams %d %d %d and %s begin alike", seed, a, b, other)
				}
				seen[v] = fmt.Sprint(seed, a, b)
			}
		}
	}
}

// TestSpeed: the trace's own requests come closer together.
func TestSpeed(t *testing.T) {
	c := Default()
	h := [][]int64{{300, 50}, {100, 20}}
	slow := run(t, c, h)
	c.Speed = 100
	fast := run(t, c, h)
	if len(slow) != len(fast) {
		t.Fatalf("%d requests and %d at another speed", len(slow), len(fast))
	}
	for i := range slow {
		if math.Abs(slow[i].Arrival-100*fast[i].Arrival) > 1e-9*slow[i].Arrival || slow[i].Adapter != fast[i].Adapter {
			t.Fatalf("request %d: %+v and %+v", i, slow[i], fast[i])
		}
	}
	// A total rate is kept.
	c.TotalRate, c.Speed = 10, 2
	if n := float64(len(run(t, c, h))); math.Abs(n-36000) > 4*math.Sqrt(36000) {
		t.Errorf("%v requests at 10/s in half of 2 hours, expected 36000", n)
	}
}

// TestWindowIsRepeated: requests beyond the window come from new passes.
func TestWindowIsRepeated(t *testing.T) {
	c := Default()
	c.Interval, c.Requests = 1, 5000
	rs := run(t, c, [][]int64{{100, 0}, {0, 100}})
	for _, r := range rs {
		if want := int32(math.Mod(r.Arrival/60, 2)); r.Adapter != want {
			t.Fatalf("%+v, expected adapter %d", r, want)
		}
	}
	if passes := rs[len(rs)-1].Arrival / 120; math.Abs(passes-25) > 4*math.Sqrt(5000)/200 {
		t.Errorf("%v passes, expected about 25", passes)
	}
	if rs[10].Arrival+120 == rs[10+200].Arrival {
		t.Error("the second pass repeats the first")
	}
}

// TestDrift: after each period everybody takes over the traffic of the adapter
// that ranked before it.
func TestDrift(t *testing.T) {
	h := [][]int64{{100}, {400}, {200}}
	c := Default()
	c.TotalRate = 3
	before := run(t, c, h)
	c.Drift = 100
	after := run(t, c, h)
	ranking := []int32{1, 2, 0}
	rank := []int{2, 0, 1}
	if len(before) != len(after) {
		t.Fatalf("%d requests without drift and %d with", len(before), len(after))
	}
	for i, r := range after {
		periods := int(r.Arrival / 100)
		want := before[i]
		want.Adapter = ranking[(rank[want.Adapter]+periods)%3]
		if r != want {
			t.Fatalf("request %d after %d periods is %+v, expected %+v", i, periods, r, want)
		}
	}
}

func TestLocality(t *testing.T) {
	// Certain repetition of a single adapter.
	c := Default()
	c.Locality, c.Recent = 1, 1
	if n := countByAdapter(run(t, c, [][]int64{{50}, {200}, {200}}), 3); n[0]+n[1]+n[2] != max(n[0], n[1], n[2]) {
		t.Errorf("requests by adapter %v, expected all for one", n)
	}
}

func drawConfig(t *rapid.T) (Config, [][]int64) {
	adapters := rapid.IntRange(1, 6).Draw(t, "adapters")
	intervals := rapid.IntRange(1, 5).Draw(t, "intervals")
	h := make([][]int64, adapters)
	for k := range h {
		h[k] = rapid.SliceOfN(rapid.Int64Range(0, 60), intervals, intervals).Draw(t, "counts")
	}
	h[0][0]++ // not all zero
	c := Default()
	c.Interval = rapid.IntRange(1, 90).Draw(t, "interval")
	c.Distribution = rapid.SampledFrom(
		[]string{renewal.Exponential, renewal.Gamma, renewal.Pareto, renewal.Weibull}).Draw(t, "distribution")
	c.CV = rapid.SliceOfN(rapid.Float64Range(0.05, 10), 0, 3).Draw(t, "cv")
	c.TotalRate = rapid.SampledFrom([]float64{0, 0.05, 1}).Draw(t, "rate")
	c.RateScale = rapid.Float64Range(0.5, 2).Draw(t, "rate scale")
	c.Speed = rapid.Float64Range(0.5, 100).Draw(t, "speed")
	c.Seed = rapid.Uint64().Draw(t, "seed")
	c.Requests = rapid.Int64Range(1, 400).Draw(t, "requests")
	return c, h
}

// TestReplayProperties: as many requests as asked for, in order, numbered, of
// adapters with traffic, and the same ones each time.
func TestReplayProperties(t *testing.T) {
	outer := t
	rapid.Check(t, func(t *rapid.T) {
		c, h := drawConfig(t)
		rs := run(outer, c, h)
		if int64(len(rs)) != c.Requests {
			t.Fatalf("%d requests, expected %d", len(rs), c.Requests)
		}
		before := 0.0
		for i, r := range rs {
			if r.ID != int64(i) || !(r.Arrival >= before) || math.IsInf(r.Arrival, 1) || total(h[r.Adapter]) == 0 {
				t.Fatalf("request %d after %v s: %+v", i, before, r)
			}
			before = r.Arrival
		}
		if d := cmp.Diff(rs, run(outer, c, h)); d != "" {
			t.Fatalf("another run differs: %s", d)
		}
		// A pass ends in time, and drift and locality change adapters alone.
		c.Requests = 0
		pass := run(outer, c, h)
		if n := len(pass); n > 0 && pass[n-1].Arrival >= float64(60*c.Interval*len(h[0]))/c.Speed*(1+1e-12) {
			t.Fatalf("a request at %v s after the window", pass[n-1].Arrival)
		}
		c.Drift, c.Locality = 30, 0.5
		other := run(outer, c, h)
		if len(other) != len(pass) {
			t.Fatalf("%d requests, with drift and locality %d", len(pass), len(other))
		}
		for i := range pass {
			if other[i].Arrival != pass[i].Arrival {
				t.Fatalf("request %d at %v s, with drift and locality at %v s", i, pass[i].Arrival, other[i].Arrival)
			}
		}
	})
}

func TestDLoRAProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, h := drawConfig(t)
		for i := range h[0] {
			h[0][i]++ // no interval without traffic
		}
		d := DLoRA{
			Requests: int(c.Requests), Distribution: "gamma", Interval: c.Interval, TotalRate: c.TotalRate + 0.1,
			CV: rapid.Float64Range(0.1, 5).Draw(t, "cv"),
		}
		src, s, err := d.ReplayHistogram(trace.Names(len(h), nil), h)
		if err != nil {
			t.Fatal(err)
		}
		w, err := trace.Collect(src)
		if err != nil || len(w.Requests) != d.Requests || src.Len() != 0 {
			t.Fatalf("%d requests, %v; expected %d", len(w.Requests), err, d.Requests)
		}
		counts, before := make([]int, len(h)), 0.0
		for i, r := range w.Requests {
			if r.ID != int64(i) || !(r.Arrival >= before) || total(h[r.Adapter]) == 0 {
				t.Fatalf("request %d after %v s: %+v", i, before, r)
			}
			before = r.Arrival
			counts[r.Adapter]++
		}
		if d := cmp.Diff(counts, s.Counts); d != "" || before != s.LastArrival {
			t.Fatalf("summary: %s; last arrival %v, was %v", d, s.LastArrival, before)
		}
	})
}
