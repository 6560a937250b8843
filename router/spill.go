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

func newAffinitySpill(o *options, env Env) (*Router, error) {
	p := &affinitySpill{
		threshold: o.integer("threshold", 1, math.MaxInt),
		least:     leastLoaded(o.ties(env)),
	}
	return &Router{Policy: p}, nil
}

func (p *affinitySpill) Route(r Request, v *View) int {
	if r.Adapter < 0 {
		return p.least.Route(r, v)
	}
	t := newTally(p.least.rng)
	for i := range v.Workers {
		w := &v.Workers[i]
		if w.Queued < p.threshold && w.Usable() && w.has(r.Adapter) {
			t.offer(i, float64(w.Load()))
		}
	}
	if t.worker == None {
		return p.least.Route(r, v)
	}
	return t.worker
}

// has says whether an adapter is in a GPU slot of the worker, or will be.
func (w *Worker) has(adapter int32) bool {
	a := w.adapter(adapter)
	return a.Tier == GPU || a.Loading || a.Running > 0 || a.Queued > 0
}
