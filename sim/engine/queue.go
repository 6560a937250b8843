package engine

import (
	"iter"
	"math"

	"lorasim/sim/lora"
)

// list is a doubly linked list of requests. Its links are in the requests.
type list struct {
	head, tail *Request
	of         int // which of a request's links
}

type link struct{ next, prev *Request }

// The lists that a waiting request is in.
const (
	inQueue   = iota // all waiting requests
	ofAdapter        // the waiting requests of its adapter
	numLists
)

// add inserts a request before next, or at the end if next is nil.
func (l *list) add(r, next *Request) {
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

func (l *list) remove(r *Request) {
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

// A Queue is the waiting queue: all waiting requests, and those of each adapter, in the order of their
// arrival. All operations but [Queue.OldestOf] take constant time.
type Queue struct {
	list
	n        int
	seq      int64 // of the latest request to come, or to be numbered by vLLM
	front    int64 // of the latest request put before all others
	byCome   bool  // requests that come back take the place that they had when they came
	adapters []*Adapter
	choices  []*Adapter // see Candidates
}

type adapterQueue struct {
	list
	seq int64 // of head; here so that oldest need not look at requests
	at  int32 // index in Queue.adapters, -1: no requests
}

// Len returns the number of waiting requests.
func (q *Queue) Len() int { return q.n }

// Oldest returns the first request in the order of arrival; nil: none.
func (q *Queue) Oldest() *Request { return q.head }

// Newest returns the last request in the order of arrival; nil: none.
func (q *Queue) Newest() *Request { return q.tail }

// Adapters lists the adapters with waiting requests, in no order. The list is valid until the queue changes.
func (q *Queue) Adapters() []*Adapter { return q.adapters }

// Candidates lists adapters that include all those that can run and have waiting requests. If no slot can be obtained,
// these are only the adapters in use, and the base model if it needs no slot. The list is valid until the next call.
func (q *Queue) Candidates(l *lora.Manager, rows *Table) []*Adapter {
	active := l.ActiveAdapters()
	if l.Pins() || !l.Full() || len(active) >= len(q.adapters) {
		return q.adapters
	}
	q.choices = q.choices[:0]
	for _, a := range active {
		q.choices = append(q.choices, rows.met[a.Row])
	}
	if base := rows.base; base != nil && base.Waiting > 0 && l.CanRun(&base.Adapter) {
		q.choices = append(q.choices, base)
	}
	return q.choices
}

// Number gives a request the largest [Request.Seq] of all.
func (q *Queue) Number(r *Request) {
	q.seq++
	r.seq = q.seq
}

// add appends a request, or puts it first.
func (q *Queue) add(r *Request, front bool) {
	q.n++
	r.Row.Waiting++
	a := &r.Row.queue
	first, next := q.head, a.head
	switch {
	case front && q.byCome:
		r.seq = r.arrivalSeq
		for next != nil && next.seq < r.seq {
			next = next.links[ofAdapter].next
		}
	case front:
		q.front--
		r.seq = q.front
	default:
		q.seq++
		r.seq, r.arrivalSeq = q.seq, q.seq
		first, next = nil, nil
	}
	q.list.add(r, first)
	a.add(r, next)
	a.seq = a.head.seq
	if a.at < 0 {
		a.at = int32(len(q.adapters))
		q.adapters = append(q.adapters, r.Row)
	}
}

func (q *Queue) remove(r *Request) {
	q.n--
	r.Row.Waiting--
	q.list.remove(r)
	a := &r.Row.queue
	a.remove(r)
	if a.head != nil {
		a.seq = a.head.seq
		return
	}
	last := q.adapters[len(q.adapters)-1]
	q.adapters[a.at] = last
	last.queue.at = a.at
	q.adapters = q.adapters[:len(q.adapters)-1]
	a.at = -1
}

// All yields the waiting requests in the order of arrival.
func (q *Queue) All() iter.Seq[*Request] {
	return func(yield func(*Request) bool) {
		for r := q.head; r != nil; r = r.links[inQueue].next {
			if !yield(r) {
				return
			}
		}
	}
}

// OldestOf calls first for the given adapters that have waiting requests. Of the requests that first returns,
// it returns the one that came first; nil: none.
func (q *Queue) OldestOf(among []*Adapter, first func(a *Adapter) *Request) (best *Request) {
	least := int64(math.MaxInt64)
	for _, k := range among {
		if a := &k.queue; a.head == nil || a.seq > least {
			continue
		}
		if h := first(k); h != nil && h.seq < least {
			best, least = h, h.seq
		}
	}
	return best
}

// A Gate decides whether a step looks at the waiting requests.
//
// changed: something has happened since the last look that may admit a waiting request. It only saves looks
// and never changes results. full: no look helps until a request leaves the batch. Under sglang that is the
// scheduler's batch_is_full, and changes results; under vLLM it is a shortcut. A step looks if the gate is
// open: changed && !full.
type Gate struct {
	changed, full bool

	// Events that open a full gate, besides a request that leaves the batch.
	ArrivalOpens  bool // arrival of a request, which may be the first in the order
	PrefetchOpens bool // load of its adapter, which may have taken the slot of the request that found no memory
	LoadOpens     bool // end of any load
	Always        bool // a change ends the decode run even if the gate is full
}

// Open reports whether a step looks at the queue.
func (g *Gate) Open() bool { return g.changed && !g.full }

// Full reports whether no look helps until a request leaves the batch.
func (g *Gate) Full() bool { return g.full }

// RequestLeft notes, between steps, that a request has left the batch.
func (g *Gate) RequestLeft() { g.full, g.changed = false, true }

// NoRoom closes the gate until a request leaves the batch.
func (g *Gate) NoRoom() { g.full = true }

// SetFull closes the gate until a request leaves the batch (full), or opens it (!full).
func (g *Gate) SetFull(full bool) { g.full = full }

// Exhausted notes that a look has found no more requests to admit.
func (g *Gate) Exhausted() { g.changed = false }

// Look makes the next step look at the queue, unless the gate is full.
func (g *Gate) Look() { g.changed = true }
