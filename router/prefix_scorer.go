package router

type prefixScorerOptions struct {
	Prefix float64 `default:"3" check:">=0" help:"weight of the matched share of the prompt"`
	affinityOptions
	indexOptions
}

// Build implements Builder.
func (o *prefixScorerOptions) Build(env Env) (*Router, error) {
	rt, err := o.affinityOptions.Build(env)
	if err == nil {
		p := rt.Policy.(*affinity)
		p.prefix, p.index = o.Prefix, newPrefixIndex(o.indexOptions, env, true)
		rt.ReadsPrefixes = true
	}
	return rt, err
}
