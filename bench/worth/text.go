package worth

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"lorasim/bench/sweep"
	"lorasim/internal/format"
)

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
	list := slices.Clone(in.Changes)
	slices.SortStableFunc(list, func(x, y Change) int {
		switch {
		case x.Sure == y.Sure:
			return 0
		case x.Sure:
			return -1
		}
		return 1
	})
	var parts []string
	for _, c := range list {
		text := short(c.Metric) + " " + c.Diff.Versus(c.Base)
		if !c.Sure {
			text += " (may be chance)"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

// short is the name of a metric without its unit.
func short(metric string) string {
	title, _, _ := strings.Cut(sweep.Title(metric), " (")
	return strings.Replace(title, "E2E Latency", "E2E", 1)
}

// work is what the plans of an interval do.
func (a *Answer) work(in *Interval) string {
	p := every(in.Seconds)
	perPlan := 0.0
	if n := a.mean(p, "plans.applied"); n > 0 {
		perPlan = a.mean(p, "migrations") / n
	}
	return fmt.Sprintf("%.2g loads/s, %.2g requests moved per plan", a.mean(p, "plans.loads")/a.mean(p, "duration"), perPlan)
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
