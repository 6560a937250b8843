package ilp

import (
	"context"
	"math"
	"slices"
	"testing"
	"time"
)

// How many of 10 requests of 1 s on worker 0 go to worker 1, which is idle.
func TestBalanceByHand(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Problem)
		want   int64
	}{
		{"half", func(*Problem) {}, 5},
		{"a load of 2 s: 6 s each", func(p *Problem) { p.Load = []float64{0, 2} }, 4},
		{"the adapter is there", func(p *Problem) { p.Load, p.Workers[1].Resident = []float64{0, 6}, []int32{0} }, 5},
		// 20 s with no room for pages; each that goes takes 2 s away: 6 and 7
		{"pages on worker 0", func(p *Problem) { p.PageRate, p.Groups[0].Pages, p.Workers[1].Pages = 1, 1, 100 }, 7},
		// each that goes adds 2 s to worker 1: 7 and 6
		{"pages on worker 1", func(p *Problem) { p.PageRate, p.Groups[0].Pages, p.Workers[0].Pages = 1, 1, 100 }, 3},
		{"at most two", func(p *Problem) { p.Workers[1].Base = 6 }, 2},
		{"as busy", func(p *Problem) { p.Workers[1].Base = 10 }, 0},
	} {
		p := &Problem{Adapters: 1, Workers: []Worker{{Slots: 1, Resident: []int32{0}}, {Slots: 1}},
			Groups: []Group{{Count: 10, Work: 1}}}
		c.change(p)
		s := newSearch(p, false, 0, 1)
		h := s.look(0, 0)
		g, to := s.giver(h, h.parts[0], 0), s.taker(0, 1, false)
		if m := s.balance(&g, &to, 1); m.n != c.want {
			t.Errorf("%s: %d, expected %d", c.name, m.n, c.want)
		}
	}
}

// Of two requests that are alike but for their pages, the one of 8 goes where
// more are to spare: a page too many counts only once a worker is the busiest.
func TestDecodeByHand(t *testing.T) {
	for _, c := range []struct {
		name   string
		base   float64 // s of worker 0, at a page each
		pages  [2]float64
		larger int32
	}{
		{"worker 0 has room", 0, [2]float64{9, 4}, 0},
		{"worker 1 has room", 0, [2]float64{4, 9}, 1},
		{"worker 1 has 5 s, and 9 to spare", 5, [2]float64{6, 4}, 1},
		{"worker 1 has 1 s, and 5 to spare", 1, [2]float64{6, 4}, 0},
		{"alike: the first", 0, [2]float64{5, 5}, 0},
	} {
		p := &Problem{Adapters: 1, PageRate: 1, Groups: []Group{{Count: 1, Work: 1, Pages: 2},
			{Count: 1, Work: 1, Pages: 8}},
			Workers: []Worker{{Slots: 1, Base: c.base, Pages: c.pages[0]}, {Slots: 1, Pages: c.pages[1]}}}
		s := newSearch(p, false, 0, 1)
		s.shift(0, 0, 1, 1)
		if want := []Flow{{0, 1 - c.larger, 1}, {1, c.larger, 1}}; !slices.Equal(s.decode(), want) {
			t.Errorf("%s: %v, expected %v", c.name, s.decode(), want)
		}
	}
}

// A share of a budget of work is used up by just so much; a time limit starts now.
func TestStopper(t *testing.T) {
	p := &Problem{Adapters: 1, Workers: []Worker{{Slots: 1}}}
	s := newSearch(p, false, 0, 1)
	stop := newLimits(context.Background(), p, Budget{Work: 100}).stopper(s, 0.5)
	for _, c := range []struct {
		work int64
		want bool
	}{{0, false}, {49, false}, {50, true}, {51, true}} {
		if s.work = c.work; stop() != c.want {
			t.Errorf("stops after %d of 50: %v", c.work, !c.want)
		}
	}
	s.work = math.MaxInt32
	if newLimits(context.Background(), p, Budget{Time: time.Hour}).stopper(s, 1)() {
		t.Error("an hour is over")
	}
	if !newLimits(context.Background(), p, Budget{Time: 1}).stopper(s, 1)() {
		t.Error("a nanosecond is not over")
	}
}
