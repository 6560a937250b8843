package policies

import (
	"lorasim/router"
	"lorasim/router/choose"
)

// prefixHash is sglang's policy of that name (sgl-model-gateway,
// src/policies/prefix_hash.rs): prompts with the same first tokens, whatever their
// adapter, go to the same worker, by consistent hashing, unless its load with the
// request would be above c x the mean of all; then to the least loaded one that is
// below, or, if none is, to the hash's after all. Prompts of which nothing is
// known hash by request.
//
// It looks at loads alone, which a router knows itself.
type prefixHash struct {
	router.Base
	tokens  int32
	c       float64
	workers []uint64 // hash of each
}

type prefixHashOptions struct {
	Tokens int32   `default:"256" check:">=1 <=1048576" help:"tokens of the prompt that are hashed"`
	C      float64 `default:"1.25" check:">=1" help:"largest load of a worker, as a multiple of the mean, >= 1"`
}

// Build implements Builder.
func (o *prefixHashOptions) Build(env router.Env) (*router.Router, error) {
	p := &prefixHash{tokens: o.Tokens, c: o.C, workers: workerHashes(env)}
	return &router.Router{Policy: p, ReadsPrefixes: true}, nil
}

// Route implements Policy.
func (p *prefixHash) Route(r router.Request, v *router.View) router.Decision {
	return router.To(p.pick(r, v))
}

func (p *prefixHash) pick(r router.Request, v *router.View) int {
	key := p.key(&r)
	home, heaviest, total, n := router.None, uint64(0), 1, 0
	for i, w := range v.Usable() {
		if weight := mix(key ^ p.workers[i]); home == router.None || weight > heaviest {
			home, heaviest = i, weight
		}
		total += w.Load()
		n++
	}
	if home == router.None {
		return router.None
	}
	limit := p.c * float64(total) / float64(n)
	fits := func(w *router.Worker) bool { return float64(w.Load()+1) <= limit }
	if fits(&v.Workers[home]) {
		return home
	}
	least := choose.New(nil)
	for i, w := range v.Usable() {
		if fits(w) {
			least.Offer(i, float64(w.Load()))
		}
	}
	if least.Worker == router.None {
		return home
	}
	return least.Worker
}

// key is a hash of the first tokens of a prompt.
func (p *prefixHash) key(r *router.Request) uint64 {
	n := min(p.tokens, r.Prompt, r.Known)
	if r.Text == nil || n < min(p.tokens, r.Prompt) {
		return mix(uint64(r.ID))
	}
	return mix(r.Text.Hash(n) ^ uint64(n))
}
