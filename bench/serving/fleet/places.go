package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"lorasim/bench/serving/httpapi"
)

// A worker holds a bounded number of adapters in host memory (sglang:
// --engine-args max_loaded_loras): its places. They are not its adapter slots, which are on the
// GPU and which the engine hands out by itself.
//
// Where requests need more adapters than a worker has places, they wait in a queue
// of that worker. One goroutine per worker serves the queue while there is one:
//
//   - The adapter of the request that arrived first gets the next place (first come,
//     first served). All requests that wait for the same adapter leave the queue with
//     it: a load serves a batch.
//   - If an adapter is idle, the least recently used one is evicted. Otherwise those
//     that have held their places for longest yield, one for each adapter that waits: an
//     adapter that yields takes no new requests, which join the queue, and is evicted
//     when its running requests have ended.
//
// Invariant: a request waits for at most one turn for each adapter that waits before
// its own, and one for its own. A turn is a hold, the longest running request, an
// unload and a load.
//
// Other clients of the worker, such as a second gateway, take places too, and are not
// heard when they wait. sglang's unload refuses new requests for the adapter and waits
// for all running ones, of any client, as its own eviction does. So an adapter
// without own requests is unloaded there after its hold, even if others use it: two
// gateways take turns. vLLM's unload waits for nothing, and the engine dies if the name
// is loaded again too early (see certain). There an adapter that others use stays.

const (
	// hold is the shortest time for which an adapter keeps a place that others
	// may use, too. A shorter one spends more time on loads.
	hold = 250 * time.Millisecond
	// look is the longest time between two looks at a full worker, which others
	// may have changed. The looks are random between a half and all of it, so that
	// two gateways do not stay in step.
	look = 100 * time.Millisecond
	// retryFull is the time after which a load is tried though the worker's list shows
	// no free place.
	retryFull = time.Second
	// vllmPatience limits the wait for an adapter of vLLM that others may use.
	vllmPatience = 500 * time.Millisecond
)

// A Wait limits the wait of a request for a place.
type Wait struct {
	Since time.Time // arrival of the request; earlier ones come first; zero: now
	Until time.Time // end of the wait; zero: no limit
}

// A NoPlace is the error of a request that got no place for its adapter. The request has not been sent.
type NoPlace struct {
	Adapter string
	Worker  int
	Waiting int           // number of requests in the queue
	Late    bool          // true: the wait exceeded its limit; false: the queue is full
	Call    string        // what the worker has not finished, "load" or "unload"; "": it has no place
	After   time.Duration // estimated wait of a new request in the queue
}

// Error implements error.
func (e *NoPlace) Error() string {
	if e.Call != "" {
		return fmt.Sprintf("worker %d did not %s adapter %s in time", e.Worker, e.Call, e.Adapter)
	}
	if e.Late {
		return fmt.Sprintf("worker %d has no slot for adapter %s in time: all slots are in use, %d requests wait",
			e.Worker, e.Adapter, e.Waiting)
	}
	return fmt.Sprintf("worker %d has no slot for adapter %s and its queue is full: %d requests wait", e.Worker,
		e.Adapter, e.Waiting)
}

// errFull says that a worker refused a load for want of a place.
type errFull struct{ error }

// isFull reports whether an error is, or wraps, an errFull.
func isFull(err error) bool {
	_, ok := errors.AsType[errFull](err)
	return ok
}

// placeServer gives places to the adapters of waiting requests.
type placeServer struct {
	cfg     *Config
	tasks   *tasks
	table   *table
	catalog *catalog
	loader  *loader

	// guarded by the lock of the table; see Stats
	waits, timeouts, overflows, evictions int64
	waited                                float64 // s
}

// wait waits until the worker holds the adapter and may take requests for it; called
// with mu held, which it releases meanwhile.
func (p *placeServer) wait(ctx context.Context, k *worker, a int32, booked int, limit Wait) error {
	q := &k.places
	if most := p.cfg.MaxPending; most > 0 && len(q.tickets) >= most {
		p.overflows++
		return p.noPlace(k, a, false)
	}
	begun := time.Now()
	t := q.join(a, booked, limit.Since)
	if !q.served {
		q.served = true
		p.tasks.Go(func() { p.serve(k) })
	}
	k.changed.notify()
	p.table.unlocked(func() { t.await(ctx, limit.Until) })
	if !t.left { // its time is over
		q.dismiss(func(x *ticket) bool { return x == t }, context.Cause(ctx))
		q.settle()
		k.changed.notify()
		if t.err == nil {
			p.timeouts++
			t.err = p.noPlace(k, a, true)
		}
	}
	p.waits++
	p.waited += time.Since(begun).Seconds()
	return t.err
}

// noPlace returns the error of a request that leaves the queue, or cannot join it. Called with mu held.
func (p *placeServer) noPlace(k *worker, a int32, late bool) *NoPlace {
	return &NoPlace{Adapter: p.catalog.name(a), Worker: k.index, Waiting: len(k.places.tickets), Late: late,
		After: k.places.expectedWait()}
}

// serve gives places to the adapters of waiting requests, until no request waits.
func (p *placeServer) serve(k *worker) {
	defer p.table.lock()()
	q := &k.places
	for p.tasks.ctx.Err() == nil {
		q.settle()
		if len(q.tickets) == 0 {
			break
		}
		a := q.tickets[0].adapter
		switch c := k.loras.rows[a].call; {
		case c != nil:
			p.table.await(p.tasks.ctx, c.done)
		case !time.Now().Before(q.full.until) && !k.loras.exhausted():
			p.fill(k, a)
		case p.vacate(k):
			q.full.until = time.Time{}
		default:
			p.awaitChange(k)
		}
	}
	q.dismiss(func(*ticket) bool { return true }, context.Cause(p.tasks.ctx))
	q.settle()
	q.served = false
}

// fill loads the adapter that is first in the queue; called with mu held, which it
// releases meanwhile, as vacate and awaitChange do. A load that fails for another reason than a
// full worker fails the requests that wait for the adapter.
func (p *placeServer) fill(k *worker, a int32) {
	k.loras.begin(a, false)
	var err error
	p.table.unlocked(func() { err = p.loader.load(k, a) })
	switch {
	case isFull(err):
	case err != nil:
		k.places.dismiss(func(t *ticket) bool { return t.adapter == a }, err)
	default:
		k.places.gave()
	}
}

// vacate unloads an adapter that no request of the fleet uses, or makes one yield. It reports whether there may be a
// place now. Called with mu held.
func (p *placeServer) vacate(k *worker) bool {
	busy := map[string]bool{}
	if k.kind() == httpapi.VLLM { // it tells which adapters others use
		var l load
		var err error
		p.table.unlocked(func() {
			ctx, cancel := context.WithTimeout(p.tasks.ctx, p.cfg.Timeout)
			defer cancel()
			l, err = k.load(ctx)
		})
		if err != nil {
			return false
		}
		busy = l.Busy
	}
	a := p.loader.leastRecent(k, busy)
	if a < 0 {
		k.places.makeWay()
		return false
	}
	k.loras.touch(a) // if it stays, another is next
	gone := false
	p.table.unlocked(func() { gone = p.evict(k, a) })
	return gone
}

// evict unloads an adapter that no request of the fleet uses, to make room for one that waits.
func (p *placeServer) evict(k *worker, a int32) bool {
	ctx, cancel := context.WithTimeout(p.tasks.ctx, p.cfg.LoadLimit)
	defer cancel()
	if k.kind() != httpapi.SGLang { // sglang waits itself for the adapter's requests
		idle, stop := context.WithTimeout(ctx, vllmPatience)
		err := p.loader.awaitIdle(idle, k, a, certain, func() bool { return k.loras.idle(a) })
		stop()
		if err != nil {
			return false
		}
	}
	gone := p.loader.unload(ctx, k, a, func() bool { return k.loras.idle(a) && len(k.places.tickets) > 0 }) == nil
	if gone {
		defer p.table.lock()()
		p.evictions++
	}
	return gone
}

// awaitChange waits until something happens at a full worker, or until it is time to read its list of adapters again.
// Called with mu held.
func (p *placeServer) awaitChange(k *worker) {
	full := &k.places.full
	if !time.Now().Before(full.lookAt) {
		p.table.unlocked(func() {
			ctx, cancel := context.WithTimeout(p.tasks.ctx, p.cfg.Timeout)
			defer cancel()
			p.loader.discovery.ask(ctx, k, false)
		})
		full.looked(len(k.loras.held))
		return
	}
	ctx, cancel := context.WithTimeout(p.tasks.ctx, time.Until(full.lookAt))
	defer cancel()
	p.table.await(ctx, k.changed.ch)
}
