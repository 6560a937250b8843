package policies

import (
	"lorasim/router"
	"lorasim/router/choose"
)

// static sends adapter i to worker i / block mod N, and request i of the base
// model to worker i mod N. While that worker is unusable, the next usable one
// in order takes its place. It ignores load, so late signals do not matter.
type static struct {
	router.Base
	block int
}

// staticOptions makes the policy that deals adapters out like cards: block 1.
type staticOptions struct{}

// Build implements Builder.
func (*staticOptions) Build(env router.Env) (*router.Router, error) {
	return fixed(&static{block: 1}, env), nil
}

// staticBlockOptions gives worker 0 the first ceil(K/N) of K adapters, worker 1 the
// next, and so on; the last workers may get fewer, or none.
type staticBlockOptions struct{}

// Build implements Builder.
func (*staticBlockOptions) Build(env router.Env) (*router.Router, error) {
	block := (len(env.Adapters) + len(env.Workers) - 1) / len(env.Workers)
	return fixed(&static{block: max(block, 1)}, env), nil
}

func fixed(p *static, env router.Env) *router.Router {
	placement := make([][]int32, len(env.Workers))
	for a := range env.Adapters {
		w := p.home(int32(a), len(env.Workers))
		placement[w] = append(placement[w], int32(a))
	}
	return &router.Router{Policy: p, Placement: placement}
}

func (p *static) home(adapter int32, workers int) int { return int(adapter) / p.block % workers }

// Route implements Policy.
func (p *static) Route(r router.Request, v *router.View) router.Decision {
	return router.To(p.pick(r, v))
}

// Preview implements Policy.
func (p *static) Preview(r router.Request, v *router.View) int { return p.pick(r, v) }

func (p *static) pick(r router.Request, v *router.View) int {
	n := len(v.Workers)
	if r.Adapter < 0 {
		return choose.NextUsable(v, int(uint64(r.ID)%uint64(n)))
	}
	return choose.NextUsable(v, p.home(r.Adapter, n))
}
