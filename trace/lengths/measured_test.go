package lengths_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"lorasim/trace/lengths"
)

var measuredPresets = map[string]struct {
	outputMean float64
	outputCap  int32
}{
	"measured-rate4":  {100.1, 638},
	"measured-stride": {157.9, 1236},
}

// TestRescaled: the sample has the stated means, caps and number of prompts
// above the context limit exactly, whatever the seed.
func TestRescaled(t *testing.T) {
	for spec, want := range measuredPresets {
		m := parse(t, spec).(lengths.Measured)
		for _, n := range []int{1, 2, 10, 250, 1000, 4321} {
			for seed := range uint64(20) {
				prompts, outputs := m.Rescaled(n, seed)
				if len(prompts) != n || len(outputs) != n {
					t.Fatalf("%d and %d lengths, expected %d", len(prompts), len(outputs), n)
				}
				over, within := 0, int64(0)
				for _, p := range prompts {
					switch {
					case p < 1 || p > 4840 || p > 4090 && p < 4097:
						t.Fatalf("%s: prompt of %d tokens", spec, p)
					case p >= 4097:
						over++
					default:
						within += int64(p)
					}
				}
				if expected := int(math.Round(float64(n) * 4 / 1000)); over != expected {
					t.Errorf("%s: %d of %d prompts above the limit, expected %d", spec, over, n, expected)
				}
				exactMean(t, spec+" prompts", within, n-over, 343.8)
				sum := int64(0)
				for _, o := range outputs {
					if o < 1 || o > want.outputCap {
						t.Fatalf("%s: output of %d tokens", spec, o)
					}
					sum += int64(o)
				}
				exactMean(t, spec+" outputs", sum, n, want.outputMean)
			}
		}
	}
}

// exactMean: the sum is the whole number nearest to that of the mean.
func exactMean(t *testing.T, what string, sum int64, n int, want float64) {
	t.Helper()
	if math.Abs(float64(sum)-want*float64(n)) > 0.5+1e-6 {
		t.Errorf("%s: mean of %d is %.4f, expected %.4f", what, n, float64(sum)/float64(n), want)
	}
}

func TestRescaledSeeds(t *testing.T) {
	m := parse(t, "measured-rate4").(lengths.Measured)
	p1, o1 := m.Rescaled(1000, 1)
	p2, o2 := m.Rescaled(1000, 1)
	p3, o3 := m.Rescaled(1000, 2)
	if !slices.Equal(p1, p2) || !slices.Equal(o1, o2) || slices.Equal(p1, p3) || slices.Equal(o1, o3) {
		t.Error("lengths must be the same for the same seed alone")
	}
}

// TestRescaledShape: over many seeds the prompts above the limit lie evenly in
// their range and anywhere in the workload, and the spread of the others is that
// of the distribution.
func TestRescaledShape(t *testing.T) {
	m := parse(t, "measured-stride").(lengths.Measured)
	var over, places, logs []float64
	for seed := range uint64(200) {
		prompts, _ := m.Rescaled(1000, seed)
		for i, p := range prompts {
			if p >= 4097 {
				over, places = append(over, float64(p)), append(places, float64(i))
			} else if p > 20 && p < 4090 { // away from rounding and the cap
				logs = append(logs, math.Log(float64(p)))
			}
		}
	}
	near(t, "mean above the limit", mean(over), 4468, 0.008) // standard error 8
	near(t, "mean place", mean(places), 499.5, 0.1)          // standard error 10
	// The part of the distribution between 20 and 4090 tokens, by its own draws.
	var drawn []float64
	prompts, _ := draws(m, 500_000)
	for _, p := range prompts {
		if p > 20 && p < 4090 {
			drawn = append(drawn, math.Log(p))
		}
	}
	near(t, "share between 20 and 4090", float64(len(logs))/200_000, float64(len(drawn))/500_000, 0.01)
	near(t, "mean log length", mean(logs), mean(drawn), 0.01)
}

// TestMeasuredDraw: single draws have the stated means in the long run.
func TestMeasuredDraw(t *testing.T) {
	for spec, want := range measuredPresets {
		prompts, outputs := draws(parse(t, spec), 1_000_000)
		over, within := 0.0, []float64{}
		for _, p := range prompts {
			if p >= 4097 {
				over++
			} else {
				within = append(within, p)
			}
		}
		near(t, spec+" share above the limit", over/1_000_000, 0.004, 0.05)
		near(t, spec+" prompts", mean(within), 343.8, 0.01)
		near(t, spec+" outputs", mean(outputs), want.outputMean, 0.01)
	}
}

func TestRescale(t *testing.T) {
	m := parse(t, "measured-rate4").(lengths.Measured)
	prompts, outputs := m.Rescaled(50, 3)
	s := lengths.Rescale(m, 50, 3)
	for i := range 120 { // after 50 it begins again
		if p, o := s.Draw(nil); p != prompts[i%50] || o != outputs[i%50] {
			t.Fatalf("draw %d is %d, %d; expected %d, %d", i, p, o, prompts[i%50], outputs[i%50])
		}
	}
	other := lengths.Constant{Prompt: 1, Output: 2}
	if got := lengths.Rescale(other, 50, 3); got != other {
		t.Errorf("got %v, expected the same sampler", got)
	}
	if p, _ := lengths.Rescale(m, 0, 3).Draw(rand.New(rand.NewPCG(1, 1))); p < 1 {
		t.Errorf("drew %d", p)
	}
}

func BenchmarkRescaled(b *testing.B) {
	b.ReportAllocs()
	m := parse(b, "measured-rate4").(lengths.Measured)
	for b.Loop() {
		m.Rescaled(1000, 1)
	}
}
