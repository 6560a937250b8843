package router

import "math/rand/v2"

// p2c draws two different usable workers and takes the less loaded, the first
// drawn of equals. Two choices already take the largest load of n workers from
// O(log n) to O(log log n) above the mean, and because every worker is drawn
// from time to time, late signals cause little herding (Mitzenmacher, "The
// power of two choices in randomized load balancing", 2001).
type p2c struct {
	Base
	rng *rand.Rand
}

type p2cOptions struct{}

// Build implements Builder.
func (*p2cOptions) Build(env Env) (*Router, error) {
	return &Router{Policy: &p2c{rng: newRand(env)}}, nil
}

// Route implements Policy.
func (p *p2c) Route(r Request, v *View) Decision { return To(p.pick(r, v)) }

func (p *p2c) pick(_ Request, v *View) int {
	a := anyUsable(v, p.rng, None)
	if a == None {
		return None
	}
	b := anyUsable(v, p.rng, a)
	if b == None || v.Workers[a].Load() <= v.Workers[b].Load() {
		return a
	}
	return b
}
