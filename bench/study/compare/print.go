package compare

import (
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"lorasim/bench/result"
	"lorasim/bench/stats"
	"lorasim/bench/steady"
	"lorasim/internal/format"
)

// WriteText writes the runs and the table of their metrics.
func (t *Table) WriteText(w io.Writer) error {
	var b strings.Builder
	if answer := t.answer(); answer != "" {
		b.WriteString(answer + "\n")
	}
	t.writeRuns(&b)
	b.WriteByte('\n')
	if err := t.writeRows(&b); err != nil {
		return err
	}
	t.writeNotes(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

// mostNext is the largest number of runs for which the answer has a command.
const mostNext = 3

// answer is the verdict, and the command that would decide it where a run was too short; "": there is neither.
func (t *Table) answer() string {
	text := ""
	if v := t.Verdict; v != nil {
		text = format.Paragraph(fmt.Sprintf("By %s: %s", result.MetricOf(v.Metric).Title, v), t.width) + "\n"
	}
	if len(t.Runs) > 1 && t.Verdict == nil && t.apart {
		text = "No verdict: the runs had different requests, or were measured differently (" + stats.NotComparable +
			")\n"
	}
	if len(t.Runs) < 2 {
		return text
	}
	needed := int64(0)
	for _, r := range t.Runs {
		needed = max(needed, r.needs())
	}
	for i, r := range t.Runs {
		if line := r.longer(needed); line != "" && i < mostNext {
			text += "Next, for " + r.Name + ": " + line + "\n"
		}
	}
	return text
}

// writeRuns prints a line per run, with what it was at the end.
func (t *Table) writeRuns(b *strings.Builder) {
	var names []string
	widest := [3]int{}
	cells := func(r *Run) [3]string {
		where := filepath.Base(r.File)
		if r.Line > 0 {
			where += fmt.Sprintf(":%d", r.Line)
		}
		return [3]string{r.Name, r.Source, where}
	}
	for _, r := range t.Runs {
		for i, c := range cells(r) {
			widest[i] = max(widest[i], utf8.RuneCountInString(c))
		}
	}
	for _, r := range t.Runs {
		line := ""
		for i, c := range cells(r) {
			if widest[i] > 0 {
				line += fmt.Sprintf("%-*s  ", widest[i], c)
			}
		}
		what := r.What
		if n := len(r.Seeds); n > 1 && r.sampling == stats.Resampled {
			what += fmt.Sprintf(", %d resamples", n)
		} else if n > 1 {
			what += fmt.Sprintf(", %d seeds", n)
		}
		const least = 40 // columns for what it was
		indent := utf8.RuneCountInString(line)
		if t.width > 0 && indent > t.width-least {
			names, indent = append(names, strings.TrimRight(line, " ")), 4
			line = strings.Repeat(" ", indent)
		}
		text := what
		if t.width > 0 {
			text = strings.Join(format.Wrap(what, t.width-indent), "\n"+strings.Repeat(" ", indent))
		}
		names = append(names, strings.TrimRight(line+text, " "))
	}
	b.WriteString(strings.Join(names, "\n") + "\n")
}

// writeRows prints a line per metric, the value of each run with its ratio behind;
// above them stand the states of the runs, where any is known.
func (t *Table) writeRows(b *strings.Builder) error {
	head, states, known := []string{""}, []string{"State"}, false
	for _, r := range t.Runs {
		reached := r.Stationarity()
		head, states, known = append(head, r.Name), append(states, reached.Mark()), known || reached.State != ""
	}
	rows := [][]string{head}
	if known {
		rows = append(rows, states)
	}
	for _, row := range t.Rows {
		line := []string{strings.TrimRight(row.Title+" "+[...]string{"↑", "", "↓"}[row.Better+1], " ")}
		for i, c := range row.Cells {
			text := c.text()
			if ratio := c.ratio(); i != t.Baseline && ratio != "" {
				text += " " + ratio
			}
			line = append(line, text)
		}
		rows = append(rows, line)
	}
	return format.Fit(b, rows, 1, t.width)
}

func (c Cell) text() string {
	if c.N == 0 {
		return "-"
	}
	s := stats.Number(c.Mean)
	if c.Mean != math.Trunc(c.Mean) && math.Abs(c.Mean) >= 1 {
		s = fmt.Sprintf("%.2f", c.Mean) // as in the block
	}
	interval := c.Estimate
	if c.N == 1 && c.Within.High > c.Within.Low {
		interval.Low, interval.High, interval.Of = c.Within.Low, c.Within.High, stats.WithinRuns
	}
	s += interval.Interval(twoDecimals)
	if c.Best {
		s = "*" + s
	}
	if c.Apart {
		s += " " + stats.NotComparable
	}
	return s
}

func (c Cell) ratio() string {
	if math.IsNaN(c.Ratio) {
		return ""
	}
	return fmt.Sprintf("×%.2f", c.Ratio) + c.Relative.Interval(twoDecimals)
}

func twoDecimals(x float64) string { return fmt.Sprintf("%.2f", x) }

func (t *Table) writeNotes(b *strings.Builder) {
	line := func(text string) { b.WriteString(format.Paragraph(text, t.width) + "\n") }
	text := "\n↓ less is better, ↑ more is; * the best" + t.bestOf()
	if len(t.Runs) > 1 {
		text += "; × ratio to " + t.Runs[t.Baseline].Name
	}
	line(text)
	for _, note := range t.intervalNotes() {
		line(note)
	}
	if t.apart {
		line(stats.NotComparable + " not comparable: different requests, or measured differently (see the notes)")
	}
	if slices.ContainsFunc(t.Runs, func(r *Run) bool { return !r.Stationarity().Judge() }) {
		line(steady.StateNote)
	}
	if v := t.Verdict; v != nil && v.Seeds > 1 && v.Of != stats.OneWorkload {
		line(stats.VerdictNote)
	}
	for _, n := range t.Notes {
		line("note: " + n)
	}
}

// schema is the version of the JSON form.
const schema = "lorasim.compare/1"

// WriteJSON writes the comparison as one JSON object.
func (t *Table) WriteJSON(w io.Writer) error { return t.writeJSON(w, nil) }

// WriteJSON writes the comparison of both runs with the gate's answer as one JSON object. next is the command that
// decides it; "": none.
func (g *Gate) WriteJSON(w io.Writer, next string) error { return g.Table.writeJSON(w, g.JSON(next)) }

func (t *Table) writeJSON(w io.Writer, gate any) error {
	var metrics []any
	for _, r := range t.Rows {
		runs := map[string]any{}
		for i, c := range r.Cells {
			runs[t.Runs[i].Name] = format.Object{"n", c.N, "mean", c.Mean, "ci95_low,omitempty", c.Low,
				"ci95_high,omitempty", c.High, "ratio,omitempty", c.Ratio,
				"within_low,omitempty", c.Within.Low, "within_high,omitempty", c.Within.High,
				"diff_mean,omitempty", c.Diff.Mean, "diff_ci95_low,omitempty", c.Diff.Low,
				"diff_ci95_high,omitempty", c.Diff.High,
				"best,omitempty", c.Best, "best_by_intervals,omitempty", c.Clear, "not_comparable,omitempty", c.Apart}
		}
		better := [...]string{"more", "", "less"}[r.Better+1]
		metrics = append(metrics, format.Object{
			"metric", r.Metric, "title", r.Title, "better,omitempty", better, "runs", runs,
		})
	}
	var verdict any
	if t.Verdict != nil {
		verdict = t.Verdict.JSON()
	}
	return format.JSON(w,
		format.Object{"schema", schema, "baseline", t.Runs[t.Baseline].Name, "runs", t.Runs, "metrics", metrics,
			"verdict,omitempty", verdict, "gate,omitempty", gate, "notes", append([]string{}, t.Notes...)}, " ")
}
