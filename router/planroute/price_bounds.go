package planroute

import (
	"math"
	"reflect"

	"lorasim/router"
	"lorasim/trace"
)

// priceBounds tells cheaply what prices are not below, so that a request needs a close
// look at few of many workers. Times of steps are looked up once for each kind of
// worker, rank, batch and number of adapters.
type priceBounds struct {
	costs []router.CostModel
	specs []specBits      // by worker
	steps [][][][]float64 // by kind, largest rank, batch and adapters: a step without KV tokens; 0: not asked yet
	// By kind, of the request at hand: its prefill, its adapter's load from host
	// memory, and what it takes at least to get there.
	prefill, load, fetch []float64
	perKV                []float64 // by kind: what a KV token adds to a step
	fixed                []float64 // by kind: the part of a step that prompts and running requests share, see delays
	// Of the request at hand, too: the weight of its first token, its output, and the mean execution.
	weight, output, exec float64
	shared               float64   // share of its adapter's first use that others bear
	placed               []uint64  // see planAndRoute.placedOn; nil: no worker is asked for where it is placed
	all                  []float64 // by worker, reused
}

// specBits is what bounds need of a worker's spec, side by side.
type specBits struct {
	kind            int32 // its place in priceBounds.costs
	fetches, blocks bool
	firstUse        float64
}

func newPriceBounds(workers []router.Spec) priceBounds {
	b := priceBounds{specs: make([]specBits, len(workers))}
	type kindKey struct {
		cost  router.CostModel
		mixes bool
	}
	seen := map[kindKey]int32{}
	for j := range workers {
		c := workers[j].Cost
		k, ok := int32(0), false
		if reflect.TypeOf(c).Comparable() {
			k, ok = seen[kindKey{c, workers[j].Mixes}]
		}
		if !ok {
			k = int32(len(b.costs))
			b.costs = append(b.costs, c)
			if reflect.TypeOf(c).Comparable() {
				seen[kindKey{c, workers[j].Mixes}] = k
			}
			fixed := 0.0
			if workers[j].Mixes {
				fixed = c.DecodeStep(0, 0, 0, 0)
			}
			b.fixed = append(b.fixed, fixed)
		}
		s := &workers[j]
		b.specs[j] = specBits{k, s.FetchesInSteps && !s.LoadsOverlap, s.Blocks, s.FirstUse}
	}
	for _, c := range b.costs {
		const many = 1 << 24
		b.perKV = append(b.perKV, (c.DecodeStep(1, 0, many, 0)-c.DecodeStep(1, 0, 0, 0))/many)
	}
	b.steps, b.prefill = make([][][][]float64, len(b.costs)), make([]float64, len(b.costs))
	b.load, b.fetch = make([]float64, len(b.costs)), make([]float64, len(b.costs))
	return b
}

// delays is how long running requests wait for a prefill of some seconds in steps of its own. Where the steps also
// decode, the requests wait for what is beyond the fixed part of a decode step.
func (b *priceBounds) delays(kind int32, prefill float64) float64 {
	return max(prefill-b.fixed[kind], 0)
}

// begin prepares for the prices of a request.
func (b *priceBounds) begin(p *planAndRoute, r *router.Request, v *router.View) {
	b.weight, b.output, b.exec, b.placed = p.firstWeight(), r.ExpectedOutput(), p.exec.Or(guessExec), nil
	if p.uses.used != nil && r.Adapter != trace.BaseModel {
		b.shared = p.share(r.Adapter)
	}
	for k, c := range b.costs {
		b.prefill[k] = c.Prefill(int64(r.Prompt))
		if r.Adapter != trace.BaseModel {
			rank := v.Adapters[r.Adapter].Rank
			b.load[k] = c.AdapterLoad(rank, router.Host)
			b.fetch[k] = min(c.AdapterLoad(rank, router.Disk), c.AdapterLoad(rank, router.Remote)) - b.load[k]
		}
	}
}

// step is the least time of a decode step: without KV tokens.
func (b *priceBounds) step(kind int32, batch, adapters, rank int) float64 {
	row := at(at(at(&b.steps[kind], rank), batch), adapters)
	if *row == 0 {
		*row = b.costs[kind].DecodeStep(batch, adapters, 0, rank)
	}
	return *row
}

// more is by how much the last one of the adapters of a batch makes its steps longer, s. A request beside n others of
// its adapter keeps it in the batch for 1/(n+1) of its own time longer, on average.
func (b *priceBounds) more(kind int32, batch, adapters, rank int) float64 {
	return max(b.step(kind, batch, adapters, rank)-b.step(kind, batch, adapters-1, rank), 0)
}

// at returns a pointer to an element of a list, which grows as needed.
func at[T any](list *[]T, i int) *T {
	if more := i + 1 - len(*list); more > 0 {
		*list = append(*list, make([]T, more)...)
	}
	return &(*list)[i]
}

// price is what the price of a worker is not below, without a look at its KV cache. It is less exact, and sooner there,
// where it is above enough. The request's adapter is not placed there, unless placed says so.
func (b *priceBounds) price(p *planAndRoute, r *router.Request, j int, v *router.View, enough float64) float64 {
	w, l, s := &v.Workers[j], &p.backlogs[j], &b.specs[j]
	kind := s.kind
	running, limit := min(w.Running, w.MaxRunning), max(w.MaxRunning, 1)
	exec := l.exec.Or(b.exec)
	adapters, more, load, evicts, fetch, comes := w.ActiveLoras, 0, 0.0, 0.0, 0.0, false
	if r.Adapter != trace.BaseModel {
		var here bool // in host memory
		if comes, here = missing(r.Adapter, j, v); comes {
			more = 1
			if load = b.load[kind]; w.SlotsUsed >= w.Slots {
				evicts = load
			}
			if !here {
				fetch = b.fetch[kind]
			}
		} else {
			adapters, more = batchAdapters(w, r.Adapter, w.Adapter(r.Adapter))
		}
	}
	batch, longer := min(running+1, limit), b.perKV[kind]*float64(r.Prompt)
	step := b.step(kind, batch, adapters+more, w.MaxRank) + longer
	if s.fetches {
		load, fetch = load+fetch, 0
	}
	beside := 0.0
	if running > 0 && p.workers[j].Mixes {
		beside = max(step-b.step(kind, 1, 1, w.MaxRank), 0)
	}
	queued := l.queues(&p.workers[j], v.Now)
	n, prefill := l.next(w, &p.workers[j], queued), b.prefill[kind]
	if p.index != nil && r.Text != nil {
		prefill = b.costs[kind].Prefill(int64(p.uncached(r, j, v)))
	}
	alone := prefill
	if n.tokens > 0 {
		prefill = 0 // in a step with others it may add little
	}
	enters, shared := queued, 0.0
	if s.firstUse > 0 && p.uses.isFirst(r.Adapter, j) {
		enters, shared = enters+s.firstUse, s.firstUse*b.shared // at most
	}
	enters = enters - v.Now - shared
	first := max(n.starts-v.Now, enters, fetch) + n.loads + load + max(n.compute, alone) + beside
	total := b.weight*(first+evicts) + b.output*step + (load+b.delays(kind, prefill)+evicts)*float64(running) +
		alone*p.behind
	if r.Adapter != trace.BaseModel && !in(b.placed, j) {
		total += p.spill * exec
	}
	if comes {
		total += p.pool.price * exec
	}
	if batch > running {
		total += b.output * float64(running) * max(0, step-b.step(kind, running, adapters, w.MaxRank))
	}
	const less = 1 - 1e-9 // it is not added up in the same order
	if total*less > enough {
		return total * less
	}
	c := p.crowdOf(j, w, v.Now)
	waits := float64(max(w.Running+max(w.Queued-c.slotless, 0)+1-limit, 0)) / float64(limit)
	if comes {
		waits += c.turnsOfNew(w.Slots, s.blocks)
	}
	return (total + b.weight*exec*waits) * less
}

// of returns bounds of the prices of all workers on which the adapter is not placed; infinite: the others, and those
// that are not usable. rough: they are less exact than those of price. The list is valid until the next call.
func (b *priceBounds) of(p *planAndRoute, r *router.Request, v *router.View, holders []int32, enough float64) (
	bounds []float64, rough bool) {
	if rough = p.outlinesSuffice(r, v); rough {
		bounds = p.outlined(r, v)
		for _, j := range holders {
			bounds[j] = math.Inf(1)
		}
		return bounds, rough
	}
	bounds = b.all[:0]
	for j := range v.Workers {
		bound := math.Inf(1)
		if len(holders) > 0 && holders[0] == int32(j) {
			holders = holders[1:]
		} else if v.Workers[j].Usable() {
			bound = b.price(p, r, j, v, enough)
		}
		bounds = append(bounds, bound)
	}
	b.all = bounds
	return bounds, rough
}

// missing says whether an adapter has neither a slot nor requests on a worker, and whether it is in its host memory.
func missing(k int32, j int, v *router.View) (comes, here bool) {
	st := v.Workers[j].Adapter(k)
	return !st.Wanted(), st.Tier >= router.Host
}
