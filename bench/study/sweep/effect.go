package sweep

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/bench/stats"
	"lorasim/internal/format"
)

// An AxisEffect is the effect of one axis on a metric under one policy, at one combination of the other axes.
type AxisEffect struct {
	Axis   Axis
	Fixed  []string // values of the other axes, in their order
	Policy string
	Points []*Point // by value of the axis
	// Verdict compares the values of the axis by runs with the same seeds; nil: there is nothing to compare.
	Verdict *stats.Verdict
	// None is the reason why all values give the same results; "": they do not.
	None string
	// Plans, Applied and Moves are means over the seeds, by value of the axis; nil: the policy makes no plans.
	Plans, Applied, Moves []float64
	// Idle is the most frequent reason of plans that change nothing, from a run of the first seed; "": unknown.
	Idle string

	of     int // index of the axis
	metric string
}

// EffectAxes are the axes whose effect is shown: a single one, else those that do not change the workload.
func (d *Dir) EffectAxes() (list []int) {
	var several []int
	for i, a := range d.Axes {
		if len(a.Values) > 1 {
			several = append(several, i)
		}
	}
	for _, i := range several {
		if len(several) == 1 || setting(d.Axes[i].Key).Section != "workload" {
			list = append(list, i)
		}
	}
	return list
}

// gains are the metrics that settings buy at the cost of latency and throughput, by the name of the setting.
var gains = map[string]string{"push_interval": "pushes.mean_age_s", "push": "pushes.mean_age_s",
	"max_staleness": "pushes.mean_staleness"}

// Effects compares the values of each axis by a metric, for each policy, and by the metric that the axis buys. Of a
// policy whose plans change nothing it simulates one run again, to state the reason.
func (d *Dir) Effects(ctx context.Context, t *Tables, metric string) (list []AxisEffect, err error) {
	policies, unused := d.Shares()
	for _, i := range d.EffectAxes() {
		seen := map[string]int{}
		first := len(list)
		for k := range t.Points {
			p := &t.Points[k]
			fixed := slices.Delete(slices.Clone(p.Values), i, i+1)
			key := strings.Join(append([]string{p.Policy}, fixed...), "\x00")
			at, ok := seen[key]
			if !ok {
				at = len(list)
				seen[key] = at
				list = append(list, AxisEffect{Axis: d.Axes[i], Fixed: fixed, Policy: p.Policy, of: i})
			}
			list[at].Points = append(list[at].Points, p)
		}
		for k := first; k < len(list); k++ {
			e := &list[k]
			j := slices.Index(policies, e.Policy)
			if e.judge(metric); j >= 0 && slices.Contains(unused[j], e.Axis.Leaf()) {
				e.None = notUsed
			} else if err := d.explain(ctx, e); err != nil {
				return nil, err
			}
		}
		if gain, ok := gains[d.Axes[i].Leaf()]; ok && gain != metric {
			for _, e := range list[first:] {
				if e.judge(gain); slices.ContainsFunc(e.Points, func(p *Point) bool { return has(p, gain) }) {
					list = append(list, e)
				}
			}
		}
	}
	return list, nil
}

// notUsed is the reason for no effect of a setting that a policy does not read.
const notUsed = "the policy does not use it"

// judge compares the values of the axis.
func (e *AxisEffect) judge(metric string) {
	m := result.MetricOf(metric)
	e.metric = metric
	cs := make([]stats.Candidate, len(e.Points))
	same := true
	for i, p := range e.Points {
		cs[i] = stats.Candidate{Name: p.Values[e.of], Values: p.BySeed(metric), Apart: p.Apart && !m.AllRequests,
			Unsteady: m.Unsteady(p.Stationarity)}
		same = same && equal(cs[i].Values, cs[0].Values)
	}
	e.Verdict = stats.Judge(metric, m.Better, e.Points[0].Sampling, cs)
	e.Plans, e.Applied, e.Moves = e.means("solver_runs"), e.means("plans.applied"), e.means("migrations")
	if same {
		if e.None = "it makes no plans"; slices.Max(e.Applied) > 0 && slices.Max(e.Plans) == 0 {
			e.None = "it moves adapters when a request arrives, at no interval"
		}
	}
}

// explain finds out why plans change nothing, at the first value where they do not.
func (d *Dir) explain(ctx context.Context, e *AxisEffect) (err error) {
	for i := range e.Points {
		if e.Applied[i] == 0 && e.Moves[i] == 0 {
			e.Idle, err = d.idle(ctx, e, i)
			break
		}
	}
	if e.None != "" && (slices.Max(e.Plans) > 0 || slices.Max(e.Applied) == 0 && e.Idle != "") {
		e.None = "its plans change nothing"
	}
	return err
}

// equal reports whether runs of the same seeds gave the same values.
func equal(a, b []float64) bool {
	return slices.EqualFunc(a, b, func(x, y float64) bool { return x == y || math.IsNaN(x) && math.IsNaN(y) })
}

// means returns the mean of a metric for each value of the axis; 0 if there is none.
func (e *AxisEffect) means(metric string) (list []float64) {
	for _, p := range e.Points {
		list = append(list, mean(p, metric))
	}
	return list
}

// mean returns the mean of a metric over the seeds; 0 if there is none.
func mean(p *Point, metric string) float64 {
	if has(p, metric) {
		return stats.Mean(p.BySeed(metric)).Mean
	}
	return 0
}

// has reports whether the runs of a point have a metric.
func has(p *Point, metric string) bool { return !math.IsNaN(stats.Mean(p.BySeed(metric)).Mean) }

// idle simulates the run of the first seed at a value, and states why plans changed nothing; "": the policy made none.
func (d *Dir) idle(ctx context.Context, e *AxisEffect, at int) (string, error) {
	i := slices.IndexFunc(d.Cells, func(c Cell) bool {
		return c.Policy == e.Policy && slices.Equal(c.Values, e.Points[at].Values)
	})
	sc, err := d.ScenarioOf(&d.Cells[i])
	if err != nil {
		return "", err
	}
	res, err := sc.Simulate(ctx, scenario.RunOptions{})
	if err != nil {
		return "", err
	}
	p := res.Extra.Plans
	if p == nil || len(p.Idle) == 0 {
		return "", nil
	}
	times := int64(0)
	for _, why := range p.Idle {
		times += why.Count
	}
	return fmt.Sprintf("at %s (seed %d), %d times nothing to change; most often: %s", e.Points[at].Values[e.of],
		d.Cells[i].Seed, times, p.Idle[0].Reason), nil
}

// best returns the index of the best value; -1: none can be compared.
func (e *AxisEffect) best() int {
	if e.Verdict == nil || e.Verdict.Best == "" {
		return -1
	}
	return slices.Index(e.Axis.Values, e.Verdict.Best)
}

// significant reports whether a value is significantly worse than the best.
func (e *AxisEffect) significant() bool {
	return e.Verdict != nil && slices.ContainsFunc(e.Verdict.Others, func(o stats.Versus) bool { return o.Worse })
}

// summary states the effect in a few words: the best value, and the largest significant difference to it.
func (e *AxisEffect) summary() string {
	switch {
	case e.None != "":
		if e.Idle != "" {
			return "no effect, since its plans change nothing (" + e.Idle + ")"
		}
		return "no effect, since " + e.None
	case e.best() < 0 && e.Verdict != nil && len(e.Verdict.Unsteady) > 0:
		return "no verdict, the runs are not steady"
	case e.best() < 0:
		return "no verdict"
	}
	v := e.Verdict
	if !e.significant() {
		most := 0.0
		for _, o := range v.Others {
			if o.Diff.HasInterval() {
				most = max(most, math.Abs(o.Diff.Low), math.Abs(o.Diff.High))
			}
		}
		text := "no significant effect"
		if most > 0 && v.Mean != 0 {
			text += fmt.Sprintf(" (at most %.1f %%)", 100*most/math.Abs(v.Mean))
		}
		return text
	}
	var worst *stats.Versus
	for i := range v.Others {
		if o := &v.Others[i]; o.Worse && (worst == nil || math.Abs(o.Diff.Mean) > math.Abs(worst.Diff.Mean)) {
			worst = o
		}
	}
	return fmt.Sprintf("best at %s; %s is worse by %s", v.Best, worst.Name,
		strings.TrimPrefix(worst.Diff.Versus(v.Mean), "+"))
}

// byAxis returns the effects in groups of one axis and one metric.
func byAxis(list []AxisEffect) (groups [][]AxisEffect) {
	for len(list) > 0 {
		n := slices.IndexFunc(list, func(e AxisEffect) bool { return e.of != list[0].of || e.metric != list[0].metric })
		if n < 0 {
			n = len(list)
		}
		groups, list = append(groups, list[:n]), list[n:]
	}
	return groups
}

// WriteEffects writes a table for each axis: the mean at the best value of each policy and the differences of the
// others to it; then what the plans of planning policies did.
func (d *Dir) WriteEffects(w io.Writer, list []AxisEffect, width int) error {
	var b strings.Builder
	for i, own := range byAxis(list) {
		of, metric := own[0].of, own[0].metric
		fmt.Fprintf(&b, "\nEffect of %s on %s, difference to the best value of each policy\n"+
			"(* significant: paired t-tests, Holm's correction; ? not steady, no verdict):\n\n", d.Axes[of].Leaf(),
			result.MetricOf(metric).Title)
		if err := d.effectTable(&b, of, own, width); err != nil {
			return err
		}
		b.WriteByte('\n')
		if i > 0 && of == byAxis(list)[i-1][0].of {
			continue // the plans are the same
		}
		for _, line := range d.planLines(own) {
			b.WriteString(format.Paragraph(line, width) + "\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// effectTable writes a line for each policy and combination of the other axes.
func (d *Dir) effectTable(b *strings.Builder, of int, list []AxisEffect, width int) error {
	var head []string
	for i, a := range d.Axes {
		if i != of {
			head = append(head, a.Leaf())
		}
	}
	keys := len(head) + 1
	rows := [][]string{append(append(head, "policy"), d.Axes[of].Values...)}
	for _, e := range list {
		row := append(slices.Clone(e.Fixed), e.Policy)
		for i, p := range e.Points {
			row = append(row, e.cell(i, p))
		}
		rows = append(rows, row)
	}
	return format.Fit(b, rows, keys, width)
}

// cell is the text of a value of the axis.
func (e *AxisEffect) cell(i int, p *Point) string {
	value := stats.Number(mean(p, e.metric))
	switch best := e.best(); {
	case !has(p, e.metric):
		return "-"
	case e.None != "" && i == 0:
		return value
	case e.None != "":
		return "same"
	case i == best:
		return "best " + value
	case result.MetricOf(e.metric).Unsteady(p.Stationarity) != "":
		return value + " ?"
	case e.Verdict == nil:
		return value
	}
	for _, o := range e.Verdict.Others {
		if o.Name == e.Axis.Values[i] {
			text := o.Diff.Versus(e.Verdict.Mean)
			if o.Worse {
				text += " *"
			}
			return text
		}
	}
	return value
}

// planLines state for each planning policy what its plans did, and why they did nothing.
func (d *Dir) planLines(list []AxisEffect) (lines []string) {
	none := map[string][]string{} // policies without an effect, by the reason
	var reasons []string
	for _, e := range list {
		planned := slices.Max(e.Plans) > 0 || slices.Max(e.Applied) > 0 || e.Idle != ""
		if e.None != "" && (e.None == notUsed || !planned || slices.Max(e.Plans) == 0 && slices.Max(e.Applied) > 0) {
			if none[e.None] == nil {
				reasons = append(reasons, e.None)
			}
			if !slices.Contains(none[e.None], e.Policy) {
				none[e.None] = append(none[e.None], e.Policy)
			}
		}
	}
	for _, why := range reasons {
		lines = append(lines, strings.Join(none[why], ", ")+": no effect, since "+why)
	}
	for _, e := range list {
		silent := slices.Max(e.Plans) == 0 && slices.Max(e.Applied) == 0 && e.Idle == ""
		if silent || slices.Contains(none[e.None], e.Policy) {
			continue
		}
		at := e.Policy
		for i, a := range slices.Delete(slices.Clone(d.Axes), e.of, e.of+1) {
			at = a.Leaf() + "=" + e.Fixed[i] + " " + at
		}
		var parts []string
		for i, v := range e.Axis.Values {
			parts = append(parts, fmt.Sprintf("%s: %s, %s, %s", v, count(e.Plans[i]), count(e.Applied[i]),
				count(e.Moves[i])))
		}
		line := at + ": plans made, applied and requests moved, mean of a run, at " + strings.Join(parts, "; ")
		if slices.Max(e.Plans) == 0 && slices.Max(e.Applied) == 0 && slices.Max(e.Moves) == 0 {
			line = at + ": 0 plans made, 0 requests moved"
		}
		if e.Idle != "" {
			line += ". " + strings.ToUpper(e.Idle[:1]) + e.Idle[1:]
		}
		lines = append(lines, line)
	}
	return lines
}

// count writes a mean count: whole from 100 on.
func count(x float64) string {
	if x >= 100 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.3g", x)
}

// jsonEffects are the effects of axes for programs.
func (d *Dir) jsonEffects(list []AxisEffect) (out []any) {
	for _, e := range list {
		set := map[string]string{}
		for i, a := range slices.Delete(slices.Clone(d.Axes), e.of, e.of+1) {
			set[a.Key] = e.Fixed[i]
		}
		values := []any{}
		for i, p := range e.Points {
			o := format.Object{"value", e.Axis.Values[i]}
			if has(p, e.metric) {
				o = append(o, "mean", mean(p, e.metric))
			}
			o = append(o, "steady", p.Judge())
			if slices.Max(e.Plans) > 0 || slices.Max(e.Applied) > 0 {
				o = append(o, "plans_made", e.Plans[i], "plans_applied", e.Applied[i], "requests_moved", e.Moves[i])
			}
			values = append(values, o)
		}
		o := format.Object{"axis", e.Axis.Key, "policy", e.Policy, "set", set, "metric", e.metric, "text", e.summary(),
			"no_effect_since,omitempty", e.None, "nothing_to_change,omitempty", e.Idle, "values", values}
		if e.Verdict != nil {
			o = append(o, "verdict", e.Verdict.JSON())
		}
		out = append(out, o)
	}
	return out
}
