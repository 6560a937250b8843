package result

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"lorasim/sim/tick"
)

// numpyCase is a sample and what numpy says of it, all in ticks.
type numpyCase struct {
	Name                             string
	Ticks                            []tick.Ticks
	Mean, Median, Std, P90, P95, P99 float64
	Max                              float64
}

func numpyCases(t *testing.T) []numpyCase {
	text, err := os.ReadFile("testdata/numpy.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Cases []numpyCase }
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	return file.Cases
}

func near(got, want, relative float64) bool {
	return math.Abs(got-want) <= relative*math.Abs(want)
}

// Against numpy: mean, median, percentile(90, 95, 99), std and max.
func TestStatsAgainstNumpy(t *testing.T) {
	for _, c := range numpyCases(t) {
		exact := distribution{limit: 1 << 20, bits: latencyBits}
		folded := distribution{limit: 3, bits: latencyBits}
		for _, v := range c.Ticks {
			exact.add(v)
			folded.add(v)
		}
		want := Stats{ms(c.Mean), ms(c.Median), ms(c.Std), ms(c.P90), ms(c.P95), ms(c.P99), ms(c.Max)}
		check := func(name string, got, want, relative float64) {
			if !near(got, want, relative) {
				t.Errorf("%s: %s = %v, numpy says %v", c.Name, name, got, want)
			}
		}
		for _, d := range []struct {
			dist        *distribution
			percentiles float64 // relative tolerance
		}{{&exact, 1e-12}, {&folded, 0.0005}} {
			got := d.dist.stats()
			check("mean", got.Mean, want.Mean, 1e-12)
			check("std", got.Std, want.Std, 1e-9) // numpy's own rounding where values are close together
			check("max", got.Max, want.Max, 0)
			check("median", got.Median, want.Median, d.percentiles)
			check("p90", got.P90, want.P90, d.percentiles)
			check("p95", got.P95, want.P95, d.percentiles)
			check("p99", got.P99, want.P99, d.percentiles)
		}
		if exact.approximate() || folded.approximate() != (len(c.Ticks) > 3) {
			t.Errorf("%s: approximate: exact %v, folded %v", c.Name, exact.approximate(), folded.approximate())
		}
	}
}

// durations covers everything from single ticks to years.
var durations = rapid.Custom(func(t *rapid.T) tick.Ticks {
	return tick.Ticks(rapid.Int64Range(0, int64(1)<<rapid.IntRange(0, 62).Draw(t, "bits")).Draw(t, "ticks"))
})

// Bins follow each other without gap or overlap and are narrow enough.
func TestHistogramBins(t *testing.T) {
	for _, bits := range []uint{5, 11} {
		h := NewHistogram(bits)
		rapid.Check(t, func(rt *rapid.T) {
			v := durations.Draw(rt, "v")
			bin := h.bin(v)
			low, width := h.bounds(bin)
			if v < low || v-low >= width {
				rt.Fatalf("%d is not in its bin %d = [%d, +%d)", v, bin, low, width)
			}
			if width > 1 && float64(width) > math.Ldexp(float64(low), -int(bits)) {
				rt.Fatalf("bin [%d, +%d) is wider than 2^-%d", low, width, bits)
			}
			if low > 0 && h.bin(low-1) != bin-1 {
				rt.Fatalf("the bin before %d is %d, want %d", bin, h.bin(low-1), bin-1)
			}
		})
	}
}

// Percentiles of the histogram against sorted samples.
func TestHistogramPercentiles(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		vs := rapid.SliceOfN(durations, 1, 200).Draw(rt, "values")
		exact := distribution{limit: len(vs), bits: latencyBits}
		folded := distribution{bits: latencyBits}
		for _, v := range vs {
			exact.add(v)
			folded.addMany(v, 1)
		}
		for _, p := range []float64{0, 1, 50, 90, 99, 100} {
			// Between two samples far apart the result is as exact as they are.
			rank := p / 100 * float64(len(vs)-1)
			sorted := slices.Sorted(slices.Values(vs))
			tolerance := math.Ldexp(float64(sorted[int(math.Ceil(rank))]), -latencyBits)
			got, want := folded.percentiles(p)[0], exact.percentiles(p)[0]
			if math.Abs(got-want) > tolerance {
				rt.Fatalf("P%v of %v = %v, exactly %v", p, vs, got, want)
			}
		}
	})
}

// A run of gaps is the same as its gaps one by one, to the last bit.
func TestRunIsItsGaps(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		first := tick.Ticks(rapid.Int64Range(0, 1e12).Draw(rt, "first"))
		k := rapid.Int64Range(1, 300).Draw(rt, "k")
		step := tick.Ticks(rapid.Int64Range(-int64(first)/k, 1e9).Draw(rt, "step"))
		n := rapid.Int64Range(1, 1000).Draw(rt, "n")
		run := distribution{bits: latencyBits}
		single := distribution{bits: latencyBits}
		run.addMany(77, 2)
		single.addMany(77, 2)
		run.addRun(first, step, k, n)
		for i := range k {
			single.addMany(first+step*tick.Ticks(i), n)
		}
		if run.moments != single.moments {
			rt.Fatalf("moments %+v, one by one %+v", run.moments, single.moments)
		}
		if a, b := binCounts(run.hist), binCounts(single.hist); !slices.Equal(a, b) {
			rt.Fatalf("bins %v, one by one %v", a, b)
		}
	})
}

// Runs that end anywhere in a bin, of which each holds ten of their values.
func TestRunsEndAnywhere(t *testing.T) {
	for k := range int64(100) {
		run, single := NewHistogram(latencyBits), NewHistogram(latencyBits)
		run.AddRun(1<<20, 50, k, 3) // bins of 512 ticks
		for i := range k {
			single.Add(1<<20+50*tick.Ticks(i), 3)
		}
		if a, b := binCounts(run), binCounts(single); !slices.Equal(a, b) {
			t.Errorf("%d values: bins %v, one by one %v", k, a, b)
		}
	}
}

// binCounts lists the bins that are not empty as pairs of bin and count.
func binCounts(h *Histogram) (pairs []int64) {
	for i, c := range h.counts {
		if c != 0 {
			pairs = append(pairs, int64(h.lo+i), c)
		}
	}
	return pairs
}

// Ranks in any order are those of the sorted samples, of few and of many, equal and different ones.
func TestOfRanks(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.SampledFrom([]int{1, 2, 300, fewSamples, fewSamples + 1, 5000, 2*blockLen + 1}).Draw(rt, "n")
		most := rapid.SampledFrom([]int64{1, 50, 1 << 20, 1 << 50}).Draw(rt, "most")
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		d := distribution{limit: n}
		for range n {
			d.add(tick.Ticks(r.Int64N(most)))
		}
		sorted := slices.Sorted(slices.Values(slices.Concat(d.exact.blocks()...)))
		ranks := []int{0, n - 1}
		for range 10 {
			ranks = append(ranks, r.IntN(n))
		}
		for i, got := range d.ofRanks(ranks) {
			if want := float64(sorted[ranks[i]]); got != want {
				rt.Fatalf("rank %d of %d is %v, want %v", ranks[i], n, got, want)
			}
		}
	})
}

// The sums hold where 64 bits would not: 2^40 durations of 2.9 years, twice.
func TestMomentsDoNotOverflow(t *testing.T) {
	var m moments
	m.add(tick.Max, 1<<40)
	m.add(tick.Max, 1<<40)
	if got, want := m.mean(), float64(tick.Max); got != want {
		t.Errorf("mean = %v, want %v", got, want)
	}
	if got := m.std(); got != 0 {
		t.Errorf("std of equal values = %v", got)
	}
	m.add(0, 1<<41)
	if got, want := m.std(), float64(tick.Max)/2; !near(got, want, 1e-15) {
		t.Errorf("std of half 0, half %d = %v, want %v", tick.Max, got, want)
	}
	var run moments // the longest run a simulation could report
	run.addRun(tick.Max/1024, 0, 1024, 1<<30)
	run.addRun(0, tick.Max/(1<<20), 1<<10, 1<<30)
	var loop moments
	loop.add(tick.Max/1024, 1<<40)
	for i := range tick.Ticks(1 << 10) {
		loop.add(i*(tick.Max/(1<<20)), 1<<30)
	}
	if run != loop {
		t.Errorf("runs %+v, one by one %+v", run, loop)
	}
}

func BenchmarkHistogramAdd(b *testing.B) {
	h := NewHistogram(latencyBits)
	r := rand.New(rand.NewPCG(1, 2))
	vs := make([]tick.Ticks, 1024)
	for i := range vs {
		vs[i] = tick.FromSeconds(r.ExpFloat64())
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		h.Add(vs[i%len(vs)], 1)
	}
}

func BenchmarkHistogramAddRun(b *testing.B) {
	h := NewHistogram(latencyBits)
	b.ReportAllocs()
	for b.Loop() { // 200 steps of 20 ms that grow by 1 us
		h.AddRun(20*tick.Millisecond, tick.Microsecond, 200, 16)
	}
}

// Counters hold more than four bytes.
func TestHistogramManyOfOne(t *testing.T) {
	h := NewHistogram(11)
	h.Add(100, 3<<32)
	h.Add(5_000_000, 7)
	h.Add(2, 5) // moves the bins
	h.Add(100, 1)
	if h.Count() != 3<<32+13 || h.At(4) != 2 || h.At(5) != 100 || h.At(3<<32+5) != 100 || h.At(3<<32+6) < 4_990_000 {
		t.Errorf("%d values: %v %v %v %v", h.Count(), h.At(4), h.At(5), h.At(3<<32+5), h.At(3<<32+6))
	}
}
