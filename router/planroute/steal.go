package planroute

import (
	"math"
	"slices"

	"lorasim/router"
	"lorasim/router/choose"
	"lorasim/trace"
)

// steal moves requests that wait although there was time to compute their prompts
// (they wait for memory, for a slot, for a place in the batch) to workers where
// none does and that would serve them sooner, the oldest first. While a worker is
// idle, requests that wait for many prompts may go there, too.
//
// All requests of an adapter take one turn in a slot together. So new requests go where others of the adapter wait for
// a slot, however many adapters wait there, until these requests move together. They may also go to a worker where
// others wait, if fewer adapters do so there ([slotQueues]). If slots of their worker do not become free, they may go
// to any worker, also to one that has to fetch their adapter.
//
// The prefix index takes a waiting prompt for kept where it waits, though it is not computed yet. So its prefill there
// is not part of the price of staying, and a move has to gain that, too.
func (p *planAndRoute) steal(s *router.PlannerInput) []router.Move {
	if !p.moves.waiting || p.margin >= 1 {
		return nil
	}
	l := stealing{planAndRoute: p, s: s}
	if l.waiting, l.busy = p.stuck(s); len(l.waiting) == 0 {
		return nil
	}
	l.listed = p.listsHosts(s.View)
	if !l.possible() {
		return nil
	}
	l.begin()
	p.kept = append(l.scratch.crowds[:0], make([]keptCrowd, len(s.Workers))...)
	l.scratch.crowds = p.kept
	for _, a := range l.waiting {
		to := l.pick(a)
		if to != a.Worker {
			l.move(a, to)
		}
		l.put(a, to, 1)
		if p.maxMoves > 0 && len(l.moved) == p.maxMoves {
			break
		}
	}
	p.kept = nil
	return l.moved
}

// stealing is a look at waiting requests.
type stealing struct {
	*planAndRoute
	s       *router.PlannerInput
	waiting []*router.InFlight // the oldest first
	busy    []bool             // see stuck
	listed  bool               // only workers that the index lists for an adapter have it at hand
	v       *router.View       // a copy without the waiting requests, so that each move counts for those after it
	moved   []router.Move
}

// takes says whether a worker is one that a request may move to. slotless: the request waits for a slot.
func (l *stealing) takes(j int, a *router.InFlight, slotless bool) bool {
	w := &l.s.Workers[j]
	if slotless && l.queues.stalled[a.Worker] {
		return w.Usable()
	}
	return w.Usable() && (!l.busy[j] || slotless && l.queues.shorter(j, a.Worker)) && l.atHand(a.Adapter, j, l.s.View)
}

// candidates lists workers, in ascending order, among which are all that take a request.
func (l *stealing) candidates(a *router.InFlight, slotless bool) []int32 {
	if l.listed && a.Adapter != trace.BaseModel && !(slotless && l.queues.stalled[a.Worker]) {
		_, hosts := l.s.Index.Hosts(a.Adapter)
		return hosts
	}
	for len(l.scratch.all) < len(l.s.Workers) {
		l.scratch.all = append(l.scratch.all, int32(len(l.scratch.all)))
	}
	return l.scratch.all[:len(l.s.Workers)]
}

// listsHosts says whether the index lists, for each adapter, all workers that have it in host memory, and no worker
// fetches adapters within its steps.
func (p *planAndRoute) listsHosts(v *router.View) bool {
	if v.Index == nil {
		return false
	}
	usual, _ := v.Index.Hosts(trace.BaseModel)
	return !slices.Contains(usual, true) &&
		!slices.ContainsFunc(p.workers, func(s router.Spec) bool { return s.FetchesInSteps })
}

// possible says whether some request may move.
func (l *stealing) possible() bool {
	return slices.ContainsFunc(l.waiting, func(a *router.InFlight) bool {
		slotless := l.queues.waits(a, l.s.Workers)
		takes := func(j int32) bool { return l.takes(int(j), a, slotless) }
		return slices.ContainsFunc(l.candidates(a, slotless), takes)
	})
}

// begin copies the view and takes the waiting requests out.
func (l *stealing) begin() {
	s, m := l.s, &l.scratch
	l.v = &router.View{Now: s.Now, Adapters: s.Adapters, Workers: append(m.workers[:0], s.Workers...)}
	m.workers, m.copied = l.v.Workers, append(m.copied[:0], make([]bool, len(s.Workers))...)
	if m.detached == nil {
		m.detached = make([]router.Worker, len(s.Workers))
	}
	if m.turns == nil {
		m.turns = map[turn]turnMove{}
	}
	clear(m.turns)
	for _, a := range l.waiting {
		l.put(a, a.Worker, -1)
	}
}

// put adds a waiting request to a worker of the copy, or takes it out (by -1).
func (l *stealing) put(a *router.InFlight, j int32, by int) {
	if l.kept != nil {
		l.kept[j].known = false
	}
	w, m := &l.v.Workers[j], &l.scratch
	if !m.copied[j] {
		w.Detach(&m.detached[j])
		m.detached[j], m.copied[j] = *w, true
	}
	w.Queued += by
	w.QueuedToks += int64(by) * int64(a.Prompt)
	w.Tokens += int64(by) * (int64(a.Prompt) + int64(a.Expected))
	if a.Adapter != trace.BaseModel {
		w.Count(a.Adapter, 0, int32(by))
	}
}

// pick returns the worker that a request moves to, or the one where it is. Requests of one turn move together.
func (l *stealing) pick(a *router.InFlight) int32 {
	slotless := l.queues.waits(a, l.s.Workers)
	key, to, turns := turn{a.Worker, a.Adapter}, a.Worker, l.scratch.turns
	together, decided := turns[key]
	switch {
	case !decided:
		to = l.cheaper(a, l.v, l.candidates(a, slotless), func(j int) bool {
			return l.v.Workers[j].Queued < l.deep && l.takes(j, a, slotless)
		})
	case together.requests < turnTogether:
		to = together.to
	}
	if slotless {
		if !decided && to != a.Worker {
			l.queues.move(a.Worker, to)
		}
		turns[key] = turnMove{to, together.requests + 1}
	}
	return to
}

// move moves a request, and notes what goes to the worker.
func (l *stealing) move(a *router.InFlight, to int32) {
	r := rest(a)
	l.sent(r, int(to), l.v, l.uncached(&r, int(to), l.v))
	l.keep(&r, int(to), l.v)
	l.outlines.changed(int(to))
	l.moved = append(l.moved, router.Move{ID: a.ID, From: a.Worker, To: to})
}

// stealScratch is memory that looks at waiting requests use again.
type stealScratch struct {
	waiting      []int   // see seen
	all          []int32 // the indices of all workers
	list, merged []*router.InFlight
	busy, copied []bool
	crowds       []keptCrowd
	workers      []router.Worker
	detached     []router.Worker // by worker: its latest copy
	turns        map[turn]turnMove
}

// cheaper is the worker among the allowed ones of a list that costs a request less than the one where it is, by the
// margin; else the one where it is.
func (p *planAndRoute) cheaper(
	a *router.InFlight, v *router.View, among []int32, allowed func(j int) bool,
) int32 {
	best := choose.Least{Worker: int(a.Worker)}
	begun, r := false, router.Request{}
	for _, w := range among {
		j := int(w)
		if !allowed(j) {
			continue
		}
		if !begun {
			r = rest(a)
			p.begin(&r, v)
			here, _ := p.price(r, int(a.Worker), v)
			best.Cost, begun = (1-p.margin)*here, true
			p.bounds.begin(p, &r, v)
			if r.Adapter != trace.BaseModel && len(p.Where(r.Adapter)) > 0 {
				p.bounds.placed = p.placedOn(r.Adapter)
			}
		}
		if p.bounds.price(p, &r, j, v, best.Cost) > best.Cost {
			continue
		}
		c, _ := p.price(r, j, v)
		best.Offer(j, c)
	}
	return int32(best.Worker)
}

// turn is the turn in a slot that an adapter waits for on a worker.
type turn struct{ worker, adapter int32 }

// turnMove is where the requests of a turn go.
type turnMove struct {
	to       int32
	requests int
}

// turnTogether is the number of requests of a turn that move at once, with the first one. The next look may move more;
// it sees that the moved ones make the steps of their worker longer.
const turnTogether = 16

// slotQueues are the numbers of adapters that wait for a slot, by worker.
type slotQueues struct {
	waiting []int
	stalled []bool // workers whose slots do not become free
	least   int    // on a usable worker
}

// count counts the adapters of a view. It reuses the memory of the last count.
func (q *slotQueues) count(v *router.View) {
	q.waiting, q.least = q.waiting[:0], math.MaxInt
	for j := range v.Workers {
		w := &v.Workers[j]
		n := max(w.FlightLoras-w.Slots, 0)
		if q.waiting = append(q.waiting, n); w.Usable() {
			q.least = min(q.least, n)
		}
	}
}

// long says whether an adapter that waits on a worker could wait behind fewer adapters on another one.
func (q *slotQueues) long(j int) bool { return q.waiting[j]-1 > q.least }

// shorter says whether an adapter would wait behind fewer adapters on worker j than on the one where it waits.
func (q *slotQueues) shorter(j int, from int32) bool { return q.waiting[j] < q.waiting[from]-1 }

func (q *slotQueues) move(from, to int32) {
	q.waiting[from]--
	q.waiting[to]++
}

// waits says whether a request waits for a slot.
func (q *slotQueues) waits(a *router.InFlight, workers []router.Worker) bool {
	return a.Adapter != trace.BaseModel && q.waiting[a.Worker] > 0 && workers[a.Worker].Adapter(a.Adapter).Running == 0
}

// manyWait is the number of requests at the head of each worker's queue that planning looks at. Planning moves no
// request to a worker with a queue of this length: the request would wait for minutes there, too, and in overload all
// requests would move back and forth, each time to the end of a queue.
const manyWait = 1024

// stuck lists the requests that wait for something other than prompts or weights, oldest first. busy marks the workers
// that have such requests.
func (p *planAndRoute) stuck(s *router.PlannerInput) (list []*router.InFlight, busy []bool) {
	if p.Env().Moving == router.MoveNone || p.Env().Moving == "" {
		return nil, nil
	}
	list, busy = p.scratch.list[:0], append(p.scratch.busy[:0], make([]bool, len(s.Workers))...)
	p.queues.count(s.View)
	p.queues.stalled = p.queues.stalled[:0]
	for j := range s.Workers {
		p.queues.stalled = append(p.queues.stalled, p.stalls(j, s.View))
	}
	free, idle := p.someoneFree(s.View), p.someoneIdle(s.View)
	for j := range busy {
		busy[j] = !free
	}
	for _, a := range p.seen(s) {
		if j := int(a.Worker); !a.Running && p.waitsLong(j, s.View, idle) && p.atHand(a.Adapter, j, s.View) &&
			!p.comesBeside(a.Adapter, j, s.Now) &&
			(free || p.queues.long(j) || p.queues.stalled[j]) {
			list = append(list, a)
			busy[j] = true
		}
	}
	p.scratch.busy = busy
	p.scratch.list, p.scratch.merged = oldestFirst(list, p.scratch.merged)
	return p.scratch.list[:min(len(list), p.deep)], busy
}

// oldestFirst sorts requests by their age and keeps the order of equals. It merges the parts that are sorted already,
// as queues mostly are. It returns the sorted list and the other of the two lists, whose contents do not matter.
func oldestFirst(list, other []*router.InFlight) (sorted, spare []*router.InFlight) {
	for {
		other = other[:0]
		for from := 0; from < len(list); {
			middle := from + sortedPart(list[from:])
			end := middle + sortedPart(list[middle:])
			if from == 0 && middle == len(list) {
				return list, other
			}
			a, b := list[from:middle], list[middle:end]
			for len(a) > 0 && len(b) > 0 {
				if b[0].Age > a[0].Age {
					other, b = append(other, b[0]), b[1:]
				} else {
					other, a = append(other, a[0]), a[1:]
				}
			}
			other = append(append(other, a...), b...)
			from = end
		}
		if len(list) == 0 {
			return list, other
		}
		list, other = other, list
	}
}

// sortedPart is the number of requests at the head of a list that are sorted by age.
func sortedPart(list []*router.InFlight) int {
	n := min(1, len(list))
	for n < len(list) && list[n].Age <= list[n-1].Age {
		n++
	}
	return n
}

// atHand says whether a worker can start requests of an adapter without a fetch into host memory beside its steps. A
// worker that fetches within its steps does so when the adapter gets a slot, not before.
func (p *planAndRoute) atHand(k int32, j int, v *router.View) bool {
	return p.workers[j].FetchesInSteps || v.InHost(j, k)
}

// comesBeside says whether a worker that loads adapters beside its steps brings one, by count. A request that waits for
// its adapter would wait for another load elsewhere, and the worker would end this one anyway.
func (p *planAndRoute) comesBeside(k int32, j int, now float64) bool {
	return p.workers[j].FetchesInSteps && p.workers[j].LoadsOverlap && p.backlogs[j].comes(k, now) > 0
}
