package sim

import "math"

// list is a doubly linked list of requests, whose links lie in the requests.
type list struct {
	head, tail *request
	of         int // which of a request's links
}

type link struct{ next, prev *request }

// The lists that a waiting request is in.
const (
	inQueue   = iota // all that wait
	ofAdapter        // those of its adapter
	numLists
)

// add puts a request before another one, or, if that is nil, at the end.
func (l *list) add(r, next *request) {
	k := &r.links[l.of]
	k.prev, k.next = l.tail, next
	if next != nil {
		k.prev = next.links[l.of].prev
	}
	if k.prev != nil {
		k.prev.links[l.of].next = r
	} else {
		l.head = r
	}
	if k.next != nil {
		k.next.links[l.of].prev = r
	} else {
		l.tail = r
	}
}

func (l *list) remove(r *request) {
	k := &r.links[l.of]
	if k.prev != nil {
		k.prev.links[l.of].next = k.next
	} else {
		l.head = k.next
	}
	if k.next != nil {
		k.next.links[l.of].prev = k.prev
	} else {
		l.tail = k.prev
	}
}

// queue is the waiting queue of a worker: requests in the order they came, and
// for each adapter its own requests in that order. All operations but oldest
// take constant time.
type queue struct {
	list
	n       int
	seq     int64 // of the latest request to come, or to be numbered by vLLM
	front   int64 // of the latest request put before all others
	byCome  bool  // requests that come back take the place that they had when they came
	rows    *adapterRows
	waiting []int32 // rows with waiting requests, in no order
}

type adapterQueue struct {
	list
	seq int64 // of head; here so that oldest need not look at requests
	at  int32 // index in queue.waiting, -1: no requests
}

// of is the queue of one adapter.
func (q *queue) of(row int32) *adapterQueue { return &q.rows.of(row).queue }

// add appends a request, or puts it before all others.
func (q *queue) add(r *request, front bool) {
	q.n++
	a := &r.row.queue
	first, next := q.head, a.head
	switch {
	case front && q.byCome:
		r.seq = r.came
		for next != nil && next.seq < r.seq {
			next = next.links[ofAdapter].next
		}
	case front:
		q.front--
		r.seq = q.front
	default:
		q.seq++
		r.seq, r.came = q.seq, q.seq
		first, next = nil, nil
	}
	q.list.add(r, first)
	a.add(r, next)
	a.seq = a.head.seq
	if a.at < 0 {
		a.at = int32(len(q.waiting))
		q.waiting = append(q.waiting, r.Adapter)
	}
}

func (q *queue) remove(r *request) {
	q.n--
	q.list.remove(r)
	a := &r.row.queue
	a.remove(r)
	if a.head != nil {
		a.seq = a.head.seq
		return
	}
	last := q.waiting[len(q.waiting)-1]
	q.waiting[a.at] = last
	q.of(last).at = a.at
	q.waiting = q.waiting[:len(q.waiting)-1]
	a.at = -1
}

// all lists the requests in their order.
func (q *queue) all() (rs []*request) {
	for r := q.head; r != nil; r = r.links[inQueue].next {
		rs = append(rs, r)
	}
	return rs
}

// has says whether requests of a row wait.
func (q *queue) has(row int32) bool { return q.of(row).at >= 0 }

// oldest is the request that came first of those that first gives for the
// given adapters, as far as they have waiting requests; nil if there is none.
func (q *queue) oldest(among []int32, first func(row int32) *request) (best *request) {
	least := int64(math.MaxInt64)
	for _, k := range among {
		if a := q.of(k); a.head == nil || a.seq > least {
			continue
		}
		if h := first(k); h != nil && h.seq < least {
			best, least = h, h.seq
		}
	}
	return best
}
