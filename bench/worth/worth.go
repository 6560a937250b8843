// Package worth answers whether moving adapters and requests pays in a scenario,
// and how often it should be planned: it runs the planner at several intervals,
// its routing alone, and other policies, as a sweep with the same seeds for all,
// and adds seeds until the answer is clear.
//
//	a, err := worth.Study(ctx, "out", worth.Options{Scenario: sc, Intervals: []string{"2", "10"}, ...})
//	err = a.WriteText(os.Stdout)
package worth

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"lorasim/bench/scenario"
	"lorasim/bench/sweep"
	"lorasim/internal/format"
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

// String is the answer in plain words.
func (a *Answer) String() string {
	text := a.verdict()
	if a.Fixed {
		text += " Every seed gives the same run, so this is about this workload alone."
	}
	if left := a.mean(a.Chosen(), "oracle.mean_e2e_regret"); left > 0 {
		text += fmt.Sprintf(" Against the bound with perfect knowledge %.0f %% of the mean E2E are left.", 100*left/(1+left))
	}
	for _, m := range a.opt.Metrics {
		if o := a.ahead(m); o != nil {
			text += fmt.Sprintf(" But by %s %s is better: %s.", short(m), o.Name, o.Diff.Versus(a.mean(a.Chosen(), m)))
		}
	}
	return text
}

func (a *Answer) verdict() string {
	b := a.Best
	switch {
	case b == nil:
		return "No verdict: with plans other requests completed than without, so that their latencies do not compare."
	case a.Move:
		return fmt.Sprintf("Moving adapters every %s s pays: %s; %s.", b.Seconds, b.changes(), a.work(b))
	case !slices.ContainsFunc(a.Intervals, func(in Interval) bool { return !in.idle() }):
		return "Do not move: plans change nothing at any interval."
	}
	best := fmt.Sprintf("the best interval, %s s, changes %s; %s", b.Seconds, b.changes(), a.work(b))
	gain := fmt.Sprintf("%g %%", 100*a.opt.MinGain)
	switch {
	case b.worse && slices.ContainsFunc(b.Changes, func(c Change) bool { return c.Sure && c.better >= a.opt.MinGain }):
		return "Do not move, unless the one is worth the other: " + best + "."
	case b.worse:
		return "Do not move: plans cost; " + best + "."
	case a.Clear:
		return fmt.Sprintf("Do not move: no interval gains %s; %s.", gain, best)
	}
	return fmt.Sprintf("Do not move: with %d seeds no gain of %s is certain; %s.", len(a.Dir.Seeds), gain, best)
}

// idle says that plans changed nothing.
func (in *Interval) idle() bool {
	return !slices.ContainsFunc(in.Changes, func(c Change) bool { return c.Diff.Mean != 0 || c.Diff.Std != 0 })
}

// changes words the changes, the certain ones first.
func (in *Interval) changes() string {
	var sure, others []string
	for _, c := range in.Changes {
		if text := short(c.Metric) + " " + c.Diff.Versus(c.Base); c.Sure {
			sure = append(sure, text)
		} else {
			others = append(others, text+" (may be chance)")
		}
	}
	return strings.Join(append(sure, others...), ", ")
}

// short is the name of a metric without its unit.
func short(metric string) string {
	title, _, _ := strings.Cut(sweep.Title(metric), " (")
	return strings.Replace(title, "E2E Latency", "E2E", 1)
}

// work is what the plans of an interval do.
func (a *Answer) work(in *Interval) string {
	p := every(in.Seconds)
	plans := cmp.Or(a.mean(p, "plans.applied"), math.Inf(1)) // none move anything
	return fmt.Sprintf("%.2g loads/s, %.2g requests moved per plan", a.mean(p, "plans.loads")/a.mean(p, "duration"), a.mean(p, "migrations")/plans)
}

// mean is 0 where there is none.
func (a *Answer) mean(policy, metric string) float64 {
	m, ok := a.point(policy).Metric(metric)
	if !ok || math.IsNaN(m.Mean) {
		return 0
	}
	return m.Mean
}

// ahead is the other policy that is the best by a metric, against the chosen one;
// nil: none is, or not for certain.
func (a *Answer) ahead(metric string) *sweep.Versus {
	v := a.Dir.Verdicts(a.Tables, metric)[0]
	if v == nil || !slices.Contains(a.opt.Others, v.Best) {
		return nil
	}
	for _, o := range v.Others {
		if o.Name == a.Chosen() && o.Worse {
			d := o.Diff
			d.Mean, d.Low, d.High = -d.Mean, -d.High, -d.Low
			return &sweep.Versus{Name: v.Best, Diff: d}
		}
	}
	return nil
}

// columns are those of the table.
func (a *Answer) columns() []string {
	out := slices.Clone(a.opt.Metrics)
	for _, m := range []string{"mean_ttft_ms", "migrations", "plans.loads"} {
		if !slices.Contains(out, m) && slices.Contains(a.Tables.Metrics, m) {
			out = append(out, m)
		}
	}
	return out
}

// WriteText prints the answer and, below it, the table.
func (a *Answer) WriteText(w io.Writer) error {
	if _, err := fmt.Fprintf(w, "%s\n\n", a); err != nil {
		return err
	}
	if err := a.Dir.WriteText(w, a.Tables, a.columns()); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nmoving or not: %d intervals x %d metrics by paired t-tests, with Holm's correction, at 5 %% over %s\n",
		len(a.opt.Intervals), len(a.opt.Metrics), plural(a.looks, "look", "looks"))
	return err
}

func plural(n int, one, many string) string {
	if n == 1 {
		many = one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// WriteJSON prints the answer and the tables as one JSON object.
func (a *Answer) WriteJSON(w io.Writer) error {
	intervals := []any{}
	for _, in := range a.Intervals {
		changes := []any{}
		for _, c := range in.Changes {
			changes = append(changes, format.Object{"metric", c.Metric, "diff_mean", c.Diff.Mean, "diff_ci95_low", c.Diff.Low, "diff_ci95_high", c.Diff.High,
				"alone_mean", c.Base, "p_holm", c.P, "certain", c.Sure})
		}
		intervals = append(intervals, format.Object{"interval_s", in.Seconds, "policy", every(in.Seconds), "changes", changes})
	}
	best := ""
	if a.Best != nil {
		best = a.Best.Seconds
	}
	var b bytes.Buffer
	if err := a.Dir.WriteJSON(&b, a.Tables, a.opt.Metrics); err != nil {
		return err
	}
	return format.JSON(w, format.Object{"schema", "lorasim.worth/1", "move", a.Move, "clear", a.Clear, "text", a.String(), "best_interval_s,omitempty", best,
		"seeds", len(a.Dir.Seeds), "every_seed_the_same,omitempty", a.Fixed, "intervals", intervals, "sweep", json.RawMessage(b.Bytes())}, " ")
}
