package fleet

import (
	"testing"

	"lorasim/router"
)

func newBooks(adapters int) *books {
	v := &router.Worker{Adapters: make([]router.AdapterState, adapters)}
	return &books{Books: router.NewBooks(v, 0, nil), requests: map[int64]*Request{}}
}

// Requests of others are those that the worker reports beyond the fleet's own. They count until the next report.
func TestOthers(t *testing.T) {
	b := newBooks(1)
	b.add(&Request{Request: router.Request{ID: 1, Adapter: -1}}, 0)
	for _, c := range []struct{ running, queued, own, wantRunning, wantQueued int }{
		{3, 2, 1, 2, 2},
		{1, 4, 2, 0, 3}, // those that wait are others' first
		{2, 0, 5, 0, 0},
		{4, 0, 1, 3, 0},
	} {
		b.setOthers(load{Running: c.running, Queued: c.queued}, c.own, 7)
		if b.othersRunning != c.wantRunning || b.othersQueued != c.wantQueued || b.Running != c.wantRunning ||
			b.Queued != c.wantQueued+1 || b.polled != 7 || b.shared() != (c.wantRunning+c.wantQueued > 0) {
			t.Errorf("%+v: %d run, %d wait, %+v", c, b.othersRunning, b.othersQueued, b.Worker)
		}
	}
}

// Planners see the requests that can move, by ID; only running ones have KV cache.
func TestInFlight(t *testing.T) {
	b := newBooks(2)
	stay := func(int, int) bool { return false }
	for id := range int64(20) {
		r := &Request{Request: router.Request{ID: 19 - id, Adapter: int32(id % 2), Prompt: 10, MaxNew: 9, Expected: 5},
			Sent: float64(id), Move: stay}
		if id == 4 {
			r.Move = nil
		}
		b.add(r, 8)
		if id >= 10 {
			r.generated.Add(3)
			if !b.start(r) || b.start(r) {
				t.Error("a request begins to run once")
			}
		}
	}
	list := b.inFlight(6, 100)
	if len(list) != 19 {
		t.Fatalf("%d of 20 requests, one of which cannot move", len(list))
	}
	last := int64(-1)
	for _, a := range list {
		want := router.InFlight{ID: a.ID, Adapter: int32((19 - a.ID) % 2), Worker: 6, Running: a.ID < 10, Prompt: 10,
			MaxNew: 9, Expected: 5, Age: 100 - float64(19-a.ID)}
		if want.Running {
			want.Generated, want.KV = 3, 13
		}
		if a != want || a.ID <= last {
			t.Errorf("%+v after %d, expected %+v", a, last, want)
		}
		last = a.ID
	}
	if b.start(&Request{Request: router.Request{ID: 3}}) {
		t.Error("a request that has the ID of another one runs")
	}
	if b.uses(0) != 10 || b.uses(1) != 10 || b.kv.Load() != 130 {
		t.Errorf("%d and %d requests, %d tokens", b.uses(0), b.uses(1), b.kv.Load())
	}
}
