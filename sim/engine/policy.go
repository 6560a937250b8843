package engine

import (
	"cmp"
	"math"

	"lorasim/sim/profile"
	"lorasim/trace"
)

// A Policy orders the waiting requests. Among equals, the order of arrival decides.
type Policy struct {
	kind     ordering
	lowFirst bool // the lowest priority value comes first
	adapters []trace.Adapter
	queue    *Queue
	batch    *Batch
	// lastDequeued is the adapter of the request that left the queue empty; nil: none.
	lastDequeued *Adapter
}

type ordering uint8

const (
	fcfs       ordering = iota
	byPriority          // the adapter's priority
	byService           // the adapter's served tokens, least first
)

func newPolicy(e *profile.Engine, r *Rules, adapters []trace.Adapter, q *Queue, b *Batch) Policy {
	p := Policy{lowFirst: r.LowFirst || e.LowPriorityFirst, adapters: adapters, queue: q, batch: b}
	switch e.SchedulePolicy {
	case profile.OrderPriority:
		p.kind = byPriority
		q.byCome = r.KeepsPlace
	case profile.OrderVTC:
		p.kind = byService
	}
	return p
}

// FCFS reports whether the order is first come, first served.
func (p *Policy) FCFS() bool { return p.kind == fcfs }

// ByPriority reports whether priorities order the requests.
func (p *Policy) ByPriority() bool { return p.kind == byPriority }

// key returns an adapter's key in the order. The least key comes first.
func (p *Policy) key(a *Adapter) int64 {
	switch p.kind {
	case byPriority:
		return p.Priority(a)
	case byService:
		return p.Service(a, 0)
	}
	return 0
}

// Priority returns an adapter's priority such that the least comes first: the value itself if low values come
// first, else its negative. It is 0 for the base model.
func (p *Policy) Priority(a *Adapter) int64 {
	switch {
	case int(a.Index) >= len(p.adapters):
		return 0
	case p.lowFirst:
		return int64(p.adapters[a.Index].Priority)
	}
	return -int64(p.adapters[a.Index].Priority)
}

// First returns the first request, in this order, of those that the function first returns for adapters with
// waiting requests; nil: none.
func (p *Policy) First(among []*Adapter, first func(a *Adapter) *Request) (best *Request) {
	if p.kind == fcfs {
		return p.queue.OldestOf(among, first)
	}
	least := int64(math.MaxInt64)
	for _, a := range among {
		if a.Waiting == 0 {
			continue
		}
		key := p.key(a)
		if best != nil && (key > least || key == least && a.queue.seq > best.seq) {
			continue
		}
		if r := first(a); r != nil && (best == nil || key < least || r.seq < best.seq) {
			best, least = r, key
		}
	}
	return best
}

// Head returns the first waiting request, regardless of whether it can be admitted; nil: none.
func (p *Policy) Head() *Request {
	if p.kind == fcfs {
		return p.queue.head
	}
	return p.First(p.queue.adapters, (*Adapter).Head)
}

// Last returns the waiting request with the worst priority, and among equals the one that came last.
func (p *Policy) Last() *Request {
	last := p.queue.head
	for _, a := range p.queue.adapters {
		if r := a.queue.tail; cmp.Or(cmp.Compare(p.Priority(a), p.Priority(last.Row)),
			cmp.Compare(r.seq, last.seq)) > 0 {
			last = r
		}
	}
	return last
}

// Weights of prompt and output tokens in virtual token counters (Y. Sheng et al., "Fairness in Serving Large Language
// Models", OSDI'24, Algorithm 2). An adapter's counter is the weighted number of tokens it was served. Among adapters
// with waiting requests, the one with the least counter is next. When an adapter without waiting requests gets one, its
// counter is raised to the least of the others, so idle time gives no credit. A prompt counts when its request runs for
// the first time, not again after a retraction or move.
const (
	promptWeight = 1
	OutputWeight = 2
)

// service is an adapter's counter: the tokens counted up to decode step since. Running requests count per
// step from then on.
type service struct{ tokens, since int64 }

// Service returns an adapter's counter after the given number of steps of the current run.
func (p *Policy) Service(a *Adapter, done int64) int64 {
	return a.served.tokens + OutputWeight*int64(a.Decoding)*(p.batch.Steps+done-a.served.since)
}

// serve adds tokens to an adapter's counter.
func (p *Policy) serve(a *Adapter, tokens int64) {
	if p.kind == byService { // alone in here, so that it is inlined
		p.add(a, tokens)
	}
}

func (p *Policy) add(a *Adapter, tokens int64) {
	a.served = service{p.Service(a, 0) + tokens, p.batch.Steps}
}

// lift raises the counter of an adapter without waiting requests when a request of it comes, after done steps
// of the run under way.
func (p *Policy) lift(a *Adapter, done int64) {
	if a.Waiting > 0 {
		return
	}
	least := int64(math.MinInt64)
	if p.queue.n > 0 {
		least = math.MaxInt64
		for _, o := range p.queue.adapters {
			least = min(least, p.Service(o, done))
		}
	} else if p.lastDequeued != nil {
		least = p.Service(p.lastDequeued, done)
	}
	if c := p.Service(a, done); c < least {
		a.served.tokens += least - c
	}
}
