package planroute

import (
	"cmp"
	"slices"

	"lorasim/router"
	"lorasim/router/choose"
	"lorasim/trace"
)

// steal moves requests that wait although there was time to compute their prompts
// (they wait for memory, for a slot, for a place in the batch) to workers where
// none does and that would serve them sooner, the oldest first.
//
// The prefix index takes a waiting prompt for kept where it waits, though it is not computed yet. So its prefill there
// is not part of the price of staying, and a move has to gain that, too.
func (p *planAndRoute) steal(s *router.PlannerInput) []router.Move {
	if !p.moves.waiting || p.margin >= 1 || !p.someoneFree(s.View) {
		return nil
	}
	waiting, busy := p.stuck(s)
	if len(waiting) == 0 {
		return nil
	}
	// a copy of the view, so that each move counts for those after it
	v := &router.View{Now: s.Now, Adapters: s.Adapters, Workers: slices.Clone(s.Workers)}
	copied := make([]bool, len(v.Workers))
	put := func(a *router.InFlight, j int32, by int) {
		w := &v.Workers[j]
		if !copied[j] {
			w.Detach()
			copied[j] = true
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
	for _, a := range waiting {
		r := rest(a)
		p.beginPool(r.Adapter, v)
		p.bounds.begin(p, &r, v)
		here, _ := p.price(r, int(a.Worker), v)
		best := choose.Least{Worker: int(a.Worker), Cost: (1 - p.margin) * here}
		for j := range v.Workers {
			if w := &v.Workers[j]; busy[j] || !w.Usable() || w.Queued >= p.deep || !w.InHost(a.Adapter) {
				continue
			}
			if !p.Holds(a.Adapter, j) && p.bounds.price(p, &r, j, v, best.Cost) > best.Cost {
				continue
			}
			c, _ := p.price(r, j, v)
			best.Offer(j, c)
		}
		to := int32(best.Worker)
		if to != a.Worker {
			p.sent(r, int(to), v, p.uncached(&r, int(to), v))
			p.keep(&r, int(to), v)
			p.outlines.changed(int(to))
			moves = append(moves, router.Move{ID: a.ID, From: a.Worker, To: to})
		}
		put(a, to, 1)
		if p.maxMoves > 0 && len(moves) == p.maxMoves {
			break
		}
	}
	return moves
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
	busy = make([]bool, len(s.Workers))
	for _, a := range p.seen(s) {
		if !a.Running && p.overdue(int(a.Worker), s.Now) && s.Workers[a.Worker].InHost(a.Adapter) {
			list = append(list, a)
			busy[a.Worker] = true
		}
	}
	slices.SortStableFunc(list, func(a, b *router.InFlight) int { return cmp.Compare(b.Age, a.Age) })
	return list[:min(len(list), p.deep)], busy
}
