package worth

import (
	"cmp"
	"slices"

	"lorasim/bench/result"
	"lorasim/bench/stats"
)

// decide measures and judges the effects.
func (a *Answer) decide() {
	level := a.opt.level(len(a.Dir.Seeds))
	stages, split, shown := a.opt.effects()
	for i, family := range [][]Effect{stages, split, shown} {
		for k := range family {
			family[k].measure(a.runs, a.opt.Metrics, a.opt.sampling)
		}
		if i < 2 {
			a.tests[i] = judge(family, level, a.opt.MinGain)
		}
	}
	for i := range stages {
		if e := &stages[i]; e.Factor == Routing && a.unsteady(e.Against) != "" {
			e.withdraw()
		}
	}
	a.Effects = slices.Concat(stages, split, shown)
	a.Fixed = a.fixed()
	a.Clear, a.Pays, a.alone = true, nil, false
	for _, e := range stages {
		switch e.Factor {
		case Routing:
			if e.Against == a.baseline() && e.better {
				a.Pays = append(a.Pays, Routing)
			}
		case Waiting:
			a.Clear = a.Clear && e.settled()
			if e.better {
				a.Pays = append(a.Pays, Waiting)
			}
		}
	}
	best := a.bestPlans()
	if best == nil {
		return
	}
	a.Interval = best.Interval
	if only := a.bestAlone(); !best.better && only != nil && !slices.Contains(a.Pays, Waiting) {
		a.Interval, a.alone = only.Interval, true
		if a.opt.full().running {
			a.Pays = append(a.Pays, Plans)
		} else {
			a.Pays = append(a.Pays, Placing)
		}
		return
	}
	if !best.better {
		for i := range stages {
			if stages[i].Interval != "" {
				a.Clear = a.Clear && stages[i].settled()
			}
		}
		return
	}
	if best.Factor == Placing {
		a.Pays = append(a.Pays, Placing)
		return
	}
	placing, running := a.find(Placing, a.Interval), a.find(Running, a.Interval)
	if !placing.better && !running.better {
		a.Pays = append(a.Pays, Plans)
	}
	if placing.better {
		a.Pays = append(a.Pays, Placing)
	}
	if running.better {
		a.Pays = append(a.Pays, Running)
	}
	a.Clear = a.Clear && (placing.better || running.better || placing.settled() && running.settled())
}

// bestPlans is the effect of plans at the best interval: of those that pay, else of
// all, the one with the lowest product of the metrics; nil: none can be compared.
func (a *Answer) bestPlans() (best *Effect) {
	for i := range a.Effects {
		e := &a.Effects[i]
		if !a.whole(e) || len(e.Changes) == 0 {
			continue
		}
		if best == nil || e.better && !best.better || e.better == best.better && e.decrease < best.decrease {
			best = e
		}
	}
	return best
}

// bestAlone is the effect of plans alone that gains most; nil: none gains.
func (a *Answer) bestAlone() (best *Effect) {
	for i := range a.Effects {
		if e := &a.Effects[i]; e.Factor == PlansOnly && e.better && (best == nil || e.decrease < best.decrease) {
			best = e
		}
	}
	return best
}

// whole reports whether an effect is that of plans as a whole.
func (a *Answer) whole(e *Effect) bool {
	return e.Factor == Plans || e.Factor == Placing && !a.opt.full().running
}

// find is an effect by its factor and interval, nil: there is none.
func (a *Answer) find(f Factor, interval string) *Effect {
	i := slices.IndexFunc(a.Effects, func(e Effect) bool { return e.Factor == f && e.Interval == interval })
	if i < 0 {
		return nil
	}
	return &a.Effects[i]
}

// baseline is the plain policy that is the best by the first metric; "": none.
func (a *Answer) baseline() string {
	if len(a.opt.Baselines) == 0 {
		return ""
	}
	sign := float64(result.MetricOf(a.opt.Metrics[0]).Better)
	return slices.MinFunc(a.opt.Baselines, func(p, q string) int {
		return cmp.Compare(sign*a.mean(p, a.opt.Metrics[0]), sign*a.mean(q, a.opt.Metrics[0]))
	})
}

// routing is the effect of routing against the best plain policy, nil: none.
func (a *Answer) routing() *Effect {
	b := a.baseline()
	i := slices.IndexFunc(a.Effects, func(e Effect) bool { return e.Factor == Routing && e.Against == b })
	if i < 0 {
		return nil
	}
	return &a.Effects[i]
}

// fixed reports whether the planner's runs are the same with every seed.
func (a *Answer) fixed() bool {
	any := false
	for _, e := range a.Effects {
		if e.Factor == Routing || !e.tested {
			continue
		}
		for _, c := range e.Changes {
			any = true
			for _, t := range e.terms {
				if stats.Mean(a.runs.values(t.policy, c.Metric)).Std != 0 {
					return false
				}
			}
		}
	}
	return any
}
