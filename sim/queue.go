package sim

import (
	"slices"

	"lorasim/sim/profile"
	"lorasim/trace"
)

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
	head, tail int32
	at         int32 // index in queue.waiting, -1: no requests
}

func (q *queue) init(rows int) {
	q.head, q.tail = -1, -1
	q.byAdapter = make([]adapterQueue, rows)
	for i := range q.byAdapter {
		q.byAdapter[i] = adapterQueue{-1, -1, -1}
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
		a.head = i
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
	a.head = i
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
	if a.head < 0 {
		last := q.waiting[len(q.waiting)-1]
		q.waiting[a.at] = last
		q.byAdapter[last].at = a.at
		q.waiting = q.waiting[:len(q.waiting)-1]
		a.at = -1
	}
}

// oldest returns the request that came first among those whose adapter
// satisfies ok, -1 if there is none.
func (q *queue) oldest(reqs []request, ok func(adapter int32) bool) int32 {
	best := int32(-1)
	for _, a := range q.waiting {
		if h := q.byAdapter[a].head; (best < 0 || reqs[h].seq < reqs[best].seq) && ok(a) {
			best = h
		}
	}
	return best
}

// rankCount counts requests by the rank of their adapter, to know the largest.
type rankCount struct {
	ranks []int   // distinct ranks, ascending; ranks[0] is 0 for the base model
	class []uint8 // row of the adapter table -> index into ranks
	n     []int64 // by class
	top   int     // largest class with requests
}

func (c *rankCount) init(costs *profile.Costs, adapters []trace.Adapter) {
	c.ranks = []int{0}
	for _, a := range adapters {
		if r := costs.Rank(a.Rank); !slices.Contains(c.ranks, r) {
			c.ranks = append(c.ranks, r)
		}
	}
	slices.Sort(c.ranks)
	c.class = make([]uint8, len(adapters)+1)
	for i, a := range adapters {
		c.class[i] = uint8(min(slices.Index(c.ranks, costs.Rank(a.Rank)), 255))
	}
	c.n = make([]int64, len(c.ranks))
}

func (c *rankCount) add(row int32, d int64) {
	k := int(c.class[row])
	c.n[k] += d
	if d > 0 {
		c.top = max(c.top, k)
		return
	}
	for c.top > 0 && c.n[c.top] == 0 {
		c.top--
	}
}

// max is the largest rank counted, 0 if there is none.
func (c *rankCount) max() int { return c.ranks[c.top] }
