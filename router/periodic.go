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
	moves    struct{ waiting, running bool } // requests that may go to another worker
	places   bool                            // plans load and unload adapters
	busy     float64                         // share of the horizon that the busiest worker's work must fill
	margin   float64                         // share of the predicted time that a plan must gain
	horizon  float64                         // s of forecast demand that a plan provides for
	maxMoves int
	look     float64 // s between looks at requests that wait
	spill    float64 // share of a request's time that a worker without the adapter must be better by
	deep     int     // requests that wait on a worker, from which on more make no difference

	lanes          []lane // by worker
	floor          floors
	exec           mean // s, of requests that ended
	first          mean // s until the first token, as expected
	prompt, output mean // tokens, the output as expected, of all requests
}

// lane is what the router works out of a worker from what it sent there itself.
type lane struct {
	prefilled float64 // s: when the prompts sent there will have been computed
	fetched   float64 // s: when the adapters sent for will have come to host memory
	exec      mean    // s, of requests that ended there
	full      float64 // KV tokens, see demand, from which on requests had to wait; 0: they never had to
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
		lanes:    make([]lane, len(env.Workers)),
	}
	what := o.choice("move", "all", "waiting", "running", "none")
	p.moves.waiting = what == "all" || what == "waiting"
	p.moves.running = what == "all" || what == "running"
	p.places = o.choice("place", "on", "off") == "on"
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
	p.floor.begin(r, v)
	best, least, first := None, math.Inf(1), 0.0
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
	if best != None {
		p.sent(r, best, v)
		p.first.addUpTo(first, 300)
	}
	return best
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

// need is the KV tokens that a worker would have to have for a request to run there
// at once: engines reserve what it may generate.
func (l *lane) need(r Request, kv int64, w *Worker) float64 {
	return float64(kv+w.QueuedToks+int64(r.Prompt)) + max(float64(r.MaxNew), r.output())
}

// room is the need that a worker can meet: its KV cache, or less where requests have
// had to wait with less, for what is reserved for the running ones is not known.
func (l *lane) room(w *Worker) float64 {
	switch {
	case w.KVCapacity == 0:
		return math.Inf(1)
	case l.full > 0:
		return min(l.full, float64(w.KVCapacity))
	}
	return float64(w.KVCapacity)
}

// adapterWait is what a request waits for its adapter.
type adapterWait struct {
	fetch, load float64 // s, until it is in host memory; from there to a slot
	evicts      float64 // s, to load the adapter again that makes way
	crowd       int     // adapters that have to be done before it gets a slot
	slotless    int     // requests that wait for a slot, and let others pass
}

// slotWait is how many executions an adapter keeps its slot for where others wait
// for it: more of its requests come meanwhile.
const slotWait = 8

func (p *periodic) adapterWait(k int32, j int, v *View) (a adapterWait) {
	w := &v.Workers[j]
	adapters, slotless := w.crowd()
	a.slotless = slotless
	if !isAdapter(k) {
		return a
	}
	st := w.adapter(k)
	if st.Running+st.Queued == 0 && adapters >= w.Slots {
		a.crowd = 1 + adapters - w.Slots
	}
	if st.Tier == GPU || st.Loading || st.Running > 0 {
		return a
	}
	coming := max(p.lanes[j].fetched-v.Now, 0) // what its loader has to do
	if st.Queued > 0 {                         // another brings it
		if st.Tier < Host {
			a.fetch = coming
		}
		return a
	}
	cost, rank := p.env.Workers[j].Cost, p.env.Adapters[k].Rank
	a.load = cost.AdapterLoad(rank, Host)
	if w.SlotsUsed >= w.Slots {
		a.evicts = a.load
	}
	if st.Tier < Host {
		a.fetch = coming + cost.AdapterLoad(rank, st.Tier) - a.load
	}
	return a
}

// crowd is the number of adapters that have requests on a worker, and, where they
// are more than its slots, the number of requests that have none.
func (w *Worker) crowd() (adapters, slotless int) {
	adapters = w.ActiveLoras + w.WaitingLoras
	if adapters < w.Slots || w.WaitingLoras == 0 {
		return adapters, 0
	}
	adapters = 0
	for k := range w.Adapters {
		st := &w.Adapters[k]
		if st.Running > 0 || st.Queued > 0 {
			adapters++
		}
		if st.Running == 0 {
			slotless += int(st.Queued)
		}
	}
	if adapters <= w.Slots {
		slotless = 0
	}
	return adapters, slotless
}

// sent notes what a request brings to the worker that it goes to, and learns from
// what still waits there.
func (p *periodic) sent(r Request, j int, v *View) {
	w, l := &v.Workers[j], &p.lanes[j]
	level := float64(w.KVUsed+w.QueuedToks) + max(float64(r.MaxNew), p.output.value)
	switch adapters, _ := w.crowd(); {
	case w.Queued == 0:
		if l.full > 0 {
			l.full = max(l.full, level)
		}
	case v.Now > l.prefilled+stuckAfter && adapters <= w.Slots && w.Running < w.MaxRunning && level < l.room(w):
		l.full = l.room(w) + 0.1*(level-l.room(w))
	}
	a := p.adapterWait(r.Adapter, j, v)
	if a.fetch > 0 {
		l.fetched = max(l.fetched, v.Now+a.fetch)
	}
	l.prefilled = max(l.prefilled, v.Now) + a.load + p.env.Workers[j].Cost.Prefill(int64(r.Prompt))
}

// stuckAfter is how long after the prompts before it should have been computed a
// request is taken to wait for memory, s: longer than a step.
const stuckAfter = 0.05

func (p *periodic) Finished(f Finished) {
	p.exec.add(f.Exec)
	p.lanes[f.Worker].exec.add(f.Exec)
}

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

// overdue says whether the prompts sent to a worker should have been computed by now.
func (p *periodic) overdue(j int, now float64) bool {
	return now > p.lanes[j].prefilled+stuckAfter
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
