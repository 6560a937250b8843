package router

import "reflect"

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
