package router

// Facts say which inputs of a run a policy depends on, beyond workers, adapters and seed. They are conservative:
// false promises that the input cannot change any decision.
type Facts struct {
	// Plans says that the policy moves adapters or requests ([Router.Plans]), so that
	// Env.Moving and Env.Solver matter.
	Plans bool
	// Interval and Threshold say that the policy reads Env.Interval and Env.Threshold.
	Interval, Threshold bool
	// Signals says that the policy reads more of the workers than which of them are usable, or more of a request
	// than its adapter and number.
	Signals bool
}

// Facts returns the facts of the policy. A given option overrides the value of the environment.
func (c Choice) Facts() Facts {
	f := Facts{Plans: true, Interval: true, Threshold: true, Signals: true}
	if c.policy.Facts != nil {
		f = *c.policy.Facts
	}
	f.Interval = f.Interval && !c.given.Has("interval")
	f.Threshold = f.Threshold && !c.given.Has("threshold")
	return f
}

// Given returns the given options that differ from their defaults, in the order of the registry.
func (c Choice) Given() (options [][2]string) {
	for _, o := range c.policy.Options {
		if v, ok := c.given.Text(o.Name); ok && v != o.Default {
			options = append(options, [2]string{o.Name, v})
		}
	}
	return options
}

// FactsOf returns the facts of the policy that a spec names; all inputs if the spec is wrong.
func FactsOf(spec string) Facts {
	c, err := Choose(spec)
	if err != nil {
		return Facts{Plans: true, Interval: true, Threshold: true, Signals: true}
	}
	return c.Facts()
}

// Given returns the name of the policy that a spec names, and what [Choice.Given] returns.
func Given(spec string) (name string, options [][2]string, err error) {
	c, err := Choose(spec)
	if err != nil {
		return "", nil, err
	}
	return c.Name(), c.Given(), nil
}
