package router

import (
	"slices"

	"lorasim/router/prefix"
)

// keptPrefixes is what workers are taken to keep of prompts: what was sent to them lately, as much as fits into their
// KV caches. nil: no worker keeps any.
func keptPrefixes(env Env) *prefixIndex {
	if !slices.ContainsFunc(env.Workers, func(s Spec) bool { return s.PrefixCache }) {
		return nil
	}
	x := newPrefixIndex(indexOptions{Index: "sent", Block: 1, Capacity: keptTokens}, env, true)
	x.fits = true
	return x
}

// keptTokens is how many tokens of prompts are remembered for a worker whose KV cache's size is not known, the latest:
// as many as by the other policies.
const keptTokens = 1 << 24

// uncached is how many tokens of a prompt a worker has to compute: at least the last one.
func (p *planAndRoute) uncached(r *Request, j int, v *View) int32 {
	if p.index == nil || r.Text == nil || !p.env.Workers[j].PrefixCache {
		return r.Prompt
	}
	return max(r.Prompt-p.index.match(r, v, j), 1)
}

// displaces is the prefill that later requests need because a request takes the place of kept prompts in a full KV
// cache, s: a request with so many tokens to compute and to generate. The share of what it displaces that is asked for
// again is taken to be the share of prompts that is found.
func (p *planAndRoute) displaces(uncached int32, output float64, j int, w *Worker) float64 {
	if p.index == nil || w.KVCapacity <= 0 || !p.env.Workers[j].PrefixCache {
		return 0
	}
	needs := int64(uncached) + int64(output)
	over := min(needs, p.index.sent[j].Cached()+needs-w.KVCapacity)
	if over <= 0 {
		return 0
	}
	return p.found.value * p.env.Workers[j].Cost.Prefill(over)
}

// keep notes that a worker will keep a prompt sent to it.
func (p *planAndRoute) keep(r *Request, j int, v *View) {
	if p.index != nil && r.Text != nil {
		p.index.add(r, v, j)
	}
}

// forget drops what was sent to workers that are down: they lose it.
func (x *prefixIndex) forget(v *View) {
	for j := range v.Workers {
		if !v.Workers[j].Up && x.sent[j].Cached() > 0 {
			x.sent[j] = prefix.NewRadix(x.block)
		}
	}
}
