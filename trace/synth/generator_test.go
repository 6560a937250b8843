package synth

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"gonum.org/v1/gonum/stat"
	"pgregory.net/rapid"

	"lorasim/internal/testutil"
	"lorasim/trace"
)

func TestRequestsAreSortedAndRepeatable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Config{
			Adapters: rapid.IntRange(4, 60).Draw(t, "adapters"),
			Popularity: Popularity{
				Kind: rapid.SampledFrom([]string{Uniform, Zipf, PowerLaw, MAF2}).Draw(t, "popularity"), Param: 0.5,
			},
			Arrivals: Arrivals{
				Dist:  rapid.SampledFrom([]string{Gamma, Exponential, Weibull, Pareto, Deterministic}).Draw(t, "dist"),
				CV:    rapid.SliceOfN(rapid.SampledFrom([]float64{0.01, 0.5, 1, 4, 100}), 1, 3).Draw(t, "cv"),
				Total: rapid.Bool().Draw(t, "total"),
			},
			Rate:    rapid.Float64Range(0.1, 1000).Draw(t, "rate"),
			Pattern: drawPattern(t),
			Locality: Locality{
				P:      rapid.SampledFrom([]float64{0, 0.3, 1}).Draw(t, "locality"),
				Window: rapid.IntRange(1, 8).Draw(t, "window"),
			},
			Requests: 300,
			Seed:     rapid.Uint64().Draw(t, "seed"),
		}
		if rapid.Bool().Draw(t, "drifts") {
			c.Drift = rapid.Float64Range(0.1, 100).Draw(t, "drift")
		}
		first, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		second, _ := New(c)
		last := 0.0
		for i := range c.Requests {
			r, err := first.Next()
			if err != nil {
				t.Fatal(err)
			}
			if r.ID != i || !(r.Arrival >= last) || math.IsInf(r.Arrival, 0) || r.Adapter < 0 ||
				int(r.Adapter) >= c.Adapters {
				t.Fatalf("request %d after %v s is %+v", i, last, r)
			}
			if again, _ := second.Next(); again != r {
				t.Fatalf("request %d is %+v, then %+v", i, r, again)
			}
			last = r.Arrival
		}
		if _, err := first.Next(); err == nil {
			t.Fatalf("more than %d requests", c.Requests)
		}
	})
}

// Whatever the CV and however short the run, the expected number of requests is
// rate times duration. (Processes that start at an arrival would yield another
// (cv^2-1)/2 = 7.5 per adapter at cv 4.)
func TestRateIsUnbiasedFromTheStart(t *testing.T) {
	for _, arrivals := range []string{
		"gamma:4", "gamma:0.5", "weibull:3", "deterministic", "total-gamma:4", "exponential", "gamma:4,0.5",
	} {
		for _, duration := range []float64{1, 20} {
			c := Config{Adapters: 5, Popularity: Popularity{Kind: Zipf, Param: 1}, Rate: 3, Duration: duration}
			c.Arrivals, _ = ParseArrivals(arrivals)
			counts := make([]float64, 4000)
			for seed := range counts {
				c.Seed = uint64(seed)
				counts[seed] = float64(len(generate(t, c)))
			}
			mean, std := stat.MeanStdDev(counts, nil)
			testutil.Near(t, arrivals+" mean count", mean, c.Rate*duration, 4*std/math.Sqrt(float64(len(counts))))
		}
	}
}

// gapsOf returns the gaps between the requests of one adapter, or of all (-1).
func gapsOf(rs []trace.Request, adapter int32) []float64 {
	var gaps []float64
	last := math.NaN()
	for _, r := range rs {
		if adapter >= 0 && r.Adapter != adapter {
			continue
		}
		if !math.IsNaN(last) {
			gaps = append(gaps, r.Arrival-last)
		}
		last = r.Arrival
	}
	return gaps
}

// A list of CVs is used by the adapters in turn, and a crowd on one adapter has the adapter's.
func TestCVsByAdapter(t *testing.T) {
	c := Default()
	c.Adapters, c.Rate, c.Requests = 3, 100, 200_000
	c.Popularity = Popularity{Kind: Uniform}
	c.Arrivals = Arrivals{Dist: Gamma, CV: []float64{0.5, 3}}
	c.Pattern.Flash = Flash{At: 0, Duration: 1e6, Factor: 1e6, Adapter: 1} // from here on, all but the crowd is noise
	for adapter, want := range []float64{0.5, 3, 0.5} {
		if got := cvOf(gapsOf(generate(t, c), int32(adapter))); adapter == 1 {
			testutil.Near(t, "CV of the crowd", got, want, 0.1)
		}
		calm := c
		calm.Pattern = Pattern{}
		got := cvOf(gapsOf(generate(t, calm), int32(adapter)))
		testutil.Near(t, fmt.Sprint("CV of adapter ", adapter), got, want, 0.1)
	}
}

func cvOf(gaps []float64) float64 {
	mean, std := stat.MeanStdDev(gaps, nil)
	return std / mean
}

// Each adapter has the rate, the CV and the independent gaps asked for.
func TestAdaptersAreRenewalProcesses(t *testing.T) {
	c := Default()
	c.Adapters, c.Rate, c.Requests = 4, 100, 400_000
	c.Popularity = Popularity{Kind: Explicit, Weights: []float64{4, 3, 2, 1}}
	for _, cv := range []float64{0.5, 4} {
		c.Arrivals = Arrivals{Dist: Gamma, CV: []float64{cv}}
		rs := generate(t, c)
		for a, share := range []float64{0.4, 0.3, 0.2, 0.1} {
			gaps := gapsOf(rs, int32(a))
			n := float64(len(gaps))
			mean, std := stat.MeanStdDev(gaps, nil)
			testutil.Near(t, "rate", 1/mean, 100*share, 100*share*5*cv/math.Sqrt(n))
			// The kurtosis 3+6cv^2 of gamma gives the standard error of the CV.
			testutil.Near(t, "cv", std/mean, cv, 5*cv*math.Sqrt((2+6*cv*cv)/(4*n)+cv*cv/n))
			testutil.Near(t, "lag-1 autocorrelation", stat.Correlation(gaps[1:], gaps[:len(gaps)-1], nil), 0,
				5/math.Sqrt(n))
		}
	}
}

// Counts of different adapters in the same seconds are uncorrelated, although
// each adapter's are bursty.
func TestAdaptersAreIndependent(t *testing.T) {
	c := Default()
	c.Adapters, c.Rate, c.Duration = 2, 40, 20_000
	c.Popularity = Popularity{Kind: Uniform}
	c.Arrivals = Arrivals{Dist: Gamma, CV: []float64{4}}
	const bins = 2000
	counts := [2][]float64{make([]float64, bins), make([]float64, bins)}
	for _, r := range generate(t, c) {
		counts[r.Adapter][int(r.Arrival/c.Duration*bins)]++
	}
	testutil.Near(t, "correlation", stat.Correlation(counts[0], counts[1], nil), 0, 4/math.Sqrt(bins))
	for _, cs := range counts {
		// Counts over many gaps have variance/mean near cv^2.
		mean, variance := stat.MeanVariance(cs, nil)
		testutil.Near(t, "index of dispersion", variance/mean, 16, 3)
	}
}

// An adapter's arrivals do not depend on the other adapters.
func TestStreamsBelongToAdapters(t *testing.T) {
	c := Default()
	c.Duration, c.Rate = 100, 8
	c.Adapters, c.Popularity = 2, Popularity{Kind: Explicit, Weights: []float64{3, 1}}
	alone := generate(t, c)
	c.Adapters, c.Rate, c.Popularity.Weights = 3, 16, []float64{3, 1, 4}
	var among []trace.Request
	for _, r := range generate(t, c) {
		if r.Adapter < 2 {
			among = append(among, r)
		}
	}
	if len(alone) != len(among) || len(alone) < 700 {
		t.Fatalf("%d requests alone, %d among others", len(alone), len(among))
	}
	for i := range alone {
		if alone[i].Arrival != among[i].Arrival || alone[i].Adapter != among[i].Adapter {
			t.Fatalf("request %d is %+v alone, %+v among others", i, alone[i], among[i])
		}
	}
}

func TestTotalProcess(t *testing.T) {
	c := Default()
	c.Requests, c.Rate = 300_000, 50
	c.Arrivals = Arrivals{Dist: Gamma, CV: []float64{3}, Total: true}
	rs := generate(t, c)
	counts := make([]float64, c.Adapters)
	for _, r := range rs {
		counts[r.Adapter]++
	}
	shares, _ := c.Popularity.Shares(c.Adapters)
	if p := chiSquareP(counts, shares); p < 1e-3 {
		t.Errorf("adapters are not drawn with their shares: p = %v", p)
	}
	gaps := gapsOf(rs, -1)
	mean, std := stat.MeanStdDev(gaps, nil)
	testutil.Near(t, "rate", 1/mean, 50, 50*5*3/math.Sqrt(3e5))
	testutil.Near(t, "cv", std/mean, 3, 0.1)
}

func TestRateInf(t *testing.T) {
	c := Default()
	c.Rate, c.Requests = inf, 100_000
	counts := make([]float64, c.Adapters)
	for _, r := range generate(t, c) {
		if r.Arrival != 0 {
			t.Fatalf("%+v does not arrive at 0", r)
		}
		counts[r.Adapter]++
	}
	shares, _ := c.Popularity.Shares(c.Adapters)
	if p := chiSquareP(counts, shares); p < 1e-3 {
		t.Errorf("adapters are not drawn with their shares: p = %v", p)
	}
}

func TestEnds(t *testing.T) {
	c := Default()
	c.Requests = 10
	src, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	if n := src.Len(); n != 10 {
		t.Errorf("Len is %d, expected 10", n)
	}
	if w, err := trace.Collect(src); err != nil || len(w.Requests) != 10 ||
		w.Adapters[31] != (trace.Adapter{Name: "lora31", Rank: 16}) {
		t.Errorf("collected %+v, %v", w, err)
	}
	c.Duration = 0.5
	src, _ = New(c)
	if src.Len() >= 0 {
		t.Error("a source that a duration may end says how long it is")
	}
	for {
		if r, err := src.Next(); err != nil {
			break
		} else if r.Arrival >= c.Duration {
			t.Errorf("arrival at %v, expected < %v", r.Arrival, c.Duration)
		}
	}
	if _, err := src.Next(); err == nil {
		t.Error("a request after the end")
	}
}

func TestNextDoesNotAllocate(t *testing.T) {
	c := Default()
	c.Pattern = everyPart
	c.Drift, c.Locality = 10, Locality{P: 0.5, Window: 4}
	for _, arrivals := range []string{"gamma:4", "weibull:2", "total-gamma:0.5"} {
		c.Arrivals, _ = ParseArrivals(arrivals)
		src, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(10_000, func() { src.Next() }); n != 0 {
			t.Errorf("%s: Next allocates %v times", arrivals, n)
		}
	}
}

func TestConfigErrors(t *testing.T) {
	for _, test := range []struct {
		want string
		edit func(*Config)
	}{
		{"flash adapter is 32, expected 0 to 31", func(c *Config) { c.Pattern.Flash = Flash{0, 1, 2, 32} }},
		{"excludes a rate pattern", func(c *Config) { c.Rate = inf; c.Pattern.Diurnal = Diurnal{10, 1} }},
		{"excludes drift", func(c *Config) { c.Rate = inf; c.Drift = 1 }},
		{"never ends", func(c *Config) { c.Rate = inf; c.Duration = 1 }},
	} {
		c := Default()
		test.edit(&c)
		_, err := New(c)
		if err == nil || !strings.Contains(err.Error(), test.want) ||
			!strings.HasPrefix(err.Error(), "synthetic workload: ") {
			t.Errorf("error %v, expected %q", err, test.want)
		}
	}
}
