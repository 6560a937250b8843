package lengths_test

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"lorasim/trace"
	"lorasim/trace/lengths"
)

// parse is Parse for specs that are right.
func parse(tb testing.TB, spec string) lengths.Sampler {
	tb.Helper()
	s, err := lengths.Parse(context.Background(), spec)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// draws returns n draws with a fixed seed.
func draws(s lengths.Sampler, n int) (prompts, outputs []float64) {
	r := rand.New(rand.NewPCG(1, 2))
	for range n {
		p, o := s.Draw(r)
		prompts, outputs = append(prompts, float64(p)), append(outputs, float64(o))
	}
	return prompts, outputs
}

func mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}

func quantile(x []float64, p float64) float64 {
	s := slices.Sorted(slices.Values(x))
	return s[int(p*float64(len(s)-1))]
}

// near fails unless got is want up to a relative error.
func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(got/want-1) <= tolerance) {
		t.Errorf("%s is %.5g, expected %.5g to within %g", what, got, want, tolerance)
	}
}

func TestConstant(t *testing.T) {
	p, o := parse(t, "constant:1024,128").Draw(nil)
	if p != 1024 || o != 128 {
		t.Errorf("got %d, %d", p, o)
	}
}

// TestRandom: every whole number of the range comes up, as often as the others.
func TestRandom(t *testing.T) {
	for _, c := range []struct {
		spec                               string
		lowPrompt, highPrompt, low2, high2 float64
	}{
		{"random:10,4", 1, 10, 1, 4},
		{"random:10,4,0.0", 1, 10, 1, 4},
		{"random:10,5,0.5", 5, 10, 2, 5}, // int(2.5) is 2
		{"random:10,5,1", 10, 10, 5, 5},
	} {
		const n = 100_000
		prompts, outputs := draws(parse(t, c.spec), n)
		for _, x := range []struct {
			got       []float64
			low, high float64
		}{{prompts, c.lowPrompt, c.highPrompt}, {outputs, c.low2, c.high2}} {
			counts := map[float64]int{}
			for _, v := range x.got {
				counts[v]++
			}
			values := x.high - x.low + 1
			if len(counts) != int(values) || slices.Min(x.got) != x.low || slices.Max(x.got) != x.high {
				t.Fatalf("%s: counts %v, expected every number from %v to %v", c.spec, counts, x.low, x.high)
			}
			for v, count := range counts {
				// Five standard deviations of a binomial count.
				expected := n / values
				if math.Abs(float64(count)-expected) > 5*math.Sqrt(expected) {
					t.Errorf("%s: %v came up %d times, expected about %.0f", c.spec, v, count, expected)
				}
			}
		}
	}
}

func TestFill(t *testing.T) {
	w := &trace.Workload{Adapters: trace.Names(1, nil)}
	for i := range 100 {
		w.Requests = append(w.Requests, trace.Request{ID: int64(i), Arrival: float64(i), Adapter: 0, Output: 5,
			MaxNew: 7})
	}
	fill := func(seed uint64) []trace.Request {
		src := lengths.Fill(w.Source(), parse(t, "sharegpt"), seed)
		if left := src.Len(); left != 100 {
			t.Errorf("%d requests to come, expected 100", left)
		}
		got, err := trace.Collect(src)
		if err != nil {
			t.Fatal(err)
		}
		return got.Requests
	}
	a, b, c := fill(1), fill(1), fill(2)
	if !slices.Equal(a, b) || slices.Equal(a, c) {
		t.Error("lengths must be the same for the same seed alone")
	}
	for i, r := range a {
		if err := r.Check(1); err != nil || r.MaxNew != 0 || r.ID != w.Requests[i].ID ||
			r.Arrival != w.Requests[i].Arrival {
			t.Fatalf("request %d is %+v, %v", i, r, err)
		}
	}
	if n := lengths.Fill(trace.Limit(unsized{w.Source()}, 5), parse(t, "sharegpt"), 1).Len(); n != -1 {
		t.Errorf("%d requests to come of a source that does not know", n)
	}
	if n := lengths.Fill(trace.Limit(w.Source(), 5), parse(t, "sharegpt"), 1).Len(); n != 5 {
		t.Error("a limited source whose length is known")
	}
}

// TestDrawRange: whatever the spec, lengths are at least 1 and within the cap.
func TestDrawRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int32Range(1, math.MaxInt32).Draw(t, "cap")
		center := rapid.Float64Range(1, float64(limit)).Draw(t, "center")
		sigma := rapid.Float64Range(0, 10).Draw(t, "sigma")
		from := rapid.SampledFrom([]func(float64, float64, int32) (lengths.Tokens, error){lengths.FromMean,
			lengths.FromMedian}).Draw(t, "from")
		d, err := from(center, sigma, limit)
		if err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(1, 1))
		for range 100 {
			if n := d.Draw(r); n < 1 || n > limit {
				t.Fatalf("drew %d", n)
			}
		}
	})
}

func BenchmarkDraw(b *testing.B) {
	for _, spec := range []string{"constant:1024,128", "random:1024,128", "sharegpt", "measured-rate4"} {
		b.Run(spec, func(b *testing.B) {
			b.ReportAllocs()
			s := parse(b, spec)
			r := rand.New(rand.NewPCG(1, 1))
			for b.Loop() {
				s.Draw(r)
			}
		})
	}
}

type unsized struct{ trace.Source }

func (unsized) Len() int64 { return -1 }
