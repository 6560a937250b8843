package policies

import (
	"lorasim/router"
	"lorasim/router/choose"
)

// roundRobin sends requests to the workers in turn and skips unusable ones. It
// ignores load, so late signals do not matter.
type roundRobin struct {
	router.Base
	next int
}

type roundRobinOptions struct{}

// Build implements Builder.
func (*roundRobinOptions) Build(router.Env) (*router.Router, error) {
	return &router.Router{Policy: &roundRobin{}}, nil
}

// Route implements Policy.
func (p *roundRobin) Route(r router.Request, v *router.View) router.Decision {
	return router.To(p.pick(r, v))
}

// Preview implements Policy.
func (p *roundRobin) Preview(_ router.Request, v *router.View) int {
	return choose.NextUsable(v, p.next)
}

func (p *roundRobin) pick(_ router.Request, v *router.View) int {
	w := choose.NextUsable(v, p.next)
	if w != router.None {
		p.next = (w + 1) % len(v.Workers)
	}
	return w
}
