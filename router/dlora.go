package router

import (
	"math"
	"slices"
)

// dlora holds what the three migration types of dLoRA's reference benchmark
// (OSDI'24) share: which adapters lie on which workers, and the greedy
// placement that puts them there (dlora_place.go).
//
// Its rules are kept to the letter, with these slips left out: execution times
// read with a wrong index, plans without request moves dropped, migrated
// requests resumed without their adapter.
type dlora struct {
	env   Env
	held  [][]int32 // by worker: its adapters, in the order they came
	where [][]int32 // by adapter: its workers, in the order they came
	cap   []int     // by worker: adapters it was given at the start
	// arrived counts the requests of each adapter. It starts at 1 for each, so
	// that the expected shares are even before anything is known.
	arrived []float64
	total   float64
}

func newDLoRA(env Env, period bool) *dlora {
	d := &dlora{env: env, arrived: make([]float64, len(env.Adapters))}
	for k := range d.arrived {
		d.arrived[k] = 1
	}
	d.total = float64(len(d.arrived))
	d.placeAll(period)
	return d
}

// newDispatchOnly routes by dLoRA's dispatch cost and never changes the placement.
func newDispatchOnly(_ *options, env Env) (*Router, error) {
	d := newDLoRA(env, false)
	return &Router{Policy: dispatch{d}, Placement: clonePlacement(d.held)}, nil
}

func clonePlacement(held [][]int32) [][]int32 {
	if held == nil {
		return nil
	}
	p := make([][]int32, len(held))
	for j := range held {
		p[j] = slices.Clone(held[j])
	}
	return p
}

// dispatch sends a request to the worker with its adapter where the dispatch
// cost is least; of equals, the one that got the adapter first.
type dispatch struct{ *dlora }

func (p dispatch) Route(r Request, v *View) int {
	p.count(r.Adapter)
	w, _ := p.cheapest(r.Adapter, v)
	return w
}

func (d *dlora) count(k int32) {
	if k >= 0 {
		d.arrived[k]++
		d.total++
	}
}

// cheapest returns the usable holder of an adapter with the least cost. Where
// none is usable, or no worker holds the adapter, it is the usable worker with
// the fewest requests, which loads the adapter on demand; the cost is then
// infinite. Every worker holds the base model.
func (d *dlora) cheapest(k int32, v *View) (int, float64) {
	best, cost := None, math.Inf(1)
	try := func(j int) {
		if !v.Workers[j].Usable() {
			return
		}
		if c := d.cost(j, &v.Workers[j]); best == None || c < cost {
			best, cost = j, c
		}
	}
	if k < 0 {
		for j := range v.Workers {
			try(j)
		}
		return best, cost
	}
	for _, j := range d.where[k] {
		try(int(j))
	}
	if best == None {
		return fewest(v), math.Inf(1)
	}
	return best, cost
}

// fewest returns the first usable worker with the fewest requests, or None.
func fewest(v *View) int {
	best := None
	for j := range v.Workers {
		if w := &v.Workers[j]; w.Usable() && (best == None || w.Load() < v.Workers[best].Load()) {
			best = j
		}
	}
	return best
}

// mergedCost is the price of a full batch of one adapter, which dLoRA runs with
// the adapter merged into the weights, against 1 for a mixed batch.
const mergedCost = 0.6

// cost is dLoRA's dispatch cost: full batches of one adapter, and the mixed
// batches that the remainders make.
func (d *dlora) cost(j int, w *Worker) float64 {
	bs := int64(max(d.env.Workers[j].MaxRunning, 1))
	var full, rest int64
	for k := range w.Adapters {
		n := int64(w.Adapters[k].Running) + int64(w.Adapters[k].Queued)
		full += n / bs
		rest += n % bs
	}
	return float64(full)*mergedCost + float64(rest/bs)
}

// swap puts an adapter on a worker in the place of another.
func (d *dlora) swap(j int, out, in int32) {
	d.remove(j, out)
	d.add(j, in)
}

func (d *dlora) add(j int, k int32) {
	d.held[j] = append(d.held[j], k)
	d.where[k] = append(d.where[k], int32(j))
}

func (d *dlora) remove(j int, k int32) {
	d.held[j] = slices.DeleteFunc(d.held[j], func(a int32) bool { return a == k })
	d.where[k] = slices.DeleteFunc(d.where[k], func(w int32) bool { return int(w) == j })
}

func (d *dlora) holds(j int, k int32) bool { return slices.Contains(d.held[j], k) }

// swapBandwidth is the rate at which dispatch_mig takes adapters to come over
// PCIe, bytes/s.
const swapBandwidth = 32 << 30

// dispatchMig also considers workers without the adapter that could take it in
// the place of an idle one with another replica.
type dispatchMig struct {
	*dlora
	plan *Plan // the swap of the latest decision
}

func newDispatchMig(_ *options, env Env) (*Router, error) {
	d := newDLoRA(env, false)
	return &Router{Policy: &dispatchMig{dlora: d}, Placement: clonePlacement(d.held)}, nil
}

func (p *dispatchMig) Route(r Request, v *View) int {
	p.count(r.Adapter)
	best, cost := p.cheapest(r.Adapter, v)
	if r.Adapter < 0 {
		return best
	}
	out := int32(-1)
	for j := range v.Workers {
		w := &v.Workers[j]
		if !w.Usable() || p.holds(j, r.Adapter) {
			continue
		}
		s := p.idle(j, w)
		if s < 0 {
			continue
		}
		c := p.cost(j, w)
		if bytes := p.env.Workers[j].AdapterBytes; bytes != nil {
			c += bytes[r.Adapter] / swapBandwidth
		}
		if c < cost {
			best, cost, out = j, c, s
		}
	}
	if out >= 0 {
		p.swap(best, out, r.Adapter)
		p.plan = &Plan{
			Reason: "a busy adapter takes the place of an idle one",
			Load:   []Placement{{int32(best), r.Adapter}}, Unload: []Placement{{int32(best), out}},
		}
	}
	return best
}

// idle returns the first adapter of a worker that has no requests there and
// another replica, or -1.
func (p *dispatchMig) idle(j int, w *Worker) int32 {
	for _, k := range p.held[j] {
		if st := w.adapter(k); st.Running == 0 && st.Queued == 0 && len(p.where[k]) > 1 {
			return k
		}
	}
	return -1
}

// Adjust implements Adjuster.
func (p *dispatchMig) Adjust() *Plan {
	plan := p.plan
	p.plan = nil
	return plan
}
