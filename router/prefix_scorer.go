package router

func newPrefixScorer(o *options, env Env) (*Router, error) {
	rt, err := newAffinity(o, env)
	if err == nil {
		p := rt.Policy.(*affinity)
		p.prefix, p.index = o.number("prefix", ">=0"), newPrefixIndex(o, env, true)
		rt.ReadsPrefixes = true
	}
	return rt, err
}
