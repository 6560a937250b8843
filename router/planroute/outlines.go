package planroute

import (
	"math"
	"math/bits"

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
	holders int           // see fewHolders
	index   *router.Index // the index that they follow; nil: none
	changes *router.Changes
	workers []outline
	crowded []uint64 // workers with at least as many adapters in use as slots

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
	// The least of the same for a request of an adapter that the worker has ([router.AdapterState.Wanted]).
	stepHere, longerHere float64
	running              float64 // requests in the batch
	waits                float64 // executions until the request gets a place in the batch and a slot
	place                float64 // the part of it until there is a place in the batch
	exec                 float64 // s; -1: not known
	// As in prefillSteps, of the last step: when it begins, is formed, and ends; -Inf if there is none.
	starts, closes, ends float64
	loads, compute       float64 // of its prompts before it is formed, s
	joins                bool    // there are such prompts
	pace                 float64 // as in prefillSteps; 0: nothing runs
	one                  float64 // a decode step of one request, if steps of prompts also decode; else infinite
	ahead                bool    // of its spec
	fetched              float64 // as in backlog
	kind                 int32   // of the worker; -1: it is not usable
	fetches              bool    // the worker fetches adapters in its steps
	evicts               bool    // an adapter makes way for that of the request
	unused               bool    // no request was sent there
	reads                bool    // it is down, or its report is late
	// Of a usable worker: 1, its waiting requests, its slots, and the adapters that take them or wait for them.
	usable, queued, slots, taken int32
	// The steps without the KV tokens, to look at these alone.
	bare, bareHere float64
}

// fill is an outline with the KV tokens that a worker holds now.
func (b *priceBounds) fill(o *outline, w *router.Worker) {
	o.step, o.stepHere = o.bare, o.bareHere
	if w.Age <= 0 {
		kv := b.perKV[o.kind] * float64(w.KVUsed)
		o.step += kv
		o.stepHere += kv
	}
}

// refill renews the outline of a worker whose KV tokens were read: a cache that fills up is no news of [router.Index].
func (p *planAndRoute) refill(j int, v *router.View) {
	if o := &p.outlines; o.follows(v) && o.workers[j].kind >= 0 {
		p.bounds.fill(&o.workers[j], &v.Workers[j])
		if o.groups.on {
			o.groups.renew(int32(j), o.workers)
		}
	}
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
		*o = outlines{few: o.few, holders: o.holders, index: v.Index, changes: v.Index.Follow(len(v.Workers)),
			groups: o.groups, workers: make([]outline, len(v.Workers))}
		o.groups.begin(len(v.Workers), len(p.bounds.costs))
	}
	usual, _ := v.Index.Hosts(trace.BaseModel)
	for _, j := range o.changes.Take() {
		w := &o.workers[j]
		o.count(w, -1)
		*w = p.outlineOf(int(j), v)
		o.count(w, 1)
		put(&o.crowded, int(j), crowded(&v.Workers[j]))
		p.move(j, v, usual[j])
	}
}

// count adds a worker to the sums, or takes it out.
func (o *outlines) count(w *outline, n int) {
	o.usable += n * int(w.usable)
	o.queued += n * int(w.queued)
	o.slots += n * int(w.slots)
	o.taken += n * int(w.taken)
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

// slotsFreed notes that an adapter has more requests than it had: where slots are scarce, the slots that it has become
// free less often.
func (o *outlines) slotsFreed(adapter int32, v *router.View) {
	if adapter == trace.BaseModel {
		return
	}
	for i, set := range v.Index.Workers(adapter) {
		if i == len(o.crowded) {
			break // the rest are workers that have not changed yet
		}
		for set &= o.crowded[i]; set != 0; set &= set - 1 {
			o.changed(64*i + bits.TrailingZeros64(set))
		}
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
		one: math.Inf(1), kind: kind, running: float64(running), longer: math.Inf(-1),
		longerHere: math.Inf(-1), exec: l.exec.Or(-1),
		starts: l.last.starts, closes: l.last.closes, ends: l.ends, fetched: l.fetched, fetches: b.specs[j].fetches,
		evicts: w.SlotsUsed >= w.Slots,
		usable: 1, queued: int32(w.Queued), slots: int32(w.Slots), taken: int32(w.FlightLoras),
		reads:  w.Age > 0,
		unused: !l.used && w.Running+w.Queued == 0 && w.SlotsUsed == 0 && w.KVUsed == 0 && w.Tokens == 0 && w.Age == 0,
	}
	if w.Running+w.Queued == 0 {
		o.starts, o.closes, o.ends = math.Inf(-1), math.Inf(-1), math.Inf(-1)
	}
	if !math.IsInf(o.closes, -1) {
		n := l.next(w, &p.workers[j], math.Nextafter(l.last.closes, math.Inf(-1)))
		o.joins, o.loads, o.compute = n.tokens > 0, n.loads, n.compute
	}
	if running > 0 {
		if o.pace, o.ahead = l.pace, p.workers[j].Ahead; p.workers[j].Mixes {
			o.one = b.step(kind, 1, 1, w.MaxRank)
		}
	}
	step := b.step(kind, batch, w.ActiveLoras+1, w.MaxRank)
	same := step // without another adapter
	if w.ActiveLoras > 0 {
		same = b.step(kind, batch, w.ActiveLoras, w.MaxRank)
	}
	if batch > running {
		before := b.step(kind, running, w.ActiveLoras, w.MaxRank)
		o.longer = step - before
		if o.longerHere = min(step, same) - before; w.WaitingLoras > 0 { // the adapter soon runs there anyway
			o.longerHere = min(o.longerHere, step-b.step(kind, running, w.ActiveLoras+1, w.MaxRank))
		}
	}
	o.bare, o.bareHere = step, min(step, same)
	b.fill(&o, w)
	c := p.slotCrowd(w, l.exec.Or(0)) // not known: it changes with requests of other workers
	if w.Running+w.Queued >= limit {
		if c.slotless == 0 {
			c.slotless = fetching(w) // some of them, later
		}
		o.place = float64(max(w.Running+max(w.Queued-c.slotless, 0)+1-limit, 0)) / float64(limit)
	}
	o.waits = c.turnsOfNew(w.Slots, b.specs[j].blocks) + o.place
	return o
}

// outlined returns bounds of the prices of all workers but those where the adapter was offered already. They need no
// look at the workers. A bound is infinite if the worker is not usable.
func (p *planAndRoute) outlined(r *router.Request, v *router.View) []float64 {
	b, bounds := &p.bounds, p.bounds.all[:0]
	usual, others := v.Index.Hosts(r.Adapter)
	has := v.Index.Workers(r.Adapter)
	for j := range p.outlines.workers {
		at := standing{hosted: usual[j], wanted: in(has, j), placed: in(b.placed, j)}
		if len(others) > 0 && int(others[0]) == j {
			at.hosted, others = !at.hosted, others[1:]
		}
		bounds = append(bounds, p.outlines.workers[j].bound(p, r, v.Now, at))
	}
	b.all = bounds
	return bounds
}

// standing is what a worker has to do with a request's adapter.
type standing struct {
	hosted bool // it is in host memory
	wanted bool // the worker has it: [router.AdapterState.Wanted]
	placed bool // it is placed there
}

// crowded says whether at least as many adapters are in use on a worker as it has slots.
func crowded(w *router.Worker) bool { return w.ActiveLoras+w.WaitingLoras >= w.Slots }

// put enters a worker in a set, or takes it out.
func put(set *[]uint64, worker int, is bool) {
	word, bit := at(set, worker/64), uint64(1)<<(worker%64)
	if *word &^= bit; is {
		*word |= bit
	}
}

// in says whether a worker is in a set.
func in(set []uint64, worker int) bool {
	return worker/64 < len(set) && set[worker/64]>>(worker%64)&1 > 0
}

// bound is what the price of a worker is not below.
func (w *outline) bound(p *planAndRoute, r *router.Request, now float64, at standing) float64 {
	if w.kind < 0 {
		return math.Inf(1)
	}
	b := &p.bounds
	prefill, load, more := b.prefill[w.kind], b.load[w.kind], b.perKV[w.kind]*float64(r.Prompt)
	step, longer, waits, slot := w.step+more, w.longer, w.waits, p.pool.price
	if at.wanted {
		step, longer, waits, slot, load = w.stepHere+more, w.longerHere, w.place, 0, 0
	}
	first, others, ready := prefill+load, load, 0.0
	switch {
	case at.hosted || at.wanted:
	case w.fetches:
		first += b.fetch[w.kind]
		others += b.fetch[w.kind]
	default:
		ready = max(w.fetched-now, 0) + b.fetch[w.kind]
	}
	first += max(step-w.one, 0)
	if w.evicts {
		first += load
		others += load
	}
	if w.closes > now {
		first += max(w.starts-now, ready) + w.loads + max(w.compute-prefill, 0)
	} else {
		first += max(w.wait(now), ready)
	}
	if !(w.joins && w.closes > now) { // else it may add little to other prompts
		others += b.delays(w.kind, prefill)
	}
	exec := w.exec
	if exec < 0 {
		exec = b.exec
	}
	if !at.placed {
		slot += p.spill
	}
	const less = 1 - 1e-9 // it is not added up in the same order
	return less * (b.weight*(first+exec*waits) + b.output*step + exec*slot +
		prefill*p.behind + w.running*(others+b.output*max(0, longer+more)))
}

// wait is the time until the worker begins a step that it has not formed, s.
func (w *outline) wait(now float64) float64 {
	l, t := prefillSteps{ends: w.ends, pace: w.pace}, w.ends-now
	if now >= w.ends && w.pace > 0 {
		t = l.decodeLeft(now)
	}
	if w.ahead && now >= w.starts {
		t += w.pace
	}
	return t
}

// outlinesSuffice says whether outlines bound the prices of a request. Workers that keep prefixes compute less of it,
// and a first use is shared by later requests.
func (p *planAndRoute) outlinesSuffice(r *router.Request, v *router.View) bool {
	return p.outlines.follows(v) && p.uses.used == nil && p.index == nil && r.Adapter != trace.BaseModel
}
