package milp

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"lorasim/ilp"
	"lorasim/ilp/highs/internal/brute"
)

// Settling pages never makes an assignment worse, and often better.
func TestSettlePages(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	better := 0
	for range 3000 {
		p := brute.Problem(rng)
		p.PageRate = 1
		flows := brute.Assignment(p, rng)
		before, err := ilp.Evaluate(p, flows)
		if err != nil {
			t.Fatal(err)
		}
		counts := make([]int64, len(p.Groups)*len(p.Workers))
		for _, f := range flows {
			counts[int(f.Group)*len(p.Workers)+int(f.Worker)] = f.Count
		}
		settlePages(p, kindsOf(p), counts)
		after, err := ilp.Evaluate(p, flowsOf(counts, len(p.Workers)))
		if err != nil {
			t.Fatalf("%v in %+v", err, p)
		}
		if after.T > before.T+1e-9 || after.Moves > before.Moves {
			t.Fatalf("T %v and %d moves became %v and %d in %+v", before.T, before.Moves, after.T, after.Moves, p)
		}
		if after.T < before.T-1e-9 {
			better++
		}
	}
	if better < 30 {
		t.Errorf("%d of 3000 assignments became better, expected at least 30", better)
	}
}

// An exchange leads to what Evaluate says, and is the best with the fewest
// pages of the other worker.
func TestExchangesAreAsPredicted(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	tried := 0
	for range 4000 {
		p := brute.Problem(rng)
		p.PageRate = 1
		n := len(p.Workers)
		counts := make([]int64, len(p.Groups)*n)
		for _, f := range brute.Assignment(p, rng) {
			counts[int(f.Group)*n+int(f.Worker)] = f.Count
		}
		evaluate := func(counts []int64) ilp.Outcome {
			out, err := ilp.Evaluate(p, flowsOf(counts, n))
			if err != nil {
				t.Fatalf("%v in %+v", err, p)
			}
			return out
		}
		before := evaluate(counts)
		for _, k := range kindsOf(p) {
			s := newSettler(p, counts, before.Busy)
			a := rng.IntN(n)
			want := math.Inf(1)
			for b := range n {
				for _, g := range k.members {
					h := fewestPages(p, k.members, counts, b)
					if b == a || h == none || counts[int(g)*n+a] == 0 || p.Groups[g].Pages <= p.Groups[h].Pages {
						continue
					}
					e := s.try(g, h, a, b)
					if math.IsInf(e.peak, 1) {
						continue
					}
					after := slices.Clone(counts)
					for _, c := range []struct {
						group int32
						at    int
						more  int64
					}{{g, a, -e.n}, {g, b, e.n}, {h, b, -e.n}, {h, a, e.n}} {
						after[int(c.group)*n+c.at] += c.more
					}
					out := evaluate(after)
					really := math.Max(out.Busy[a], out.Busy[b])
					if math.Abs(e.peak-really) > 1e-9 || out.Moves > before.Moves {
						t.Fatalf("%+v: predicted %v, really %v, %d moves of %d in %+v", e, e.peak, really, out.Moves, before.Moves, p)
					}
					want = math.Min(want, really)
					tried++
				}
			}
			best := exchange{peak: math.Inf(1)}
			if s.improve(&k, a, &best); math.Abs(best.peak-want) > 1e-9 {
				t.Fatalf("best exchange %+v, expected one that leads to %v in %+v", best, want, p)
			}
			if best.n == 0 {
				continue
			}
			s.apply(best) // counts are shared
			out := evaluate(counts)
			for j := range n {
				if math.Abs(s.busy(j)-out.Busy[j]) > 1e-9 {
					t.Fatalf("worker %d is busy for %v, really %v", j, s.busy(j), out.Busy[j])
				}
			}
			before = out
		}
	}
	if tried < 120 {
		t.Errorf("only %d exchanges were tried", tried)
	}
}

// fewestPages is the group with the fewest pages, of those with requests on a worker.
func fewestPages(p *ilp.Problem, groups []int32, counts []int64, j int) int32 {
	h := int32(none)
	for _, g := range groups {
		if counts[int(g)*len(p.Workers)+j] > 0 && (h == none || p.Groups[g].Pages < p.Groups[h].Pages) {
			h = g
		}
	}
	return h
}

// What rounding has lost goes to the largest flow of the group.
func TestComplete(t *testing.T) {
	flows := func() []ilp.Flow { return []ilp.Flow{{Count: 9}, {Count: 3}, {Count: 5}, {Count: 4}} }
	got := complete(flows(), 1, 7, 2, 2)
	want := []ilp.Flow{{Count: 9}, {Count: 3}, {Count: 7}, {Count: 4}}
	if !slices.Equal(got, want) {
		t.Errorf("flows %v, expected %v", got, want)
	}
	if got := complete(flows(), 1, 7, 2, 0); !slices.Equal(got, flows()) {
		t.Errorf("flows %v, expected no change", got)
	}
	if got := complete(flows(), 4, 7, 2, 6); len(got) != 5 || got[4] != (ilp.Flow{Group: 7, Worker: 2, Count: 6}) {
		t.Errorf("flows %v, expected one more at home", got)
	}
}

func TestCheckSize(t *testing.T) {
	if err := checkSize("x", MaxColumns); err != nil {
		t.Error(err)
	}
	if err := checkSize("x", MaxColumns+1); err == nil {
		t.Error("no error for a column too many")
	}
}

// Of three moves where one may be made, those that the relaxation is least sure
// of are taken back, unless the adapter has left its old place.
func TestLimitMoves(t *testing.T) {
	p := &ilp.Problem{Adapters: 2, MaxMoves: 1, Workers: []ilp.Worker{{Slots: 1}, {Slots: 2}},
		Groups: []ilp.Group{{Count: 4, Work: 1}, {Adapter: 1, Worker: 1, Count: 1, Work: 1}}}
	f, err := NewRequest(p, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		sure []float64 // of the four requests on worker 0, to go to 1
		want int64     // that stay
	}{
		{[]float64{0.9, 0.8, 0.7, 0.1}, 3}, // one stayed, two are taken back
		{[]float64{0.9, 0.1, 0.1, 0.1}, 3},
		{[]float64{0.1, 0.1, 0.1, 0.1}, 4},
		{[]float64{0.9, 0.8, 0.7, 0.6}, 0}, // the adapter's slot may be another's
	} {
		x := make([]float64, len(f.Model().Cost))
		for i, v := range c.sure {
			x[f.on[i][0]], x[f.on[i][1]] = 1-v, v
		}
		stay := int64(0)
		for _, fl := range f.Decode(x) {
			if fl.Group == 0 && fl.Worker == 0 {
				stay = fl.Count
			}
		}
		if stay != c.want {
			t.Errorf("%v: %d requests stay, expected %d", c.sure, stay, c.want)
		}
	}
}
