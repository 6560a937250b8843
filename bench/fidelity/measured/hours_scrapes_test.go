package measured

import (
	"math"
	"testing"

	"lorasim/router"
)

// TestScrapeLists: a list of adapters counts once, in each order, and one that
// stays the same does not count again.
func TestScrapeLists(t *testing.T) {
	w := &router.Worker{Adapters: make([]router.AdapterState, 3)}
	s := &scrapes{next: 1e9}
	with := func(running, queued []int) {
		for i := range w.Adapters {
			w.Adapters[i] = router.AdapterState{}
		}
		w.Running, w.Queued, w.Tokens = 2*len(running), len(queued), w.Tokens+1
		for _, a := range running {
			w.Adapters[a].Running = 2
		}
		for _, a := range queued {
			w.Adapters[a].Queued = 1
		}
		s.watch(1, w)
	}
	for _, step := range []struct {
		running, queued []int
		lists           int
		names           int64
	}{
		{nil, nil, 0, 0},
		{[]int{1}, nil, 1, 1},
		{nil, []int{1}, 1, 1},       // the same list
		{[]int{1}, []int{0}, 2, 3},  // 1, 0
		{[]int{0}, nil, 3, 4},       // 0
		{[]int{0, 1}, nil, 4, 6},    // 0, 1: another order than before
		{[]int{0, 1, 2}, nil, 5, 9}, // 0, 1, 2
		{[]int{0, 1}, nil, 5, 9},    // seen
		{[]int{1}, nil, 5, 9},       // seen
	} {
		with(step.running, step.queued)
		if len(s.known) != step.lists || s.names != step.names {
			t.Fatalf("after %v running, %v queued: %d lists of %d adapters, expected %d of %d",
				step.running, step.queued, len(s.known), s.names, step.lists, step.names)
		}
	}
}

// TestScrapeStalls: every two seconds the front end stalls for as long as the
// lists take; what comes meanwhile waits for the end, and what is generated
// meanwhile comes in one piece.
func TestScrapeStalls(t *testing.T) {
	w := &router.Worker{Adapters: make([]router.AdapterState, 1)}
	w.Adapters[0].Running = 1
	s := &scrapes{}
	s.watch(1, w) // nothing was known at 0
	if len(s.stalls) != 0 || s.next != 2 {
		t.Fatalf("stalls %v, next scrape at %v s", s.stalls, s.next)
	}
	s.names = int64(0.5 / scrapeName)
	s.watch(6.5, w)
	d := scrapeList + scrapeName*float64(s.names)
	if len(s.stalls) != 3 || math.Abs(d-0.5) > 1e-3 {
		t.Fatalf("stalls %v of %v s, expected three of 0.5 s", s.stalls, d)
	}
	for at, want := range map[float64]float64{
		1: 1, 1.999: 1.999, 2: 2 + d, 2.3: 2 + d, 2 + d: 2 + d, 3: 3, 4.1: 4 + d, 6.4: 6 + d, 7: 7,
	} {
		if got := s.after(at); math.Abs(got-want) > 1e-9 {
			t.Errorf("what comes at %v s is dealt with at %v, expected %v", at, got, want)
		}
	}
	for _, c := range []struct{ n, from, to, want float64 }{
		{10, 0, 1, 10},                              // before all stalls
		{10, 3, 3, 10},                              // no time
		{100, 3, 5, 100 - (50*d - 1)},               // 50 tokens/s: those of a stall are one piece
		{200, 3, 7, 200 - (100*d - 2)},              // of two stalls, two
		{40, 1, 5, 40 - (20*d - 2)},                 //
		{20, 4 + d/2, 6, 20 - (20/(2-d/2)*d/2 - 1)}, // from the middle of one on; the next has just begun
		{2, 3, 5, 2},                                // too slow to be bundled
	} {
		if got := s.pieces(c.n, c.from, c.to); math.Abs(got-c.want) > 1e-6 {
			t.Errorf("%v tokens from %v to %v s come in %v pieces, expected %v", c.n, c.from, c.to, got, c.want)
		}
	}
	s.names = int64(5 / scrapeName)
	s.watch(8, w)
	if s.next < 12.9 {
		t.Errorf("the next scrape is at %v s, expected it after the one of 5 s that began at 8", s.next)
	}
}
