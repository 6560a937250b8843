package router

import "math/rand/v2"

// random sends each request to any usable worker, with equal chance. It
// ignores load, so late signals do not matter.
type random struct{ rng *rand.Rand }

func newRandom(_ *options, env Env) (*Router, error) {
	return &Router{Policy: &random{newRand(env)}}, nil
}

func (p *random) Route(_ Request, v *View) int { return anyUsable(v, p.rng, None) }

// anyUsable returns a usable worker other than the given one, each with equal
// chance, or None. It only counts them when its first draw fails.
func anyUsable(v *View, rng *rand.Rand, other int) int {
	i := rng.IntN(len(v.Workers))
	if i != other && v.Workers[i].Usable() {
		return i
	}
	n := 0
	for i := range v.Workers {
		if i != other && v.Workers[i].Usable() {
			n++
		}
	}
	if n == 0 {
		return None
	}
	k := rng.IntN(n)
	for i := range v.Workers {
		if i == other || !v.Workers[i].Usable() {
			continue
		}
		if k == 0 {
			return i
		}
		k--
	}
	return None
}

// p2c draws two different usable workers and takes the less loaded, the first
// drawn of equals. Two choices already take the largest load of n workers from
// O(log n) to O(log log n) above the mean, and because every worker is drawn
// from time to time, late signals cause little herding (Mitzenmacher, "The
// power of two choices in randomized load balancing", 2001).
type p2c struct{ rng *rand.Rand }

func newP2C(_ *options, env Env) (*Router, error) {
	return &Router{Policy: &p2c{newRand(env)}}, nil
}

func (p *p2c) Route(_ Request, v *View) int {
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
