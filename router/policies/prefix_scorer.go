package policies

import (
	"lorasim/router"
	"lorasim/router/prefixindex"
)

type prefixScorerOptions struct {
	Prefix float64 `default:"3" check:">=0" help:"weight of the matched share of the prompt"`
	affinityOptions
	prefixindex.Options
}

// Build implements Builder.
func (o *prefixScorerOptions) Build(env router.Env) (*router.Router, error) {
	rt, err := o.affinityOptions.Build(env)
	if err == nil {
		p := rt.Policy.(*affinity)
		p.prefix, p.index = o.Prefix, prefixindex.New(o.Options, env, true)
		rt.ReadsPrefixes = true
	}
	return rt, err
}
