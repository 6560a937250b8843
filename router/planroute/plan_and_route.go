// Package planroute has the policy plan-and-route, this project's own, and its routing alone: route-only.
//
// A request goes to the worker with the least price (planAndRoute.price): the time that the request costs all requests
// together. The price reads the router's own accounts of what it sent where (accounts.go, front_end.go, recent_load.go,
// kept_prefixes.go), the cost of a second slot (second_slot.go), and the placement of the planner. A lower bound saves
// most workers the full price (price_bounds.go). The planner moves adapters and requests by a migration problem
// (plan.go), and waiting requests between plans (steal.go).
//
// Load shedding predicts with the same accounts, for any policy ([TTFT]).
package planroute

import (
	"cmp"
	"math"

	"lorasim/router"
	"lorasim/router/average"
	"lorasim/router/choose"
	"lorasim/router/place"
	"lorasim/router/prefixindex"
	"lorasim/trace"
	"lorasim/trace/settings"
)

// planAndRoute routes, and plans.
//
// Requests go where they cost all requests together the least time (price). Of
// workers that cost nearly the same, those where the current placement has the
// adapter come first. Every interval the planner (plan.go) forecasts the
// demand for each adapter and solves one migration problem over all workers.
type planAndRoute struct {
	place.Placer
	accounts
	interval float64                         // time between plans, s
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

	queues   slotQueues // at the latest look
	scratch  stealScratch
	bounds   priceBounds
	outlines outlines
	placed   map[int32]placedSet // see placedOn
	index    *prefixindex.Index  // nil: no worker keeps prefixes
	first    average.Mean        // s until the first token, as expected
	prompt   average.Mean        // tokens, of all requests
	found    average.Mean        // share of prompts that the workers keep
	gap      average.Mean        // s between requests
	latest   float64
	behind   float64 // requests that a prompt delays beside the running ones, see beginBehind

	repeats bool // the latest plan is made again if nothing happens, see Again

	best           cheapest // of the request at hand
	priced, chosen arrival  // at the latest price, and on the worker that cheapest has picked
}

// Guesses until requests have ended.
const (
	guessPrompt = 200 // tokens
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
func (o *planAndRouteOptions) Build(env router.Env) (*router.Router, error) {
	if err := env.NeedCosts(); err != nil {
		return nil, err
	}
	p := &planAndRoute{
		Placer:   place.New(o.Interval, env),
		interval: o.Interval,
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
	p.outlines.few, p.outlines.holders = fewWorkers, fewHolders
	p.outlines.groups.from, p.outlines.groups.most = manyWorkers, mostAlike
	p.horizon = p.interval
	p.look = min(o.Look, p.interval)
	if o.Horizon.Word != "auto" {
		p.horizon = o.Horizon.Value
	}
	p.index = keptPrefixes(env)
	rt := p.Router(p)
	rt.ReadsKV, rt.ReadsFewKV, rt.ReadsPrefixes = true, true, p.index != nil
	return rt, nil
}

// routeOnlyOptions: the routing of plan-and-route alone; no request moves and no adapter is placed.
type routeOnlyOptions struct{ spillOption }

// Build implements Builder.
func (o *routeOnlyOptions) Build(env router.Env) (*router.Router, error) {
	full := &planAndRouteOptions{}
	if _, err := settings.Decode("move=none,place=off", full); err != nil {
		return nil, err
	}
	full.spillOption = o.spillOption
	full.Interval = cmp.Or(env.Interval, full.Interval)
	return full.Build(env)
}

// Route implements Policy.
func (p *planAndRoute) Route(r router.Request, v *router.View) router.Decision {
	p.arrived(r, v)
	return router.To(p.send(r, v))
}

// arrived notes that a request is there, and what the view says then.
func (p *planAndRoute) arrived(r router.Request, v *router.View) {
	p.Count(r)
	p.arrives(r.Adapter, v.Now)
	if p.outlines.follows(v) { // where adapters wait for slots, these become free less often
		p.outlines.slotsFreed(r.Adapter, v)
	}
	p.prompt.Add(float64(r.Prompt))
	p.output.Add(r.ExpectedOutput())
	p.update(v)
	if o := &p.outlines; !o.follows(v) || o.toRead > 0 || p.late {
		p.read(v)
	}
	if p.index != nil {
		p.index.Forget(v)
	}
	p.gap.Add(v.Now - p.latest)
	p.latest = v.Now
	load := -1.0
	if r.Adapter != trace.BaseModel {
		load = p.rates[r.Adapter].perSecond * p.exec.Or(guessExec)
	}
	slots, taken := p.slots(v)
	p.pool.look(slots, taken, load)
}

// slots returns the slots of the cluster, and those that adapters with requests take or wait for. An adapter takes one
// slot on a worker, whether its requests run or wait.
func (p *planAndRoute) slots(v *router.View) (slots, taken int) {
	if p.outlines.follows(v) {
		return p.outlines.slots, p.outlines.taken
	}
	for j := range v.Workers {
		if w := &v.Workers[j]; w.Usable() {
			slots += w.Slots
			taken += w.FlightLoras
		}
	}
	return slots, taken
}

// send picks the worker for a request that has arrived, and notes what goes there.
func (p *planAndRoute) send(r router.Request, v *router.View) int {
	best, first := p.cheapest(r, v)
	if best != router.None {
		if p.unequal() {
			p.backlogs[best].recent.add(p.work(&r, best, v), v.Now, loadMemory)
		}
		uncached := p.uncached(&r, best, v)
		p.add(r, best, v, uncached, &p.chosen)
		p.found.Add(1 - float64(uncached)/float64(max(r.Prompt, 1)))
		p.keep(&r, best, v)
		p.outlines.changed(best)
		p.first.AddUpTo(first, 300)
	}
	return best
}

// Preview implements Policy.
func (p *planAndRoute) Preview(r router.Request, v *router.View) int {
	best, _ := p.cheapest(r, v)
	return best
}

// cheapest is the worker with the lowest price, None if no worker is usable, and
// the time to first token there, s.
func (p *planAndRoute) cheapest(r router.Request, v *router.View) (worker int, first float64) {
	p.begin(&r, v)
	best := &p.best
	*best = cheapest{Least: choose.New(nil)}
	if len(v.Workers) <= priceAll {
		for j := range v.Usable() {
			p.offer(&r, j, v)
		}
		return best.Worker, best.first
	}
	var holders []int32
	suffice := p.outlinesSuffice(&r, v)
	if p.bounds.begin(p, &r, v); r.Adapter != trace.BaseModel {
		holders = p.Where(r.Adapter)
		if suffice && len(holders) > p.outlines.holders {
			p.bounds.placed, holders = p.placedOn(r.Adapter), nil
		}
		for _, j := range holders { // where it most often goes comes first, so that few others need a closer look
			if v.Workers[j].Usable() {
				p.offer(&r, int(j), v)
			}
		}
	}
	if p.outlines.groups.on && suffice {
		p.offerOthers(&r, v)
		return best.Worker, best.first
	}
	// then the one with the least bound, so that it is below the bounds of most others
	bounds, rough := p.bounds.of(p, &r, v, holders, best.Cost)
	least := choose.New(nil)
	for j, bound := range bounds {
		least.Offer(j, bound)
	}
	if math.IsInf(least.Cost, 1) || least.Cost > best.Cost {
		return best.Worker, best.first
	}
	p.offer(&r, least.Worker, v)
	bounds[least.Worker] = math.Inf(1)
	for j, bound := range bounds {
		if bound > best.Cost || math.IsInf(bound, 1) || rough && p.bounds.price(p, &r, j, v, best.Cost) > best.Cost {
			continue
		}
		p.offer(&r, j, v)
	}
	return best.Worker, best.first
}

// cheapest is the worker with the lowest price so far, and the time to first token there, s.
type cheapest struct {
	choose.Least
	first float64
}

// offer takes a worker as the cheapest if its price is the lowest so far.
func (p *planAndRoute) offer(r *router.Request, j int, v *router.View) {
	v.ReadKV(j)
	c, f := p.price(*r, j, v)
	if best := &p.best; c <= best.Cost {
		if best.OfferLowest(j, c); best.Worker == j {
			best.first, p.chosen = f, p.priced
		}
	}
	p.refill(j, v)
}

// fewHolders is the number of workers up to which those are looked at where an adapter is placed.
const fewHolders = 8

// placedOn returns the set of workers where an adapter is placed.
func (p *planAndRoute) placedOn(adapter int32) []uint64 {
	where := p.Where(adapter)
	s := p.placed[adapter]
	if len(s.where) == len(where) && &s.where[0] == &where[0] { // a placement is replaced as a whole
		return s.set
	}
	if s.set == nil {
		s.set = make([]uint64, (len(p.Env().Workers)+63)/64)
	}
	clear(s.set)
	s.where = where
	for _, j := range where {
		s.set[j/64] |= 1 << (j % 64)
	}
	if p.placed == nil {
		p.placed = map[int32]placedSet{}
	}
	p.placed[adapter] = s
	return s.set
}

// placedSet has the workers where an adapter is placed, as a list and as a set.
type placedSet struct {
	where []int32
	set   []uint64
}

// priceAll is the number of workers up to which bounds cost more time than they save.
const priceAll = 2

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
	if p.first.N == 0 {
		return mostFirstWeight
	}
	return min(max(firstScale*p.exec.Or(guessExec)/p.first.Value, 1), mostFirstWeight)
}

// price estimates the time, s, that a request costs itself and the others on a
// worker, and how much of it its first token takes.
func (p *planAndRoute) price(r router.Request, j int, v *router.View) (total, first float64) {
	w, l, cost := &v.Workers[j], &p.backlogs[j], p.Env().Workers[j].Cost
	running, limit := min(w.Running, w.MaxRunning), max(w.MaxRunning, 1)
	output, exec := r.ExpectedOutput(), l.exec.Or(p.exec.Or(guessExec))
	kv := p.kvUsed(j, v)
	batch := min(running+1, limit)
	st := w.Adapter(r.Adapter)
	adapters, one := batchAdapters(w, r.Adapter, st)
	step := cost.DecodeStep(batch, adapters+one, kv+int64(r.Prompt), w.MaxRank)
	spec, beside := &p.workers[j], p.beside(j, w, step)
	n := l.next(w, spec, l.queues(spec, v.Now))
	uncached := p.uncached(&r, j, v)
	prompts, prefill := n.prompt(uncached, cost)
	a := p.adapterWait(r.Adapter, st, j, v)
	p.priced = arrival{a, kv, prompts, step, beside}

	// until its first token: the front end, the prompts before it, a step under way, and places in
	// the batch, the KV cache and the adapter slots that have to become free first
	ready, enters := max(n.starts-v.Now, a.fetch), p.enters(r.Adapter, j, v.Now)-v.Now
	first = max(ready, enters) + n.loads + a.load + a.stall + prompts + beside + exec*a.turns
	between := exec / float64(max(running, 1)) // from one request's end to the next
	stuck := max(w.Queued-a.slotless, 0)
	first += exec * float64(max(w.Running+stuck+1-limit, 0)) / float64(limit)
	if v.Now > l.prefilled+step {
		first += between * float64(stuck) / 2
	}
	if over := l.need(r, kv, w, a.slotless) - l.room(w); over > 0 {
		each := float64(max(kv, 1)) / float64(max(running, 1)) // tokens of one that runs
		if running == 0 {
			each = float64(max(w.Tokens, 1)) / float64(max(w.Load(), 1))
		}
		first += between * math.Ceil(over/each)
	}

	// its decoding; what others lose to its load, its prefill and its decoding
	stop := prefill // how long the running requests wait for the prompt
	if n.tokens == 0 {
		stop = p.bounds.delays(p.bounds.specs[j].kind, prefill)
	}
	t := output*step + (a.load+a.stall+stop)*float64(running)
	if p.behind > 0 {
		t += cost.Prefill(int64(uncached)) * p.behind
	}
	if batch > running {
		t += output * float64(running) * max(0, step-cost.DecodeStep(running, adapters, kv, w.MaxRank))
	}
	if n := st.Running + st.Queued; n > 0 && adapters > 0 {
		more := p.bounds.more(p.bounds.specs[j].kind, batch, adapters, w.MaxRank)
		t += output * float64(running) * more / float64(n+1)
	}
	weight := p.firstWeight()
	t += p.displaces(uncached, output, j, w) * (weight + float64(running) + p.behind)
	t *= p.later(j, v.Now)
	if !p.Holds(r.Adapter, j) {
		t += p.spill * exec
	}
	t += p.pool.secondSlot(st) * exec
	if st.Running > 0 && a.adapters > w.Slots {
		t += weight * p.keepsSlot(r.Adapter, st, &a.crowd, exec)
	}
	if p.uses.isFirst(r.Adapter, j) {
		t += weight * (p.firstUseDelay(r.Adapter, j, v.Now) - p.firstUseShared(r.Adapter, j, ready, enters))
	}
	others := a.evicts + a.delays + n.delay(uncached, prefill, spec.StepTokens) // first tokens of others
	return weight*(first+others) + t + a.evicts*float64(running), first
}

// begin works out what the prices of a request have in common on all workers. It comes before the first price.
func (p *planAndRoute) begin(r *router.Request, v *router.View) {
	p.update(v)
	p.beginPool(r, v)
	p.beginBehind(v)
}

// beginBehind estimates how many requests wait behind the request at hand while its prompt is computed. The estimate is
// the mean queue of the workers now, since the router evens the queues out. It is 0 if a prompt takes the same time on
// all workers: then it has no effect on the choice.
func (p *planAndRoute) beginBehind(v *router.View) {
	p.behind = 0
	if p.index == nil && len(p.bounds.costs) == 1 {
		return
	}
	usable, queued := p.outlines.usable, p.outlines.queued
	if !p.outlines.follows(v) {
		usable, queued = 0, 0
		for j := range v.Usable() {
			usable, queued = usable+1, queued+v.Workers[j].Queued
		}
	}
	p.behind = float64(queued) / float64(max(usable, 1))
}

// comes is how many requests come to a worker in a second.
func (p *planAndRoute) comes() float64 {
	if p.gap.Value <= 0 {
		return 0
	}
	return 1 / (p.gap.Value * float64(len(p.Env().Workers)))
}

// Note implements Policy.
func (p *planAndRoute) Note(e router.Event) error {
	switch e.Kind {
	case router.Sent:
		p.pool.count(e.Adapter, 1)
	case router.Left:
		p.pool.count(e.Adapter, -1)
	case router.FirstToken:
		l := &p.backlogs[e.Worker]
		if l.begins(e.Adapter, e.Now); l.began(e.ID, e.Now) {
			p.outlines.changed(int(e.Worker))
		}
	case router.Finished:
		p.finished(e)
		p.outlines.changed(int(e.Worker))
	}
	return nil
}

// Succeed implements Policy.
func (p *planAndRoute) Succeed(s router.Succession) {
	p.index.Adopt(s)
	p.adopt(s.History, s.View)
}

func (p *planAndRoute) adopt(h *router.History, v *router.View) {
	p.Placer.Adopt(h, v)
	p.outlines.index = nil // look at all workers anew
	slots, taken := p.slots(v)
	p.pool.adopt(v, slots, taken)
	for j := range p.backlogs {
		p.backlogs[j].entered, p.backlogs[j].used = math.Inf(-1), true
	}
	oldest := true
	for s := range h.All() {
		p.arrives(s.Adapter, s.Sent)
		p.prompt.Add(float64(s.Prompt))
		if !oldest {
			p.gap.Add(max(s.Sent-p.latest, 0))
		}
		p.latest, oldest = s.Sent, false
		if s.Worker >= 0 {
			l := &p.backlogs[s.Worker]
			l.entered = max(l.entered, s.Sent) + p.workers[s.Worker].FrontEnd
			p.uses.note(s.Adapter, int(s.Worker))
		}
		if s.Output == 0 || s.Worker == router.None {
			continue
		}
		p.output.Add(float64(s.Output))
		p.first.AddUpTo(s.TTFT, 300)
		p.finished(router.Event{Worker: s.Worker, Exec: s.E2E - s.TTFT})
	}
	for j := range v.Workers { // the prompts that wait are computed one after the other
		l := &p.backlogs[j]
		l.prefilled = v.Now + p.workers[j].Cost.Prefill(v.Workers[j].QueuedToks)
		l.last.starts, l.last.closes, l.ends = v.Now, v.Now, l.prefilled
	}
}
