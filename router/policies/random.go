package policies

import (
	"math/rand/v2"

	"lorasim/router"
)

// random sends each request to any usable worker, with equal chance. It
// ignores load, so late signals do not matter.
type random struct {
	router.Base
	rng *rand.Rand
}

type randomOptions struct{}

// Build implements Builder.
func (*randomOptions) Build(env router.Env) (*router.Router, error) {
	return &router.Router{Policy: &random{rng: env.Rand()}}, nil
}

// Route implements Policy.
func (p *random) Route(r router.Request, v *router.View) router.Decision {
	return router.To(p.pick(r, v))
}

func (p *random) pick(_ router.Request, v *router.View) int { return anyUsable(v, p.rng, router.None) }

// anyUsable returns a usable worker other than the given one, each with equal
// chance, or None. It lists them only when its first draw fails.
func anyUsable(v *router.View, rng *rand.Rand, other int) int {
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
		return router.None
	}
	return usable[rng.IntN(len(usable))]
}
