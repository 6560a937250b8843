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

// CheckMetrics returns an error if the merged sweep lacks one of the given metrics.
func (t *Tables) CheckMetrics(names []string) (err error) {
	for _, n := range names {
		err = cmp.Or(err, suggest.Among("metric", n, t.Metrics))
	}
	return err
}

// TextOptions are the options of the text table.
type TextOptions struct {
	Metrics []string // columns; the comparison and the verdict use the first
	Wide    bool     // all columns side by side, however wide
}

// WriteText calls [Dir.WriteTable] with the given metrics.
func (d *Dir) WriteText(w io.Writer, t *Tables, metrics []string) error {
	return d.WriteTable(w, t, TextOptions{Metrics: metrics})
}

// WriteTable writes one line per combination of settings and policy: means, 95 % confidence intervals, and the
// difference to the baseline in the first metric. Verdicts on that metric follow the table. The table is at most
// format.Width columns wide, unless o.Wide is set.
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
		head = append(head, result.MetricOf(n).Title)
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
			if m.N > 0 && p.Apart && !result.MetricOf(n).AllRequests {
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
		line(true, "vs %s: difference in %s, paired by seed; * where its interval excludes 0",
			t.baseline, result.MetricOf(metrics[0]).Title)
	}
	line(seen.apart,
		"%s not comparable: latencies and throughputs are those of the completed requests, and different requests completed", stats.NotComparable)
	line(seen.unsteady, "%s", steady.StateNote)
	policies, axes := d.Shares()
	alike := map[string][]string{} // policies by the axes that they do not use
	for i, unused := range axes {
		key := strings.Join(unused, ", ")
		alike[key] = append(alike[key], policies[i])
	}
	for _, unused := range slices.Sorted(maps.Keys(alike)) {
		line(true, "%s: no effect of %s; one run serves all its values", strings.Join(alike[unused], ", "), unused)
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
func (m PointValue) versus() string {
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

// JSONOptions are the parts of WriteJSON that take more than the tables.
type JSONOptions struct {
	Effects []AxisEffect
	Next    string // command that would decide what is open; "": none
}

// WriteJSON writes the tables as one JSON object, with verdicts by the given metrics for each combination of settings.
func (d *Dir) WriteJSON(w io.Writer, t *Tables, metrics []string, o JSONOptions) error {
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
				e = append(e, "diff", format.Object{
					"n", d.N, "mean", d.Mean, "ci95_low", d.Low, "ci95_high", d.High,
					"comparable", !m.Apart && !m.Unsteady,
				})
			}
			numbers[m.Name] = e
		}
		sets = append(sets, set)
		points = append(points, format.Object{"set", set, "policy", p.Policy, "not_completed_share", p.Left,
			"state,omitempty", string(p.State), "states,omitempty", p.Counts(),
			"too_short,omitempty", p.TooShort,
			"sustainable_rate,omitempty", p.Sustains, "sampling,omitempty", string(p.Sampling), "metrics", numbers})
	}
	for _, n := range metrics {
		for i, v := range d.Verdicts(t, n) {
			if v != nil {
				verdicts = append(verdicts, format.Object{"set", sets[i*len(d.Policies)], "verdict", v.JSON()})
			}
		}
	}
	return format.JSON(w,
		format.Object{"schema", schema, "name", d.Name, "hash", d.Hash, "cells", len(d.Cells), "left_out", t.Left,
			"shared_cells,omitempty", d.Shared(), "unused_settings,omitempty", d.unusedSettings(),
			"seeds", d.Seeds, "baseline", t.baseline, "points", points, "verdicts", verdicts,
			"effects,omitempty", d.jsonEffects(o.Effects), "next,omitempty", o.Next}, " ")
}

// Verdicts compares the policies by a metric, one verdict per combination of settings, in the order of the points. A
// verdict is nil if there is nothing to compare.
func (d *Dir) Verdicts(t *Tables, metric string) (out []*stats.Verdict) {
	for points := range slices.Chunk(t.Points, len(d.Policies)) {
		most, least := points[0].results, math.Inf(1) // of the policy that completed most, and what that left
		for _, p := range points {
			if p.Left < least {
				most, least = p.results, p.Left
			}
		}
		candidates := make([]stats.Candidate, len(points))
		for i, p := range points {
			candidates[i] = stats.Candidate{
				Name:     d.Policies[i],
				Values:   column(p.results, metric),
				Apart:    !result.MetricOf(metric).AllRequests && !samePairs(p.results, most),
				Unsteady: result.MetricOf(metric).Unsteady(p.Stationarity),
			}
		}
		out = append(out, stats.Judge(metric, result.MetricOf(metric).Better, points[0].Sampling, candidates))
	}
	return out
}

// mostOpen is the number of settings up to which each without a verdict gets a line.
const mostOpen = 4

// verdictLines words the verdicts, one line for each combination of settings.
func (d *Dir) verdictLines(t *Tables, metric string, width int) string {
	text, open := "", 0
	verdicts := d.Verdicts(t, metric)
	for i, v := range verdicts {
		if v != nil && v.Best == "" && len(verdicts) > mostOpen {
			open++
		} else if v != nil {
			at := strings.TrimSuffix(d.settingsText(t.Points[i*len(d.Policies)].Values), " ")
			text += format.Paragraph(strings.TrimPrefix(at+": "+v.String(), ": "), width) + "\n"
		}
	}
	if open > 0 {
		text += fmt.Sprintf("no verdict at %d of %d settings, where fewer than two policies are steady\n", open,
			len(verdicts))
	}
	if text == "" {
		return ""
	}
	note := format.Paragraph(stats.VerdictNote, width) + "\n"
	if !slices.ContainsFunc(t.Points, func(p Point) bool { return p.Sampling != stats.OneWorkload }) ||
		len(d.Seeds) < 2 {
		note = ""
	}
	return "\nby " + result.MetricOf(metric).Title + ":\n" + text + note
}

// Intervals explains in words what the confidence intervals of the tables cover.
func (t *Tables) Intervals(seeds int) string {
	var notes []string
	for _, p := range t.Points {
		if n := stats.IntervalNote(p.Sampling, seeds, p.Resample); !slices.Contains(notes, n) {
			notes = append(notes, n)
		}
	}
	return strings.Join(notes, ";\n")
}
