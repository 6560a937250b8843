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
	"lorasim/internal/record"
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
	"completed", "failed", "rejected", "aborted", "unfinished", "unsent", "duration",
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

	apart bool // some cell is
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
	// Best: no other comparable run is better; with several seeds, by the
	// intervals of the differences.
	Best bool
	// Clear: Best, and the interval of the difference to every other comparable
	// run excludes 0.
	Clear bool
	// Apart: not comparable with the other runs; see comparable.
	Apart bool
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
		for i := range runs {
			row.Cells = append(row.Cells, t.cell(i, m))
		}
		for i, ok := range t.comparable(m) {
			row.Cells[i].Apart = !ok && row.Cells[i].N > 0
			t.apart = t.apart || row.Cells[i].Apart
		}
		t.markBest(&row)
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

func (t *Table) cell(i int, metric string) Cell {
	r, base := t.Runs[i], t.Runs[t.Baseline]
	c := Cell{Estimate: r.Value(metric), Ratio: math.NaN(), Diff: sweep.Mean(nil)}
	b := base.Value(metric)
	if r == base || c.N == 0 || b.N == 0 {
		return c
	}
	if b.Mean != 0 {
		c.Ratio = c.Mean / b.Mean
	}
	if d := t.difference(metric, i, t.Baseline); d.N > 1 {
		c.Diff = d
	}
	return c
}

// comparable says which runs a metric can be compared among: those that
// completed the same requests, as far as it depends on that; whose clients
// streamed, for token times; and that count tokens that came, for token
// throughputs.
func (t *Table) comparable(metric string) []bool {
	ok := make([]bool, len(t.Runs))
	ref := t.reference()
	tokens := metric == "output_throughput" || metric == "total_throughput"
	times := slices.ContainsFunc([]string{"ttft", "tpot", "itl"}, func(f string) bool { return strings.Contains(metric, f) })
	counted := slices.ContainsFunc(t.Runs, func(r *Run) bool { return !r.Asked })
	streamed := slices.ContainsFunc(t.Runs, func(r *Run) bool { return r.Streamed == record.Streamed })
	for i, r := range t.Runs {
		ok[i] = (sweep.CountsAll(metric) || r.sameRequests(ref)) &&
			!(tokens && r.Asked && counted) && !(times && r.Streamed == record.NotStreamed && streamed)
	}
	return ok
}

// reference is the run whose completed requests the others are held against: the
// first that completed all of its own, else the one that completed most.
func (t *Table) reference() *Run {
	var best *Run
	least := math.Inf(1)
	for _, r := range t.Runs {
		if r.whole() {
			return r
		}
		if left := r.left(); best == nil || left < least {
			best, least = r, left
		}
	}
	return best
}

func (r *Run) whole() bool {
	return !slices.ContainsFunc(r.completed, func(c sweep.Completion) bool { return !c.Whole() })
}

// left is the mean share of requests that did not complete; infinite where it is
// not known.
func (r *Run) left() float64 {
	sum := 0.0
	for _, c := range r.completed {
		sum += c.Left()
	}
	if math.IsNaN(sum) || len(r.completed) == 0 {
		return math.Inf(1)
	}
	return sum / float64(len(r.completed))
}

// sameRequests says whether both runs completed the same requests, seed by seed.
func (r *Run) sameRequests(o *Run) bool {
	if r == o || r.whole() && o.whole() {
		return true
	}
	if !slices.Equal(r.Seeds, o.Seeds) && len(r.Seeds) > 1 || len(r.completed) != len(o.completed) {
		return false
	}
	for i := range r.completed {
		if !r.completed[i].Same(o.completed[i]) {
			return false
		}
	}
	return true
}

// markBest marks the best of a row's comparable runs, if one can be better than
// another and not all are the same. With several seeds the interval of its
// difference to each other run must exclude 0.
func (t *Table) markBest(row *Row) {
	best, n, same := -1, 0, true
	for i, c := range row.Cells {
		if row.Better == 0 || c.N == 0 || c.Apart {
			continue
		}
		n++
		v := c.Mean * float64(row.Better)
		if best >= 0 {
			same = same && c.Mean == row.Cells[best].Mean
		}
		if best < 0 || v < row.Cells[best].Mean*float64(row.Better) {
			best = i
		}
	}
	if n < 2 || same {
		return
	}
	clear, seeds := true, false
	for i, c := range row.Cells {
		if i == best || c.N == 0 || c.Apart {
			continue
		}
		d := t.difference(row.Metric, i, best)
		clear = clear && d.N > 1 && (d.Low > 0 || d.High < 0)
		seeds = seeds || c.N > 1 && row.Cells[best].N > 1
	}
	row.Cells[best].Clear = clear
	for i := range row.Cells {
		c := &row.Cells[i]
		c.Best = !c.Apart && c.N > 0 && c.Mean == row.Cells[best].Mean && (clear || !seeds)
	}
}

// difference is that of a metric between two runs, paired by seed; N = 0 where
// their seeds are not the same.
func (t *Table) difference(metric string, i, j int) sweep.Estimate {
	a, b := t.Runs[i], t.Runs[j]
	xs, ys := a.values[metric], b.values[metric]
	if !slices.Equal(a.Seeds, b.Seeds) || len(xs) != len(a.Seeds) || len(ys) != len(b.Seeds) {
		return sweep.Mean(nil)
	}
	return sweep.Paired(xs, ys)
}

// note gathers the notes of the runs, each once, and those on the comparison.
func (t *Table) note() {
	var order []string
	names := map[string][]string{}
	for _, r := range t.Runs {
		notes := r.Notes
		if left := r.left(); len(r.Results) != 1 && left > 0 && !math.IsInf(left, 0) {
			notes = append(slices.Clone(notes), fmt.Sprintf("%.3g %% of its requests did not complete", 100*left))
		}
		for _, n := range notes {
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
