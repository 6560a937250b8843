package sweep

import (
	"cmp"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"lorasim/internal/suggest"
	"lorasim/internal/table"
)

// MergeOptions says how to merge.
type MergeOptions struct {
	Partial  bool   // leave out cells that are missing or failed
	Baseline string // policy to compare with; "": the sweep's own
}

// Tables is a merged sweep.
type Tables struct {
	Points  []Point
	Metrics []string     // names of all numbers
	Left    int          // cells left out
	Broken  []FailedCell // those of them whose files are broken

	baseline string
	results  []*CellResult // of all cells; nil: left out
}

// Point is one combination of settings and policy.
type Point struct {
	Values  []string // of the axes
	Policy  string
	Metrics []Metric
	Left    float64 // share of the requests that did not complete; NaN: not known
	// Apart: not all requests completed, and not the same ones as elsewhere in
	// the sweep, so that latencies are not comparable.
	Apart bool
}

// Metric is one number over the seeds of a point.
type Metric struct {
	Name string
	Estimate
	// Diff is this policy minus the baseline, by seed; NaN for the baseline.
	Diff Estimate
	// Base is the mean of the baseline.
	Base float64
	// Apart: the baseline completed other requests, so that Diff compares
	// latencies of different requests.
	Apart bool
}

// Metric finds a metric of a point by name; false if it has none.
func (p *Point) Metric(name string) (Metric, bool) {
	for _, m := range p.Metrics {
		if m.Name == name {
			return m, true
		}
	}
	return Metric{}, false
}

// Merge reads all cells and writes the tables cells and table, each as .csv,
// .jsonl and .parquet. Cells that are missing, failed or broken are an error
// unless o.Partial is set.
func (d *Dir) Merge(o MergeOptions) (*Tables, error) {
	t, err := d.Tables(o)
	if err != nil {
		return nil, err
	}
	for _, write := range []func(*Tables, string) error{d.writeCells, d.writePoints} {
		for _, ext := range []string{".csv", ".jsonl", ".parquet"} {
			if err := write(t, ext); err != nil {
				return nil, err
			}
		}
	}
	if t.Left == 0 {
		return t, d.removeTemporaries()
	}
	return t, nil
}

// Tables is Merge without writing anything.
func (d *Dir) Tables(o MergeOptions) (*Tables, error) {
	baseline := cmp.Or(o.Baseline, d.Baseline)
	if err := suggest.Among("baseline", baseline, d.Policies); err != nil {
		return nil, err
	}
	results := make([]*CellResult, len(d.Cells))
	status := d.survey(results)
	if status.Done < status.Cells && !o.Partial {
		return nil, &IncompleteError{status}
	}
	if status.Done == 0 {
		return nil, fmt.Errorf("%s: no cell has run yet", d.Path)
	}
	t := &Tables{Left: status.Cells - status.Done, Broken: status.Broken, baseline: baseline, results: results}
	t.Metrics = slices.DeleteFunc(t.names(), Hidden)
	t.Points = d.points(t)
	return t, nil
}

// IncompleteError says which cells a merge lacks.
type IncompleteError struct{ *Status }

func (e *IncompleteError) Error() string {
	text := fmt.Sprintf("%d of %d cells are done", e.Done, e.Cells)
	if e.Missing > 0 {
		text += fmt.Sprintf(", %d are missing (the first is %d)", e.Missing, e.firstMissing)
	}
	if n := len(e.Broken); n > 0 {
		text += fmt.Sprintf(", %d must run again (cell %d: %s)", n, e.Broken[0].Index, e.Broken[0].Error)
	}
	if n := len(e.Failed); n > 0 {
		text += fmt.Sprintf(", %d failed (cell %d: %s)", n, e.Failed[0].Index, e.Failed[0].Error)
	}
	return text
}

// names lists the numbers of all cells in the order they first appear.
func (t *Tables) names() (names []string) {
	seen := map[string]bool{}
	for _, r := range t.results {
		if r == nil {
			continue
		}
		for _, v := range r.Values {
			if !seen[v.Name] {
				seen[v.Name] = true
				names = append(names, v.Name)
			}
		}
	}
	return names
}

// settings are the columns of the axes, of numbers where all values are numbers,
// and what puts the values of a row into them.
func (m *Manifest) settings() (columns []table.Column, set func(values []string)) {
	for _, a := range m.Axes {
		c := table.Column{Name: a.Leaf(), Value: new(string)}
		if a.Numeric() {
			c.Value = new(float64)
		}
		columns = append(columns, c)
	}
	return columns, func(values []string) {
		for i, v := range values {
			switch p := columns[i].Value.(type) {
			case *string:
				*p = v
			case *float64:
				*p = m.Axes[i].Number(v)
			}
		}
	}
}

// writeCells writes one row for each cell: its settings and all its numbers.
func (d *Dir) writeCells(t *Tables, ext string) error {
	var (
		cell         int64
		policy, seed string // seeds may be beyond 63 bits
	)
	settings, set := d.settings()
	columns := slices.Concat([]table.Column{{Name: "cell", Value: &cell}}, settings,
		[]table.Column{{Name: "policy", Value: &policy}, {Name: "seed", Value: &seed}})
	names := t.names()
	numbers := make([]float64, len(names))
	at := map[string]*float64{}
	for i, n := range names {
		columns = append(columns, table.Column{Name: n, Value: &numbers[i]})
		at[n] = &numbers[i]
	}
	return writeTable(filepath.Join(d.Path, "cells"+ext), columns, nil, func(write func() error) error {
		for i, r := range t.results {
			if r == nil {
				continue
			}
			c := &d.Cells[i]
			cell, policy, seed = int64(i), c.Policy, strconv.FormatUint(c.Seed, 10)
			set(c.Values)
			for k := range numbers {
				numbers[k] = math.NaN()
			}
			for _, v := range r.Values {
				*at[v.Name] = v.Value
			}
			if err := write(); err != nil {
				return err
			}
		}
		return nil
	})
}

// writePoints writes one row for each combination of settings, policy and number:
// its estimate over the seeds, and the difference to the baseline, paired by seed.
func (d *Dir) writePoints(t *Tables, ext string) error {
	var (
		p          Point
		m          Metric
		n, diffN   int64
		ratio      float64
		comparable string // with the baseline: both completed the same requests
	)
	columns, set := d.settings()
	columns = append(columns, []table.Column{
		{Name: "policy", Value: &p.Policy}, {Name: "metric", Value: &m.Name}, {Name: "n", Value: &n}, {Name: "mean", Value: &m.Mean},
		{Name: "std", Value: &m.Std}, {Name: "ci95_low", Value: &m.Low}, {Name: "ci95_high", Value: &m.High},
		{Name: "baseline", Value: &t.baseline}, {Name: "diff_n", Value: &diffN}, {Name: "diff_mean", Value: &m.Diff.Mean},
		{Name: "diff_ci95_low", Value: &m.Diff.Low}, {Name: "diff_ci95_high", Value: &m.Diff.High}, {Name: "ratio", Value: &ratio},
		{Name: "comparable", Value: &comparable},
	}...)
	return writeTable(filepath.Join(d.Path, "table"+ext), columns, nil, func(write func() error) error {
		for _, p = range t.Points {
			set(p.Values)
			for _, m = range p.Metrics {
				n, diffN, ratio, comparable = int64(m.N), int64(m.Diff.N), math.NaN(), "yes"
				if m.Base != 0 {
					ratio = m.Mean / m.Base
				}
				if m.Apart {
					comparable = "no"
				}
				if err := write(); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// points sums up the cells of each combination of settings and policy, which
// stand next to each other, one for each seed.
func (d *Dir) points(t *Tables) (points []Point) {
	seeds, policies := len(d.Seeds), len(d.Policies)
	base := slices.Index(d.Policies, t.baseline)
	apart := differing(t.results, seeds)
	for first := 0; first < len(t.results); first += seeds * policies {
		theirs := t.results[first+base*seeds:][:seeds]
		for p, policy := range d.Policies {
			at := first + p*seeds
			own := t.results[at : at+seeds]
			all := CompletionOf(func(n string) float64 { return Mean(column(own, n)).Mean })
			pt := Point{Values: d.Cells[at].Values, Policy: policy, Left: all.Left(), Apart: slices.Contains(apart[at:at+seeds], true)}
			same := samePairs(own, theirs)
			for _, n := range t.Metrics {
				xs, bs := column(own, n), column(theirs, n)
				m := Metric{Name: n, Estimate: Mean(xs), Diff: Mean(nil), Base: Mean(bs).Mean, Apart: !same && !CountsAll(n)}
				if p != base {
					m.Diff = Paired(xs, bs)
				}
				if m.N > 0 {
					pt.Metrics = append(pt.Metrics, m)
				}
			}
			points = append(points, pt)
		}
	}
	return points
}

// column lists one number of some cells; NaN where it is not there.
func column(results []*CellResult, name string) []float64 {
	out := make([]float64, len(results))
	for i, r := range results {
		out[i] = math.NaN()
		if r != nil {
			out[i] = r.Value(name)
		}
	}
	return out
}

// differing finds, seed by seed, the runs that left requests undone where not all
// runs of that seed completed the same ones.
func differing(results []*CellResult, seeds int) []bool {
	out := make([]bool, len(results))
	for s := range seeds {
		var first *Completion
		same := true
		for i := s; i < len(results); i += seeds {
			if results[i] == nil {
				continue
			}
			c := CompletionOf(results[i].Value)
			if first == nil {
				first = &c
			}
			same = same && c.Same(*first)
		}
		for i := s; i < len(results) && !same; i += seeds {
			out[i] = results[i] != nil && !CompletionOf(results[i].Value).Whole()
		}
	}
	return out
}

// samePairs says that in each pair of runs both completed the same requests.
func samePairs(as, bs []*CellResult) bool {
	for i := range as {
		if as[i] != nil && bs[i] != nil && !CompletionOf(as[i].Value).Same(CompletionOf(bs[i].Value)) {
			return false
		}
	}
	return true
}

// Estimate is a mean with its 95 % confidence interval. NaN where there is
// nothing to tell it from: the interval of fewer than two values.
type Estimate struct {
	N         int
	Mean      float64
	Std       float64 // of the values, with n-1
	Low, High float64
}

// Half is half the width of the interval.
func (e Estimate) Half() float64 { return (e.High - e.Low) / 2 }

// HalfAt is half the width of the interval that misses the true mean with the
// given chance.
func (e Estimate) HalfAt(miss float64) float64 {
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: float64(e.N - 1)}.Quantile(1-miss/2) * e.Std / math.Sqrt(float64(e.N))
}

// Mean estimates a mean from independent values, such as the results of several
// seeds, by Student's t distribution with n-1 degrees of freedom. Values that
// are NaN do not count.
func Mean(values []float64) Estimate {
	xs := slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	e := Estimate{N: len(xs), Mean: math.NaN(), Std: math.NaN(), Low: math.NaN(), High: math.NaN()}
	switch {
	case e.N == 1:
		e.Mean = xs[0]
	case e.N > 1:
		e.Mean, e.Std = stat.MeanStdDev(xs, nil)
		half := e.HalfAt(0.05)
		e.Low, e.High = e.Mean-half, e.Mean+half
	}
	return e
}

// Paired estimates the mean of a[i]-b[i]: of two policies that saw the same
// random numbers, it is far narrower than the difference of their means.
func Paired(a, b []float64) Estimate {
	d := make([]float64, len(a))
	for i := range a {
		d[i] = a[i] - b[i]
	}
	return Mean(d)
}
