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

// ticket is a request in the queue for places.
type ticket struct {
	adapter int32
	booked  int // requests; 1, but for those that are not booked
	since   time.Time
	done    chan struct{} // closed when it has left the queue
	left    bool
	err     error
}

// places is the queue of a worker; guarded by Fleet.mu.
type places struct {
	queue    []*ticket     // by arrival
	served   bool          // a goroutine serves the queue
	latest   time.Time     // when the latest place was given, or the queue began
	turn     time.Duration // mean time between two places given, of the latest ones
	uses     int64         // counts uses of adapters
	yielding int           // adapters that yield

	refuses   bool      // it refused a load when it was full; else it evicts by itself
	fullUntil time.Time // a load is not worth a try before, unless a place became free
	fullAt    int       // adapters that it held when it was full, by its own list; 0: not known
	lookAt    time.Time // when it is asked again what it holds
}

// crowded says whether requests must queue for an adapter that is not held: others
// queue already, or the worker's own limit is reached by adapters in use. Called with
// mu held.
func (k *worker) crowded() bool {
	if len(k.queue) > 0 {
		return true
	}
	return k.exhausted()
}

// inUse counts the adapters that hold a place and have requests of the fleet or are
// being loaded; called with mu held.
func (k *worker) inUse() (n int) {
	for _, a := range k.held {
		if !k.free(a) {
			n++
		}
	}
	return n + k.calls
}

// queueUp waits until the worker holds the adapter and may take requests for it; called
// with mu held, which it gives up meanwhile.
func (f *Fleet) queueUp(ctx context.Context, w int, a int32, booked int, wait Wait) error {
	k := f.workers[w]
	if most := f.cfg.MaxPending; most > 0 && len(k.queue) >= most {
		f.stats.PlaceOverflows++
		return f.noPlace(w, a, false)
	}
	now := time.Now()
	t := &ticket{adapter: a, booked: booked, since: wait.Since, done: make(chan struct{})}
	if t.since.IsZero() {
		t.since = now
	}
	if len(k.queue) == 0 {
		k.latest = now
	}
	at, _ := slices.BinarySearchFunc(k.queue, t, func(x, t *ticket) int {
		return cmp.Or(x.since.Compare(t.since), -1) // behind its equals
	})
	k.queue = slices.Insert(k.queue, at, t)
	k.adapters[a].waiting++
	k.adapters[a].outside += booked
	if !k.served {
		k.served = true
		f.background.Go(func() { f.serveQueue(w) })
	}
	k.notify()
	var late <-chan time.Time
	if !wait.Until.IsZero() {
		timer := time.NewTimer(time.Until(wait.Until))
		defer timer.Stop()
		late = timer.C
	}
	f.mu.Unlock()
	select {
	case <-t.done:
	case <-ctx.Done():
	case <-late:
	}
	f.mu.Lock()
	if !t.left { // its time is over
		k.dismiss(func(x *ticket) bool { return x == t }, context.Cause(ctx))
		k.settle()
		k.notify()
		if t.err == nil {
			f.stats.PlaceTimeouts++
			t.err = f.noPlace(w, a, true)
		}
	}
	f.stats.PlaceWaits++
	f.stats.PlaceWaitTime += time.Since(now).Seconds()
	return t.err
}

func (f *Fleet) noPlace(w int, a int32, late bool) error {
	k := f.workers[w]
	return &NoPlace{Adapter: f.cfg.Adapters[a].Name, Worker: w, Waiting: len(k.queue), Late: late,
		After: k.expectedWait()}
}

// expectedWait estimates how long a new request would wait for a place: a turn for each
// adapter that waits, and one more. Called with mu held.
func (k *worker) expectedWait() time.Duration {
	waiting := map[int32]bool{}
	for _, t := range k.queue {
		waiting[t.adapter] = true
	}
	turn := k.turn
	if len(k.queue) > 0 {
		turn = max(turn, time.Since(k.latest)) // the present turn takes longer than usual
	}
	return min(turn*time.Duration(len(waiting)+1), time.Hour)
}

// leaveQueue takes a ticket's request out of the counts, once; called with mu held.
func (k *worker) leaveQueue(t *ticket, err error) {
	t.left, t.err = true, err
	k.adapters[t.adapter].waiting--
	k.adapters[t.adapter].outside -= t.booked
	close(t.done)
}

// there says whether an adapter may take requests, but for those that must leave its
// place to others; called with mu held.
func (k *worker) there(a int32) bool { return k.adapters[a].held && k.adapters[a].call == nil }

// dismiss lets the requests that match leave the queue; called with mu held.
func (k *worker) dismiss(which func(t *ticket) bool, err error) {
	k.queue = slices.DeleteFunc(k.queue, func(t *ticket) bool {
		if !which(t) {
			return false
		}
		k.leaveQueue(t, err)
		return true
	})
}

// settle admits the requests whose adapters are there; called with mu held. An adapter
// that yields takes requests again when it is the first in the queue, or nobody waits.
func (k *worker) settle() {
	for before := -1; before != len(k.queue); {
		before = len(k.queue)
		if before > 0 {
			k.yield(k.queue[0].adapter, false)
		}
		k.dismiss(func(t *ticket) bool { return k.there(t.adapter) && !k.adapters[t.adapter].yielding }, nil)
	}
	if len(k.queue) == 0 && k.yielding > 0 {
		for _, a := range k.held {
			k.yield(a, false)
		}
	}
}

// yield makes an adapter take no new requests, or take them again; called with mu held.
func (k *worker) yield(a int32, yields bool) {
	if s := k.adapters[a]; s.yielding != yields {
		s.yielding = yields
		if yields {
			k.yielding++
		} else {
			k.yielding--
		}
	}
}

// serveQueue gives places to the adapters that requests wait for, until none waits.
func (f *Fleet) serveQueue(w int) {
	k := f.workers[w]
	defer f.lock()()
	for f.ctx.Err() == nil {
		k.settle()
		if len(k.queue) == 0 {
			break
		}
		a := k.queue[0].adapter
		switch c := k.adapters[a].call; {
		case c != nil:
			f.await(f.ctx, c.done)
		case !time.Now().Before(k.fullUntil) && !k.exhausted():
			f.fill(w, a)
		case f.vacate(w):
			k.fullUntil = time.Time{}
		default:
			f.awaitChange(k)
		}
	}
	k.dismiss(func(*ticket) bool { return true }, context.Cause(f.ctx))
	k.settle()
	k.served = false
}

// exhausted says whether adapters in use fill the places that the worker told of;
// called with mu held.
func (k *worker) exhausted() bool {
	most := k.info.MaxLoaded
	return most > 0 && len(k.held) >= most && k.inUse() >= most
}

// refused notes that a worker had no place; called with mu held.
func (k *worker) refused() {
	k.contested.Store(true)
	k.fullUntil, k.fullAt = time.Now().Add(retryFull), 0
	k.lookLater()
}

func (k *worker) lookLater() { k.lookAt = time.Now().Add(look/2 + rand.N(look/2)) }

// fill loads the adapter that is first in the queue; called with mu held, which it
// gives up meanwhile, as vacate and awaitChange do. A load that fails for another reason than a
// full worker fails the requests that wait for the adapter.
func (f *Fleet) fill(w int, a int32) {
	k := f.workers[w]
	k.begin(a, false)
	f.mu.Unlock()
	err := f.load(w, a)
	f.mu.Lock()
	now := time.Now()
	if full := (errFull{}); errors.As(err, &full) {
		return
	} else if err != nil {
		k.dismiss(func(t *ticket) bool { return t.adapter == a }, err)
		return
	}
	took := now.Sub(k.latest)
	if k.turn == 0 {
		k.turn = took
	}
	k.turn += (took - k.turn) / 8
	if k.latest = now; k.info.MaxLoaded > 0 && len(k.held) >= k.info.MaxLoaded && k.refuses {
		k.refused() // it is full again
	}
}

// vacate unloads an adapter that no request of the fleet uses, or asks one to yield. It
// returns whether there may be a place now.
func (f *Fleet) vacate(w int) bool {
	k := f.workers[w]
	busy := map[string]bool{}
	if k.kind() == VLLM { // it tells which adapters others use
		f.mu.Unlock()
		ctx, cancel := context.WithTimeout(f.ctx, f.cfg.Timeout)
		l, err := k.load(ctx)
		cancel()
		f.mu.Lock()
		if err != nil {
			return false
		}
		busy = l.Busy
	}
	a := f.leastRecent(k, busy)
	if a < 0 {
		k.makeWay()
		return false
	}
	k.adapters[a].touched = k.nextUse() // if it stays, another is next
	f.mu.Unlock()
	gone := f.evictFor(k, a)
	f.mu.Lock()
	return gone
}

// leastRecent is the adapter to evict: the least recently used one that is neither
// pinned nor in use; -1: none. Called with mu held. Where others send requests, too, it
// must have had its place for a while: they are not seen to use it.
func (f *Fleet) leastRecent(k *worker, busy map[string]bool) int32 {
	victim := int32(-1)
	shared := k.foreignRunning+k.foreignQueued > 0
	for _, a := range k.held {
		s := k.adapters[a]
		if k.view.Adapters[a].Pinned || !k.free(a) || busy[f.cfg.Adapters[a].Name] ||
			shared && time.Since(s.since) < hold {
			continue
		}
		if victim < 0 || s.touched < k.adapters[victim].touched {
			victim = a
		}
	}
	return victim
}

// makeWay asks adapters to yield, those that have held their places for longest: one for
// each adapter that waits for a place. Called with mu held.
func (k *worker) makeWay() {
	waiting := map[int32]bool{}
	for _, t := range k.queue {
		if !k.adapters[t.adapter].held {
			waiting[t.adapter] = true
		}
	}
	for k.yielding < len(waiting) {
		oldest := int32(-1)
		for _, a := range k.held {
			s := k.adapters[a]
			if k.there(a) && !s.yielding && !k.view.Adapters[a].Pinned && time.Since(s.since) >= hold &&
				(oldest < 0 || s.since.Before(k.adapters[oldest].since)) {
				oldest = a
			}
		}
		if oldest < 0 {
			return
		}
		k.yield(oldest, true)
	}
}

// evictFor unloads an adapter that no request of the fleet uses, for one that waits.
func (f *Fleet) evictFor(k *worker, a int32) bool {
	ctx, cancel := context.WithTimeout(f.ctx, f.cfg.LoadLimit)
	defer cancel()
	name, _ := f.where(a)
	if k.kind() != SGLang { // sglang waits itself for the adapter's requests
		idle, stop := context.WithTimeout(ctx, vllmPatience)
		err := f.awaitIdle(idle, k, name, certain, func() bool { return k.free(a) })
		stop()
		if err != nil {
			return false
		}
	}
	gone := f.unload(ctx, k, a, name, func() bool { return k.free(a) && len(k.queue) > 0 })
	if gone {
		f.mu.Lock()
		f.stats.Evictions++
		f.mu.Unlock()
	}
	return gone
}

// vllmPatience limits the wait for an adapter of vLLM that others may use.
const vllmPatience = 500 * time.Millisecond

// awaitChange waits until something happens at a full worker, or it is time to ask it
// again what it holds.
func (f *Fleet) awaitChange(k *worker) {
	if !time.Now().Before(k.lookAt) {
		f.mu.Unlock()
		ctx, cancel := context.WithTimeout(f.ctx, f.cfg.Timeout)
		f.relist(ctx, k)
		cancel()
		f.mu.Lock()
		if k.fullAt == 0 {
			k.fullAt = len(k.held)
		} else if len(k.held) < k.fullAt {
			k.fullUntil = time.Time{} // another client has left a place
		}
		k.lookLater()
		return
	}
	changed, until := k.changed, time.Until(k.lookAt)
	f.mu.Unlock()
	defer f.mu.Lock()
	timer := time.NewTimer(until)
	defer timer.Stop()
	select {
	case <-changed:
	case <-f.ctx.Done():
	case <-timer.C:
	}
}

// Contested says whether adapters may leave a worker without the fleet's doing: it is
// full, and other clients may load adapters there.
func (f *Fleet) Contested(w int) bool { return f.workers[w].contested.Load() }
