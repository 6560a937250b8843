package fleet

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"lorasim/router"
)

// newHoldings is a worker's table of n adapters, none of which it holds.
func newHoldings(slots, n int) *holdings {
	h := &holdings{view: &router.Worker{Slots: slots}}
	h.grow(n)
	return h
}

// checkHoldings returns what contradicts the invariants of holdings.
func checkHoldings(h *holdings) error {
	held, gpu, idle, yielding := 0, 0, 0, 0
	for a, s := range h.rows {
		st := h.view.Adapters[a]
		if s.held {
			held++
			if h.held[s.at] != int32(a) {
				return errors.New("place in held")
			}
		}
		if (st.Tier == router.Disk) == s.held {
			return errors.New("tier of a held adapter, or of one that is not")
		}
		if st.Tier == router.GPU {
			gpu++
			if st.Running == 0 {
				idle++
			}
		}
		if s.yielding {
			yielding++
		}
	}
	switch {
	case held != len(h.held):
		return errors.New("length of held")
	case gpu != h.view.SlotsUsed || idle != h.view.SlotsIdle || gpu > h.view.Slots:
		return errors.New("slots used or idle")
	case yielding != h.yielding:
		return errors.New("adapters that yield")
	}
	return nil
}

// Whatever happens to adapters, the list, the tiers and the counts agree with the rows, and the adapters in GPU slots
// are the held ones that were used last.
func TestHoldingsInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const n, slots = 6, 2
		h := newHoldings(slots, n)
		var used []int32 // held adapters by their latest use, since they were loaded
		drop := func(a int32) { used = slices.DeleteFunc(used, func(x int32) bool { return x == a }) }
		adapter := rapid.Int32Range(0, n-1)
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			a, version := adapter.Draw(t, "adapter"), h.version
			switch rapid.IntRange(0, 6).Draw(t, "what") {
			case 0, 1:
				h.add(a)
			case 2, 3:
				if h.rows[a].held {
					h.used(a)
					drop(a)
					used = slices.Insert(used, 0, a)
					used = used[:min(len(used), slots)] // who leaves its slot is forgotten
				}
			case 4:
				h.gone(a)
				drop(a)
				if h.version == version {
					t.Fatal("the version is the same though an adapter has gone")
				}
			case 5:
				if h.rows[a].held {
					h.setYielding(a, rapid.Bool().Draw(t, "yields"))
				}
			default:
				there := rapid.SliceOfN(rapid.Bool(), n, n).Draw(t, "listed")
				before := slices.Clone(h.held)
				h.listed(func(a int32) bool { return there[a] })
				for _, a := range before {
					if !there[a] {
						drop(a)
					}
					if !there[a] && !h.rows[a].lost {
						t.Fatalf("adapter %d has left and is not lost", a)
					}
				}
			}
			if err := checkHoldings(h); err != nil {
				t.Fatal(err)
			}
			for i, a := range used {
				if h.view.Adapters[a].Tier != router.GPU || h.recent[i] != a {
					t.Fatalf("in slots: %v, expected %v", h.recent, used)
				}
			}
			if len(used) != h.view.SlotsUsed {
				t.Fatalf("%d slots used, expected %d", h.view.SlotsUsed, len(used))
			}
		}
		version := h.version
		h.clear()
		if err := checkHoldings(h); err != nil || len(h.held) > 0 || len(h.recent) > 0 || h.version == version {
			t.Fatalf("after a crash: %v, %+v", err, h)
		}
	})
}

// What evicts, and what yields: the order of uses, pins, requests, calls, and how long an adapter has had its place.
func TestVictims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHoldings(2, 4)
		any := func(int32) bool { return false }
		if h.leastRecent(any) != -1 || h.longestHeld() != -1 {
			t.Error("an adapter of a worker that holds none")
		}
		for a := range int32(4) {
			h.add(a)
			time.Sleep(hold / 4)
		}
		if a := h.longestHeld(); a != 0 {
			t.Errorf("adapter %d yields, expected the only one that has had its place for long, 0", a)
		}
		time.Sleep(hold)
		h.used(0) // the order is 1, 2, 3, 0
		for _, c := range []struct {
			what          string
			edit          func()
			evict, yields int32
		}{
			{"all idle", func() {}, 1, 0},
			{"0 yields already", func() { h.setYielding(0, true) }, 1, 1},
			{"1 is pinned", func() { h.view.Adapters[1].Pinned = true }, 2, 2},
			{"2 is in use", func() { h.view.Adapters[2].Running = 1 }, 3, 2},
			{"3 is being unloaded", func() { h.begin(3, true) }, 0, 2},
			{"requests for 0 wait for its place", func() { h.view.Adapters[0].Queued, h.rows[0].waiting = 2, 2 }, 0, 2},
			{"one waits on the worker", func() { h.rows[0].waiting = 1 }, -1, 2},
		} {
			c.edit()
			if evict, yields := h.leastRecent(any), h.longestHeld(); evict != c.evict || yields != c.yields {
				t.Errorf("%s: %d is evicted and %d yields, expected %d and %d", c.what, evict, yields, c.evict,
					c.yields)
			}
		}
		if a := h.leastRecent(func(a int32) bool { return true }); a != -1 {
			t.Errorf("adapter %d is evicted though it is to stay", a)
		}
	})
}

// A worker is full when adapters in use and those on their way fill all places that it has said it has.
func TestExhausted(t *testing.T) {
	h := newHoldings(2, 4)
	h.add(0)
	h.add(1)
	h.view.Adapters[0].Running, h.view.Adapters[1].Queued = 1, 1
	if h.exhausted() || h.contested.Load() {
		t.Error("full though the number of places is unknown")
	}
	h.most = 3
	h.begin(2, false)
	if h.exhausted() {
		t.Error("full with a free place")
	}
	h.end(2, nil)
	h.add(2)
	if h.exhausted() || !h.contested.Load() {
		t.Error("an idle adapter can go; others may take its place")
	}
	h.begin(3, false)
	if !h.exhausted() {
		t.Error("two adapters in use and one on its way leave no place")
	}
}

// posted counts requests that the worker may have, outside those that it cannot have.
func TestPosted(t *testing.T) {
	h := newHoldings(2, 2)
	h.view.Adapters[0].Running, h.view.Adapters[0].Queued, h.rows[0].outside = 2, 3, 1
	h.view.Adapters[1].Queued, h.rows[1].outside = 4, 4
	if a, b, out := h.posted(0), h.posted(1), h.outside(); a != 4 || b != 0 || out != 5 {
		t.Errorf("%d and %d posted, %d outside; expected 4, 0 and 5", a, b, out)
	}
}
