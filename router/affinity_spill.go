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
	return &Router{Policy: &affinitySpill{math.MaxInt, leastLoaded(o.rand(env))}}, nil
}

// Build implements Builder.
func (o *affinitySpillOptions) Build(env Env) (*Router, error) {
	return &Router{Policy: &affinitySpill{o.Threshold, leastLoaded(o.rand(env))}}, nil
}

func (p *affinitySpill) Route(r Request, v *View) int {
	if r.Adapter < 0 {
		return p.least.Route(r, v)
	}
	t := newArgmin(p.least.rng)
	for i, w := range v.Having(r.Adapter) {
		if w.Queued < p.threshold {
			t.offer(i, float64(w.Load()))
		}
	}
	if t.worker == None {
		return p.least.Route(r, v)
	}
	return t.worker
}
