package synth

import (
	"math"
	"slices"
	"testing"

	"lorasim/internal/testutil"
	"lorasim/trace"
)

// within tests whether a request arrives in [lo, hi).
func within(lo, hi float64) func(trace.Request) bool {
	return func(r trace.Request) bool { return r.Arrival >= lo && r.Arrival < hi }
}

// Poisson counts: the tolerance is five standard deviations.
func nearPoisson(t *testing.T, what string, got, want float64) {
	t.Helper()
	testutil.Near(t, what, got, want, 5*math.Sqrt(want))
}

func TestOnOffCounts(t *testing.T) {
	c := Default()
	c.Rate, c.Duration = 200, 1000
	phase := func(off bool) func(trace.Request) bool {
		return func(r trace.Request) bool { return (math.Mod(r.Arrival, 40) >= 10) == off }
	}
	c.Pattern.OnOff = OnOff{On: 10, Off: 30, Factor: 0.1}
	rs := generate(t, c)
	nearPoisson(t, "requests while on", count(rs, phase(false)), 200*250)
	nearPoisson(t, "requests while off", count(rs, phase(true)), 0.1*200*750)

	c.Pattern.OnOff.Factor = 0
	rs = generate(t, c)
	nearPoisson(t, "requests while on", count(rs, phase(false)), 200*250)
	testutil.Near(t, "requests while silent", count(rs, phase(true)), 0, 0)
}

func TestDiurnalCounts(t *testing.T) {
	c := Default()
	c.Rate, c.Duration = 100, 1000
	c.Pattern.Diurnal = Diurnal{Period: 1000, Amplitude: 0.8}
	rs := generate(t, c)
	half := 100 * 0.8 * 1000 / math.Pi // integral of the sine over half a period
	nearPoisson(t, "requests by day", count(rs, within(0, 500)), 100*500+half)
	nearPoisson(t, "requests by night", count(rs, within(500, 1000)), 100*500-half)
}

func TestFlashCrowdOnAll(t *testing.T) {
	c := Default()
	c.Rate, c.Duration = 100, 300
	c.Pattern.Flash = Flash{At: 100, Duration: 50, Factor: 6, Adapter: AllAdapters}
	for _, total := range []bool{false, true} {
		c.Arrivals.Total = total
		rs := generate(t, c)
		nearPoisson(t, "requests before", count(rs, within(0, 100)), 100*100)
		nearPoisson(t, "requests within", count(rs, within(100, 150)), 6*100*50)
		nearPoisson(t, "requests after", count(rs, within(150, 300)), 100*150)
	}
}

// A crowd on one adapter adds requests to it and leaves all others as they are.
func TestFlashCrowdOnOneAdapter(t *testing.T) {
	for _, total := range []bool{false, true} {
		c := Default()
		c.Rate, c.Duration = 400, 300
		c.Arrivals = Arrivals{Dist: Gamma, CV: []float64{2}, Total: total}
		usual := generate(t, c)
		c.Pattern.Flash = Flash{At: 100, Duration: 50, Factor: 10, Adapter: 5}
		crowded := generate(t, c)

		shares, _ := c.Popularity.Shares(c.Adapters)
		expected := 9 * 400 * shares[5] * 50
		testutil.Near(t, "requests of the crowd", float64(len(crowded)-len(usual)), expected, 5*2*math.Sqrt(expected))

		i := 0
		for _, r := range crowded {
			if i < len(usual) && r.Arrival == usual[i].Arrival && r.Adapter == usual[i].Adapter {
				i++
			} else if r.Adapter != 5 || r.Arrival < 100 || r.Arrival >= 150 {
				t.Fatalf("total %v: %+v is neither usual nor of the crowd", total, r)
			}
		}
		if i != len(usual) {
			t.Errorf("total %v: %d of %d usual requests are left", total, i, len(usual))
		}
	}
}

// A crowd on one adapter during an on-off pattern multiplies what is there.
func TestFlashCrowdFollowsThePattern(t *testing.T) {
	c := Default()
	c.Adapters, c.Rate, c.Duration = 2, 200, 400
	c.Popularity = Popularity{Kind: Uniform}
	c.Pattern = Pattern{
		OnOff: OnOff{On: 10, Off: 10, Factor: 0.2},
		Flash: Flash{At: 100, Duration: 200, Factor: 3, Adapter: 1},
	}
	on := func(r trace.Request) bool { return math.Mod(r.Arrival, 20) < 10 }
	rs := generate(t, c)
	nearPoisson(t, "crowded, on",
		count(rs, func(r trace.Request) bool { return r.Adapter == 1 && on(r) && within(100, 300)(r) }), 3*100*100)
	nearPoisson(t, "crowded, off",
		count(rs, func(r trace.Request) bool { return r.Adapter == 1 && !on(r) && within(100, 300)(r) }), 0.2*3*100*100)
	nearPoisson(t, "not crowded", count(rs, func(r trace.Request) bool { return r.Adapter == 0 }), 1.2*100*200)
}

func TestDrift(t *testing.T) {
	for _, total := range []bool{false, true} {
		c := Default()
		c.Adapters, c.Rate, c.Duration, c.Drift = 5, 200, 700, 100
		c.Popularity = Popularity{Kind: Explicit, Weights: []float64{6, 1, 1, 1, 1}}
		c.Arrivals.Total = total
		rs := generate(t, c)
		for epoch := range 7 {
			lo := float64(epoch) * 100
			for a := range int32(5) {
				want := 0.1
				if int(a) == epoch%5 {
					want = 0.6
				}
				n := count(rs, func(r trace.Request) bool { return r.Adapter == a && within(lo, lo+100)(r) })
				nearPoisson(t, "requests of an adapter in an epoch", n, want*200*100)
			}
		}
	}
}

// repeats is the part of the requests whose adapter is among the last window
// distinct ones before them.
func repeats(rs []trace.Request, window int) float64 {
	hits := 0.0
	for i, r := range rs {
		distinct := map[int32]bool{}
		for j := i - 1; j >= 0 && len(distinct) < window; j-- {
			distinct[rs[j].Adapter] = true
		}
		if distinct[r.Adapter] {
			hits++
		}
	}
	return hits / float64(len(rs))
}

func TestLocality(t *testing.T) {
	c := Default()
	c.Adapters, c.Requests, c.Rate = 1000, 50_000, 100
	c.Popularity = Popularity{Kind: Uniform}
	for _, p := range []float64{0, 0.3, 0.9} {
		c.Locality = Locality{P: p, Window: 4}
		// A request that does not repeat draws one of the window by chance.
		testutil.Near(t, "repetition", repeats(generate(t, c), 4), p+(1-p)*4/1000, 0.01)
	}
	// Repetitions use each place of the window alike, the latest to the oldest.
	c.Locality = Locality{P: 0.5, Window: 3}
	rs := generate(t, c)
	var places [3]float64
	var window []int32 // distinct adapters, the latest first
	for _, r := range rs {
		if place := slices.Index(window, r.Adapter); place >= 0 {
			places[place]++
			window = slices.Delete(window, place, place+1)
		}
		window = slices.Insert(window, 0, r.Adapter)
		window = window[:min(len(window), 3)]
	}
	for _, n := range places {
		testutil.Near(t, "part of the repetitions", n/float64(len(rs)), (0.5+0.5*3/1000)/3, 0.01)
	}

	c.Locality = Locality{P: 1, Window: 3}
	rs = generate(t, c)
	for _, r := range rs {
		if r.Adapter != rs[0].Adapter {
			t.Fatalf("probability 1: %+v does not repeat %+v", r, rs[0])
		}
	}
	// Window 1 keeps the shares.
	c.Adapters, c.Requests, c.Popularity = 4, 400_000, Popularity{Kind: Explicit, Weights: []float64{6, 2, 1, 1}}
	c.Locality = Locality{P: 0.5, Window: 1}
	rs = generate(t, c)
	for a, want := range []float64{0.6, 0.2, 0.1, 0.1} {
		got := count(rs, func(r trace.Request) bool { return r.Adapter == int32(a) }) / float64(len(rs))
		testutil.Near(t, "share", got, want, 0.01)
	}
}

func TestRanks(t *testing.T) {
	ranks := func(spec string, k int) []int {
		r, err := ParseRanks(spec)
		if err != nil {
			t.Fatal(err)
		}
		return r.For(k, 1)
	}
	if got := ranks("", 3); got != nil {
		t.Errorf("no ranks: %v", got)
	}
	want := []int{8, 16, 64, 8, 16}
	for i, got := range ranks("8,16,64", 5) {
		if got != want[i] {
			t.Errorf("rank %d in turn is %d, expected %d", i, got, want[i])
		}
	}
	counts := map[int]float64{}
	for _, r := range ranks("drawn:8=3,64=1", 10_000) {
		counts[r]++
	}
	testutil.Near(t, "part of rank 8", counts[8]/10_000, 0.75, 0.025)
	testutil.Near(t, "part of rank 64", counts[64]/10_000, 0.25, 0.025)
	counts = map[int]float64{}
	for _, r := range ranks("drawn:8,16", 10_000) {
		counts[r]++
	}
	testutil.Near(t, "part of rank 16", counts[16]/10_000, 0.5, 0.025)
}
