package router

import "math"

// affinitySpill sends each request to the least loaded of the workers that
// have its adapter and fewer waiting requests than a threshold; if there is
// none, to the least loaded worker anywhere, which then loads the adapter.
// A worker has an adapter that is in a GPU slot, on its way there, or wanted
// by requests already sent there, so that a burst for a cold adapter does not
// scatter. The default threshold, 5, is the queue length up to which the
// Gateway API Inference Extension's filters take a worker to have room.
//
// On late signals it herds on the workers that have the adapter, and each
// spill herds on the worker that looked emptiest.
type affinitySpill struct {
	Base
	threshold int
	least     least
}

type affinitySpillOptions struct {
	Threshold int `default:"5" check:">=1" help:"waiting requests from which a worker is skipped"`
	tieOption
}

// routeToHolderOptions: affinity-spill that never spills from the workers that have the adapter.
type routeToHolderOptions struct{ tieOption }

// Build implements Builder.
func (o *routeToHolderOptions) Build(env Env) (*Router, error) {
	return &Router{Policy: &affinitySpill{threshold: math.MaxInt, least: leastLoaded(o.rand(env))}}, nil
}

// Build implements Builder.
func (o *affinitySpillOptions) Build(env Env) (*Router, error) {
	return &Router{Policy: &affinitySpill{threshold: o.Threshold, least: leastLoaded(o.rand(env))}}, nil
}

// Route implements Policy.
func (p *affinitySpill) Route(r Request, v *View) Decision { return To(p.pick(r, v)) }

// Preview implements Policy.
func (p *affinitySpill) Preview(r Request, v *View) int {
	first := *p
	first.least.rng, first.least.equals = nil, nil
	return first.pick(r, v)
}

func (p *affinitySpill) pick(r Request, v *View) int {
	if r.Adapter < 0 {
		return p.least.pick(r, v)
	}
	t := newArgmin(p.least.rng)
	for i, w := range v.Having(r.Adapter) {
		if w.Queued < p.threshold {
			t.offer(i, float64(w.Load()))
		}
	}
	if t.worker == None {
		return p.least.pick(r, v)
	}
	return t.worker
}
