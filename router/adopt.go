package router

import (
	"math"
	"slices"
)

// recall is what auto remembers for policies that take over: the latest requests, and the adapters that each worker's
// front end has met.
type recall struct {
	*window
	used [][]uint64 // by worker, a bit for each adapter
}

// recall is what the requests of a window tell alone.
func (w *window) recall(workers, adapters int) *recall {
	m := &recall{window: w, used: make([][]uint64, workers)}
	for j := range m.used {
		m.used[j] = make([]uint64, (adapters+63)/64)
	}
	for n := w.oldest(); n < w.n; n++ {
		if s := w.at(n); s.worker >= 0 && isAdapter(s.adapter) {
			m.used[s.worker][s.adapter/64] |= 1 << (s.adapter % 64)
		}
	}
	return m
}

// met says whether requests for an adapter were sent to a worker.
func (m *recall) met(j int, k int32) bool { return m.used[j][k/64]>>(k%64)&1 > 0 }

// adopter is a policy that can take over while a run goes on: it learns from a memory what it would know had it seen
// the requests, but for its prefix index.
type adopter interface {
	adopt(m *recall, v *View)
}

// copier is a policy that can go on from what another one of its kind knows.
type copier interface {
	// copyFrom takes over the state of another policy, but for its prefix index. Its times count from now on. The two
	// share nothing afterwards. false: the other one is of another kind.
	copyFrom(old Policy, now float64) bool
}

// indexed is a policy with an index of what workers keep of prompts.
type indexed interface {
	// prefixes is where its index is.
	prefixes() **prefixIndex
}

// learn has a policy take over with what a memory tells.
func learn(next Policy, m *recall, v *View) {
	if x, ok := next.(indexed); ok && *x.prefixes() != nil {
		(*x.prefixes()).adopt(m.window, v, m.keptFrom())
	}
	if a, ok := next.(adopter); ok {
		a.adopt(m, v)
	}
}

// takeUp has a policy go on where another one is at the time of a memory and a view: with the state of that one, where
// it can copy that, else with what the memory tells.
func takeUp(next, old Policy, m *recall, v *View) {
	if x, ok := next.(indexed); ok && *x.prefixes() != nil {
		(*x.prefixes()).adopt(m.window, v, m.keptFrom())
	}
	follow(next, old, m, v)
}

// replace is takeUp of a policy that is not used any more: its prefix index goes to the next one. Where theirs are of
// different kinds, that is the index made ready for the next one when the memory had so many requests, if there is one.
func replace(next, old Policy, m *recall, v *View, ready *prefixIndex, until int64) {
	if x, ok := next.(indexed); ok && *x.prefixes() != nil && !inherit(x, old) {
		from := m.keptFrom()
		if ready != nil && (*x.prefixes()).like(ready) {
			*x.prefixes(), from = ready, max(from, until)
		}
		(*x.prefixes()).adopt(m.window, v, from)
	}
	follow(next, old, m, v)
}

// follow is takeUp but for the prefix index.
func follow(next, old Policy, m *recall, v *View) {
	if c, ok := next.(copier); ok && c.copyFrom(old, 0) {
		return
	}
	if a, ok := next.(adopter); ok {
		a.adopt(m, v)
	}
}

// inherit has a policy use the prefix index of another one; false: theirs are of different kinds.
func inherit(next indexed, old Policy) bool {
	o, ok := old.(indexed)
	if !ok || *o.prefixes() == nil || !(*next.prefixes()).like(*o.prefixes()) {
		return false
	}
	*next.prefixes() = *o.prefixes()
	return true
}

// like says whether another index keeps the same.
func (x *prefixIndex) like(y *prefixIndex) bool {
	return x.reported == y.reported && x.shared == y.shared && x.block == y.block && x.capacity == y.capacity &&
		x.fits == y.fits
}

// placing is a policy that keeps a placement.
type placing interface{ asPlacer() *placer }

func (p *placer) asPlacer() *placer { return p }

// copyFrom implements copier.
func (p *placer) copyFrom(old Policy, now float64) bool {
	o, ok := old.(placing)
	if !ok {
		return false
	}
	q := o.asPlacer()
	p.setPlacement(clonePlacement(q.held))
	p.demand, p.planned, p.planAt = slices.Clone(q.demand), q.planned, q.planAt-now
	return true
}

// copyFrom implements copier.
func (p *minCost) copyFrom(old Policy, now float64) bool {
	q, ok := old.(*minCost)
	if !ok || !p.placer.copyFrom(old, now) {
		return false
	}
	p.replicas, p.changed = slices.Clone(q.replicas), slices.Clone(q.changed)
	for k := range p.changed {
		p.changed[k] -= now
	}
	return true
}

// copyFrom implements copier.
func (p *rankGroup) copyFrom(old Policy, now float64) bool {
	_, ok := old.(*rankGroup)
	return ok && p.placer.copyFrom(old, now)
}

// copyFrom implements copier.
func (p *kShard) copyFrom(old Policy, now float64) bool {
	q, ok := old.(*kShard)
	if !ok {
		return false
	}
	p.shards = slices.Clone(q.shards)
	for k := range p.shards {
		p.shards[k].changed -= now
		p.shards[k].k = min(max(p.shards[k].k, p.min), p.max)
	}
	return true
}

// copyFrom implements copier.
func (p *roundRobin) copyFrom(old Policy, _ float64) bool {
	q, ok := old.(*roundRobin)
	if ok {
		p.next = q.next
	}
	return ok
}

// copyFrom implements copier.
func (p *planAndRoute) copyFrom(old Policy, now float64) bool {
	q, ok := old.(*planAndRoute)
	if !ok || !p.placer.copyFrom(old, now) {
		return false
	}
	p.accounts.copyFrom(&q.accounts, now)
	p.first, p.prompt, p.found, p.gap, p.latest = q.first, q.prompt, q.found, q.gap, q.latest-now
	p.pool.usage = q.pool.usage
	return true
}

// copyFrom takes over what other accounts say.
func (p *accounts) copyFrom(q *accounts, now float64) {
	p.exec, p.output = q.exec, q.output
	p.backlogs, p.used = slices.Clone(q.backlogs), slices.Clone(q.used)
	for j := range p.backlogs {
		l := &p.backlogs[j]
		l.entered, l.prefilled, l.stepEnd, l.fetched = l.entered-now, l.prefilled-now, l.stepEnd-now, l.fetched-now
		l.recent.at -= now
	}
}

// adopt forecasts the demand by the requests of the latest interval; a plan is due at once.
func (p *placer) adopt(m *recall, v *View) {
	p.planAt = v.Now - p.interval
	first := v.Now
	for n := m.first(); n < m.n; n++ {
		s := m.at(n)
		first = min(first, s.at)
		if !isAdapter(s.adapter) {
			continue
		}
		d := &p.demand[s.adapter]
		d.prompt.add(float64(s.prompt))
		if s.output > 0 {
			d.output.add(float64(s.output))
		}
		if s.at > p.planAt {
			d.arrived++
		}
	}
	p.planAt, p.planned = max(p.planAt, first-1e-3), true
	for k := range p.demand {
		d := &p.demand[k]
		d.rate = d.arrived / max(v.Now-p.planAt, 1e-3)
	}
}

func (p *planAndRoute) adopt(m *recall, v *View) {
	p.placer.adopt(m, v)
	p.pool.adopt(v)
	for j := range p.backlogs {
		p.backlogs[j].entered = math.Inf(-1)
	}
	for n := m.first(); n < m.n; n++ {
		s := m.at(n)
		p.prompt.add(float64(s.prompt))
		if n > m.first() {
			p.gap.add(max(s.at-p.latest, 0))
		}
		p.latest = s.at
		if s.worker >= 0 {
			l := &p.backlogs[s.worker]
			l.entered = max(l.entered, s.at) + p.workers[s.worker].FrontEnd
		}
		if s.output == 0 || s.worker == None {
			continue
		}
		p.output.add(float64(s.output))
		p.first.addUpTo(s.ttft, 300)
		p.finished(Finished{Worker: s.worker, Exec: s.e2e - s.ttft})
	}
	for j := range v.Workers { // the prompts that wait are computed one after the other
		p.backlogs[j].prefilled = v.Now + p.workers[j].Cost.Prefill(v.Workers[j].QueuedToks)
	}
	for i := range p.used {
		p.used[i] = m.met(i/len(p.adapters), int32(i%len(p.adapters)))
	}
}

// adopt notes what was sent where, from a number of a request on.
func (x *prefixIndex) adopt(w *window, v *View, from int64) {
	for n := from; n < w.kept; n++ {
		s := w.at(n)
		if s.worker < 0 {
			continue
		}
		r := Request{ID: s.id, Adapter: s.adapter, Prompt: s.prompt, MaxNew: s.maxNew, Text: s.text}
		if s.text != nil {
			r.Known = s.text.Known(s.prompt)
		}
		x.add(&r, v, int(s.worker))
	}
}

func (p *planAndRoute) prefixes() **prefixIndex { return &p.index }
func (p *cacheAware) prefixes() **prefixIndex   { return &p.index }
func (p *kvRouter) prefixes() **prefixIndex     { return &p.index }
func (p *affinity) prefixes() **prefixIndex     { return &p.index }
