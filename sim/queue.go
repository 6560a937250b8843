package sim

import "math"

// queue is the waiting queue of a worker: requests in the order they came, and
// for each adapter its own requests in that order. All operations take
// constant time. Links live in the requests themselves.
type queue struct {
	n          int
	head, tail int32
	seq        int64
	front      int64          // seq of the latest request put before all others
	byAdapter  []adapterQueue // by row of the adapter table
	waiting    []int32        // rows with waiting requests, in no order
}

type adapterQueue struct {
	seq        int64 // of head; here so that oldest need not look at requests
	head, tail int32
	at         int32 // index in queue.waiting, -1: no requests
}

func (q *queue) init(rows int) {
	q.head, q.tail = -1, -1
	q.byAdapter = make([]adapterQueue, rows)
	for i := range q.byAdapter {
		q.byAdapter[i] = adapterQueue{head: -1, tail: -1, at: -1}
	}
}

// push appends request i.
func (q *queue) push(reqs []request, i int32) {
	r := &reqs[i]
	q.n++
	q.seq++
	r.seq = q.seq
	r.next, r.prev = -1, q.tail
	if q.tail >= 0 {
		reqs[q.tail].next = i
	} else {
		q.head = i
	}
	q.tail = i

	a := &q.byAdapter[r.adapter]
	r.anext, r.aprev = -1, a.tail
	if a.tail >= 0 {
		reqs[a.tail].anext = i
	} else {
		a.head, a.seq = i, r.seq
		a.at = int32(len(q.waiting))
		q.waiting = append(q.waiting, r.adapter)
	}
	a.tail = i
}

// pushFront puts request i before all others, and first of its adapter's.
func (q *queue) pushFront(reqs []request, i int32) {
	r := &reqs[i]
	q.n++
	q.front--
	r.seq = q.front
	r.prev, r.next = -1, q.head
	if q.head >= 0 {
		reqs[q.head].prev = i
	} else {
		q.tail = i
	}
	q.head = i

	a := &q.byAdapter[r.adapter]
	r.aprev, r.anext = -1, a.head
	if a.head >= 0 {
		reqs[a.head].aprev = i
	} else {
		a.tail = i
		a.at = int32(len(q.waiting))
		q.waiting = append(q.waiting, r.adapter)
	}
	a.head, a.seq = i, r.seq
}

// remove takes request i out.
func (q *queue) remove(reqs []request, i int32) {
	r := &reqs[i]
	q.n--
	if r.prev >= 0 {
		reqs[r.prev].next = r.next
	} else {
		q.head = r.next
	}
	if r.next >= 0 {
		reqs[r.next].prev = r.prev
	} else {
		q.tail = r.prev
	}

	a := &q.byAdapter[r.adapter]
	if r.aprev >= 0 {
		reqs[r.aprev].anext = r.anext
	} else {
		a.head = r.anext
	}
	if r.anext >= 0 {
		reqs[r.anext].aprev = r.aprev
	} else {
		a.tail = r.aprev
	}
	if a.head >= 0 {
		a.seq = reqs[a.head].seq
	} else {
		last := q.waiting[len(q.waiting)-1]
		q.waiting[a.at] = last
		q.byAdapter[last].at = a.at
		q.waiting = q.waiting[:len(q.waiting)-1]
		a.at = -1
	}
}

// oldest returns the request that came first of those that first gives for the
// given adapters, as far as they have waiting requests; -1 if there is none.
func (q *queue) oldest(reqs []request, among []int32, first func(adapter int32) int32) int32 {
	best, least := int32(-1), int64(math.MaxInt64)
	for _, k := range among {
		a := &q.byAdapter[k]
		if a.head < 0 || a.seq > least {
			continue
		}
		if h := first(k); h == a.head {
			best, least = h, a.seq
		} else if h >= 0 && reqs[h].seq < least {
			best, least = h, reqs[h].seq
		}
	}
	return best
}
