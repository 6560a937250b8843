package router

// roundRobin sends requests to the workers in turn and skips unusable ones. It
// ignores load, so late signals do not matter.
type roundRobin struct {
	Base
	next int
}

type roundRobinOptions struct{}

// Build implements Builder.
func (*roundRobinOptions) Build(Env) (*Router, error) { return &Router{Policy: &roundRobin{}}, nil }

// Route implements Policy.
func (p *roundRobin) Route(r Request, v *View) Decision { return To(p.pick(r, v)) }

// Preview implements Policy.
func (p *roundRobin) Preview(_ Request, v *View) int { return nextUsable(v, p.next) }

func (p *roundRobin) pick(_ Request, v *View) int {
	w := nextUsable(v, p.next)
	if w != None {
		p.next = (w + 1) % len(v.Workers)
	}
	return w
}
