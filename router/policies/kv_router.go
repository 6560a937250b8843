package policies

import (
	"math/rand/v2"

	"lorasim/router"
	"lorasim/router/choose"
	"lorasim/router/prefixindex"
)

// kvRouter is Dynamo's (lib/kv-router, scheduling/selector/default.rs) at
// temperature 0: a request goes to the worker with the least
//
//	scale x max(0, prefill blocks - credit x matched blocks) + blocks in use
//
// where the prefill blocks are those of the prompt and of the prompts that wait
// there, and the blocks in use those of its running and of its waiting requests.
// Dynamo's engines publish what they keep (KV events); where they do not, it goes
// by its own decisions, the latest 2^20 blocks of them.
//
// Late reports of the KV cache make it herd on the workers whose cache looked
// empty.
type kvRouter struct {
	router.Base
	scale, credit float64
	index         *prefixindex.Index
	rng           *rand.Rand
}

type kvRouterOptions struct {
	Scale  float64 `default:"1" check:">=0" help:"weight of the prefill blocks"`
	Credit float64 `default:"1" check:">=0" help:"prefill blocks that a matched block saves"`
	tieOption
	prefixindex.Options
}

// Build implements Builder.
func (o *kvRouterOptions) Build(env router.Env) (*router.Router, error) {
	p := &kvRouter{scale: o.Scale, credit: o.Credit, index: prefixindex.New(o.Options, env, true),
		rng: o.rand(env)}
	return &router.Router{Policy: p, ReadsKV: true, ReadsPrefixes: true}, nil
}

// Route implements Policy.
func (p *kvRouter) Route(r router.Request, v *router.View) router.Decision {
	return router.To(p.pick(r, v))
}

// Succeed implements Policy.
func (p *kvRouter) Succeed(s router.Succession) { p.index.Adopt(s) }

func (p *kvRouter) pick(r router.Request, v *router.View) int {
	t := choose.New(p.rng)
	for i, w := range v.Usable() {
		prefill := float64(w.QueuedToks+int64(r.Prompt)) - p.credit*float64(p.index.Match(&r, v, i))
		t.Offer(i, (p.scale*max(0, prefill)+float64(w.KVUsed+w.QueuedToks))/float64(p.index.BlockSize))
	}
	p.index.Add(&r, v, t.Worker)
	return t.Worker
}
