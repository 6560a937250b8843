package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// A worker holds a bounded number of adapters in host memory (sglang:
// --max-loaded-loras): its places. They are not its adapter slots, which are on the
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
// for the running ones, whoever sent them, as its own eviction does. So an adapter
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

// Wait limits the wait of a request for a place.
type Wait struct {
	Since time.Time // its arrival, which decides its turn; zero: now
	Until time.Time // zero: for ever
}

// NoPlace says that a request did not get a place for its adapter. It has not been sent.
type NoPlace struct {
	Adapter string
	Worker  int
	Waiting int           // requests in the queue
	Late    bool          // its time is over; false: the queue is full
	After   time.Duration // estimated wait of a new request
}

func (e *NoPlace) Error() string {
	if e.Late {
		return fmt.Sprintf("worker %d has no place for adapter %s in time: all places are in use, %d requests wait",
			e.Worker, e.Adapter, e.Waiting)
	}
	return fmt.Sprintf("worker %d has no place for adapter %s and its queue is full: %d requests wait", e.Worker,
		e.Adapter, e.Waiting)
}

// errFull says that a worker refused a load for want of a place.
type errFull struct{ error }

// isFull says whether an error is, or wraps, an errFull.
func isFull(err error) bool {
	_, ok := errors.AsType[errFull](err)
	return ok
}

// ticket is a request in the queue for places.
type ticket struct {
	adapter int32
	booked  int // requests; 1, but for those that are not booked
	since   time.Time
	done    chan struct{} // closed when it has left the queue
	left    bool
	err     error
}

// placeQueue is the queue of a worker's requests for places.
type placeQueue struct {
	loras   *holdings
	tickets []*ticket     // by arrival
	served  bool          // a goroutine serves the queue
	latest  time.Time     // when the latest place was given, or the queue began
	turn    time.Duration // mean time between two places given, of the latest ones
	full    fullness
}

// fullness is what is known of a worker without a free place.
type fullness struct {
	refuses bool      // it refused a load when it was full; else it evicts by itself
	until   time.Time // a load is not worth a try before, unless a place became free
	held    int       // adapters that it held when it was full, by its own list; 0: unknown
	lookAt  time.Time // when it is asked again what it holds
}

// lookLater sets the time of the next look.
func (u *fullness) lookLater() { u.lookAt = time.Now().Add(look/2 + rand.N(look/2)) }

// looked notes how many adapters the worker holds by its own list.
func (u *fullness) looked(held int) {
	if u.held == 0 {
		u.held = held
	} else if held < u.held {
		u.until = time.Time{} // another client has left a place
	}
	u.lookLater()
}

// refused notes that the worker had no place for an adapter.
func (q *placeQueue) refused() {
	q.loras.contested.Store(true)
	q.full.until, q.full.held = time.Now().Add(retryFull), 0
	q.full.lookLater()
}

// crowded says whether requests must queue for an adapter that is not held: others
// queue already, or adapters in use fill all places.
func (q *placeQueue) crowded() bool { return len(q.tickets) > 0 || q.loras.exhausted() }

// join puts a request into the queue, behind those that arrived before it or at the same time.
func (q *placeQueue) join(a int32, booked int, since time.Time) *ticket {
	now := time.Now()
	if since.IsZero() {
		since = now
	}
	if len(q.tickets) == 0 {
		q.latest = now
	}
	t := &ticket{adapter: a, booked: booked, since: since, done: make(chan struct{})}
	at, _ := slices.BinarySearchFunc(q.tickets, t, func(x, t *ticket) int {
		return cmp.Or(x.since.Compare(t.since), -1) // behind its equals
	})
	q.tickets = slices.Insert(q.tickets, at, t)
	s := q.loras.rows[a]
	s.waiting++
	s.outside += booked
	return t
}

// expectedWait estimates how long a new request would wait for a place: a turn for each
// adapter that waits, and one more.
func (q *placeQueue) expectedWait() time.Duration {
	waiting := map[int32]bool{}
	for _, t := range q.tickets {
		waiting[t.adapter] = true
	}
	turn := q.turn
	if len(q.tickets) > 0 {
		turn = max(turn, time.Since(q.latest)) // the present turn takes longer than usual
	}
	return min(turn*time.Duration(len(waiting)+1), time.Hour)
}

// dismiss takes the requests that match out of the queue.
func (q *placeQueue) dismiss(which func(t *ticket) bool, err error) {
	q.tickets = slices.DeleteFunc(q.tickets, func(t *ticket) bool {
		if !which(t) {
			return false
		}
		t.left, t.err = true, err
		s := q.loras.rows[t.adapter]
		s.waiting--
		s.outside -= t.booked
		close(t.done)
		return true
	})
}

// clear dismisses all requests: the worker is down. What is known of its fullness ends with it.
func (q *placeQueue) clear(err error) {
	q.dismiss(func(*ticket) bool { return true }, err)
	q.settle()
	q.full.refuses = false
}

// settle admits the requests whose adapters are ready. An adapter
// that yields takes requests again when it is the first in the queue, or nobody waits.
func (q *placeQueue) settle() {
	for before := -1; before != len(q.tickets); {
		before = len(q.tickets)
		if before > 0 {
			q.loras.setYielding(q.tickets[0].adapter, false)
		}
		q.dismiss(func(t *ticket) bool { return q.loras.ready(t.adapter) && !q.loras.rows[t.adapter].yielding }, nil)
	}
	if len(q.tickets) == 0 && q.loras.yielding > 0 {
		for _, a := range q.loras.held {
			q.loras.setYielding(a, false)
		}
	}
}

// makeWay asks adapters to yield, those that have held their places for longest: one for
// each adapter that waits for a place.
func (q *placeQueue) makeWay() {
	waiting := map[int32]bool{}
	for _, t := range q.tickets {
		if !q.loras.rows[t.adapter].held {
			waiting[t.adapter] = true
		}
	}
	for q.loras.yielding < len(waiting) {
		oldest := q.loras.longestHeld()
		if oldest < 0 {
			return
		}
		q.loras.setYielding(oldest, true)
	}
}

// gave notes that an adapter has got a place.
func (q *placeQueue) gave() {
	now := time.Now()
	took := now.Sub(q.latest)
	if q.turn == 0 {
		q.turn = took
	}
	q.turn += (took - q.turn) / 8
	if q.latest = now; q.loras.most > 0 && len(q.loras.held) >= q.loras.most && q.full.refuses {
		q.refused() // it is full again
	}
}

// placeServer gives places to the adapters that requests wait for.
type placeServer struct {
	*cluster
	loader *loader
}

// wait waits until the worker holds the adapter and may take requests for it; called
// with mu held, which it releases meanwhile.
func (p *placeServer) wait(ctx context.Context, k *worker, a int32, booked int, limit Wait) error {
	q := &k.places
	if most := p.cfg.MaxPending; most > 0 && len(q.tickets) >= most {
		p.stats.PlaceOverflows++
		return p.noPlace(k, a, false)
	}
	begun := time.Now()
	t := q.join(a, booked, limit.Since)
	if !q.served {
		q.served = true
		p.tasks.Go(func() { p.serve(k) })
	}
	k.changed.notify()
	p.unlocked(func() { t.await(ctx, limit.Until) })
	if !t.left { // its time is over
		q.dismiss(func(x *ticket) bool { return x == t }, context.Cause(ctx))
		q.settle()
		k.changed.notify()
		if t.err == nil {
			p.stats.PlaceTimeouts++
			t.err = p.noPlace(k, a, true)
		}
	}
	p.stats.PlaceWaits++
	p.stats.PlaceWaitTime += time.Since(begun).Seconds()
	return t.err
}

// await waits until the request has left the queue, the context ends, or its time is over; until may be zero.
func (t *ticket) await(ctx context.Context, until time.Time) {
	var late <-chan time.Time
	if !until.IsZero() {
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-t.done:
	case <-ctx.Done():
	case <-late:
	}
}

// noPlace is the error of a request that leaves the queue, or cannot join it; called with mu held.
func (p *placeServer) noPlace(k *worker, a int32, late bool) error {
	return &NoPlace{Adapter: p.catalog.adapters[a].Name, Worker: k.index, Waiting: len(k.places.tickets), Late: late,
		After: k.places.expectedWait()}
}

// serve gives places to the adapters that requests wait for, until none waits.
func (p *placeServer) serve(k *worker) {
	defer p.lock()()
	q := &k.places
	for p.tasks.ctx.Err() == nil {
		q.settle()
		if len(q.tickets) == 0 {
			break
		}
		a := q.tickets[0].adapter
		switch c := k.loras.rows[a].call; {
		case c != nil:
			p.await(p.tasks.ctx, c.done)
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
	p.unlocked(func() { err = p.loader.load(k, a) })
	switch {
	case isFull(err):
	case err != nil:
		k.places.dismiss(func(t *ticket) bool { return t.adapter == a }, err)
	default:
		k.places.gave()
	}
}

// vacate unloads an adapter that no request of the fleet uses, or asks one to yield. It
// returns whether there may be a place now. Called with mu held.
func (p *placeServer) vacate(k *worker) bool {
	busy := map[string]bool{}
	if k.kind() == VLLM { // it tells which adapters others use
		var l load
		var err error
		p.unlocked(func() {
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
	p.unlocked(func() { gone = p.evict(k, a) })
	return gone
}

// evict unloads an adapter that no request of the fleet uses, for one that waits.
func (p *placeServer) evict(k *worker, a int32) bool {
	ctx, cancel := context.WithTimeout(p.tasks.ctx, p.cfg.LoadLimit)
	defer cancel()
	if k.kind() != SGLang { // sglang waits itself for the adapter's requests
		idle, stop := context.WithTimeout(ctx, vllmPatience)
		err := p.loader.awaitIdle(idle, k, a, certain, func() bool { return k.loras.idle(a) })
		stop()
		if err != nil {
			return false
		}
	}
	gone := p.loader.unload(ctx, k, a, func() bool { return k.loras.idle(a) && len(k.places.tickets) > 0 })
	if gone {
		defer p.lock()()
		p.stats.Evictions++
	}
	return gone
}

// awaitChange waits until something happens at a full worker, or it is time to ask it
// again what it holds. Called with mu held.
func (p *placeServer) awaitChange(k *worker) {
	full := &k.places.full
	if !time.Now().Before(full.lookAt) {
		p.unlocked(func() {
			ctx, cancel := context.WithTimeout(p.tasks.ctx, p.cfg.Timeout)
			defer cancel()
			p.loader.discovery.relist(ctx, k)
		})
		full.looked(len(k.loras.held))
		return
	}
	ctx, cancel := context.WithTimeout(p.tasks.ctx, time.Until(full.lookAt))
	defer cancel()
	p.await(ctx, k.changed.ch)
}
