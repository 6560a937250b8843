package renewal

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestDrift(t *testing.T) {
	for _, c := range []struct {
		rank, n   int
		t, period float64
		want      int
	}{
		{0, 3, 0, 10, 0}, {0, 3, 9.99, 10, 0}, {0, 3, 10, 10, 1}, {2, 3, 10, 10, 0}, {1, 3, 25, 10, 0},
		{1, 3, 30, 10, 1}, {0, 1, 1e9, 0.1, 0},
		{0, 7, 1e18, 1e-3, 6}, // 10^21 steps, more than an int holds
	} {
		if got := Drift(c.rank, c.n, c.t, c.period); got != c.want {
			t.Errorf("rank %d of %d is %d after %v s of periods of %v s, expected %d", c.rank, c.n, got, c.t, c.period,
				c.want)
		}
	}
}

// Own adapters that are never recent: all repetitions are chosen ones, and use
// each place of the window alike.
func TestRecent(t *testing.T) {
	const p, n, window = 0.6, 20_000, 3
	r := NewRecent(p, window, rand.New(rand.NewPCG(1, 2)))
	var last []int32 // distinct, latest first
	hits := make([]float64, window)
	for own := range int32(n) {
		got := r.Choose(own)
		if got != own {
			at := slices.Index(last, got)
			if at < 0 {
				t.Fatalf("request %d repeats %d, which is not among the last %v", own, got, last)
			}
			hits[at]++
			last = slices.Delete(last, at, at+1)
		}
		last = slices.Insert(last, 0, got)
		last = last[:min(len(last), window)]
	}
	for place, h := range hits {
		if want := p * n / window; math.Abs(h-want) > 4*math.Sqrt(want) {
			t.Errorf("%v requests repeat the adapter %d before, expected %v", h, place, want)
		}
	}
}

func TestRecentKeepsTheLastDistinctAdapters(t *testing.T) {
	r := NewRecent(1, 3, nil)
	for _, step := range []struct {
		use  int32
		want []int32
	}{
		{1, []int32{1}}, {1, []int32{1}}, {2, []int32{2, 1}}, {3, []int32{3, 2, 1}},
		{2, []int32{2, 3, 1}}, {4, []int32{4, 2, 3}}, {3, []int32{3, 4, 2}}, {3, []int32{3, 4, 2}},
	} {
		if r.touch(step.use); !slices.Equal(r.last, step.want) {
			t.Errorf("after %d the window is %v, expected %v", step.use, r.last, step.want)
		}
	}
}

// The first request of all has nothing to repeat, however likely that is.
func TestRecentStartsWithItsOwn(t *testing.T) {
	r := NewRecent(1, 2, rand.New(rand.NewPCG(1, 2)))
	if a, b := r.Choose(5), r.Choose(7); a != 5 || b != 5 {
		t.Errorf("uses %d and %d, expected 5 and its repetition", a, b)
	}
}
