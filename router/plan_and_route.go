package router

import (
	"math"

	"lorasim/trace/settings"
)

// planAndRoute is this project's own planner and the router that goes with it.
//
// Requests go where they cost all requests together the least time (price). Of
// workers that cost nearly the same, those where the current placement has the
// adapter come first. Every interval the planner (plan_and_route_plan.go) forecasts the
// demand for each adapter and solves one migration problem over all workers.
type planAndRoute struct {
	placer
	accounts
	moves    struct{ waiting, running bool } // requests that may go to another worker
	places   bool                            // plans load and unload adapters
	busy     float64                         // share of the horizon that the busiest worker's work must fill
	margin   float64                         // share of the predicted time that a plan must gain
	horizon  float64                         // s of forecast demand that a plan provides for
	maxMoves int
	look     float64 // time between looks at waiting requests, s
	spill    float64 // share of a request's time that a worker without the adapter must be better by
	deep     int     // requests that wait on a worker, from which on more make no difference

	pool slotPool // what a second slot for an adapter costs

	bounds priceBounds
	index  *prefixIndex // nil: no worker keeps prefixes
	first  mean         // s until the first token, as expected
	prompt mean         // tokens, of all requests
	found  mean         // share of prompts that the workers keep
	gap    mean         // s between requests
	latest float64
}

// Guesses until requests have ended.
const (
	guessPrompt = 200 // tokens
	guessOutput = 200 // tokens
	guessExec   = 5   // s
)

type planAndRouteOptions struct {
	Move     string          `default:"all" check:"oneof all waiting running none" help:"requests that may go to another worker: all, waiting, running or none"`
	Place    string          `default:"on" check:"oneof on off" help:"on: plans load and unload adapters; off: adapters are loaded on demand only"`
	Interval float64         `default:"10" check:">=0.001" env:"interval" help:"time between plans, which place adapters and move requests, s"`
	Busy     float64         `default:"0.5" check:">=0" help:"share of the horizon that the busiest worker's work must fill before anything moves"`
	Margin   float64         `default:"0.05" check:">=0 <=1" help:"share of the predicted time that a plan must gain"`
	Horizon  settings.Number `default:"auto" check:">=0" words:"auto" help:"forecast demand that a plan provides for, s; auto: the interval"`
	MaxMoves int             `key:"max-moves" default:"64" check:">=0" help:"requests that a plan moves at most; 0: any number"`
	Look     float64         `default:"0.25" check:">=0.001" help:"time between moves of waiting requests, s; at most the interval"`
	spillOption
}

// spillOption is how much better a worker must be on which an adapter is not placed, or would take a second slot.
type spillOption struct {
	Replica float64 `default:"4" check:">=0" help:"share of a request's time that a second slot for its adapter costs if all slots are in use; less if some are free"`
	Spill   float64 `default:"0.1" check:">=0" help:"share of a request's time by which a worker without the adapter must be better"`
}

// Build implements Builder.
func (o *planAndRouteOptions) Build(env Env) (*Router, error) {
	if err := env.needCosts(); err != nil {
		return nil, err
	}
	p := &planAndRoute{
		placer:   newPlacer(intervalOption{o.Interval}, env),
		busy:     o.Busy,
		margin:   o.Margin,
		maxMoves: o.MaxMoves,
		spill:    o.Spill,
		pool:     newSlotPool(o.Replica, env),
		deep:     manyWait,
		accounts: newAccounts(env),
	}
	p.moves.waiting = o.Move == "all" || o.Move == "waiting"
	p.moves.running = o.Move == "all" || o.Move == "running"
	p.places = o.Place == "on"
	p.bounds = newPriceBounds(env.Workers)
	p.horizon = p.interval
	p.look = min(o.Look, p.interval)
	if o.Horizon.Word != "auto" {
		p.horizon = o.Horizon.Value
	}
	p.index = keptPrefixes(env)
	rt := p.router(p)
	rt.ReadsKV, rt.ReadsFewKV, rt.ReadsPrefixes = true, true, p.index != nil
	return rt, nil
}

// routeOnlyOptions: the routing of plan-and-route alone; no request moves and no adapter is placed.
type routeOnlyOptions struct{ spillOption }

// Build implements Builder.
func (o *routeOnlyOptions) Build(env Env) (*Router, error) {
	full := &planAndRouteOptions{}
	if _, err := settings.Decode("move=none,place=off", full); err != nil {
		return nil, err
	}
	full.spillOption = o.spillOption
	fill(nil, full, env)
	return full.Build(env)
}

// Route implements Policy.
func (p *planAndRoute) Route(r Request, v *View) Decision {
	p.arrived(r, v)
	return To(p.send(r, v))
}

// arrived notes that a request is there, and what the view says then.
func (p *planAndRoute) arrived(r Request, v *View) {
	p.note(r)
	p.prompt.add(float64(r.Prompt))
	p.output.add(r.output())
	p.restarted(v)
	if p.index != nil {
		p.index.forget(v)
	}
	p.gap.add(v.Now - p.latest)
	p.latest = v.Now
	p.pool.look(v)
}

// send picks the worker for a request that has arrived, and notes what goes there.
func (p *planAndRoute) send(r Request, v *View) int {
	best, first := p.cheapest(r, v)
	if best != None {
		if p.unequal() {
			p.backlogs[best].recent.add(p.work(&r, best, v), v.Now)
		}
		uncached := p.uncached(&r, best, v)
		p.sent(r, best, v, uncached)
		p.found.add(1 - float64(uncached)/float64(max(r.Prompt, 1)))
		p.keep(&r, best, v)
		p.first.addUpTo(first, 300)
	}
	return best
}

// Preview implements Policy.
func (p *planAndRoute) Preview(r Request, v *View) int {
	best, _ := p.cheapest(r, v)
	return best
}

// cheapest is the worker with the lowest price, None if no worker is usable, and
// the time to first token there, s.
func (p *planAndRoute) cheapest(r Request, v *View) (worker int, first float64) {
	p.bounds.begin(r, v)
	p.pool.begin(r.Adapter, v)
	best := newArgmin(nil)
	offer := func(j int) {
		v.read(j)
		c, f := p.price(r, j, v)
		if best.offerLowest(j, c); best.worker == j {
			first = f
		}
	}
	if isAdapter(r.Adapter) { // where it most often goes comes first, so that few others need a closer look
		for _, j := range p.where[r.Adapter] {
			if v.Workers[j].Usable() {
				offer(int(j))
			}
		}
	}
	for j := range v.Workers {
		if v.Workers[j].Usable() && !(isAdapter(r.Adapter) && p.holds(r, j)) &&
			p.bounds.price(p, r, j, v) <= best.cost {
			offer(j)
		}
	}
	return best.worker, first
}

// The weight of a second until the first token: firstScale x mean time of execution / mean time to first token, within
// 1 and mostFirstWeight.
const (
	firstScale      = 0.7
	mostFirstWeight = 30
)

// firstWeight is what a second until the first token counts against one of
// decoding: as much more as requests take longer than their first tokens, so that a
// percent of the one is about as dear as a percent of the other.
func (p *planAndRoute) firstWeight() float64 {
	if p.first.n == 0 {
		return mostFirstWeight
	}
	return min(max(firstScale*p.exec.or(guessExec)/p.first.value, 1), mostFirstWeight)
}

// price estimates the time, s, that a request costs itself and the others on a
// worker, and how much of it its first token takes.
func (p *planAndRoute) price(r Request, j int, v *View) (total, first float64) {
	w, l, cost := &v.Workers[j], &p.backlogs[j], p.env.Workers[j].Cost
	running, limit := min(w.Running, w.MaxRunning), max(w.MaxRunning, 1)
	output, exec := r.output(), l.exec.or(p.exec.or(guessExec))
	kv := w.KVUsed
	if w.Age > exec/10 { // by count, then: prompts, and about half of the output
		kv = max(kv, (w.Tokens-w.QueuedToks)*3/4)
	}
	batch := min(running+1, limit)
	adapters, one := w.batchAdapters(r.Adapter)
	step := cost.DecodeStep(batch, adapters+one, kv+int64(r.Prompt), w.MaxRank)
	n := l.next(w, v.Now)
	uncached := p.uncached(&r, j, v)
	prompts, prefill := n.prompt(uncached, cost)
	a := p.adapterWait(r.Adapter, j, v)

	// until its first token: the front end, the prompts before it, a step under way, and places in
	// the batch, the KV cache and the adapter slots that have to become free first
	ready, enters := max(n.starts-v.Now, a.fetch), p.enters(r.Adapter, j, v.Now)-v.Now
	first = max(ready, enters) + n.loads + a.load + a.stall + prompts + exec*a.turns
	if running > 0 {
		first += step
	}
	between := exec / float64(max(running, 1)) // from one request's end to the next
	stuck := max(w.Queued-a.slotless, 0)
	first += exec * float64(max(w.Running+stuck+1-limit, 0)) / float64(limit)
	if v.Now > l.prefilled+step {
		first += between * float64(stuck) / 2
	}
	if over := l.need(r, kv, w) - l.room(w); over > 0 {
		first += between * math.Ceil(over*float64(max(running, 1))/float64(max(kv, 1)))
	}

	// its decoding; what others lose to its load, its prefill and its decoding
	t := output*step + (a.load+a.stall+prefill)*float64(running)
	if batch > running {
		t += output * float64(running) * max(0, step-cost.DecodeStep(running, adapters, kv, w.MaxRank))
	}
	weight := p.firstWeight()
	t += p.displaces(uncached, output, j, w) * (weight + float64(running))
	t *= p.later(j, v.Now)
	if !p.holds(r, j) {
		t += p.spill * exec
	}
	t += p.pool.secondSlot(r.Adapter, w) * exec
	if p.firstUse(r.Adapter, j) {
		t += weight * (p.firstUseDelay(r.Adapter, j, v.Now) - p.firstUseShared(r.Adapter, j, ready, enters))
	}
	return weight*(first+a.evicts) + t + a.evicts*float64(running), first
}

// comes is how many requests come to a worker in a second.
func (p *planAndRoute) comes() float64 {
	if p.gap.value <= 0 {
		return 0
	}
	return 1 / (p.gap.value * float64(len(p.env.Workers)))
}

// Note implements Policy.
func (p *planAndRoute) Note(e Event) error {
	if e.Kind == Finished {
		p.finished(e)
	}
	return nil
}

// Succeed implements Policy.
func (p *planAndRoute) Succeed(s Succession) {
	p.index.adopt(s)
	p.adopt(s.History, s.View)
}
