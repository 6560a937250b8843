package sweep

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"lorasim/bench/scenario"
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
	legend := "\n" + t.Intervals(len(d.Seeds))
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
	switch {
	case e.N == 0:
		return "-"
	case !e.HasInterval():
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
	case m.Diff.HasInterval() && (m.Diff.Low > 0 || m.Diff.High < 0):
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
		points = append(points, format.Object{"set", set, "policy", p.Policy, "not_completed_share", p.Left, "sampling,omitempty", string(p.Sampling), "metrics", numbers})
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

// Level is the chance that a verdict calls any two apart that are alike.
const Level = 0.05

// Verdict says which of several things that saw the same seeds is the best by a
// metric, and what can be told of the others. As the best is picked by the same
// numbers, all pairs are tested, by paired t-tests with Holm's correction: the
// chance of any wrong "worse" is then at most Level.
type Verdict struct {
	Metric string
	Best   string  // that with the best mean
	Mean   float64 // its mean
	Seeds  int     // that all of them have
	Of     scenario.Sampling
	Others []Versus // the nearest first
	Apart  []string // cannot be compared with the others
}

// Versus is one of the others against the best.
type Versus struct {
	Name  string
	Diff  Estimate // minus the best, paired by seed
	P     float64  // of the paired t-test, corrected; NaN: no interval
	Worse bool     // P is below Level
}

// Judge compares values by seed, one list for each name, as far as it has any. It
// is nil where the metric has no better end, or fewer than two can be compared.
func Judge(metric string, names []string, values [][]float64, apart []bool) *Verdict {
	return JudgeOf(scenario.Fresh, metric, names, values, apart)
}

// JudgeOf is Judge for seeds that draw what of says.
func JudgeOf(of scenario.Sampling, metric string, names []string, values [][]float64, apart []bool) *Verdict {
	v := JudgeBy(metric, names, apart, func(i int) Estimate { return MeanOf(of, values[i]) },
		func(i, j int) Estimate { return PairedOf(of, values[i], values[j]) })
	if v != nil {
		v.Of = of
	}
	return v
}

// JudgeBy is Judge by means, N = 0 where there is none, and differences of two.
func JudgeBy(metric string, names []string, apart []bool, mean func(i int) Estimate, diff func(i, j int) Estimate) *Verdict {
	v := &Verdict{Metric: metric}
	var among []int
	for i := range names {
		switch {
		case mean(i).N == 0:
		case apart[i]:
			v.Apart = append(v.Apart, names[i])
		default:
			among = append(among, i)
		}
	}
	better := float64(LowerIsBetter(metric))
	if better == 0 || len(among) < 2 {
		return nil
	}
	slices.SortStableFunc(among, func(a, b int) int { return cmp.Compare(better*mean(a).Mean, better*mean(b).Mean) })
	var ps []float64 // of all pairs, those with the best first
	for k, a := range among {
		for _, b := range among[k+1:] {
			ps = append(ps, diff(a, b).P())
		}
	}
	ps = Holm(ps)
	best := among[0]
	v.Best, v.Mean, v.Seeds = names[best], mean(best).Mean, math.MaxInt
	for k, i := range among[1:] {
		d := diff(i, best)
		v.Seeds, v.Of = min(v.Seeds, d.N), d.Of
		v.Others = append(v.Others, Versus{names[i], d, ps[k], ps[k] < Level})
	}
	return v
}

// Holm corrects p-values for their number: where those below a level are called
// significant, the chance of any wrong call is at most that level (S. Holm, A
// simple sequentially rejective multiple test procedure, 1979). NaN stays, and
// counts as a test.
func Holm(ps []float64) []float64 {
	order := make([]int, len(ps))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(-ps[b], -ps[a]) }) // NaN last
	out, least := slices.Clone(ps), 0.0
	for k, i := range order {
		if !math.IsNaN(ps[i]) {
			least = max(least, min(1, ps[i]*float64(len(ps)-k)))
			out[i] = least
		}
	}
	return out
}

// String is the verdict in one line.
func (v *Verdict) String() string {
	end := "lowest"
	if LowerIsBetter(v.Metric) < 0 {
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
	case v.Seeds < 2 && v.Of != WithinRuns:
		text = fmt.Sprintf("%s has the %s value, but with one run each there is no statement about chance: %s", v.Best, end, strings.Join(alike, ", "))
	case v.Of == scenario.OneWorkload:
		text = fmt.Sprintf("%s has the %s mean with this one workload, which says nothing about others (see --resample): %s", v.Best, end, strings.Join(alike, ", "))
	case len(alike) > 0:
		text = fmt.Sprintf("%s has the %s mean; not distinguishable from it: %s", v.Best, end, strings.Join(alike, ", "))
	}
	if len(worse) > 0 {
		text += "; worse: " + strings.Join(worse, ", ")
	}
	if v.Of == WithinRuns {
		text += " (one run each, by batch means)"
	}
	if len(v.Apart) > 0 {
		text += "; not comparable: " + strings.Join(v.Apart, ", ")
	}
	return text
}

// VerdictNote says how verdicts are reached.
const VerdictNote = "worse: by t-tests paired by seed of all pairs, with Holm's correction, at 5 %; ± half of the 95 % interval"

// JSON is the verdict as it stands in JSON.
func (v *Verdict) JSON() any {
	others := []any{}
	for _, o := range v.Others {
		others = append(others, format.Object{"name", o.Name, "diff_mean", o.Diff.Mean, "diff_ci95_low", o.Diff.Low, "diff_ci95_high", o.Diff.High,
			"p_holm", o.P, "worse", o.Worse})
	}
	return format.Object{"metric", v.Metric, "best", v.Best, "mean", v.Mean, "seeds", v.Seeds, "others", others,
		"sampling,omitempty", string(v.Of), "not_comparable,omitempty", v.Apart, "text", v.String()}
}

// Versus prints a difference in percent of a base, with half its interval.
func (e Estimate) Versus(base float64) string {
	if e.N == 0 || base == 0 {
		return "-"
	}
	text := fmt.Sprintf("%+.1f %%", 100*e.Mean/base)
	if e.HasInterval() {
		text += fmt.Sprintf(" ±%.1f", math.Abs(100*e.Half()/base))
	}
	return text
}

// Verdicts judges the policies at each combination of settings, in the order of
// the points; nil where there is nothing to judge.
func (d *Dir) Verdicts(t *Tables, metric string) (out []*Verdict) {
	for points := range slices.Chunk(t.Points, len(d.Policies)) {
		values, apart := make([][]float64, len(points)), make([]bool, len(points))
		most, least := points[0].results, math.Inf(1) // of the policy that completed most, and what that left
		for i, p := range points {
			values[i] = column(p.results, metric)
			if p.Left < least {
				most, least = p.results, p.Left
			}
		}
		for i, p := range points {
			apart[i] = !CountsAll(metric) && !samePairs(p.results, most)
		}
		out = append(out, JudgeOf(points[0].Sampling, metric, d.Policies, values, apart))
	}
	return out
}

// verdictLines words the verdicts, one line for each combination of settings.
func (d *Dir) verdictLines(t *Tables, metric string) string {
	text := ""
	for i, v := range d.Verdicts(t, metric) {
		if v != nil {
			at := strings.TrimSuffix(d.settingsText(t.Points[i*len(d.Policies)].Values), " ")
			text += strings.TrimPrefix(at+": "+v.String()+"\n", ": ")
		}
	}
	if text == "" {
		return ""
	}
	note := " (" + VerdictNote + ")"
	if !slices.ContainsFunc(t.Points, func(p Point) bool { return p.Sampling != scenario.OneWorkload }) || len(d.Seeds) < 2 {
		note = ""
	}
	return "\nby " + Title(metric) + note + ":\n" + text
}
