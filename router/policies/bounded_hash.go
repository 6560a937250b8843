package policies

import "lorasim/router"

// boundedHash sends a request to the first usable worker of its adapter's hash
// order whose load is at most c x the mean of the usable workers (after
// Mirrokni, Thorup and Zadimoghaddam, "Consistent hashing with bounded loads",
// SODA 2018). A cluster with little load spreads adapters more than needed,
// since one request there exceeds the bound. Requests of the base model, which
// fit anywhere, go to the least loaded worker, ties seeded.
//
// On late signals the overflow of a worker herds to the next one of each
// order, which differs by adapter: milder than with least-loaded.
type boundedHash struct {
	router.Base
	c    float64
	hrw  *hrw
	base least
}

type boundedHashOptions struct {
	C float64 `default:"1.5" check:">=1" help:"largest load of a worker, as a multiple of the mean, >= 1"`
}

// Build implements Builder.
func (o *boundedHashOptions) Build(env router.Env) (*router.Router, error) {
	return &router.Router{Policy: &boundedHash{c: o.C, hrw: newHRW(env), base: leastLoaded(env.Rand())}}, nil
}

// Route implements Policy.
func (p *boundedHash) Route(r router.Request, v *router.View) router.Decision {
	return router.To(p.pick(r, v))
}

func (p *boundedHash) pick(r router.Request, v *router.View) int {
	if r.Adapter < 0 {
		return p.base.pick(v, p.base.rng)
	}
	load, usable := 0, 0
	for _, w := range v.Usable() {
		load += w.Load()
		usable++
	}
	if usable == 0 {
		return router.None
	}
	// The least loaded worker is never above the mean, so one is found.
	bound := p.c * float64(load) / float64(usable)
	for i := range v.Workers {
		w := p.hrw.at(r.Adapter, i)
		if v.Workers[w].Usable() && float64(v.Workers[w].Load()) <= bound {
			return w
		}
	}
	return router.None
}
