package policies

import (
	"lorasim/router"
	"lorasim/router/choose"
	"lorasim/router/prefixindex"
)

// cacheAware is the default policy of sglang's router (sgl-model-gateway,
// src/policies/cache_aware.rs). Loads that differ by more than abs requests and by
// more than the factor rel send a request to the least loaded worker. Else it goes
// to the worker with the longest match, if that is more than a share threshold of
// the prompt, and to the least loaded one otherwise; until late 2025 to the one
// with the smallest tree, as the comments there still say. Equal matches go by
// load, and then to the first worker.
//
// There the tree holds the text of prompts, one for all adapters, so that those of
// other adapters match, though no engine can use that: lora=true keeps them
// apart. It is cut down every 120 s to 2^26 characters for each worker, taken for
// as many tokens / 4; here whenever it is above.
//
// What it goes by are its own decisions, which are never late.
type cacheAware struct {
	router.Base
	threshold, rel float64
	abs            int
	smallest       bool
	index          *prefixindex.Index
}

type cacheAwareOptions struct {
	Threshold float64 `default:"0.3" check:">=0 <=1" help:"share of the prompt that must match"`
	Abs       int     `default:"64" check:">=0" help:"largest - smallest load, requests, up to which matches decide ..."`
	Rel       float64 `default:"1.5" check:">=1" help:"... or largest / smallest load; above both the least loaded worker is chosen"`
	Cold      string  `default:"least-loaded" check:"oneof least-loaded smallest-tree" help:"where little matches: least-loaded, or the worker with the smallest-tree"`
	Lora      bool    `default:"false" help:"true: adapters do not share prefixes"`
	prefixindex.Options
}

// Build implements Builder.
func (o *cacheAwareOptions) Build(env router.Env) (*router.Router, error) {
	p := &cacheAware{threshold: o.Threshold, abs: o.Abs, rel: o.Rel, smallest: o.Cold == "smallest-tree",
		index: prefixindex.New(o.Options, env, o.Lora)}
	return &router.Router{Policy: p, ReadsPrefixes: true}, nil
}

// Route implements Policy.
func (p *cacheAware) Route(r router.Request, v *router.View) router.Decision {
	w := p.pick(&r, v)
	p.index.Add(&r, v, w)
	return router.To(w)
}

// Succeed implements Policy.
func (p *cacheAware) Succeed(s router.Succession) { p.index.Adopt(s) }

func (p *cacheAware) pick(r *router.Request, v *router.View) int {
	cold, least, most := choose.New(nil), choose.New(nil), 0
	best, longest := choose.New(nil), int32(-1)
	for i, w := range v.Usable() {
		load := w.Load()
		least.Offer(i, float64(load))
		most = max(most, load)
		if m := p.index.Match(r, v, i); m >= longest {
			if m > longest {
				best, longest = choose.New(nil), m
			}
			best.Offer(i, float64(load))
		}
		if p.smallest {
			cold.Offer(i, float64(p.index.Size(i)))
		}
	}
	switch {
	case float64(most)-least.Cost > float64(p.abs) && float64(most) > p.rel*least.Cost:
		return least.Worker
	case float64(longest) > p.threshold*float64(r.Prompt):
		return best.Worker
	case p.smallest:
		return cold.Worker
	}
	return least.Worker
}
