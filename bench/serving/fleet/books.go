package fleet

import (
	"cmp"
	"slices"
	"sync/atomic"

	"lorasim/router"
)

// books has the requests on a worker: the fleet's own, and the number of other clients' requests.
type books struct {
	router.Books
	requests map[int64]*Request // by ID
	kv       atomic.Int64       // tokens of the running ones; changes without the lock, too

	// requests of other clients, by the worker's own account, and when that was read
	othersRunning, othersQueued int
	polled                      float64
}

// add books a request as waiting.
func (b *books) add(r *Request, rank int32) {
	r.rank, r.running = rank, false
	b.requests[r.ID] = r
	b.Assign(r.Prompt, r.Expected, r.rank, false, 1)
	b.Wait(r.Adapter, r.Prompt, 1)
}

// start notes the first token of a request, which runs from now on. It returns false if the request runs already or is
// not booked here.
func (b *books) start(r *Request) bool {
	if b.requests[r.ID] != r || r.running {
		return false
	}
	r.running = true
	b.Wait(r.Adapter, r.Prompt, -1)
	b.run(r, 1)
	return true
}

// remove removes a request from the books.
func (b *books) remove(r *Request) {
	delete(b.requests, r.ID)
	b.Assign(r.Prompt, r.Expected, r.rank, false, -1)
	if r.running {
		b.run(r, -1)
	} else {
		b.Wait(r.Adapter, r.Prompt, -1)
	}
}

// run adds d, 1 or -1, to the running requests for the request's adapter.
func (b *books) run(r *Request, d int32) {
	b.Running += int(d)
	b.Run(r.Adapter, d)
	b.kv.Add(int64(d) * (int64(r.Prompt) + int64(r.generated.Load())))
}

// uses returns the number of the fleet's requests for an adapter.
func (b *books) uses(a int32) int { return int(b.Adapters[a].Running + b.Adapters[a].Queued) }

// setOthers derives the requests of other clients from the load that the worker reported at time now. own is the
// largest number of the fleet's own requests while it was asked.
func (b *books) setOthers(l load, own int, now float64) {
	others := max(l.Running+l.Queued-own, 0)
	queued := min(others, l.Queued)
	b.Queued += queued - b.othersQueued
	b.Running += others - queued - b.othersRunning
	b.othersQueued, b.othersRunning, b.polled = queued, others-queued, now
}

// shared reports whether other clients have requests on the worker.
func (b *books) shared() bool { return b.othersRunning+b.othersQueued > 0 }

// inFlight returns the requests that can move, by ID.
func (b *books) inFlight(w int, now float64) (movable []router.InFlight) {
	for _, r := range b.requests {
		if r.Move == nil {
			continue
		}
		a := router.InFlight{ID: r.ID, Adapter: r.Adapter, Worker: int32(w), Running: r.running, Prompt: r.Prompt,
			Generated: r.generated.Load(), MaxNew: r.MaxNew, Expected: r.Expected, Age: now - r.Sent, Text: r.Text,
			Known: r.Known}
		if r.running {
			a.KV = int64(a.Prompt) + int64(a.Generated)
		}
		movable = append(movable, a)
	}
	slices.SortFunc(movable, func(a, b router.InFlight) int { return cmp.Compare(a.ID, b.ID) })
	return movable
}
