package router

import (
	"cmp"
	"math"
	"reflect"
	"slices"
)

// periodic is this project's own planner and the router that goes with it.
//
// Requests go where they cost all requests together the least time (price). Of
// workers that cost nearly the same, those where the current placement has the
// adapter come first. Every interval the planner (periodic_plan.go) forecasts the
// demand for each adapter and solves one migration problem over all workers.
type periodic struct {
	placer
	accounts
	moves    struct{ waiting, running bool } // requests that may go to another worker
	places   bool                            // plans load and unload adapters
	busy     float64                         // share of the horizon that the busiest worker's work must fill
	margin   float64                         // share of the predicted time that a plan must gain
	horizon  float64                         // s of forecast demand that a plan provides for
	maxMoves int
	look     float64 // s between looks at requests that wait
	spill    float64 // share of a request's time that a worker without the adapter must be better by
	deep     int     // requests that wait on a worker, from which on more make no difference

	floor  floors
	first  mean // s until the first token, as expected
	prompt mean // tokens, of all requests
}

// Guesses until requests have ended.
const (
	guessPrompt = 200 // tokens
	guessOutput = 200 // tokens
	guessExec   = 5   // s
)

func newPeriodic(o *options, env Env) (*Router, error) {
	if err := env.needCosts(); err != nil {
		return nil, err
	}
	p := &periodic{
		placer:   newPlacer(o, env),
		busy:     o.number("busy", ">=0"),
		margin:   o.number("margin", ">=0 <=1"),
		maxMoves: o.integer("max-moves", 0, math.MaxInt),
		spill:    o.number("spill", ">=0"),
		deep:     manyWait,
		accounts: newAccounts(env),
	}
	what := o.choice("move", Words("move")...)
	p.moves.waiting = what == "all" || what == "waiting"
	p.moves.running = what == "all" || what == "running"
	p.places = o.choice("place", Words("place")...) == "on"
	p.floor = newFloors(env.Workers)
	p.horizon = p.interval
	p.look = min(o.number("look", ">=0.001"), p.interval)
	if o.text("horizon") != "auto" {
		p.horizon = o.number("horizon", ">=0", "auto")
	}
	rt := p.router(p)
	rt.ReadsKV, rt.ReadsFewKV = true, true
	return rt, nil
}

// newRouteOnly is period_mig's routing: no request moves and no adapter is placed.
func newRouteOnly(o *options, env Env) (*Router, error) {
	all := List()
	i := slices.IndexFunc(all, func(d Descriptor) bool { return d.Name == "period_mig" })
	full := &options{d: &all[i], values: map[string]string{"move": "none", "place": "off", "spill": o.text("spill")}}
	rt, err := newPeriodic(full, env)
	o.err = full.err
	return rt, err
}

func (p *periodic) Route(r Request, v *View) int {
	p.note(r)
	p.prompt.add(float64(r.Prompt))
	p.output.add(r.output())
	best, first := p.cheapest(r, v)
	if best != None {
		p.sent(r, best, v)
		p.first.addUpTo(first, 300)
	}
	return best
}

func (p *periodic) Preview(r Request, v *View) int {
	best, _ := p.cheapest(r, v)
	return best
}

// cheapest is the worker with the lowest price, None if no worker is usable, and
// the time to first token there, s.
func (p *periodic) cheapest(r Request, v *View) (best int, first float64) {
	p.floor.begin(r, v)
	best, least := None, math.Inf(1)
	offer := func(j int) {
		v.read(j)
		if c, f := p.price(r, j, v); c < least || c == least && j < best {
			best, least, first = j, c, f
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
		if v.Workers[j].Usable() && !(isAdapter(r.Adapter) && p.holds(r, j)) && p.floor.price(p, r, j, v) <= least {
			offer(j)
		}
	}
	return best, first
}

// firstWeight is what a second until the first token counts against one of
// decoding: as much more as requests take longer than their first tokens, so that a
// percent of the one is about as dear as a percent of the other.
func (p *periodic) firstWeight() float64 {
	if p.first.n == 0 {
		return 30
	}
	return min(max(0.7*p.exec.or(guessExec)/p.first.value, 1), 30)
}

// price estimates the time, s, that a request costs itself and the others on a
// worker, and how much of it its first token takes.
func (p *periodic) price(r Request, j int, v *View) (total, first float64) {
	w, l, cost := &v.Workers[j], &p.lanes[j], p.env.Workers[j].Cost
	running, limit := min(w.Running, w.MaxRunning), max(w.MaxRunning, 1)
	output, exec := r.output(), l.exec.or(p.exec.or(guessExec))
	kv := w.KVUsed
	if w.Age > exec/10 { // by count, then: prompts, and about half of the output
		kv = max(kv, (w.Tokens-w.QueuedToks)*3/4)
	}
	batch := min(running+1, limit)
	step := cost.DecodeStep(batch, kv+int64(r.Prompt), w.MaxRank)
	prefill := cost.Prefill(int64(r.Prompt))
	a := p.adapterWait(r.Adapter, j, v)

	// until its first token: the prompts before it, a step under way, and places in
	// the batch, the KV cache and the adapter slots that have to become free first
	first = max(l.prefilled-v.Now, a.fetch, 0) + a.load + prefill + slotWait*exec*float64(a.crowd)
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
	t := output*step + (a.load+prefill)*float64(running)
	if batch > running {
		t += output * float64(running) * max(0, step-cost.DecodeStep(running, kv, w.MaxRank))
	}
	if !p.holds(r, j) {
		t += p.spill * exec
	}
	weight := p.firstWeight()
	return weight*(first+a.evicts) + t + a.evicts*float64(running), first
}

func (p *periodic) Finished(f Finished) { p.finished(f) }

// steal moves requests that wait although there was time to compute their prompts
// (they wait for memory, for a slot, for a place in the batch) to workers where
// none does and that would serve them sooner, the oldest first.
func (p *periodic) steal(s *Situation) []Move {
	if !p.moves.waiting || p.margin >= 1 || !p.someoneFree(s.View) {
		return nil
	}
	waiting, busy := p.stuck(s)
	if len(waiting) == 0 {
		return nil
	}
	// a copy of the view, so that each move counts for those after it
	v := &View{Now: s.Now, Adapters: s.Adapters, Workers: slices.Clone(s.Workers)}
	copied := make([]bool, len(v.Workers))
	put := func(a *Active, j int32, by int) {
		w := &v.Workers[j]
		if !copied[j] {
			w.Adapters, copied[j] = slices.Clone(w.Adapters), true
		}
		w.Queued += by
		w.QueuedToks += int64(by) * int64(a.Prompt)
		w.Tokens += int64(by) * (int64(a.Prompt) + int64(a.Expected))
		if isAdapter(a.Adapter) {
			w.Count(a.Adapter, 0, int32(by))
		}
	}
	for _, a := range waiting {
		put(a, a.Worker, -1)
	}
	var moves []Move
	for _, a := range waiting {
		r := a.rest()
		here, _ := p.price(r, int(a.Worker), v)
		to, least := a.Worker, (1-p.margin)*here
		for j := range v.Workers {
			if w := &v.Workers[j]; busy[j] || !w.Usable() || w.Queued >= p.deep || !w.atHand(a.Adapter) {
				continue
			}
			if c, _ := p.price(r, j, v); c < least {
				to, least = int32(j), c
			}
		}
		if to != a.Worker {
			p.sent(r, int(to), v)
			moves = append(moves, Move{ID: a.ID, From: a.Worker, To: to})
		}
		put(a, to, 1)
		if p.maxMoves > 0 && len(moves) == p.maxMoves {
			break
		}
	}
	return moves
}

// manyWait bounds the requests that planning looks at, the first that wait on each
// worker. Where as many wait no others are moved to: they would wait for minutes there
// as well, and in overload all would go back and forth, each time to the end of a queue.
const manyWait = 1024

// stuck lists requests that wait for something else than prompts or weights, the
// oldest first, and says on which workers there are such.
func (p *periodic) stuck(s *Situation) (list []*Active, busy []bool) {
	if p.env.Moving == MoveNone || p.env.Moving == "" {
		return nil, nil
	}
	busy = make([]bool, len(s.Workers))
	for _, a := range p.seen(s) {
		if !a.Running && p.overdue(int(a.Worker), s.Now) && s.Workers[a.Worker].atHand(a.Adapter) {
			list = append(list, a)
			busy[a.Worker] = true
		}
	}
	slices.SortStableFunc(list, func(a, b *Active) int { return cmp.Compare(b.Age, a.Age) })
	return list[:min(len(list), p.deep)], busy
}

// atHand says whether an adapter is in host memory at least.
func (w *Worker) atHand(k int32) bool { return !isAdapter(k) || w.adapter(k).Tier >= Host }

// floors tells cheaply what prices are not below, so that a request needs a close
// look at few of many workers. Times of steps are looked up once for each kind of
// worker, batch and rank.
type floors struct {
	costs []CostModel
	kind  []int32       // by worker: its place in costs
	steps [][][]float64 // by kind, largest rank and batch: a step without KV tokens; 0: not asked yet
	// By kind, of the request at hand: its prefill, its adapter's load from host
	// memory, and what it takes at least to get there.
	prefill, load, fetch []float64
}

func newFloors(workers []Spec) floors {
	f := floors{kind: make([]int32, len(workers))}
	seen := map[CostModel]int32{}
	for j := range workers {
		c := workers[j].Cost
		k, ok := int32(0), false
		if reflect.TypeOf(c).Comparable() {
			k, ok = seen[c]
		}
		if !ok {
			k = int32(len(f.costs))
			f.costs = append(f.costs, c)
			if reflect.TypeOf(c).Comparable() {
				seen[c] = k
			}
		}
		f.kind[j] = k
	}
	f.steps, f.prefill = make([][][]float64, len(f.costs)), make([]float64, len(f.costs))
	f.load, f.fetch = make([]float64, len(f.costs)), make([]float64, len(f.costs))
	return f
}

// begin prepares for the prices of a request.
func (f *floors) begin(r Request, v *View) {
	for k, c := range f.costs {
		f.prefill[k] = c.Prefill(int64(r.Prompt))
		if isAdapter(r.Adapter) {
			rank := v.Adapters[r.Adapter].Rank
			f.load[k] = c.AdapterLoad(rank, Host)
			f.fetch[k] = min(c.AdapterLoad(rank, Disk), c.AdapterLoad(rank, Remote)) - f.load[k]
		}
	}
}

// step is the least time of a decode step.
func (f *floors) step(kind int32, batch, rank int) float64 {
	for len(f.steps[kind]) <= rank {
		f.steps[kind] = append(f.steps[kind], nil)
	}
	for len(f.steps[kind][rank]) <= batch {
		f.steps[kind][rank] = append(f.steps[kind][rank], 0)
	}
	t := &f.steps[kind][rank][batch]
	if *t == 0 {
		*t = f.costs[kind].DecodeStep(batch, 0, rank)
	}
	return *t
}

// price is what the price of a worker on which the request's adapter is not placed
// is not below, without a look at its KV cache, and at its adapters but for the index.
func (f *floors) price(p *periodic, r Request, j int, v *View) float64 {
	w, l, kind := &v.Workers[j], &p.lanes[j], f.kind[j]
	running, limit := min(w.Running, w.MaxRunning), max(w.MaxRunning, 1)
	exec, step := l.exec.or(p.exec.or(guessExec)), f.step(kind, min(running+1, limit), w.MaxRank)
	load, fetch := 0.0, 0.0
	if x := v.Index; x != nil && isAdapter(r.Adapter) && !x.in(x.has, j, r.Adapter) {
		if load = f.load[kind]; !x.in(x.host, j, r.Adapter) {
			fetch = f.fetch[kind]
		}
	}
	first := max(l.prefilled-v.Now, fetch, 0) + load + f.prefill[kind]
	if running > 0 {
		first += step
	}
	first += exec * float64(max(w.Running+1-limit, 0)) / float64(limit)
	total := p.firstWeight()*first + r.output()*step + (load+f.prefill[kind])*float64(running)
	if isAdapter(r.Adapter) {
		total += p.spill * exec
	}
	return total * (1 - 1e-9) // it is not added up in the same order
}
