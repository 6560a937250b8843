package router

import "math/rand/v2"

// random sends each request to any usable worker, with equal chance. It
// ignores load, so late signals do not matter.
type random struct {
	Base
	rng *rand.Rand
}

type randomOptions struct{}

// Build implements Builder.
func (*randomOptions) Build(env Env) (*Router, error) {
	return &Router{Policy: &random{rng: newRand(env)}}, nil
}

// Route implements Policy.
func (p *random) Route(r Request, v *View) Decision { return To(p.pick(r, v)) }

func (p *random) pick(_ Request, v *View) int { return anyUsable(v, p.rng, None) }

// anyUsable returns a usable worker other than the given one, each with equal
// chance, or None. It lists them only when its first draw fails.
func anyUsable(v *View, rng *rand.Rand, other int) int {
	i := rng.IntN(len(v.Workers))
	if i != other && v.Workers[i].Usable() {
		return i
	}
	var usable []int
	for i := range v.Usable() {
		if i != other {
			usable = append(usable, i)
		}
	}
	if usable == nil {
		return None
	}
	return usable[rng.IntN(len(usable))]
}
