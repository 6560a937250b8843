package router

// Facts say which inputs of a run a policy depends on, beyond workers, adapters
// and seed. They are conservative: a fact that is false is a promise that the
// input cannot change any decision.
type Facts struct {
	// Plans: it moves adapters or requests ([Router.Planner], [PlacementChanger]), so that
	// Env.Moving and Env.Solver count.
	Plans bool
	// Interval and Threshold: it reads Env.Interval, Env.Threshold.
	Interval, Threshold bool
	// Signals: it looks at more of the workers than which of them are usable, or at
	// more of a request than its adapter and number.
	Signals bool
}

// facts of the policies that lack some of them. A policy that is not listed has all.
var facts = map[string]Facts{
	"static":       {},
	"static-block": {},
	"random":       {},
	"round-robin":  {},
	"hash":         {},

	"explicit":       {Signals: true},
	"bounded-hash":   {Signals: true},
	"least-loaded":   {Signals: true},
	"p2c":            {Signals: true},
	"least-tokens":   {Signals: true},
	"weighted-queue": {Signals: true},
	"affinity":       {Signals: true},
	"affinity-spill": {Signals: true},
	"cache-aware":    {Signals: true},
	"prefix-scorer":  {Signals: true},
	"kv-router":      {Signals: true},
	"prefix-hash":    {Signals: true},
	"k-shard":        {Signals: true},
	"any-worker":     {Signals: true},
	"rank-aware":     {Signals: true},
	"dispatch_only":  {Signals: true},

	"plan-and-route": {Plans: true, Interval: true, Signals: true},
	"rank-group":     {Plans: true, Interval: true, Signals: true},
	"min-cost-flow":  {Plans: true, Interval: true, Signals: true},
	"llumnix":        {Plans: true, Interval: true, Signals: true},
}

// FactsOf returns the facts of the policy that a spec names. An option that the
// spec gives takes the place of the environment's value.
func FactsOf(spec string) Facts {
	all := Facts{Plans: true, Interval: true, Threshold: true, Signals: true}
	s, err := parseSpec(spec)
	if err != nil {
		return all
	}
	f, ok := facts[s.Name]
	if !ok {
		f = all
	}
	f.Interval = f.Interval && !s.Given.Has("interval")
	f.Threshold = f.Threshold && !s.Given.Has("threshold")
	return f
}

// Given returns the name of the policy that a spec names, and those of its options
// that differ from their defaults, in the order of the registry.
func Given(spec string) (name string, options [][2]string, err error) {
	s, err := parseSpec(spec)
	if err != nil {
		return "", nil, err
	}
	for _, d := range List() {
		for _, o := range d.Options {
			if v, ok := s.Given.Text(o.Name); d.Name == s.Name && ok && v != o.Default {
				options = append(options, [2]string{o.Name, v})
			}
		}
	}
	return s.Name, options, nil
}
