// Package worth answers whether moving adapters and requests pays in a scenario,
// and how often it should be planned: it runs the planner at several intervals,
// its routing alone, and other policies, as a sweep with the same seeds for all,
// and adds seeds until the answer is clear.
//
//	a, err := worth.Study(ctx, "out", worth.Options{Scenario: sc, Intervals: []string{"2", "10"}, ...})
//	err = a.WriteText(os.Stdout)
package worth

import (
	"context"
	"fmt"
	"math"
	"slices"

	"lorasim/bench/scenario"
	"lorasim/bench/sweep"
)

// Planner is the policy whose plans are judged, Alone routes alike and carries
// out none.
const (
	Planner = "period_mig"
	Alone   = Planner + ":margin=1"
)

func every(interval string) string { return Planner + ":interval=" + interval }

// Options says what to study.
type Options struct {
	Scenario  scenario.Scenario
	Intervals []string // s between plans
	Others    []string // other policies
	Metrics   []string // that decide; each has a better end
	Goodput   string   // SLO, see result.ParseSLO; "": none
	// MinGain is the share of a metric from which on a change counts.
	MinGain         float64
	Seeds, MaxSeeds int // at first and at most
	// Run runs what is left of the sweep.
	Run func(d *sweep.Dir) error
}

// Check finds what cannot be studied.
func (o *Options) Check() error {
	m := sweep.Manifest{Grid: sweep.Grid{Goodput: o.Goodput}}
	if err := m.CheckMetrics(o.Metrics); err != nil {
		return err
	}
	for _, m := range o.Metrics {
		if sweep.LowerIsBetter(m) == 0 {
			return fmt.Errorf("metric %s cannot decide: neither more nor less of it is better", m)
		}
	}
	if o.Seeds > o.MaxSeeds {
		return fmt.Errorf("%d seeds to begin with, but %d at most", o.Seeds, o.MaxSeeds)
	}
	return nil
}

// looks are the numbers of seeds after which the answer is sought.
func (o *Options) looks() (out []int) {
	for n := o.Seeds; n < o.MaxSeeds; n *= 2 {
		out = append(out, n)
	}
	return append(out, o.MaxSeeds)
}

// Study runs a study in a folder. One that was stopped goes on where it stopped.
func Study(ctx context.Context, folder string, o Options) (*Answer, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	policies := []string{Alone}
	for _, s := range o.Intervals {
		policies = append(policies, every(s))
	}
	for _, p := range o.Others {
		if !slices.Contains(policies, p) {
			policies = append(policies, p)
		}
	}
	looks := o.looks()
	for _, n := range looks {
		spec := sweep.Spec{Name: "worth", Scenario: o.Scenario, SeedCount: n,
			Grid: sweep.Grid{Policies: policies, Baseline: Alone, Goodput: o.Goodput, Oracle: true}}
		m, err := spec.Plan(ctx)
		if err != nil {
			return nil, err
		}
		d, err := sweep.Create(folder, m)
		if err != nil {
			return nil, err
		}
		if err := o.Run(d); err != nil {
			return nil, err
		}
		t, err := d.Merge(sweep.MergeOptions{})
		if err != nil {
			return nil, err
		}
		a := &Answer{Dir: d, Tables: t, opt: o, looks: len(looks)}
		if a.decide(); a.Clear || n == o.MaxSeeds {
			return a, nil
		}
	}
	panic("unreachable: the last look has MaxSeeds")
}

// Answer is what came out of a study.
type Answer struct {
	Dir    *sweep.Dir
	Tables *sweep.Tables
	// Move: plans at the interval of Best pay. Clear: more seeds would hardly
	// change that.
	Move, Clear bool
	Best        *Interval // the best one; nil: none can be compared
	Intervals   []Interval
	Fixed       bool // every seed gives the same run

	opt   Options
	looks int
}

// Interval is what plans at an interval change against routing alone.
type Interval struct {
	Seconds string
	Changes []Change // by metric; nil: other requests completed than with routing alone
	better  bool     // in one metric at least, and worse in none
	worse   bool     // in one metric at least
	nothing bool     // no metric can still turn out better by MinGain
	score   float64  // sum of the logarithms of the metrics' ratios, less is better
}

// Change is that of one metric.
type Change struct {
	Metric string
	Diff   sweep.Estimate // paired by seed
	Base   float64        // mean of routing alone
	P      float64        // of all tests of the study, corrected by Holm
	Sure   bool           // that it is not 0
	better float64        // as a share, > 0: better
}

// decide judges the intervals. There are as many tests as intervals times
// metrics; as they are looked at several times, each look has its share of the
// chance to be wrong.
func (a *Answer) decide() {
	level := sweep.Level / float64(a.looks)
	var ps []float64
	a.Fixed = true
	for _, s := range a.opt.Intervals {
		in := Interval{Seconds: s}
		p := a.point(every(s))
		for _, name := range a.opt.Metrics {
			m, ok := p.Metric(name)
			if !ok || m.Diff.N < 2 || m.Apart || !(m.Base > 0) {
				in.Changes = nil
				break
			}
			in.Changes = append(in.Changes, Change{Metric: name, Diff: m.Diff, Base: m.Base, better: -float64(sweep.LowerIsBetter(name)) * m.Diff.Mean / m.Base})
			a.Fixed = a.Fixed && m.Std == 0
		}
		for _, c := range in.Changes {
			ps = append(ps, c.Diff.P())
		}
		a.Intervals = append(a.Intervals, in)
	}
	a.Fixed = a.Fixed && len(ps) > 0
	tests := float64(len(ps))
	ps = sweep.Holm(ps)
	a.Clear = true
	for i := range a.Intervals {
		in := &a.Intervals[i]
		in.nothing = true
		for k := range in.Changes {
			c := &in.Changes[k]
			c.P, ps = ps[0], ps[1:]
			c.Sure = c.P < level
			in.score += math.Log(max(1-c.better, 1e-9))
			in.better = in.better || c.Sure && c.better >= a.opt.MinGain
			in.worse = in.worse || c.Sure && c.better <= -a.opt.MinGain
			in.nothing = in.nothing && c.better+c.Diff.HalfAt(level/tests)/c.Base < a.opt.MinGain
		}
		if in.better = in.better && !in.worse; len(in.Changes) == 0 {
			continue
		}
		a.Clear = a.Clear && (in.nothing || in.worse)
		if b := a.Best; b == nil || in.better && !b.better || in.better == b.better && in.score < b.score {
			a.Best = in
		}
	}
	if a.Best != nil && a.Best.better {
		a.Move, a.Clear = true, true
	}
}

func (a *Answer) point(policy string) *sweep.Point {
	i := slices.IndexFunc(a.Tables.Points, func(p sweep.Point) bool { return p.Policy == policy })
	return &a.Tables.Points[i]
}

// Chosen is the policy that the answer recommends among those with this routing.
func (a *Answer) Chosen() string {
	if a.Move {
		return every(a.Best.Seconds)
	}
	return Alone
}
