package planroute

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"lorasim/router"
	"lorasim/router/choose"
)

// manyWorkers is the least number of workers for which there are groups.
const manyWorkers = 768

// groups have the workers that are alike, so that a request looks at the outlines of the groups with the least bounds
// only. Workers that are not usable are in no group.
//
// Workers with the same key are in one group. If they are many, they are divided where their prices differ most, again
// and again: by the length of their steps, by their mean execution, or by the end of their prompts.
//
// Invariant after update: a worker is in a group of its key, and no outline of the group is below its least values.
type groups struct {
	from  int // least number of workers for which there are groups
	most  int // workers of a group, if more have its key
	on    bool
	list  []group
	free  []int32            // indices of list that are not in use
	of    map[groupKey]int32 // indices of nodes
	nodes []node
	spare []int32      // indices of nodes that are not in use
	at    []groupPlace // by worker
	// What a second of each measure counts in a typical price.
	scale [measures]float64
}

// mostAlike is the number of workers of a group, if more have its key. A request looks at each group, and at the
// workers of some groups.
const mostAlike = 32

// measures is the number of values by which workers with the same key are divided.
const measures = 3

// measure returns a value of an outline by which workers are divided, s.
func (w *outline) measure(i int8) float64 {
	switch i {
	case 0:
		return w.stepHere
	case 1:
		return w.exec
	}
	return w.ends
}

// node divides workers with the same key by a measure, or is a group of them.
type node struct {
	by     int8 // measure; -1: it is a group
	upTo   float64
	below  int32 // node of the workers with at most upTo
	above  int32 // node of the others
	parent int32 // -1: none
	group  int32
}

// groupKey has what the workers of a group have in common. What it does not have must make a bound larger, the larger
// it is.
type groupKey struct {
	kind                     int32
	running                  float64
	fetches, evicts, hosting bool
	prefills                 bool // a prefill step was not formed at the latest look
	joins                    bool // as in outline
	unknown                  bool // the mean execution is not known
	// Of workers to which no request was sent: what else their prices depend on. A request has the same price on all of
	// them, but where its adapter is in host memory, or placed.
	unused unusedKey
}

// unusedKey tells workers apart to which no request was sent; the zero value: the worker is not one of them.
type unusedKey struct {
	is                bool
	bits              specBits
	maxRunning, slots int
	capacity          int64
}

// group is a number of workers.
type group struct {
	groupKey
	node    int32
	most    int // workers up to which the group is not divided
	workers []int32
	set     []uint64 // a bit for each worker, if they are unused
	least   outline  // the least values of its workers, and perhaps of earlier ones
	old     int      // changes of its workers since least was computed
	bound   float64  // of the request at hand
}

// groupPlace is where a worker is: its group, -1 for none, and its index there.
type groupPlace struct{ group, index int32 }

// begin puts all workers in no group.
func (g *groups) begin(workers, kinds int) {
	*g = groups{from: g.from, most: g.most, on: workers >= g.from && kinds <= max(workers/16, 4)}
	if g.on {
		g.of, g.at = map[groupKey]int32{}, slices.Repeat([]groupPlace{{-1, 0}}, workers)
	}
}

// move puts a worker into the group of its outline.
func (p *planAndRoute) move(j int32, v *router.View, hosting bool) {
	o, unused := &p.outlines, unusedKey{}
	if !o.groups.on {
		return
	}
	if w := &v.Workers[j]; o.workers[j].unused {
		unused = unusedKey{true, p.bounds.specs[j], w.MaxRunning, w.Slots, w.KVCapacity}
	}
	weight := p.firstWeight()
	o.groups.scale = [measures]float64{weight + p.output.Or(router.UnknownOutput), p.spill, weight}
	o.groups.move(j, o.workers, v.Now, hosting, unused)
}

// move puts a worker into the group of its outline.
func (g *groups) move(j int32, all []outline, now float64, hosting bool, unused unusedKey) {
	w, to := &all[j], int32(-1)
	if w.kind >= 0 {
		to = g.groupOf(w, groupKey{w.kind, w.running, w.fetches, w.evicts, hosting, w.closes > now, w.joins,
			w.exec < 0, unused})
	}
	at := &g.at[j]
	if from := at.group; from >= 0 && from != to {
		g.leave(j)
	}
	if to < 0 {
		return
	}
	if at.group < 0 {
		g.enter(j, to)
	} else {
		g.list[to].old++
	}
	g.renew(j, all)
	if t := &g.list[to]; len(t.workers) > t.most && !t.unused.is {
		g.divide(to, all, now)
	}
}

// groupOf returns the group of an outline.
func (g *groups) groupOf(w *outline, key groupKey) int32 {
	at, ok := g.of[key]
	if !ok {
		at = g.newNode(-1)
		g.of[key] = at
		g.newGroup(key, at)
	}
	for g.nodes[at].by >= 0 {
		if n := &g.nodes[at]; w.measure(n.by) <= n.upTo {
			at = n.below
		} else {
			at = n.above
		}
	}
	return g.nodes[at].group
}

func (g *groups) newNode(parent int32) int32 {
	n := len(g.spare)
	if n == 0 {
		g.nodes = append(g.nodes, node{by: -1, parent: parent})
		return int32(len(g.nodes) - 1)
	}
	k := g.spare[n-1]
	g.spare, g.nodes[k] = g.spare[:n-1], node{by: -1, parent: parent}
	return k
}

func (g *groups) newGroup(key groupKey, at int32) int32 {
	k := int32(len(g.list))
	if n := len(g.free); n > 0 {
		k, g.free = g.free[n-1], g.free[:n-1]
	} else {
		g.list = append(g.list, group{})
	}
	t := &g.list[k]
	*t = group{groupKey: key, node: at, most: g.most, workers: t.workers[:0]}
	g.nodes[at].group = k
	return k
}

// enter puts a worker that is in no group into one.
func (g *groups) enter(j, to int32) {
	t := &g.list[to]
	g.at[j] = groupPlace{to, int32(len(t.workers))}
	t.workers = append(t.workers, j)
	t.flip(j)
}

// leave takes a worker out of its group. A group of few workers joins the one that it was divided from.
func (g *groups) leave(j int32) {
	at := &g.at[j]
	from, f := at.group, &g.list[at.group]
	last := f.workers[len(f.workers)-1]
	f.workers[at.index], g.at[last].index = last, at.index
	f.workers = f.workers[:len(f.workers)-1]
	f.flip(j)
	f.old++
	at.group = -1
	up := g.nodes[f.node].parent
	if len(f.workers) > g.most/4 || up < 0 {
		return
	}
	sibling := g.nodes[up].below
	if sibling == f.node {
		sibling = g.nodes[up].above
	}
	n := g.nodes[sibling]
	if n.by >= 0 && len(f.workers) > 0 {
		return
	}
	if n.by < 0 {
		t := &g.list[n.group]
		if len(t.workers)+len(f.workers) > g.most/2 && len(f.workers) > 0 {
			return
		}
		for _, k := range f.workers {
			g.enter(k, n.group)
		}
		t.include(f)
		t.node = up
	} else {
		g.nodes[n.below].parent, g.nodes[n.above].parent = up, up
	}
	g.spare = append(g.spare, f.node, sibling)
	f.workers = f.workers[:0]
	g.free = append(g.free, from)
	n.parent = g.nodes[up].parent
	g.nodes[up] = n
}

// divide makes two groups of one, by the measure in which its workers differ most.
func (g *groups) divide(from int32, all []outline, now float64) {
	workers, by, widest := g.list[from].workers, int8(-1), 0.0
	value := func(j int32, m int8) float64 {
		if m == 2 {
			return max(all[j].measure(m), now) // what has ended makes no difference
		}
		return all[j].measure(m)
	}
	for m := range int8(measures) {
		least, most := math.Inf(1), math.Inf(-1)
		for _, j := range workers {
			least, most = min(least, value(j, m)), max(most, value(j, m))
		}
		if width := (most - least) * g.scale[m]; width > widest {
			by, widest = m, width
		}
	}
	if by < 0 {
		g.list[from].most *= 2
		return
	}
	workers = slices.Clone(workers)
	slices.SortFunc(workers, func(a, b int32) int { return cmp.Compare(value(a, by), value(b, by)) })
	half, same := len(workers)/2, func(i int) bool { return value(workers[i-1], by) == value(workers[i], by) }
	for half < len(workers) && same(half) {
		half++
	}
	if half == len(workers) {
		for half = len(workers) / 2; same(half); half-- {
		}
	}
	at, key := g.list[from].node, g.list[from].groupKey
	below, above := g.newNode(at), g.newNode(at)
	n := &g.nodes[at]
	n.by, n.upTo, n.below, n.above = by, value(workers[half-1], by), below, above
	to := g.newGroup(key, below)
	f := &g.list[from]
	f.node, f.most, f.workers = above, g.most, f.workers[:0]
	g.nodes[above].group = from
	for i, j := range workers {
		if i < half {
			g.enter(j, to)
		} else {
			g.enter(j, from)
		}
	}
	g.list[from].compute(all)
	g.list[to].compute(all)
}

// renew brings the least values of a worker's group up to date after a change of its outline.
func (g *groups) renew(j int32, all []outline) {
	if g.at[j].group < 0 {
		return
	}
	if t := &g.list[g.at[j].group]; t.old > len(t.workers) || len(t.workers) == 1 {
		t.compute(all)
	} else {
		t.lower(&all[j])
	}
}

// compute computes the least values of a group.
func (t *group) compute(all []outline) {
	t.least, t.old = all[t.workers[0]], 0
	for _, k := range t.workers {
		t.lower(&all[k])
	}
}

// include makes the least values of a group not larger than those of another one with the same key.
func (t *group) include(f *group) {
	if len(f.workers) > 0 {
		t.lower(&f.least)
		t.old += f.old
	}
}

// flip enters a worker in the set of unused ones, or takes it out.
func (t *group) flip(j int32) {
	if t.unused.is {
		*at(&t.set, int(j/64)) ^= 1 << (j % 64)
	}
}

// lower makes the least values of a group not larger than those of a worker.
func (t *group) lower(w *outline) {
	l := &t.least
	l.step, l.longer, l.waits = min(l.step, w.step), min(l.longer, w.longer), min(l.waits, w.waits)
	l.stepHere, l.longerHere = min(l.stepHere, w.stepHere), min(l.longerHere, w.longerHere)
	l.place = min(l.place, w.place)
	l.starts, l.closes, l.ends = min(l.starts, w.starts), min(l.closes, w.closes), min(l.ends, w.ends)
	l.loads, l.compute = min(l.loads, w.loads), min(l.compute, w.compute)
	l.one = max(l.one, w.one)
	l.fetched, l.exec = min(l.fetched, w.fetched), min(l.exec, w.exec)
}

// boundOf is what the prices of a group's workers are not below, whatever they have to do with the adapter beside what
// most of them have.
func (t *group) boundOf(p *planAndRoute, r *router.Request, now float64, some standing) float64 {
	l := t.least
	l.pace = 0                         // the rest of a decode step differs
	if t.prefills && l.closes <= now { // the step of some of them may have been formed
		l.closes, l.starts, l.loads, l.compute = math.Nextafter(now, math.Inf(1)), min(l.starts, l.ends), 0, 0
	}
	some.hosted = some.hosted || t.hosting
	some.wanted = some.wanted && !t.unused.is
	return l.bound(p, r, now, some)
}

// sought is a request whose worker is looked for among groups.
type sought struct {
	*planAndRoute
	r       *router.Request
	v       *router.View
	usual   []bool   // workers where most adapters are in host memory
	others  []int32  // exceptions to that for the request's adapter
	has     []uint64 // workers that have the adapter
	some    standing // each part is set if many workers have it: these are looked at by groups, see many
	skipped int      // worker that was looked at already
}

// offerOthers offers the workers whose prices may be the least. Those where the adapter is placed were offered, if they
// are few.
func (p *planAndRoute) offerOthers(r *router.Request, v *router.View) {
	best := &p.best
	s := sought{planAndRoute: p, r: r, v: v, has: v.Index.Workers(r.Adapter), skipped: router.None}
	s.usual, s.others = v.Index.Hosts(r.Adapter)
	where := p.Where(r.Adapter)
	s.some = standing{hosted: p.outlines.many(len(s.others)), wanted: p.outlines.many(countOf(s.has)),
		placed: p.bounds.placed != nil && p.outlines.many(len(where))}
	if p.bounds.placed != nil && !s.some.placed {
		for _, j := range where {
			s.consider(int(j), standing{hosted: v.InHost(int(j), r.Adapter), wanted: in(s.has, int(j)), placed: true})
		}
	}
	if !s.some.wanted {
		for j := range v.Having(r.Adapter) {
			s.consider(j, standing{wanted: true, placed: in(p.bounds.placed, j)})
		}
	}
	if !s.some.hosted {
		for _, j := range s.others {
			s.consider(int(j), standing{hosted: !s.usual[j], placed: in(p.bounds.placed, int(j))})
		}
	}
	for k := range p.outlines.groups.list {
		if t := &p.outlines.groups.list[k]; s.some.wanted && t.unused.is { // hardly any: they have no adapter in use
			for i, set := range t.set {
				for set &= s.has[i]; set != 0; set &= set - 1 {
					s.look(64*i + bits.TrailingZeros64(set))
				}
			}
		}
	}
	// the worker with the least bound comes first, so that it is below the bounds of most others
	groups, least := p.outlines.groups.list, choose.New(nil)
	for k := range groups {
		if t := &groups[k]; len(t.workers) > 0 {
			t.bound = t.boundOf(p, r, v.Now, s.some)
			least.Offer(k, t.bound)
		}
	}
	if least.Worker == router.None || least.Cost > best.Cost {
		return
	}
	t := &groups[least.Worker]
	if t.unused.is && !v.Index.Remote() {
		s.lookAtUnused(t)
		t.bound = math.Inf(1)
	} else {
		first := choose.New(nil)
		for _, j := range t.workers {
			first.Offer(int(j), s.boundOf(int(j)))
		}
		if first.Worker != router.None {
			s.look(first.Worker)
			s.skipped = first.Worker
		}
	}
	for k := range groups {
		t := &groups[k]
		switch {
		case len(t.workers) == 0 || t.bound > best.Cost:
		case t.unused.is && !v.Index.Remote(): // alike, but for the exceptions
			s.lookAtUnused(t)
		default:
			if t.old > len(t.workers)/2 {
				t.compute(p.outlines.workers)
			}
			for _, j := range t.workers {
				if int(j) != s.skipped && s.boundOf(int(j)) <= best.Cost {
					s.look(int(j))
				}
			}
		}
	}
}

// many says whether a number of workers is too large to look at them one by one. They are looked at by groups then, as
// if all workers of a group were among them.
func (o *outlines) many(workers int) bool { return workers > max(o.holders, len(o.workers)/manyShare) }

// manyShare is the share of workers below which a group would hardly have one of them.
const manyShare = 16

// countOf counts the workers of a set.
func countOf(set []uint64) (n int) {
	for _, word := range set {
		n += bits.OnesCount64(word)
	}
	return n
}

// boundOf is the bound of a worker by its outline.
func (s *sought) boundOf(j int) float64 {
	at := standing{hosted: s.usual[j], wanted: s.some.wanted && in(s.has, j)}
	at.placed = s.some.placed && in(s.bounds.placed, j)
	w := &s.outlines.workers[j]
	if !s.some.hosted || at.wanted {
		return w.bound(s.planAndRoute, s.r, s.v.Now, at)
	}
	at.hosted = true
	bound := w.bound(s.planAndRoute, s.r, s.v.Now, at)
	if bound > s.best.Cost {
		return bound
	}
	if _, other := slices.BinarySearch(s.others, int32(j)); other == s.usual[j] {
		at.hosted = false
		bound = w.bound(s.planAndRoute, s.r, s.v.Now, at)
	}
	return bound
}

// consider looks at a worker if it is usable and its outline does not rule it out.
func (s *sought) consider(j int, at standing) {
	if w := &s.outlines.workers[j]; w.kind >= 0 && w.bound(s.planAndRoute, s.r, s.v.Now, at) <= s.best.Cost {
		s.look(j)
	}
}

// look offers a worker if its bound does not rule it out.
func (s *sought) look(j int) {
	if s.bounds.price(s.planAndRoute, s.r, j, s.v, s.best.Cost) <= s.best.Cost {
		s.offer(s.r, j, s.v)
	}
}

// lookAtUnused looks at the first worker of a group to which no request was sent: of those where the adapter is
// placed, in host memory, both or neither. Where only few workers have it, these were looked at before.
func (s *sought) lookAtUnused(t *group) {
	s.lookAtFirst(t, false)
	if s.some.placed {
		s.lookAtFirst(t, true)
	}
}

func (s *sought) lookAtFirst(t *group, placed bool) {
	is := func(j int32) bool { // it is placed there
		if s.bounds.placed != nil {
			return in(s.bounds.placed, int(j))
		}
		return s.Holds(s.r.Adapter, int(j))
	}
	others := s.others
	usual := func() int32 {
		for i, set := range t.set {
			if s.bounds.placed != nil && placed {
				set &= s.bounds.placed[i]
			} else if s.bounds.placed != nil {
				set &^= s.bounds.placed[i]
			}
			for ; set != 0; set &= set - 1 {
				j := int32(64*i + bits.TrailingZeros64(set))
				for len(others) > 0 && others[0] < j {
					others = others[1:]
				}
				if (len(others) == 0 || others[0] != j) && is(j) == placed {
					return j
				}
			}
		}
		return router.None
	}
	if j := usual(); j != router.None {
		s.look(int(j))
	}
	if !s.some.hosted {
		return
	}
	if i := slices.IndexFunc(s.others, func(j int32) bool { return in(t.set, int(j)) && is(j) == placed }); i >= 0 {
		s.look(int(s.others[i]))
	}
}
