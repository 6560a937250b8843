package fleet

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"time"
)

// ticket is a request in the queue for places.
type ticket struct {
	adapter int32
	booked  int // requests; 1, but for those that are not booked
	since   time.Time
	done    chan struct{} // closed when it has left the queue
	left    bool
	err     error
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

// placeQueue is the queue of requests that wait for a place on one worker.
type placeQueue struct {
	loras   *holdings
	tickets []*ticket     // by arrival
	served  bool          // a goroutine serves the queue
	latest  time.Time     // when the latest place was given, or the queue began
	turn    time.Duration // mean time between two places given, of the latest ones
	full    fullness
}

// fullness is the state of a worker without a free place.
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

// crowded reports whether requests must queue for an adapter that is not held: other requests queue already, or
// adapters in use fill all places.
func (q *placeQueue) crowded() bool { return len(q.tickets) > 0 || q.loras.exhausted() }

// join adds a request to the queue, behind those that arrived earlier or at the same time.
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

// expectedWait estimates the wait of a new request for a place: one turn for each waiting adapter, and one more.
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

// dismiss removes the requests that match from the queue.
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

// clear dismisses all requests because the worker is down. It also resets the fullness.
func (q *placeQueue) clear(err error) {
	q.dismiss(func(*ticket) bool { return true }, err)
	q.settle()
	q.full.refuses = false
}

// settle admits the requests whose adapters are ready. An adapter that yields takes requests again when it is first in
// the queue, or when the queue is empty.
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

// makeWay makes adapters yield, one for each adapter that waits for a place. It chooses those that have held their
// places longest.
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
