package fleet

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// inOrder lists the adapters of the queue.
func (q *placeQueue) inOrder() (list []int32) {
	for _, t := range q.tickets {
		list = append(list, t.adapter)
	}
	return list
}

// Requests queue by their arrival, those that arrived at the same time in the order in which they joined. All that
// wait for an adapter leave the queue when it is ready.
func TestPlaceQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHoldings(2, 4)
		q := placeQueue{loras: h}
		if q.crowded() || q.expectedWait() != 0 {
			t.Error("an empty queue is crowded")
		}
		start := time.Now()
		time.Sleep(time.Second)
		now := q.join(0, 1, time.Time{})
		q.join(1, 1, start)
		q.join(2, 2, start)
		q.join(0, 1, start.Add(time.Millisecond))
		if got := q.inOrder(); !slices.Equal(got, []int32{1, 2, 0, 0}) || !now.since.Equal(time.Now()) || !q.crowded() {
			t.Errorf("the order is %v", got)
		}
		if r := h.rows[2]; r.waiting != 1 || r.outside != 2 {
			t.Errorf("a ticket of two requests: %+v", r)
		}
		h.add(0)
		h.begin(2, false)
		q.settle()
		got := q.inOrder()
		if !slices.Equal(got, []int32{1, 2}) || !now.left || now.err != nil || h.rows[0].waiting != 0 {
			t.Errorf("with adapter 0 loaded: %v wait, %+v", got, now)
		}
		now.await(t.Context(), time.Time{}) // returns: it has left
		gone := errors.New("gone")
		q.full.refuses = true
		first := q.tickets[0]
		if q.clear(gone); len(q.tickets) > 0 || first.err != gone || q.full.refuses || h.outside() != 0 {
			t.Errorf("after a crash: %v, %v, %+v", q.inOrder(), first.err, q.full)
		}
	})
}

// A ticket waits for its turn, its context or its time.
func TestTicketAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := placeQueue{loras: newHoldings(1, 1)}
		x, start := q.join(0, 1, time.Time{}), time.Now()
		x.await(t.Context(), start.Add(time.Minute))
		if d := time.Since(start); d != time.Minute {
			t.Errorf("waited %v", d)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		x.await(ctx, time.Time{})
		if d := time.Since(start); d != time.Minute+time.Second {
			t.Errorf("waited %v", d)
		}
	})
}

// The expected wait is a turn for each adapter that waits, and one more. A turn is the mean of the latest ones, or the
// present one if it takes longer.
func TestExpectedWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := placeQueue{loras: newHoldings(2, 4)}
		for _, a := range []int32{0, 0, 1} {
			q.join(a, 1, time.Time{})
		}
		expect := func(want time.Duration) {
			t.Helper()
			if got := q.expectedWait(); got != want {
				t.Errorf("%v, expected %v", got, want)
			}
		}
		time.Sleep(8 * time.Second)
		expect(3 * 8 * time.Second)
		q.gave()
		expect(3 * 8 * time.Second)
		time.Sleep(16 * time.Second)
		expect(3 * 16 * time.Second)
		q.gave() // the mean moves by an eighth
		expect(3 * 9 * time.Second)
		q.dismiss(func(*ticket) bool { return true }, nil)
		time.Sleep(time.Hour)
		expect(9 * time.Second)
		q.join(0, 1, time.Time{}) // a new queue: the hour without one is no turn
		expect(2 * 9 * time.Second)
		time.Sleep(time.Hour)
		expect(time.Hour)
	})
}

// Adapters yield, one for each adapter that waits, those first that have had their places for longest. They take
// requests again when they come first in the queue, and when nobody waits.
func TestYield(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHoldings(2, 6)
		q := placeQueue{loras: h}
		for a := range int32(3) {
			h.add(a)
			h.view.Adapters[a].Running = 1
			time.Sleep(time.Second)
		}
		yields := func(what string, want ...bool) {
			t.Helper()
			if got := []bool{h.rows[0].yielding, h.rows[1].yielding, h.rows[2].yielding}; !slices.Equal(got, want) {
				t.Errorf("%s: %v, expected %v", what, got, want)
			}
		}
		for _, a := range []int32{3, 3, 4} {
			q.join(a, 1, time.Time{})
		}
		q.makeWay()
		yields("two adapters wait", true, true, false)
		q.join(0, 1, time.Time{})
		q.makeWay()
		q.settle()
		yields("one that yields waits, too, and has its place", true, true, false)
		q.dismiss(func(x *ticket) bool { return x.adapter >= 3 }, nil)
		if q.settle(); len(q.tickets) != 0 {
			t.Errorf("%v wait though their adapters are there", q.inOrder())
		}
		yields("nobody waits", false, false, false)
		for _, a := range []int32{3, 4, 5} {
			q.join(a, 1, time.Time{})
		}
		q.join(3, 1, time.Time{})
		h.view.Adapters[0].Pinned = true
		q.makeWay() // asks all that it can, though more wait
		yields("three wait, one is pinned", false, true, true)
	})
}

// A full worker is asked again at random within a time; a place that another client has left makes a load worth a try.
func TestFullness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := placeQueue{loras: newHoldings(2, 4)}
		now := time.Now()
		q.full.held = 5
		q.refused()
		if f := q.full; !f.until.Equal(now.Add(retryFull)) || f.held != 0 || !q.loras.contested.Load() {
			t.Errorf("%+v", f)
		}
		for _, held := range []int{3, 3, 4} {
			q.full.looked(held)
			if f := q.full; f.until.IsZero() || f.held != 3 {
				t.Errorf("holds %d: %+v", held, f)
			}
		}
		for range 100 {
			q.full.lookLater()
			if d := time.Until(q.full.lookAt); d < look/2 || d > look {
				t.Fatalf("the next look is in %v", d)
			}
		}
		if q.full.looked(2); !q.full.until.IsZero() {
			t.Errorf("another client has left a place: %+v", q.full)
		}
	})
}

// A place that an adapter gets makes the worker full again only if its number of places is known and all are taken.
func TestFullAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			most, held int
			refuses    bool
			full       bool
		}{{2, 2, true, true}, {2, 1, true, false}, {2, 2, false, false}, {0, 2, true, false}, {1, 2, true, true}} {
			q := placeQueue{loras: newHoldings(c.most, 4)}
			q.loras.most = c.most
			for a := range c.held {
				q.loras.add(int32(a))
			}
			q.full.refuses = c.refuses
			if q.gave(); q.full.until.IsZero() == c.full {
				t.Errorf("%+v: full until %v", c, q.full.until)
			}
		}
	})
}
