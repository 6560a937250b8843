package policies

import (
	"math"
	"math/rand/v2"

	"lorasim/router"
)

// least sends each request to the usable worker with the least outstanding
// tokens, or the least weighted number of requests. It herds on late signals;
// with ties=random it does so only where loads differ.
type least struct {
	router.Base
	tokens bool       // count tokens instead of requests
	queued int        // weight of a waiting request; a running one weighs 1
	rng    *rand.Rand // picks among equals; nil: the first
	equals []int32    // scratch
}

// leastLoaded counts requests, wherever they are on the worker.
func leastLoaded(rng *rand.Rand) least { return least{queued: 1, rng: rng} }

type leastLoadedOptions struct{ tieOption }

// Build implements Builder.
func (o *leastLoadedOptions) Build(env router.Env) (*router.Router, error) {
	p := leastLoaded(o.rand(env))
	return &router.Router{Policy: &p}, nil
}

// leastTokensOptions: counts tokens, prompt + expected output of all requests.
type leastTokensOptions struct{ tieOption }

// Build implements Builder.
func (o *leastTokensOptions) Build(env router.Env) (*router.Router, error) {
	return &router.Router{Policy: &least{tokens: true, rng: o.rand(env)}}, nil
}

// weightedQueueOptions: the balancer between vLLM's data parallel engines, which
// scores 4 x waiting + running.
type weightedQueueOptions struct {
	Weight int `default:"4" check:">=0 <=1000000" help:"weight of a waiting request against a running one"`
	tieOption
}

// Build implements Builder.
func (o *weightedQueueOptions) Build(env router.Env) (*router.Router, error) {
	return &router.Router{Policy: &least{queued: o.Weight, rng: o.rand(env)}}, nil
}

// anyWorkerOptions: how S-LoRA (MLSys 2024) would be spread over workers: any of
// them serves any adapter, loads it on demand, and meanwhile prefetches the
// adapters of its queue.
type anyWorkerOptions struct{ tieOption }

// Build implements Builder.
func (o *anyWorkerOptions) Build(env router.Env) (*router.Router, error) {
	p := leastLoaded(o.rand(env))
	return &router.Router{Policy: &p, Prefetch: true}, nil
}

func (p *least) cost(w *router.Worker) int64 {
	if p.tokens {
		return w.Tokens
	}
	return int64(w.Running + p.queued*w.Queued)
}

// Preview implements Policy.
func (p *least) Preview(_ router.Request, v *router.View) int { return p.pick(v, nil) }

// Route implements Policy.
func (p *least) Route(_ router.Request, v *router.View) router.Decision {
	return router.To(p.pick(v, p.rng))
}

// pick searches by itself, not by [choose.Least]: it draws once among the equals, choose.Least
// at each of them, so that the two pick other workers from the same seed. rng picks among equals; nil: the first.
func (p *least) pick(v *router.View, rng *rand.Rand) int {
	best := int64(math.MaxInt64)
	p.equals = p.equals[:0]
	for i, w := range v.Usable() {
		c := p.cost(w)
		if c > best {
			continue
		}
		if c < best {
			best, p.equals = c, p.equals[:0]
		}
		p.equals = append(p.equals, int32(i))
	}
	switch {
	case len(p.equals) == 0:
		return router.None
	case len(p.equals) == 1 || rng == nil:
		return int(p.equals[0])
	}
	return int(p.equals[rng.IntN(len(p.equals))])
}
