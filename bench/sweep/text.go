package sweep

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"lorasim/internal/format"
	"lorasim/internal/suggest"
)

// DefaultMetrics are those of the table that people read.
var DefaultMetrics = []string{"mean_e2e_latency_ms", "p99_e2e_latency_ms", "mean_ttft_ms", "p99_ttft_ms", "output_throughput"}

// NotComparable marks numbers of runs that did not complete the same requests.
const NotComparable = "≠"

// CheckMetrics makes sure that a merged sweep has the given metrics.
func (t *Tables) CheckMetrics(names []string) (err error) {
	for _, n := range names {
		err = cmp.Or(err, suggest.Among("metric", n, t.Metrics))
	}
	return err
}

// WriteText prints one line per combination of settings and policy, with means
// and 95 % confidence intervals, and the difference to the baseline in the first
// of the metrics, for which verdicts stand below the table.
func (d *Dir) WriteText(w io.Writer, t *Tables, metrics []string) error {
	var head []string
	for _, a := range d.Axes {
		head = append(head, a.Leaf())
	}
	head = append(head, "policy", "not completed")
	for _, n := range metrics {
		head = append(head, Title(n))
	}
	compared := len(d.Policies) > 1 && len(metrics) > 0
	if compared {
		head = append(head, "vs "+t.baseline)
	}
	rows, apart := [][]string{head}, false
	for _, p := range t.Points {
		line := append(slices.Clone(p.Values), p.Policy, percentLeft(p.Left))
		for _, n := range metrics {
			m, _ := p.Metric(n)
			text := m.Estimate.String()
			if m.N > 0 && p.Apart && !CountsAll(n) {
				text += " " + NotComparable
				apart = true
			}
			line = append(line, text)
		}
		if compared {
			m, _ := p.Metric(metrics[0])
			line = append(line, m.versus())
			apart = apart || m.Apart
		}
		rows = append(rows, line)
	}
	if err := format.Table(w, rows); err != nil {
		return err
	}
	legend := fmt.Sprintf("\nmeans over %d seeds", len(d.Seeds))
	if len(d.Seeds) > 1 {
		legend += ", ± half of the 95 % confidence interval"
	}
	if compared {
		legend += fmt.Sprintf(";\nvs %s: difference in %s, paired by seed; * where its interval excludes 0", t.baseline, Title(metrics[0]))
	}
	if apart {
		legend += ";\n" + NotComparable + " not comparable: latencies and throughputs are of the requests that completed, here not the same ones"
	}
	if legend += "\n"; compared {
		legend += d.verdictLines(t, metrics[0])
	}
	_, err := io.WriteString(w, legend)
	return err
}

// percentLeft words a share of requests that did not complete; one that is not 0
// never looks like it.
func percentLeft(share float64) string {
	if share > 0 && share < 0.001 {
		return "<0.1 %"
	}
	return format.Percent(share, 1)
}

// String prints mean and half interval.
func (e Estimate) String() string {
	switch e.N {
	case 0:
		return "-"
	case 1:
		return Number(e.Mean)
	}
	return Number(e.Mean) + " ±" + numberLike(e.Half(), e.Mean)
}

// versus prints the difference to the baseline in percent of it.
func (m Metric) versus() string {
	if m.Diff.N == 0 || m.Base == 0 {
		return "-"
	}
	text := m.Diff.Versus(m.Base)
	switch {
	case m.Apart:
		text += " " + NotComparable
	case m.Diff.N > 1 && (m.Diff.Low > 0 || m.Diff.High < 0):
		text += " *"
	}
	return text
}

// Number prints a number with as many digits as a reader wants.
func Number(x float64) string { return numberLike(x, x) }

// numberLike prints x with the decimals that a number of the size of y has.
func numberLike(x, y float64) string {
	a := math.Abs(y)
	decimals := 0
	switch {
	case math.IsNaN(x):
		return "-"
	case a == math.Trunc(a) && x == math.Trunc(x):
	case a < 1:
		decimals = 4
	case a < 100:
		decimals = 2
	case a < 10_000:
		decimals = 1
	}
	return strconv.FormatFloat(x, 'f', decimals, 64)
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
				e = append(e, "diff", format.Object{"n", d.N, "mean", d.Mean, "ci95_low", d.Low, "ci95_high", d.High, "comparable", !m.Apart})
			}
			numbers[m.Name] = e
		}
		sets = append(sets, set)
		points = append(points, format.Object{"set", set, "policy", p.Policy, "not_completed_share", p.Left, "metrics", numbers})
	}
	for _, n := range metrics {
		for i, v := range d.Verdicts(t, n) {
			if v != nil {
				verdicts = append(verdicts, format.Object{"set", sets[i*len(d.Policies)], "verdict", v.JSON()})
			}
		}
	}
	return format.JSON(w, format.Object{"schema", schema, "name", d.Name, "hash", d.Hash, "cells", len(d.Cells), "left_out", t.Left,
		"seeds", d.Seeds, "baseline", t.baseline, "points", points, "verdicts", verdicts}, " ")
}
