package policies

import (
	"math"
	"math/rand/v2"

	"lorasim/router"
	"lorasim/router/choose"
)

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
	router.Base
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
func (o *routeToHolderOptions) Build(env router.Env) (*router.Router, error) {
	return &router.Router{Policy: &affinitySpill{threshold: math.MaxInt, least: leastLoaded(o.rand(env))}}, nil
}

// Build implements Builder.
func (o *affinitySpillOptions) Build(env router.Env) (*router.Router, error) {
	return &router.Router{Policy: &affinitySpill{threshold: o.Threshold, least: leastLoaded(o.rand(env))}}, nil
}

// Route implements Policy.
func (p *affinitySpill) Route(r router.Request, v *router.View) router.Decision {
	return router.To(p.pick(r, v, p.least.rng))
}

// Preview implements Policy.
func (p *affinitySpill) Preview(r router.Request, v *router.View) int { return p.pick(r, v, nil) }

// pick returns the worker for a request; rng picks among equals, nil: the first.
func (p *affinitySpill) pick(r router.Request, v *router.View, rng *rand.Rand) int {
	if r.Adapter < 0 {
		return p.least.pick(v, rng)
	}
	t := choose.New(rng)
	for i, w := range v.Having(r.Adapter) {
		if w.Queued < p.threshold {
			t.Offer(i, float64(w.Load()))
		}
	}
	if t.Worker == router.None {
		return p.least.pick(v, rng)
	}
	return t.Worker
}
