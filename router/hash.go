package router

// hash sends all requests of an adapter to the first usable worker of its
// order of highest random weight, and request i of the base model to worker
// i mod N, or the next usable one. It ignores load, so late signals do not
// matter.
type hash struct {
	Base
	hrw *hrw
}

type hashOptions struct{}

// Build implements Builder.
func (*hashOptions) Build(env Env) (*Router, error) {
	h := newHRW(env)
	return &Router{Policy: &hash{hrw: h}, Placement: h.placement(1)}, nil
}

// Route implements Policy.
func (p *hash) Route(r Request, v *View) Decision { return To(p.pick(r, v)) }

// Preview implements Policy.
func (p *hash) Preview(r Request, v *View) int { return p.pick(r, v) }

func (p *hash) pick(r Request, v *View) int {
	if r.Adapter < 0 {
		return nextUsable(v, int(uint64(r.ID)%uint64(len(v.Workers))))
	}
	for i := range v.Workers {
		if w := p.hrw.at(r.Adapter, i); v.Workers[w].Usable() {
			return w
		}
	}
	return None
}
