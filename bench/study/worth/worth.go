// Package worth finds out whether moving requests and placing adapters pays in a scenario. It runs variants of the
// planner with its parts on and off, plain policies, and other policies. The runs form a sweep with the same seeds for
// all variants. The package adds seeds until the answer is clear.
//
//	a, err := worth.Study(ctx, "out", worth.Options{Scenario: sc, Intervals: []string{"2", "10"}, ...})
//	err = a.WriteText(os.Stdout)
//
// # Design
//
// The study has four factors: routing, moving waiting requests (W), moving running requests (R) and placing adapters
// (P). Periodic plans do R and P.
//
//   - Routing: the planner's routing alone against plain policies; nothing moves.
//   - W, with the planner's routing: on against off, with R and P off.
//   - Plans, with W on: R and P both on against both off, at each interval.
//   - R and P within the plans, with W on: the main effects of the 2 x 2 factorial,
//     R = ((R-0) + (RP-P)) / 2 and P = ((P-0) + (RP-R)) / 2, as shares of the mean with W alone. They add up to the
//     effect of the plans, so no gain counts twice. The interaction RP - R - P + 0 is the difference between the effect
//     of both and the sum of the effects of each.
//
// W comes before the plans because it is the cheapest of the three: it moves no KV cache and loads no adapter. Plans
// are also tested without W, against routing alone. If neither W nor plans on top of W gain, plans alone may.
package worth

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/bench/stats"
	"lorasim/bench/study/sweep"
	"lorasim/router"
)

// Planner is the policy under study. Alone is its routing, with all other parts off.
const (
	Planner = "plan-and-route"
	Alone   = "route-only"
)

// Options are the options of a study.
type Options struct {
	Scenario  scenario.Scenario
	Intervals []string // time between plans, s
	Baselines []string // plain policies to compare the routing with
	Others    []string // other policies to show
	Metrics   []string // metrics that decide; each has a better direction
	Goodput   string   // SLO, see result.ParseSLO; "": none
	// MinGain is the smallest relative change of a metric that counts.
	MinGain         float64
	Seeds, MaxSeeds int // at first and at most
	// Run runs the unfinished cells of the sweep.
	Run func(d *sweep.Dir) error

	sampling stats.Sampling // what seeds draw
}

// Check returns an error if an option is invalid.
func (o *Options) Check() error {
	m := sweep.Manifest{Grid: sweep.Grid{Goodput: o.Goodput}}
	if err := m.CheckMetrics(o.Metrics); err != nil {
		return err
	}
	for _, m := range o.Metrics {
		if result.MetricOf(m).Better == stats.Neither {
			return fmt.Errorf("metric %s cannot decide: neither more nor less of it is better", m)
		}
	}
	if o.Seeds > o.MaxSeeds {
		return fmt.Errorf("%d seeds to begin with, but %d at most", o.Seeds, o.MaxSeeds)
	}
	return nil
}

// looks are the numbers of seeds after which the answer is sought. Seeds of one
// workload would only break ties.
func (o *Options) looks() (out []int) {
	if o.sampling == stats.OneWorkload {
		return []int{1}
	}
	for n := o.Seeds; n < o.MaxSeeds; n *= 2 {
		out = append(out, n)
	}
	return append(out, o.MaxSeeds)
}

// level is the chance to be wrong that a look has of the 5 % of all looks: in
// proportion to its seeds, as the first looks seldom decide.
func (o *Options) level(seeds int) float64 {
	sum := 0
	for _, n := range o.looks() {
		sum += n
	}
	return stats.Level * float64(seeds) / float64(sum)
}

// parts are those of the planner that a variant has switched on.
type parts struct{ waiting, running, places bool }

// movable reports which requests can move in the scenario.
func (o *Options) movable() (waiting, running bool) {
	switch router.Moving(o.Scenario.Routing.RequestMigration) {
	case router.MoveNone:
		return false, false
	case router.MoveQueued:
		return true, false
	}
	return true, true
}

// base are the parts that plans are added to.
func (o *Options) base() parts {
	waiting, _ := o.movable()
	return parts{waiting: waiting}
}

// full are all parts that the scenario allows.
func (o *Options) full() parts {
	waiting, running := o.movable()
	return parts{waiting, running, true}
}

// policy is the planner with some parts on. The interval counts where it makes plans.
func (p parts) policy(interval string) string {
	var options []string
	switch {
	case p == parts{}:
		return Alone
	case p.waiting && p.running:
	case p.waiting:
		options = append(options, "move=waiting")
	case p.running:
		options = append(options, "move=running")
	default:
		options = append(options, "move=none")
	}
	if !p.places {
		options = append(options, "place=off")
	}
	if p.running || p.places {
		options = append(options, "interval="+interval)
	}
	return Planner + ":" + strings.Join(options, ",")
}

// policies lists all that are run, each once.
func (o *Options) policies() (out []string) {
	add := func(p string) {
		if !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	add(Alone)
	base, full := o.base(), o.full()
	add(base.policy(""))
	for _, s := range o.Intervals {
		for _, p := range []parts{
			{base.waiting, false, true}, {base.waiting, full.running, false}, full, // the 2 x 2 within plans
			{false, full.running, true}, // plans alone
		} {
			add(p.policy(s))
		}
	}
	for _, p := range slices.Concat(o.Baselines, o.Others) {
		add(p)
	}
	return out
}

// Study runs a study in a folder. It continues a study that was interrupted.
func Study(ctx context.Context, folder string, o Options) (*Answer, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	o.sampling = o.Scenario.Sampling()
	looks := o.looks()
	for _, n := range looks {
		spec := sweep.Spec{Name: "worth", Scenario: o.Scenario, SeedCount: n,
			Grid: sweep.Grid{Policies: o.policies(), Baseline: Alone, Goodput: o.Goodput, Oracle: true}}
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
		a := &Answer{Dir: d, Tables: t, opt: o, runs: tableRuns{t}}
		if a.decide(); a.Clear || n == looks[len(looks)-1] {
			return a, nil
		}
	}
	panic("unreachable: the last look returns")
}

// runs are the results of a study.
type runs interface {
	// values lists a metric of a policy's runs by seed, NaN where there is none.
	values(policy, metric string) []float64
	// comparable says whether the runs of two policies completed the same requests.
	comparable(a, b string) bool
}

type tableRuns struct{ *sweep.Tables }

func (t tableRuns) point(policy string) *sweep.Point {
	i := slices.IndexFunc(t.Points, func(p sweep.Point) bool { return p.Policy == policy })
	return &t.Points[i]
}

func (t tableRuns) values(policy, metric string) []float64 { return t.point(policy).BySeed(metric) }

func (t tableRuns) comparable(a, b string) bool { return t.point(a).SameRequests(t.point(b)) }

// mean returns the mean of a metric of a policy; 0 if there is none.
func (a *Answer) mean(policy, metric string) float64 {
	if m := stats.Mean(a.runs.values(policy, metric)).Mean; !math.IsNaN(m) {
		return m
	}
	return 0
}
