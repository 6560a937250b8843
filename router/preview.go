package router

// previewer is a policy that can say where it would send a request without being
// changed by the question. Of workers that are equal to it, it may name another one
// than Route picks at random.
type previewer interface {
	Preview(r Request, v *View) int
}

func (p *static) Preview(r Request, v *View) int { return p.Route(r, v) }

func (p *explicit) Preview(r Request, v *View) int {
	first := *p
	first.rng = nil
	return first.Route(r, v)
}

func (p *hash) Preview(r Request, v *View) int { return p.Route(r, v) }

func (p *rankAware) Preview(r Request, v *View) int { return p.Route(r, v) }

func (p *llumnix) Preview(r Request, v *View) int { return p.Route(r, v) }

func (p *placer) Preview(r Request, v *View) int { return p.leastLoadedHolder(r, v) }

func (p *roundRobin) Preview(_ Request, v *View) int { return nextUsable(v, p.next) }

func (p *least) Preview(r Request, v *View) int {
	first := *p
	first.rng, first.equals = nil, nil
	return first.Route(r, v)
}

func (p *affinitySpill) Preview(r Request, v *View) int {
	first := *p
	first.least.rng, first.least.equals = nil, nil
	return first.Route(r, v)
}

func (p *affinity) Preview(r Request, v *View) int {
	first := *p
	first.rng = nil
	if p.index != nil {
		return None // it would note the prompt
	}
	return first.Route(r, v)
}
