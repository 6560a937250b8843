package policies

import (
	"lorasim/router"
	"lorasim/router/choose"
)

// hash sends all requests of an adapter to the first usable worker of its
// order of highest random weight, and request i of the base model to worker
// i mod N, or the next usable one. It ignores load, so late signals do not
// matter.
type hash struct {
	router.Base
	hrw *hrw
}

type hashOptions struct{}

// Build implements Builder.
func (*hashOptions) Build(env router.Env) (*router.Router, error) {
	h := newHRW(env)
	return &router.Router{Policy: &hash{hrw: h}, Placement: h.placement(1)}, nil
}

// Route implements Policy.
func (p *hash) Route(r router.Request, v *router.View) router.Decision {
	return router.To(p.pick(r, v))
}

// Preview implements Policy.
func (p *hash) Preview(r router.Request, v *router.View) int { return p.pick(r, v) }

func (p *hash) pick(r router.Request, v *router.View) int {
	if r.Adapter < 0 {
		return choose.NextUsable(v, int(uint64(r.ID)%uint64(len(v.Workers))))
	}
	for i := range v.Workers {
		if w := p.hrw.at(r.Adapter, i); v.Workers[w].Usable() {
			return w
		}
	}
	return router.None
}
