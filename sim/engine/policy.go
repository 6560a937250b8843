package engine

import (
	"cmp"
	"math"

	"lorasim/sim/profile"
	"lorasim/trace"
)

// Policy decides which waiting request is next, before the order in which they came.
type Policy struct {
	kind     ordering
	lowFirst bool // the lowest value of a priority is the first
	adapters []trace.Adapter
	queue    *Queue
	batch    *Batch
	// lastDequeued is the adapter of the request whose leaving emptied the queue, nil: none.
	lastDequeued *Adapter
}

type ordering uint8

const (
	fcfs       ordering = iota
	byPriority          // the adapter's priority
	byService           // what the adapter has been served, least first
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

// FCFS says whether requests go in the order in which they came.
func (p *Policy) FCFS() bool { return p.kind == fcfs }

// ByPriority says whether priorities decide.
func (p *Policy) ByPriority() bool { return p.kind == byPriority }

// key is an adapter's place in the order, the least first.
func (p *Policy) key(a *Adapter) int64 {
	switch p.kind {
	case byPriority:
		return p.Priority(a)
	case byService:
		return p.Service(a, 0)
	}
	return 0
}

// Priority is an adapter's priority, the least first: as it is where low values are first, else turned round. The base
// model's is 0.
func (p *Policy) Priority(a *Adapter) int64 {
	switch {
	case int(a.Index) >= len(p.adapters):
		return 0
	case p.lowFirst:
		return int64(p.adapters[a.Index].Priority)
	}
	return -int64(p.adapters[a.Index].Priority)
}

// First is the first, in this order, of the requests that first gives for adapters with waiting requests; nil:
// none.
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

// Head is the first waiting request, whether it may be admitted or not.
func (p *Policy) Head() *Request {
	if p.kind == fcfs {
		return p.queue.head
	}
	return p.First(p.queue.adapters, (*Adapter).Head)
}

// Last returns the waiting request with the worst priority; among equals the one that came last.
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

// Virtual token counters (Y. Sheng et al., "Fairness in Serving Large Language Models", OSDI'24, Algorithm 2): an
// adapter's counter is what it was served in prompt and output tokens, by weight, and of those with waiting
// requests the one with the least counter is next. One that had none is lifted to the least of the others when it
// comes (back), so that it has no claim on what it did not ask for. A prompt counts when its request runs for the
// first time, not again after a retraction or move.
const (
	PromptWeight = 1
	OutputWeight = 2
)

// service is an adapter's counter: what was counted, and since when the running requests count step by step.
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

// lift raises the counter of an adapter without waiting requests, of which one comes after so many steps of the run
// under way.
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
