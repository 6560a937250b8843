package planroute

import (
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
// Invariant after update: a worker is in the group of its key, and no outline of the group is below its least values.
type groups struct {
	from int // least number of workers for which there are groups
	on   bool
	list []group
	of   map[groupKey]int32 // indices of list
	at   []groupPlace       // by worker
}

// groupKey has what the workers of a group have in common. What it does not have must make a bound larger, the larger
// it is.
type groupKey struct {
	kind                     int32
	running                  float64
	fetches, evicts, hosting bool
	prefills                 bool // a prefill step was under way at the latest look
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
	workers []int32
	set     []uint64 // a bit for each worker, if they are unused
	least   outline  // the least values of its workers, and perhaps of earlier ones
	unknown bool     // the mean execution of a worker is not known; least.exec is that of the others, +Inf without any
	old     int      // workers that have left since least was computed
	bound   float64  // of the request at hand
}

// groupPlace is where a worker is: its group, -1 for none, and its index there.
type groupPlace struct{ group, index int32 }

// begin puts all workers in no group.
func (g *groups) begin(workers, kinds int) {
	*g = groups{from: g.from, on: workers >= g.from && kinds <= max(workers/16, 4)}
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
	o.groups.move(j, o.workers, v.Now, hosting, unused)
}

// move puts a worker into the group of its outline.
func (g *groups) move(j int32, all []outline, now float64, hosting bool, unused unusedKey) {
	w, to := &all[j], int32(-1)
	if w.kind >= 0 {
		key := groupKey{w.kind, w.running, w.fetches, w.evicts, hosting, w.stepEnd > now, unused}
		k, ok := g.of[key]
		if !ok {
			k = int32(len(g.list))
			g.of[key] = k
			g.list = append(g.list, group{groupKey: key})
		}
		to = k
	}
	at := &g.at[j]
	if from := at.group; from >= 0 {
		f := &g.list[from]
		f.old++
		if from != to {
			last := f.workers[len(f.workers)-1]
			f.workers[at.index], g.at[last].index = last, at.index
			f.workers = f.workers[:len(f.workers)-1]
			f.flip(j)
		}
	}
	if to < 0 {
		at.group = -1
		return
	}
	t := &g.list[to]
	if at.group != to {
		*at = groupPlace{to, int32(len(t.workers))}
		t.workers = append(t.workers, j)
		t.flip(j)
	}
	if t.old > len(t.workers) || len(t.workers) == 1 {
		t.least, t.old = *w, 0
		t.least.exec, t.unknown = math.Inf(1), false
		for _, k := range t.workers {
			t.lower(&all[k])
		}
		return
	}
	t.lower(w)
}

// flip enters a worker in the set of unused ones, or takes it out.
func (t *group) flip(j int32) {
	if t.unused.is {
		*at(&t.set, int(j/64)) ^= 1 << (j % 64)
	}
}

// first is the unused worker of the group with the lowest index where an adapter is neither placed nor an exception;
// None: there is none.
func (t *group) first(p *planAndRoute, adapter int32, exceptions []int32) int {
	for i, set := range t.set {
		for ; set != 0; set &= set - 1 {
			j := 64*i + bits.TrailingZeros64(set)
			if _, is := slices.BinarySearch(exceptions, int32(j)); !is && !p.Holds(adapter, j) {
				return j
			}
		}
	}
	return router.None
}

// lower makes the least values of a group not larger than those of a worker.
func (t *group) lower(w *outline) {
	l := &t.least
	l.step, l.longer, l.waits = min(l.step, w.step), min(l.longer, w.longer), min(l.waits, w.waits)
	l.stepEnd, l.prefilled = min(l.stepEnd, w.stepEnd), min(l.prefilled, w.prefilled)
	l.fetched = min(l.fetched, w.fetched)
	if w.exec < 0 {
		t.unknown = true
	} else {
		l.exec = min(l.exec, w.exec)
	}
}

// boundOf is what the prices of a group's workers are not below, where the adapter is not one of the exceptions to what
// is in their host memory.
func (t *group) boundOf(p *planAndRoute, r *router.Request, now float64) float64 {
	l := t.least
	if t.unknown {
		l.exec = min(l.exec, p.bounds.exec)
	}
	if t.prefills { // the step of some of them may have ended
		l.stepEnd = max(l.stepEnd, math.Nextafter(now, math.Inf(1)))
	}
	return l.bound(p, r, now, t.hosting)
}

// offerOthers offers the workers whose prices may be the least. Those where the adapter is placed were offered.
func (p *planAndRoute) offerOthers(r *router.Request, v *router.View, best *choose.Least, offer func(j int)) {
	o, b := &p.outlines, &p.bounds
	look := func(j int) {
		if b.price(p, r, j, v, best.Cost) <= best.Cost {
			offer(j)
		}
	}
	for j := range v.Having(r.Adapter) {
		look(j)
	}
	usual, others := v.Index.Hosts(r.Adapter)
	for _, j := range others {
		if w := &o.workers[j]; w.kind >= 0 && w.bound(p, r, v.Now, !usual[j]) <= best.Cost {
			look(int(j))
		}
	}
	// the worker with the least bound comes first, so that it is below the bounds of most others
	least := choose.New(nil)
	for k := range o.groups.list {
		if t := &o.groups.list[k]; len(t.workers) > 0 {
			t.bound = t.boundOf(p, r, v.Now)
			least.Offer(k, t.bound)
		}
	}
	if least.Worker == router.None || least.Cost > best.Cost {
		return
	}
	alike := !v.Index.Remote() // unused workers are, but for the exceptions
	first := choose.New(nil)
	if t := &o.groups.list[least.Worker]; t.unused.is && alike {
		first.Worker = t.first(p, r.Adapter, others)
	} else {
		for _, j := range t.workers {
			first.Offer(int(j), o.workers[j].bound(p, r, v.Now, usual[j]))
		}
	}
	if first.Worker != router.None {
		look(first.Worker)
	}
	for k := range o.groups.list {
		t := &o.groups.list[k]
		switch {
		case len(t.workers) == 0 || t.bound > best.Cost:
		case t.unused.is && alike:
			if j := t.first(p, r.Adapter, others); j != router.None && j != first.Worker {
				look(j)
			}
		default:
			for _, j := range t.workers {
				if int(j) != first.Worker && o.workers[j].bound(p, r, v.Now, usual[j]) <= best.Cost {
					look(int(j))
				}
			}
		}
	}
}
