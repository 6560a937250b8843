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

// FactsOf returns the facts of the policy that a spec names. An option of the spec overrides the value of the
// environment.
func FactsOf(spec string) Facts {
	f := Facts{Plans: true, Interval: true, Threshold: true, Signals: true}
	s, err := parseSpec(spec)
	if err != nil {
		return f
	}
	if d := policies.catalog().named(s.Name); d.Facts != nil {
		f = *d.Facts
	}
	f.Interval = f.Interval && !s.Given.Has("interval")
	f.Threshold = f.Threshold && !s.Given.Has("threshold")
	return f
}

// Given returns the name of the policy that a spec names, and the options of the spec that differ from their
// defaults, in the order of the registry.
func Given(spec string) (name string, options [][2]string, err error) {
	s, err := parseSpec(spec)
	if err != nil {
		return "", nil, err
	}
	for _, o := range policies.catalog().named(s.Name).Options {
		if v, ok := s.Given.Text(o.Name); ok && v != o.Default {
			options = append(options, [2]string{o.Name, v})
		}
	}
	return s.Name, options, nil
}
