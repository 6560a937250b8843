package planroute

import (
	"math"

	"lorasim/router"
	"lorasim/trace"
)

// outlines have what prices need of each worker and what does not depend on the request, side by side. A fleet of many
// workers then costs a request a few nanoseconds for each worker that it does not go to. Only the workers that have
// changed since the latest request are looked at ([router.Index.Follow]).
//
// Invariant after update: an outline is what outlineOf returns now, but for a KV cache that has filled up since. It
// does not depend on the time. The sums are those of all outlines.
type outlines struct {
	few     int           // workers below which a full scan is as fast
	index   *router.Index // the index that they follow; nil: none
	changes *router.Changes
	workers []outline

	groups groups
	// Sums over the workers.
	usable, queued, slots, taken int
	toRead                       int // workers whose state is read before a request is routed, see accounts.read
}

// fewWorkers is the number of workers below which there are no outlines.
const fewWorkers = 32

// outline is what a bound on a price needs of one worker.
type outline struct {
	// A decode step of the batch with a request more, of another adapter, s: with the present KV tokens; and by how
	// much it is longer than a step without the request, -Inf if there is no place for it.
	step, longer float64
	running      float64 // requests in the batch
	waits        float64 // executions until the request gets a place in the batch and a slot
	exec         float64 // s; -1: not known
	// As in backlog: the end of the prefill step under way, and of the prompts sent there; -Inf if there are none.
	stepEnd, prefilled float64
	fetched            float64 // as in backlog
	kind               int32   // of the worker; -1: it is not usable
	fetches            bool    // the worker fetches adapters in its steps
	evicts             bool    // an adapter makes way for that of the request
	unused             bool    // no request was sent there
	reads              bool    // it is down, or its report is late
	// Of a usable worker: 1, its waiting requests, its slots, and the adapters that take them or wait for them.
	usable, queued, slots, taken int
}

// follows says whether outlines are kept for the workers of a view.
func (o *outlines) follows(v *router.View) bool { return o.index != nil && o.index == v.Index }

// update looks at the workers that have changed. It follows a new view from its first request on.
func (p *planAndRoute) update(v *router.View) {
	o := &p.outlines
	if v.Index == nil || len(v.Workers) < o.few {
		return
	}
	if o.index != v.Index {
		*o = outlines{few: o.few, index: v.Index, changes: v.Index.Follow(len(v.Workers)), groups: o.groups,
			workers: make([]outline, len(v.Workers))}
		o.groups.begin(len(v.Workers), len(p.bounds.costs))
	}
	usual, _ := v.Index.Hosts(trace.BaseModel)
	for _, j := range o.changes.Take() {
		w := &o.workers[j]
		o.count(w, -1)
		*w = p.outlineOf(int(j), v)
		o.count(w, 1)
		p.move(j, v, usual[j])
	}
}

// count adds a worker to the sums, or takes it out.
func (o *outlines) count(w *outline, n int) {
	o.usable += n * w.usable
	o.queued += n * w.queued
	o.slots += n * w.slots
	o.taken += n * w.taken
	if w.reads {
		o.toRead += n
	}
}

// changed notes that the accounts of a worker have changed.
func (o *outlines) changed(worker int) {
	if o.index != nil {
		o.changes.Add(worker)
	}
}

// outlineOf looks at a worker.
func (p *planAndRoute) outlineOf(j int, v *router.View) outline {
	w, l, b := &v.Workers[j], &p.backlogs[j], &p.bounds
	if !w.Usable() {
		return outline{kind: -1, reads: !w.Up || w.Age > 0}
	}
	v.ReadKV(j)
	kind, running, limit := b.specs[j].kind, min(w.Running, w.MaxRunning), max(w.MaxRunning, 1)
	batch := min(running+1, limit)
	o := outline{
		kind: kind, running: float64(running), longer: math.Inf(-1), exec: l.exec.Or(-1),
		stepEnd: l.stepEnd, prefilled: l.prefilled, fetched: l.fetched, fetches: b.specs[j].fetches,
		evicts: w.SlotsUsed >= w.Slots,
		usable: 1, queued: w.Queued, slots: w.Slots, taken: w.FlightLoras,
		reads:  w.Age > 0,
		unused: !l.used && w.Running+w.Queued == 0 && w.SlotsUsed == 0 && w.KVUsed == 0 && w.Tokens == 0 && w.Age == 0,
	}
	if w.Running+w.Queued == 0 {
		o.stepEnd, o.prefilled = math.Inf(-1), math.Inf(-1)
	}
	step := b.step(kind, batch, w.ActiveLoras+1, w.MaxRank)
	if batch > running {
		o.longer = step - b.step(kind, running, w.ActiveLoras, w.MaxRank)
	}
	if o.step = step; w.Age <= 0 {
		o.step += b.perKV[kind] * float64(w.KVUsed)
	}
	c := p.slotCrowd(w, l.exec.Or(0)) // not known: it changes with requests of other workers
	o.waits = c.turnsOfNew(w.Slots, b.specs[j].blocks)
	if w.Running+w.Queued >= limit {
		if c.slotless == 0 {
			c.slotless = fetching(w) // some of them, later
		}
		o.waits += float64(max(w.Running+max(w.Queued-c.slotless, 0)+1-limit, 0)) / float64(limit)
	}
	return o
}

// outlined returns bounds of the prices of all workers, for a request whose adapter has neither a slot nor requests
// there, and is not placed there. They need no look at the workers. A bound is infinite if the worker is not usable.
func (p *planAndRoute) outlined(r *router.Request, v *router.View) []float64 {
	b, bounds := &p.bounds, p.bounds.all[:0]
	usual, others := v.Index.Hosts(r.Adapter)
	for j := range p.outlines.workers {
		here := usual[j]
		if len(others) > 0 && int(others[0]) == j {
			here, others = !here, others[1:]
		}
		bounds = append(bounds, p.outlines.workers[j].bound(p, r, v.Now, here))
	}
	b.all = bounds
	return bounds
}

// bound is what the price of a worker is not below. here: the adapter is in its host memory.
func (w *outline) bound(p *planAndRoute, r *router.Request, now float64, here bool) float64 {
	if w.kind < 0 {
		return math.Inf(1)
	}
	b := &p.bounds
	prefill, load, more := b.prefill[w.kind], b.load[w.kind], b.perKV[w.kind]*float64(r.Prompt)
	step := w.step + more
	first, others, ready := prefill+load, load, 0.0
	switch {
	case here:
	case w.fetches:
		first += b.fetch[w.kind]
		others += b.fetch[w.kind]
	default:
		ready = max(w.fetched-now, 0) + b.fetch[w.kind]
	}
	if w.running > 0 {
		first += step
	}
	if w.evicts {
		first += load
		others += load
	}
	if w.stepEnd > now {
		first += max(w.stepEnd-now, ready) // the prompt joins others, and may add little
	} else {
		first += max(w.prefilled-now, ready)
		others += b.delays(w.kind, prefill)
	}
	exec := w.exec
	if exec < 0 {
		exec = b.exec
	}
	const less = 1 - 1e-9 // it is not added up in the same order
	return less * (b.weight*(first+exec*w.waits) + b.output*step + exec*(p.spill+p.pool.price) +
		prefill*p.behind + w.running*(others+b.output*max(0, w.longer+more)))
}

// outlinesSuffice says whether outlines bound the prices of a request. Workers that keep prefixes compute less of it,
// and a first use is shared by later requests.
func (p *planAndRoute) outlinesSuffice(r *router.Request, v *router.View) bool {
	return p.outlines.follows(v) && p.used == nil && p.index == nil && r.Adapter != trace.BaseModel
}
