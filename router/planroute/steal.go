package planroute

import (
	"cmp"
	"math"
	"slices"

	"lorasim/router"
	"lorasim/router/choose"
	"lorasim/trace"
)

// steal moves requests that wait although there was time to compute their prompts
// (they wait for memory, for a slot, for a place in the batch) to workers where
// none does and that would serve them sooner, the oldest first.
//
// All requests of an adapter take one turn in a slot together. So new requests go where others of the adapter wait for
// a slot, however many adapters wait there, until these requests move together. They may also go to a worker where
// others wait, if fewer adapters do so there ([slotQueues]). If slots of their worker do not become free, they may go
// to any worker. A worker may have to fetch their adapter; its price has the fetch.
//
// The prefix index takes a waiting prompt for kept where it waits, though it is not computed yet. So its prefill there
// is not part of the price of staying, and a move has to gain that, too.
func (p *planAndRoute) steal(s *router.PlannerInput) []router.Move {
	if !p.moves.waiting || p.margin >= 1 {
		return nil
	}
	waiting, busy := p.stuck(s)
	queues := &p.queues
	takes := func(j int, a *router.InFlight, slotless bool) bool {
		return s.Workers[j].Usable() &&
			(!busy[j] || slotless && (queues.stalled[a.Worker] || queues.shorter(j, a.Worker)))
	}
	if !slices.ContainsFunc(waiting, func(a *router.InFlight) bool {
		slotless := queues.waits(a, s.Workers)
		for j := range s.Workers {
			if takes(j, a, slotless) {
				return true
			}
		}
		return false
	}) {
		return nil // nothing can move
	}
	// a copy of the view, so that each move counts for those after it
	v := &router.View{Now: s.Now, Adapters: s.Adapters, Workers: append(p.scratch.workers[:0], s.Workers...)}
	copied := append(p.scratch.copied[:0], make([]bool, len(v.Workers))...)
	p.scratch.workers, p.scratch.copied = v.Workers, copied
	if p.scratch.detached == nil {
		p.scratch.detached = make([]router.Worker, len(v.Workers))
	}
	put := func(a *router.InFlight, j int32, by int) {
		w := &v.Workers[j]
		if !copied[j] {
			w.Detach(&p.scratch.detached[j])
			p.scratch.detached[j], copied[j] = *w, true
		}
		w.Queued += by
		w.QueuedToks += int64(by) * int64(a.Prompt)
		w.Tokens += int64(by) * (int64(a.Prompt) + int64(a.Expected))
		if a.Adapter != trace.BaseModel {
			w.Count(a.Adapter, 0, int32(by))
		}
	}
	for _, a := range waiting {
		put(a, a.Worker, -1)
	}
	var moves []router.Move
	turns := p.scratch.turns
	clear(turns)
	for _, a := range waiting {
		key, to := turn{a.Worker, a.Adapter}, a.Worker
		together, decided := turns[key]
		slotless := queues.waits(a, s.Workers)
		switch {
		case !decided:
			to = p.cheaper(a, v, func(j int) bool {
				return v.Workers[j].Queued < p.deep && takes(j, a, slotless)
			})
		case together.requests < turnTogether:
			to = together.to
		}
		if to != a.Worker {
			r := rest(a)
			p.sent(r, int(to), v, p.uncached(&r, int(to), v))
			p.keep(&r, int(to), v)
			p.outlines.changed(int(to))
			moves = append(moves, router.Move{ID: a.ID, From: a.Worker, To: to})
		}
		if slotless {
			if turns == nil {
				turns = map[turn]turnMove{}
				p.scratch.turns = turns
			}
			if !decided && to != a.Worker {
				queues.move(a.Worker, to)
			}
			turns[key] = turnMove{to, together.requests + 1}
		}
		put(a, to, 1)
		if p.maxMoves > 0 && len(moves) == p.maxMoves {
			break
		}
	}
	return moves
}

// stealScratch is memory that looks at waiting requests use again.
type stealScratch struct {
	waiting      []int // see seen
	list         []*router.InFlight
	busy, copied []bool
	workers      []router.Worker
	detached     []router.Worker // by worker: its latest copy
	turns        map[turn]turnMove
}

// cheaper is the worker among those allowed that costs a request less than the one where it is, by the margin; else the
// one where it is.
func (p *planAndRoute) cheaper(a *router.InFlight, v *router.View, allowed func(j int) bool) int32 {
	best := choose.Least{Worker: int(a.Worker)}
	begun, bounded, r := false, false, router.Request{}
	for j := range v.Workers {
		if !allowed(j) {
			continue
		}
		if !begun {
			r = rest(a)
			p.beginPool(&r, v)
			p.beginBehind(v)
			here, _ := p.price(r, int(a.Worker), v)
			best.Cost, begun = (1-p.margin)*here, true
		}
		if !p.Holds(r.Adapter, j) {
			if !bounded {
				p.bounds.begin(p, &r, v)
				bounded = true
			}
			if p.bounds.price(p, &r, j, v, best.Cost) > best.Cost {
				continue
			}
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
	free := p.someoneFree(s.View)
	for j := range busy {
		busy[j] = !free
	}
	for _, a := range p.seen(s) {
		if j := int(a.Worker); !a.Running && p.overdue(j, s.Now) && p.atHand(a.Adapter, j, s.View) &&
			(free || p.queues.long(j) || p.queues.stalled[j]) {
			list = append(list, a)
			busy[j] = true
		}
	}
	p.scratch.list, p.scratch.busy = list, busy
	slices.SortStableFunc(list, func(a, b *router.InFlight) int { return cmp.Compare(b.Age, a.Age) })
	return list[:min(len(list), p.deep)], busy
}

// atHand says whether a worker can start requests of an adapter without a fetch into host memory beside its steps. A
// worker that fetches within its steps does so when the adapter gets a slot, not before.
func (p *planAndRoute) atHand(k int32, j int, v *router.View) bool {
	return p.workers[j].FetchesInSteps || v.InHost(j, k)
}
