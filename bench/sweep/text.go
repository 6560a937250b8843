package sweep

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"lorasim/bench/result"
	"lorasim/bench/stats"
	"lorasim/bench/steady"
	"lorasim/internal/format"
	"lorasim/internal/suggest"
)

// DefaultMetrics are those of the table that people read.
var DefaultMetrics = []string{"mean_e2e_latency_ms", "p99_e2e_latency_ms", "mean_ttft_ms", "p99_ttft_ms", "output_throughput"}

// CheckMetrics makes sure that a merged sweep has the given metrics.
func (t *Tables) CheckMetrics(names []string) (err error) {
	for _, n := range names {
		err = cmp.Or(err, suggest.Among("metric", n, t.Metrics))
	}
	return err
}

// TextOptions say what the table for people shows.
type TextOptions struct {
	Metrics []string // columns; the first one is compared and judged
	Wide    bool     // all columns side by side, however wide
}

// WriteText is WriteTable with the given metrics.
func (d *Dir) WriteText(w io.Writer, t *Tables, metrics []string) error {
	return d.WriteTable(w, t, TextOptions{Metrics: metrics})
}

// WriteTable prints one line per combination of settings and policy, with means
// and 95 % confidence intervals, and the difference to the baseline in the first
// of the metrics, for which verdicts stand below the table. It takes
// [format.Width] columns, unless it is to be wide.
func (d *Dir) WriteTable(w io.Writer, t *Tables, o TextOptions) error {
	metrics, width := o.Metrics, format.Width
	if o.Wide {
		width = 0
	}
	var head []string
	for _, a := range d.Axes {
		head = append(head, a.Leaf())
	}
	head = append(head, "policy")
	keys := len(head)
	left := slices.ContainsFunc(t.Points, func(p Point) bool { return p.Left != 0 }) // or is not known
	known := slices.ContainsFunc(t.Points, func(p Point) bool { return p.State != "" })
	compared := len(d.Policies) > 1 && len(metrics) > 0
	column := func(show bool, title string) {
		if show {
			head = append(head, title)
		}
	}
	column(known, "state")
	column(left, "not completed")
	for i, n := range metrics {
		head = append(head, result.Title(n))
		column(compared && i == 0, "vs "+t.baseline)
	}
	rows, seen := [][]string{head}, marks{}
	for _, p := range t.Points {
		line := append(slices.Clone(p.Values), p.Policy)
		cell := func(show bool, text string) {
			if show {
				line = append(line, text)
			}
		}
		cell(known, p.Mark())
		cell(left, percentLeft(p.Left))
		seen.unsteady = seen.unsteady || !p.Judge()
		for i, n := range metrics {
			m, _ := p.Metric(n)
			text := m.Estimate.String()
			if m.N > 0 && p.Apart && !result.CountsAll(n) {
				text += " " + stats.NotComparable
				seen.apart = true
			}
			line = append(line, text)
			cell(compared && i == 0, m.versus())
			seen.apart = seen.apart || compared && i == 0 && m.Apart
		}
		rows = append(rows, line)
	}
	if err := format.Fit(w, rows, keys, width); err != nil {
		return err
	}
	text := "\n"
	for _, line := range d.legend(t, metrics, seen, compared, !left) {
		text += format.Paragraph(line, width) + "\n"
	}
	if compared {
		text += d.verdictLines(t, metrics[0], width)
	}
	_, err := io.WriteString(w, text)
	return err
}

// marks are those in a table that its legend has to explain.
type marks struct{ apart, unsteady bool }

// legend explains the table, a line for each thing.
func (d *Dir) legend(t *Tables, metrics []string, seen marks, compared, complete bool) (lines []string) {
	line := func(show bool, format string, values ...any) {
		if show {
			lines = append(lines, fmt.Sprintf(format, values...))
		}
	}
	line(true, "%s", t.Intervals(len(d.Seeds)))
	line(complete, "all requests completed")
	if compared {
		line(true, "vs %s: difference in %s, paired by seed; * where its interval excludes 0", t.baseline, result.Title(metrics[0]))
	}
	line(seen.apart, "%s not comparable: latencies and throughputs are those of the completed requests, and different requests completed", stats.NotComparable)
	line(seen.unsteady, "%s", steady.StateNote)
	policies, axes := d.Shares()
	alike := map[string][]string{} // policies by the axes that they do not use
	for i, unused := range axes {
		key := strings.Join(unused, ", ")
		alike[key] = append(alike[key], policies[i])
	}
	for _, unused := range slices.Sorted(maps.Keys(alike)) {
		line(true, "%s: no use of %s; one run is shared by all its values", strings.Join(alike[unused], ", "), unused)
	}
	return lines
}

// percentLeft words a share of requests that did not complete; one that is not 0
// never looks like it.
func percentLeft(share float64) string {
	if share > 0 && share < 0.001 {
		return "<0.1 %"
	}
	return format.Percent(share, 1)
}

// versus prints the difference to the baseline in percent of it.
func (m Metric) versus() string {
	if m.Diff.N == 0 || m.Base == 0 || m.Unsteady {
		return "-"
	}
	text := m.Diff.Versus(m.Base)
	switch {
	case m.Apart:
		text += " " + stats.NotComparable
	case m.Diff.HasInterval() && (m.Diff.Low > 0 || m.Diff.High < 0):
		text += " *"
	}
	return text
}

// WriteJSON prints the tables as one JSON object, with verdicts by the given
// metrics for each combination of settings.
func (d *Dir) WriteJSON(w io.Writer, t *Tables, metrics []string) error {
	var sets []map[string]string
	points, verdicts := []any{}, []any{}
	for _, p := range t.Points {
		set, numbers := map[string]string{}, map[string]any{}
		for i, a := range d.Axes {
			set[a.Key] = p.Values[i]
		}
		for _, m := range p.Metrics {
			e := format.Object{"n", m.N, "mean", m.Mean, "std", m.Std, "ci95_low", m.Low, "ci95_high", m.High}
			if d := m.Diff; d.N > 0 {
				e = append(e, "diff", format.Object{"n", d.N, "mean", d.Mean, "ci95_low", d.Low, "ci95_high", d.High, "comparable", !m.Apart && !m.Unsteady})
			}
			numbers[m.Name] = e
		}
		sets = append(sets, set)
		points = append(points, format.Object{"set", set, "policy", p.Policy, "not_completed_share", p.Left,
			"state,omitempty", string(p.State), "states,omitempty", p.Counts(), "sustainable_rate,omitempty", p.Sustains, "sampling,omitempty", string(p.Sampling), "metrics", numbers})
	}
	for _, n := range metrics {
		for i, v := range d.Verdicts(t, n) {
			if v != nil {
				verdicts = append(verdicts, format.Object{"set", sets[i*len(d.Policies)], "verdict", v.JSON()})
			}
		}
	}
	return format.JSON(w, format.Object{"schema", schema, "name", d.Name, "hash", d.Hash, "cells", len(d.Cells), "left_out", t.Left, "shared_cells,omitempty", d.Shared(), "unused_settings,omitempty", d.unusedSettings(),
		"seeds", d.Seeds, "baseline", t.baseline, "points", points, "verdicts", verdicts}, " ")
}

// Verdict says which of several things that saw the same seeds is the best by a
// metric, and what can be told of the others. As the best is picked by the same
// numbers, all pairs are tested, by paired t-tests with Holm's correction: the
// chance of any wrong "worse" is then at most Level.
type Verdict struct {
	Metric string
	Best   string  // that with the best mean
	Mean   float64 // its mean
	Seeds  int     // that all of them have
	Of     stats.Sampling
	Others []Versus // the nearest first
	Apart  []string // cannot be compared with the others
	// Unsteady says of what did not reach a steady state why it gets no verdict:
	// "static is overloaded (sustains 12.1 of 16 requests/s)".
	Unsteady []string
	Left     string // the only one that can be compared, where there is no Best
}

// Versus is one of the others against the best.
type Versus struct {
	Name  string
	Diff  stats.Estimate // minus the best, paired by seed
	P     float64        // of the paired t-test, corrected; NaN: no interval
	Worse bool           // P is below Level
}

// Judge compares values by seed, one list for each name, as far as it has any. It
// is nil where the metric has no better end, or fewer than two can be compared.
func Judge(metric string, names []string, values [][]float64, apart []bool) *Verdict {
	return JudgeSteady(metric, names, values, apart, make([]steady.Stationarity, len(names)))
}

// JudgeSteady is Judge where the runs of some names may not have reached a steady
// state: where the metric needs one they get no verdict. If fewer than two are left,
// the verdict has no Best.
func JudgeSteady(metric string, names []string, values [][]float64, apart []bool, reached []steady.Stationarity) *Verdict {
	return JudgeOf(stats.Fresh, metric, names, values, apart, reached)
}

// JudgeOf is JudgeSteady for seeds that draw what of says.
func JudgeOf(of stats.Sampling, metric string, names []string, values [][]float64, apart []bool, reached []steady.Stationarity) *Verdict {
	v := JudgeBy(metric, names, apart, reached, func(i int) stats.Estimate { return stats.MeanOf(of, values[i]) },
		func(i, j int) stats.Estimate { return stats.PairedOf(of, values[i], values[j]) })
	if v != nil {
		v.Of = of
	}
	return v
}

// JudgeBy is JudgeSteady by means, N = 0 where there is none, and differences of two.
func JudgeBy(metric string, names []string, apart []bool, reached []steady.Stationarity, mean func(i int) stats.Estimate, diff func(i, j int) stats.Estimate) *Verdict {
	v := &Verdict{Metric: metric}
	var among []int
	for i := range names {
		switch {
		case mean(i).N == 0:
		case result.NeedsSteady(metric) && !reached[i].Judge():
			v.Unsteady = append(v.Unsteady, names[i]+" is "+reached[i].String())
		case apart[i]:
			v.Apart = append(v.Apart, names[i])
		default:
			among = append(among, i)
		}
	}
	better := float64(result.Better(metric))
	switch {
	case better == 0 || len(among) < 2 && v.Unsteady == nil:
		return nil
	case len(among) < 2:
		for _, i := range among {
			v.Left = names[i]
		}
		v.Mean = math.NaN()
		return v
	}
	slices.SortStableFunc(among, func(a, b int) int { return cmp.Compare(better*mean(a).Mean, better*mean(b).Mean) })
	var ps []float64 // of all pairs, those with the best first
	for k, a := range among {
		for _, b := range among[k+1:] {
			ps = append(ps, diff(a, b).P())
		}
	}
	ps = stats.Holm(ps)
	best := among[0]
	v.Best, v.Mean, v.Seeds = names[best], mean(best).Mean, math.MaxInt
	for k, i := range among[1:] {
		d := diff(i, best)
		v.Seeds, v.Of = min(v.Seeds, d.N), d.Of
		v.Others = append(v.Others, Versus{names[i], d, ps[k], ps[k] < stats.Level})
	}
	return v
}

// String is the verdict in one line.
func (v *Verdict) String() string {
	if v.Best == "" {
		return v.none()
	}
	end := "lowest"
	if result.Better(v.Metric) == stats.Higher {
		end = "highest"
	}
	var alike, worse []string
	for _, o := range v.Others {
		text := o.Name + " " + o.Diff.Versus(v.Mean)
		if o.Worse {
			worse = append(worse, text)
		} else {
			alike = append(alike, text)
		}
	}
	text := v.Best + " is the best"
	switch {
	case v.Seeds < 2 && v.Of != stats.WithinRuns:
		text = fmt.Sprintf("%s has the %s value, but with one run each there is no statement about chance: %s", v.Best, end, strings.Join(alike, ", "))
	case v.Of == stats.OneWorkload:
		text = fmt.Sprintf("%s has the %s mean with this one workload, which says nothing about others (see --resample): %s", v.Best, end, strings.Join(alike, ", "))
	case len(alike) > 0:
		text = fmt.Sprintf("%s has the %s mean; not significantly different: %s", v.Best, end, strings.Join(alike, ", "))
	}
	if len(worse) > 0 {
		text += "; worse: " + strings.Join(worse, ", ")
	}
	if v.Of == stats.WithinRuns {
		text += " (one run each, by batch means)"
	}
	if len(v.Apart) > 0 {
		text += "; not comparable: " + strings.Join(v.Apart, ", ")
	}
	if len(v.Unsteady) > 0 {
		text += "; no verdict: " + strings.Join(v.Unsteady, ", ")
	}
	return text
}

// none words why there is no verdict.
func (v *Verdict) none() string {
	text := "no verdict: " + strings.Join(v.Unsteady, ", ")
	if len(v.Apart) > 0 {
		text += "; not comparable: " + strings.Join(v.Apart, ", ")
	}
	if v.Left != "" {
		text += "; only " + v.Left + " can be judged"
	}
	return text
}

// VerdictNote says how verdicts are reached.
const VerdictNote = "worse: paired t-tests of all pairs, Holm's correction, 5 % level; ± half of the 95 % interval"

// JSON is the verdict as it stands in JSON.
func (v *Verdict) JSON() any {
	others := []any{}
	for _, o := range v.Others {
		others = append(others, format.Object{"name", o.Name, "diff_mean", o.Diff.Mean, "diff_ci95_low", o.Diff.Low, "diff_ci95_high", o.Diff.High,
			"p_holm", o.P, "worse", o.Worse})
	}
	return format.Object{"metric", v.Metric, "best,omitempty", v.Best, "mean,omitempty", v.Mean, "seeds", v.Seeds, "others", others,
		"sampling,omitempty", string(v.Of), "not_comparable,omitempty", v.Apart, "not_steady,omitempty", v.Unsteady, "text", v.String()}
}

// Verdicts judges the policies at each combination of settings, in the order of
// the points; nil where there is nothing to judge.
func (d *Dir) Verdicts(t *Tables, metric string) (out []*Verdict) {
	for points := range slices.Chunk(t.Points, len(d.Policies)) {
		values, apart, reached := make([][]float64, len(points)), make([]bool, len(points)), make([]steady.Stationarity, len(points))
		most, least := points[0].results, math.Inf(1) // of the policy that completed most, and what that left
		for i, p := range points {
			values[i], reached[i] = column(p.results, metric), p.Stationarity
			if p.Left < least {
				most, least = p.results, p.Left
			}
		}
		for i, p := range points {
			apart[i] = !result.CountsAll(metric) && !samePairs(p.results, most)
		}
		out = append(out, JudgeOf(points[0].Sampling, metric, d.Policies, values, apart, reached))
	}
	return out
}

// verdictLines words the verdicts, one line for each combination of settings.
func (d *Dir) verdictLines(t *Tables, metric string, width int) string {
	text := ""
	for i, v := range d.Verdicts(t, metric) {
		if v != nil {
			at := strings.TrimSuffix(d.settingsText(t.Points[i*len(d.Policies)].Values), " ")
			text += format.Paragraph(strings.TrimPrefix(at+": "+v.String(), ": "), width) + "\n"
		}
	}
	if text == "" {
		return ""
	}
	note := format.Paragraph(VerdictNote, width) + "\n"
	if !slices.ContainsFunc(t.Points, func(p Point) bool { return p.Sampling != stats.OneWorkload }) || len(d.Seeds) < 2 {
		note = ""
	}
	return "\nby " + result.Title(metric) + ":\n" + text + note
}

// Intervals says what the intervals of the tables tell.
func (t *Tables) Intervals(seeds int) string {
	var notes []string
	for _, p := range t.Points {
		if n := stats.IntervalNote(p.Sampling, seeds, p.Resample); !slices.Contains(notes, n) {
			notes = append(notes, n)
		}
	}
	return strings.Join(notes, ";\n")
}
