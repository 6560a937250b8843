package policies

import (
	"math/rand/v2"

	"lorasim/router"
)

// p2c draws two different usable workers and takes the less loaded, the first
// drawn of equals. Two choices already take the largest load of n workers from
// O(log n) to O(log log n) above the mean, and because every worker is drawn
// from time to time, late signals cause little herding (Mitzenmacher, "The
// power of two choices in randomized load balancing", 2001).
type p2c struct {
	router.Base
	rng *rand.Rand
}

type p2cOptions struct{}

// Build implements Builder.
func (*p2cOptions) Build(env router.Env) (*router.Router, error) {
	return &router.Router{Policy: &p2c{rng: env.Rand()}}, nil
}

// Route implements Policy.
func (p *p2c) Route(r router.Request, v *router.View) router.Decision { return router.To(p.pick(r, v)) }

func (p *p2c) pick(_ router.Request, v *router.View) int {
	a := anyUsable(v, p.rng, router.None)
	if a == router.None {
		return router.None
	}
	b := anyUsable(v, p.rng, a)
	if b == router.None || v.Workers[a].Load() <= v.Workers[b].Load() {
		return a
	}
	return b
}
