package planroute

import (
	"slices"

	"lorasim/router"
	"lorasim/router/prefixindex"
)

// keptPrefixes is what workers are taken to keep of prompts: what was sent to them lately, as much as fits into their
// KV caches. nil: no worker keeps any.
func keptPrefixes(env router.Env) *prefixindex.Index {
	if !slices.ContainsFunc(env.Workers, func(s router.Spec) bool { return s.PrefixCache }) {
		return nil
	}
	x := prefixindex.New(prefixindex.Options{Index: "sent", Block: 1, Capacity: keptTokens}, env, true)
	x.Fits = true
	return x
}

// keptTokens is the number of latest prompt tokens that the index keeps for a worker with a KV cache of unknown size.
// The other policies have the same limit.
const keptTokens = 1 << 24

// uncached is how many tokens of a prompt a worker has to compute: at least the last one.
func (p *planAndRoute) uncached(r *router.Request, j int, v *router.View) int32 {
	if p.index == nil || r.Text == nil || !p.Env().Workers[j].PrefixCache {
		return r.Prompt
	}
	return max(r.Prompt-p.index.Match(r, v, j), 1)
}

// displaces is the time of the prefill, s, that later requests need because a request evicts kept prompts from a full
// KV cache. The request has uncached prompt tokens to compute, and generates output tokens. Of the evicted tokens,
// later requests are assumed to need the share that prompts find in the cache today.
func (p *planAndRoute) displaces(uncached int32, output float64, j int, w *router.Worker) float64 {
	if p.index == nil || w.KVCapacity <= 0 || !p.Env().Workers[j].PrefixCache {
		return 0
	}
	needs := int64(uncached) + int64(output)
	over := min(needs, p.index.Size(j)+needs-w.KVCapacity)
	if over <= 0 {
		return 0
	}
	return p.found.Value * p.Env().Workers[j].Cost.Prefill(over)
}

// keep notes that a worker will keep a prompt sent to it.
func (p *planAndRoute) keep(r *router.Request, j int, v *router.View) {
	if p.index != nil && r.Text != nil {
		p.index.Add(r, v, j)
	}
}
