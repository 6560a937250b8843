// Package compare puts runs side by side, simulated, live, or read from logs:
// one table, metric by metric, with ratios and, where there are several seeds,
// 95 % confidence intervals.
//
//	runs, warnings, err := compare.Load([]string{"bench.log", "sim.json"})
//	t, err := compare.New(runs, compare.Options{Baseline: "A"})
//	err = t.WriteText(os.Stdout)
package compare

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"lorasim/bench/sweep"
	"lorasim/internal/suggest"
)

// Options says what to compare.
type Options struct {
	Baseline string   // name of the run that ratios refer to; "": the first
	Metrics  []string // rows; none: DefaultMetrics, as far as a run has them
	All      bool     // every metric that a run has
}

// DefaultMetrics are the rows of a table that does not say otherwise.
var DefaultMetrics = []string{
	"completed", "failed", "rejected", "duration",
	"request_throughput", "output_throughput", "total_throughput", "concurrency",
	"mean_e2e_latency_ms", "median_e2e_latency_ms", "p99_e2e_latency_ms",
	"mean_ttft_ms", "median_ttft_ms", "p99_ttft_ms",
	"mean_tpot_ms", "median_tpot_ms", "p99_tpot_ms",
	"mean_itl_ms", "p99_itl_ms",
	"goodput.share", "load_balance.cv", "fairness.normalized_latency",
	"cold_loads", "evictions", "migrated_requests",
}

// Table is a comparison.
type Table struct {
	Runs     []*Run
	Baseline int // index
	Rows     []Row
	Notes    []string // about single runs and about the comparison
}

// Row is one metric of all runs.
type Row struct {
	Metric string
	Title  string
	Better int // +1: less is better, -1: more is, 0: neither
	Cells  []Cell
}

// Cell is one metric of one run; an Estimate with N = 0 is absent.
type Cell struct {
	sweep.Estimate
	Ratio float64 // to the baseline; NaN: none
	// Diff is the difference to the baseline, paired by seed where both have
	// the same seeds; N = 0: none.
	Diff sweep.Estimate
	Best bool // no other run is better
}

// New compares runs.
func New(runs []*Run, o Options) (*Table, error) {
	t := &Table{Runs: runs}
	if len(runs) == 0 {
		return nil, fmt.Errorf("nothing to compare")
	}
	var names []string
	for i, r := range runs {
		names = append(names, r.Name)
		if strings.EqualFold(r.Name, o.Baseline) {
			t.Baseline = i
		}
	}
	if o.Baseline != "" && !strings.EqualFold(names[t.Baseline], o.Baseline) {
		return nil, suggest.Unknown("run", o.Baseline, names)
	}
	metrics, err := choose(runs, o)
	if err != nil {
		return nil, err
	}
	for _, m := range metrics {
		row := Row{Metric: m, Title: sweep.Title(m), Better: sweep.LowerIsBetter(m)}
		for _, r := range runs {
			row.Cells = append(row.Cells, t.cell(r, m))
		}
		if !t.blurred(m) {
			row.markBest()
		}
		t.Rows = append(t.Rows, row)
	}
	t.note()
	return t, nil
}

// choose lists the metrics to show.
func choose(runs []*Run, o Options) ([]string, error) {
	var all []string
	for _, r := range runs {
		for _, n := range r.order {
			if !slices.Contains(all, n) {
				all = append(all, n)
			}
		}
	}
	if o.All {
		return all, nil
	}
	if len(o.Metrics) > 0 {
		for _, m := range o.Metrics {
			if !slices.Contains(all, m) {
				return nil, suggest.Unknown("metric", m, all)
			}
		}
		return o.Metrics, nil
	}
	var out []string
	for _, m := range DefaultMetrics {
		for _, r := range runs {
			// zero failures and the like are worth no row
			if vs := r.values[m]; len(vs) > 0 && (m == "completed" || sweep.Mean(vs).Mean != 0) {
				out = append(out, m)
				break
			}
		}
	}
	return out, nil
}

func (t *Table) cell(r *Run, metric string) Cell {
	base := t.Runs[t.Baseline]
	c := Cell{Estimate: r.Value(metric), Ratio: math.NaN(), Diff: sweep.Mean(nil)}
	b := base.Value(metric)
	if r == base || c.N == 0 || b.N == 0 {
		return c
	}
	if b.Mean != 0 {
		c.Ratio = c.Mean / b.Mean
	}
	if slices.Equal(r.Seeds, base.Seeds) && len(r.values[metric]) == len(r.Seeds) && len(base.values[metric]) == len(r.Seeds) && len(r.Seeds) > 1 {
		c.Diff = sweep.Paired(r.values[metric], base.values[metric])
	}
	return c
}

// blurred says that a metric is not comparable: token times, because a client did
// not stream, or token throughputs, because one counts tokens that never came.
func (t *Table) blurred(metric string) bool {
	if metric == "output_throughput" || metric == "total_throughput" {
		return slices.ContainsFunc(t.Runs, func(r *Run) bool { return r.Asked })
	}
	for _, family := range []string{"ttft", "tpot", "itl"} {
		if strings.Contains(metric, family) {
			return slices.ContainsFunc(t.Runs, func(r *Run) bool { return r.Whole })
		}
	}
	return false
}

// markBest marks the best of a row, if one metric can be better than another
// and not all are the same.
func (row *Row) markBest() {
	if row.Better == 0 {
		return
	}
	best, worst, n := math.Inf(1), math.Inf(-1), 0
	for _, c := range row.Cells {
		if c.N > 0 {
			v := c.Mean * float64(row.Better)
			best, worst = min(best, v), max(worst, v)
			n++
		}
	}
	if n < 2 || best == worst {
		return
	}
	for i := range row.Cells {
		c := &row.Cells[i]
		c.Best = c.N > 0 && c.Mean*float64(row.Better) == best
	}
}

// note gathers the notes of the runs, each once, and those on the comparison.
func (t *Table) note() {
	var order []string
	names := map[string][]string{}
	for _, r := range t.Runs {
		for _, n := range r.Notes {
			if names[n] == nil {
				order = append(order, n)
			}
			names[n] = append(names[n], r.Name)
		}
	}
	for _, n := range order {
		t.Notes = append(t.Notes, strings.Join(names[n], ", ")+": "+n)
	}
	if a, b, ok := t.spread("total_input_tokens"); ok && b > 1.02*a {
		t.Notes = append(t.Notes, fmt.Sprintf("the runs had between %.0f and %.0f input tokens: their workloads are not the same", a, b))
	}
}

// spread is the least and the largest mean of a metric.
func (t *Table) spread(metric string) (least, most float64, ok bool) {
	least, most = math.Inf(1), math.Inf(-1)
	for _, r := range t.Runs {
		if e := r.Value(metric); e.N > 0 {
			least, most, ok = min(least, e.Mean), max(most, e.Mean), true
		}
	}
	return least, most, ok
}
