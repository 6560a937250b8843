package router

// roundRobin sends requests to the workers in turn and skips unusable ones. It
// ignores load, so late signals do not matter.
type roundRobin struct{ next int }

type roundRobinOptions struct{}

// Build implements Builder.
func (*roundRobinOptions) Build(Env) (*Router, error) { return &Router{Policy: &roundRobin{}}, nil }

func (p *roundRobin) Route(_ Request, v *View) int {
	w := nextUsable(v, p.next)
	if w != None {
		p.next = (w + 1) % len(v.Workers)
	}
	return w
}
