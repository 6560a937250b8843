// Package compare compares runs: simulated, live, or read from logs. The result is one [Table] with a row per metric.
// It has ratios and, for several seeds, 95 % confidence intervals.
//
//	runs, warnings, err := compare.Load(ctx, columnar.Files(), []string{"bench.log", "sim.json"}, result.SLO{})
//	t, err := compare.New(runs, compare.Options{Baseline: "A"})
//	err = t.WriteText(os.Stdout)
package compare

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"lorasim/bench/result"
	"lorasim/bench/stats"
	"lorasim/bench/steady"
	"lorasim/internal/format"
	"lorasim/internal/suggest"
)

// Options are the options of a comparison.
type Options struct {
	Baseline string   // name of the run that ratios refer to; "": the first run
	Metrics  []string // rows; none: the default metrics that a run has
	All      bool     // include every metric that a run has
	Wide     bool     // show all runs side by side in the text, whatever the width
}

// A Table is a comparison of runs.
type Table struct {
	Runs     []*Run
	Baseline int // index of the baseline in Runs
	Rows     []Row
	Notes    []string // about single runs and about the comparison
	// Verdict is by the first requested metric, else by the mean latency; nil: no verdict is possible.
	Verdict *stats.Verdict

	apart   bool     // some cell is
	same    *Run     // that most runs had the same requests as
	differs []string // by run: how its requests differ from those of same; "": they do not
	width   int      // of the text, columns; 0: no limit
}

// A Row is one metric of all runs.
type Row struct {
	Metric string
	Title  string
	Better stats.Direction
	Cells  []Cell
}

// A Cell is one metric of one run. An Estimate with N = 0 is absent.
type Cell struct {
	stats.Estimate
	Ratio float64 // ratio to the baseline; NaN: none
	// Diff is the difference to the baseline, paired by seed if both have the same seeds; N = 0: none.
	Diff stats.Estimate
	// Relative is the ratio with its interval; N = 0: none.
	Relative stats.Estimate
	// Best: no other comparable run is better. With several seeds, the intervals of the differences decide.
	Best bool
	// Clear: the run is Best, and the interval of the difference to every other comparable run excludes 0.
	Clear bool
	// Apart: the metric is not comparable with the other runs; see apartIn.
	Apart bool
	// Within is the 95 % confidence interval of the mean from a single run; High < Low: none.
	Within steady.Interval
}

// New compares runs.
func New(runs []*Run, o Options) (*Table, error) {
	if len(runs) == 0 {
		return nil, fmt.Errorf("nothing to compare")
	}
	t := &Table{Runs: runs, width: format.Width}
	if o.Wide {
		t.width = 0
	}
	if o.Baseline != "" {
		var names []string
		for _, r := range runs {
			names = append(names, r.Name)
		}
		t.Baseline = slices.IndexFunc(names, func(n string) bool { return strings.EqualFold(n, o.Baseline) })
		if t.Baseline < 0 {
			return nil, suggest.Unknown("run", o.Baseline, names)
		}
	}
	metrics, err := choose(runs, o)
	if err != nil {
		return nil, err
	}
	t.findDifferences()
	for _, m := range metrics {
		of := result.MetricOf(m)
		row := Row{Metric: m, Title: of.Title, Better: of.Better}
		for i, apart := range t.apartIn(m) {
			c := t.cell(i, m)
			c.Apart = apart && c.N > 0
			t.apart = t.apart || c.Apart
			row.Cells = append(row.Cells, c)
		}
		t.markBest(&row)
		t.Rows = append(t.Rows, row)
	}
	t.note()
	t.judge(append(slices.Clone(o.Metrics), "mean_e2e_latency_ms")[0])
	return t, nil
}

// choose lists the metrics to show.
func choose(runs []*Run, o Options) (list []string, err error) {
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
	for _, m := range o.Metrics {
		err = cmp.Or(err, suggest.Among("metric", m, all))
	}
	if err != nil || len(o.Metrics) > 0 {
		return o.Metrics, err
	}
	shown := result.Names(func(m *result.Metric) bool { return m.Compare })
	for _, m := range shown { // zero failures and the like are worth no row
		if slices.ContainsFunc(runs, func(r *Run) bool {
			return len(r.values[m]) > 0 && (m == "completed" || r.value(m).Mean != 0)
		}) {
			list = append(list, m)
		}
	}
	return list, nil
}

// value estimates a metric over the seeds of the run.
func (r *Run) value(name string) stats.Estimate { return stats.MeanOf(r.sampling, r.values[name]) }

func (t *Table) cell(i int, metric string) Cell {
	r, base := t.Runs[i], t.Runs[t.Baseline]
	c := Cell{Estimate: r.value(metric), Ratio: math.NaN(), Diff: stats.Mean(nil), Within: r.within(metric)}
	b := base.value(metric)
	if r == base {
		return c
	}
	if b.Mean != 0 {
		c.Ratio = c.Mean / b.Mean
	}
	if d := t.difference(metric, i, t.Baseline); d.HasInterval() {
		c.Diff = d
	}
	switch {
	case b.Mean == 0 || !c.Diff.HasInterval():
	case c.Diff.Of == stats.WithinRuns:
		c.Relative = ratioWithin(r, base, metric)
	default:
		c.Relative = ratioBy(c.Diff, b.Mean)
	}
	return c
}

// note gathers the notes of the runs, each once, and those on the comparison.
func (t *Table) note() {
	var all grouped
	for _, r := range t.Runs {
		notes := r.Notes
		if left := r.left(); len(r.Results) != 1 && left > 0 && !math.IsInf(left, 0) {
			notes = append(slices.Clone(notes), fmt.Sprintf("%.3g %% of its requests did not complete", 100*left))
		}
		for _, n := range notes {
			all.add(r.Name, n)
		}
	}
	t.Notes = all.lines()
	t.noteDifferences()
	t.noteDefinitions()
}
