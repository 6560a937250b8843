package compare

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"lorasim/bench/sweep"
)

// WriteText prints the runs and the table of their metrics.
func (t *Table) WriteText(w io.Writer) error {
	var b strings.Builder
	t.writeRuns(&b)
	b.WriteByte('\n')
	t.writeRows(&b)
	t.writeNotes(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

func (t *Table) writeRuns(b *strings.Builder) {
	rows := [][]string{}
	for _, r := range t.Runs {
		where := filepath.Base(r.File)
		if r.Line > 0 {
			where += fmt.Sprintf(":%d", r.Line)
		}
		what := r.What
		if len(r.Seeds) > 1 {
			what += fmt.Sprintf(", %d seeds", len(r.Seeds))
		}
		rows = append(rows, []string{r.Name, r.Source, where, what})
	}
	writeAligned(b, rows, nil)
}

// writeRows prints a line per metric; values are aligned at their right end, as
// the decimals of a metric are the same in all runs.
func (t *Table) writeRows(b *strings.Builder) {
	head := []string{"", ""}
	for i, r := range t.Runs {
		head = append(head, r.Name)
		if i != t.Baseline {
			head = append(head, "")
		}
	}
	rows := [][]string{head}
	for _, row := range t.Rows {
		line := []string{row.Title, [...]string{"↑", "", "↓"}[row.Better+1]}
		for i, c := range row.Cells {
			line = append(line, c.text())
			if i != t.Baseline {
				line = append(line, c.ratio())
			}
		}
		rows = append(rows, line)
	}
	left := map[int]bool{0: true, 1: true}
	k := 2
	for i := range t.Runs {
		if k++; i != t.Baseline {
			left[k] = true
			k++
		}
	}
	writeAligned(b, rows, func(column int) bool { return !left[column] })
}

func (c Cell) text() string {
	if c.N == 0 {
		return "-"
	}
	s := sweep.Number(c.Mean)
	if c.Mean != math.Trunc(c.Mean) && math.Abs(c.Mean) >= 1 {
		s = fmt.Sprintf("%.2f", c.Mean) // as in the block
	}
	if c.N > 1 {
		s += fmt.Sprintf(" ±%.2f", c.Half())
	}
	if c.Best {
		s = "*" + s
	}
	if c.Apart {
		s += " " + sweep.NotComparable
	}
	return s
}

func (c Cell) ratio() string {
	if math.IsNaN(c.Ratio) {
		return ""
	}
	s := fmt.Sprintf("×%.2f", c.Ratio)
	if base := c.Mean / c.Ratio; c.Diff.N > 1 && base != 0 {
		s += fmt.Sprintf(" ±%.2f", math.Abs(c.Diff.Half()/base))
	}
	return s
}

func (t *Table) writeNotes(b *strings.Builder) {
	several := false
	for _, r := range t.Runs {
		several = several || len(r.Seeds) > 1
	}
	b.WriteString("\n↓ less is better, ↑ more is; * the best")
	if len(t.Runs) > 1 {
		fmt.Fprintf(b, "; × ratio to %s", t.Runs[t.Baseline].Name)
	}
	if several {
		b.WriteString("; ± half of the 95 % confidence interval over seeds,\nof a ratio from differences paired by seed")
	}
	if t.apart {
		b.WriteString(";\n" + sweep.NotComparable + " not comparable: of other requests than those of the other runs, or measured in another way (see the notes)")
	}
	b.WriteByte('\n')
	for _, n := range t.Notes {
		b.WriteString("note: " + n + "\n")
	}
}

// writeAligned prints rows in columns two spaces apart; right says which ones
// are aligned to the right.
func writeAligned(b *strings.Builder, rows [][]string, right func(column int) bool) {
	var widths []int
	for _, row := range rows {
		for i, s := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(s))
		}
	}
	for _, row := range rows {
		var line strings.Builder
		for i, s := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(s))
			switch {
			case widths[i] == 0:
				continue
			case right != nil && right(i):
				line.WriteString(pad + s)
			default:
				line.WriteString(s + pad)
			}
			if i+1 < len(row) && (right == nil || right(i+1) || i == 0 || !right(i)) {
				line.WriteString("  ")
			} else {
				line.WriteString(" ")
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}

// Schema names the version of the JSON form.
const Schema = "lorasim.compare/1"

// WriteJSON prints the comparison as one JSON object; a number that is not
// there is null.
func (t *Table) WriteJSON(w io.Writer) error {
	type run struct {
		Name   string   `json:"name"`
		Source string   `json:"source"`
		File   string   `json:"file"`
		Line   int      `json:"line,omitempty"`
		What   string   `json:"what"`
		Seeds  []string `json:"seeds"`
		Notes  []string `json:"notes,omitempty"`
	}
	type cell struct {
		N        int      `json:"n"`
		Mean     *float64 `json:"mean"`
		Low      *float64 `json:"ci95_low,omitempty"`
		High     *float64 `json:"ci95_high,omitempty"`
		Ratio    *float64 `json:"ratio,omitempty"`
		DiffMean *float64 `json:"diff_mean,omitempty"`
		DiffLow  *float64 `json:"diff_ci95_low,omitempty"`
		DiffHigh *float64 `json:"diff_ci95_high,omitempty"`
		Best     bool     `json:"best,omitempty"`
		Clear    bool     `json:"best_by_intervals,omitempty"`
		Apart    bool     `json:"not_comparable,omitempty"`
	}
	type row struct {
		Metric string          `json:"metric"`
		Title  string          `json:"title"`
		Better string          `json:"better,omitempty"`
		Runs   map[string]cell `json:"runs"`
	}
	out := struct {
		Schema   string   `json:"schema"`
		Baseline string   `json:"baseline"`
		Runs     []run    `json:"runs"`
		Metrics  []row    `json:"metrics"`
		Notes    []string `json:"notes"`
	}{Schema: Schema, Baseline: t.Runs[t.Baseline].Name, Notes: append([]string{}, t.Notes...)}
	for _, r := range t.Runs {
		out.Runs = append(out.Runs, run{r.Name, r.Source, r.File, r.Line, r.What, r.Seeds, r.Notes})
	}
	for _, r := range t.Rows {
		jr := row{Metric: r.Metric, Title: r.Title, Better: [...]string{"more", "", "less"}[r.Better+1], Runs: map[string]cell{}}
		for i, c := range r.Cells {
			jr.Runs[t.Runs[i].Name] = cell{
				c.N, finite(c.Mean), finite(c.Low), finite(c.High), finite(c.Ratio),
				finite(c.Diff.Mean), finite(c.Diff.Low), finite(c.Diff.High), c.Best, c.Clear, c.Apart,
			}
		}
		out.Metrics = append(out.Metrics, jr)
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", " ")
	return enc.Encode(out)
}

// finite is nil where JSON has no number.
func finite(x float64) *float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return &x
}
