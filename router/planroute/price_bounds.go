package planroute

import (
	"reflect"

	"lorasim/router"
	"lorasim/trace"
)

// priceBounds tells cheaply what prices are not below, so that a request needs a close
// look at few of many workers. Times of steps are looked up once for each kind of
// worker, batch and rank.
type priceBounds struct {
	costs []router.CostModel
	kind  []int32       // by worker: its place in costs
	steps [][][]float64 // by kind, largest rank and batch: a step without KV tokens; 0: not asked yet
	// By kind, of the request at hand: its prefill, its adapter's load from host
	// memory, and what it takes at least to get there.
	prefill, load, fetch []float64
}

func newPriceBounds(workers []router.Spec) priceBounds {
	b := priceBounds{kind: make([]int32, len(workers))}
	seen := map[router.CostModel]int32{}
	for j := range workers {
		c := workers[j].Cost
		k, ok := int32(0), false
		if reflect.TypeOf(c).Comparable() {
			k, ok = seen[c]
		}
		if !ok {
			k = int32(len(b.costs))
			b.costs = append(b.costs, c)
			if reflect.TypeOf(c).Comparable() {
				seen[c] = k
			}
		}
		b.kind[j] = k
	}
	b.steps, b.prefill = make([][][]float64, len(b.costs)), make([]float64, len(b.costs))
	b.load, b.fetch = make([]float64, len(b.costs)), make([]float64, len(b.costs))
	return b
}

// begin prepares for the prices of a request.
func (b *priceBounds) begin(r router.Request, v *router.View) {
	for k, c := range b.costs {
		b.prefill[k] = c.Prefill(int64(r.Prompt))
		if r.Adapter != trace.BaseModel {
			rank := v.Adapters[r.Adapter].Rank
			b.load[k] = c.AdapterLoad(rank, router.Host)
			b.fetch[k] = min(c.AdapterLoad(rank, router.Disk), c.AdapterLoad(rank, router.Remote)) - b.load[k]
		}
	}
}

// step is the least time of a decode step: without KV tokens, and with as few adapters as can be.
func (b *priceBounds) step(kind int32, batch, rank int) float64 {
	for len(b.steps[kind]) <= rank {
		b.steps[kind] = append(b.steps[kind], nil)
	}
	for len(b.steps[kind][rank]) <= batch {
		b.steps[kind][rank] = append(b.steps[kind][rank], 0)
	}
	t := &b.steps[kind][rank][batch]
	if *t == 0 {
		*t = b.costs[kind].DecodeStep(batch, 0, 0, rank)
	}
	return *t
}

// price is what the price of a worker on which the request's adapter is not placed
// is not below, without a look at its KV cache, and at its adapters but for the index.
func (b *priceBounds) price(p *planAndRoute, r router.Request, j int, v *router.View) float64 {
	w, l, kind := &v.Workers[j], &p.backlogs[j], b.kind[j]
	running, limit := min(w.Running, w.MaxRunning), max(w.MaxRunning, 1)
	exec, step := l.exec.Or(p.exec.Or(guessExec)), b.step(kind, min(running+1, limit), w.MaxRank)
	load, fetch := 0.0, 0.0
	if x := v.Index; x != nil && r.Adapter != trace.BaseModel && !x.Has(j, r.Adapter) {
		if load = b.load[kind]; !x.InHost(j, r.Adapter) {
			fetch = b.fetch[kind]
		}
	}
	if p.workers[j].FetchesInSteps {
		load, fetch = load+fetch, 0
	}
	n, prefill := l.next(w, v.Now), b.prefill[kind]
	if p.index != nil && r.Text != nil {
		prefill = b.costs[kind].Prefill(int64(p.uncached(&r, j, v)))
	}
	alone := prefill
	if n.tokens > 0 {
		prefill = 0 // in a step with others it may add little
	}
	enters := p.enters(r.Adapter, j, v.Now) - v.Now
	if p.firstUse(r.Adapter, j) { // some of it, at most, is shared
		enters -= p.workers[j].FirstUse * p.share(r.Adapter)
	}
	first := max(n.starts-v.Now, enters, fetch) + n.loads + load + max(n.compute, alone)
	if running > 0 {
		first += step
	}
	first += exec * float64(max(w.Running+1-limit, 0)) / float64(limit)
	total := p.firstWeight()*first + r.ExpectedOutput()*step + (load+prefill)*float64(running)
	if r.Adapter != trace.BaseModel {
		total += p.spill * exec
	}
	return total * (1 - 1e-9) // it is not added up in the same order
}
