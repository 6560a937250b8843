package sweep

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"lorasim/bench/sweep/frame"
)

// MergeOptions says how to merge.
type MergeOptions struct {
	Partial  bool   // leave out cells that are missing or failed
	Baseline string // policy to compare with; "": the sweep's own
}

// Tables is a merged sweep.
type Tables struct {
	// Cells has one row for each cell: its settings and all its numbers.
	Cells *frame.Frame
	// Table has one row for each combination of settings, policy and number:
	// n seeds, mean, std and 95 % confidence interval; and the difference to the
	// baseline policy, paired by seed, with its interval.
	Table *frame.Frame
	// Points are the rows of Table in another form.
	Points  []Point
	Metrics []string     // names of all numbers
	Left    int          // cells left out
	Broken  []FailedCell // those of them whose files are broken
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

// Clear says that the difference to the baseline is comparable and its interval
// excludes 0.
func (m *Metric) Clear() bool {
	return !m.Apart && m.Diff.N > 1 && (m.Diff.Low > 0 || m.Diff.High < 0)
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

// Merge reads all cells and writes the tables cells.csv, .jsonl and .parquet
// and table.csv, .jsonl and .parquet. Cells that are missing, failed or broken
// are an error unless o.Partial is set.
func (d *Dir) Merge(o MergeOptions) (*Tables, error) {
	t, err := d.Tables(o)
	if err != nil {
		return nil, err
	}
	for _, f := range []struct {
		name  string
		frame *frame.Frame
	}{{"cells", t.Cells}, {"table", t.Table}} {
		for _, ext := range []string{".csv", ".jsonl", ".parquet"} {
			if err := f.frame.WriteFile(filepath.Join(d.Path, f.name+ext)); err != nil {
				return nil, err
			}
		}
	}
	if t.Left == 0 {
		return t, d.sweepTemporaries()
	}
	return t, nil
}

// Tables is Merge without writing anything.
func (d *Dir) Tables(o MergeOptions) (*Tables, error) {
	if o.Baseline == "" {
		o.Baseline = d.Baseline
	}
	if err := suggestIn("baseline", o.Baseline, d.Policies); err != nil {
		return nil, err
	}
	results, status, err := d.readAll(o.Partial)
	if err != nil {
		return nil, err
	}
	names := metricNames(results)
	t := &Tables{Left: status.Cells - status.Done, Broken: status.Broken, Cells: d.cellsFrame(results, names)}
	names = slices.DeleteFunc(names, Hidden)
	t.Metrics = names
	t.Points = d.points(results, names, o.Baseline)
	t.Table = d.tableFrame(t.Points, o.Baseline)
	return t, nil
}

// readAll reads the cells by index; those left out are nil.
func (d *Dir) readAll(partial bool) (results []*CellResult, status *Status, err error) {
	results = make([]*CellResult, len(d.Cells))
	status = d.survey(func(i int, r *CellResult) { results[i] = r })
	if status.Done < status.Cells && !partial {
		return nil, nil, &IncompleteError{status}
	}
	if status.Done == 0 {
		return nil, nil, fmt.Errorf("%s: no cell has run yet", d.Path)
	}
	return results, status, nil
}

// IncompleteError says which cells a merge lacks.
type IncompleteError struct{ *Status }

func (e *IncompleteError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %d cells are done", e.Done, e.Cells)
	if e.Missing > 0 {
		fmt.Fprintf(&b, ", %d are missing (the first is %d)", e.Missing, e.left[0])
	}
	if n := len(e.Broken); n > 0 {
		fmt.Fprintf(&b, ", %d must run again (cell %d: %s)", n, e.Broken[0].Index, e.Broken[0].Error)
	}
	if n := len(e.Failed); n > 0 {
		fmt.Fprintf(&b, ", %d failed (cell %d: %s)", n, e.Failed[0].Index, e.Failed[0].Error)
	}
	return b.String()
}

// metricNames lists the numbers of all cells in the order they first appear.
func metricNames(results []*CellResult) []string {
	var names []string
	seen := map[string]bool{}
	for _, r := range results {
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

// settings adds the columns of the axes to a table; numbers where all values
// are numbers.
func (d *Dir) settings(f *frame.Frame) {
	for _, a := range d.Axes {
		f.Add(a.Leaf(), a.kind())
	}
}

func (a Axis) kind() frame.Kind {
	for _, v := range a.Values {
		if _, ok := number(v); !ok {
			return frame.Text
		}
	}
	return frame.Float
}

// Numeric says whether all values of the axis are finite numbers.
func (a Axis) Numeric() bool { return a.kind() == frame.Float }

// Number is a value of the axis as a number, if it is one.
func (a Axis) Number(v string) float64 {
	x, _ := number(v)
	return x
}

func number(v string) (float64, bool) {
	x, err := strconv.ParseFloat(v, 64)
	return x, err == nil && !math.IsInf(x, 0) && !math.IsNaN(x)
}

// row returns the values of the axes for a table.
func (d *Dir) row(values []string) []any {
	var row []any
	for i, a := range d.Axes {
		if a.kind() == frame.Float {
			x, _ := number(values[i])
			row = append(row, x)
		} else {
			row = append(row, values[i])
		}
	}
	return row
}

func (d *Dir) cellsFrame(results []*CellResult, names []string) *frame.Frame {
	f := frame.New("cell", frame.Int)
	d.settings(f)
	f.Add("policy", frame.Text)
	f.Add("seed", frame.Text) // may be beyond 63 bits
	for _, n := range names {
		f.Add(n, frame.Float)
	}
	for i, r := range results {
		if r == nil {
			continue
		}
		c := &d.Cells[i]
		row := append([]any{c.Index}, d.row(c.Values)...)
		row = append(row, c.Policy, strconv.FormatUint(c.Seed, 10))
		byName := map[string]float64{}
		for _, v := range r.Values {
			byName[v.Name] = v.Value
		}
		for _, n := range names {
			v, ok := byName[n]
			if !ok {
				v = math.NaN()
			}
			row = append(row, v)
		}
		f.Append(row...)
	}
	return f
}

// points sums up the cells of each combination of settings and policy, which
// stand next to each other, one for each seed.
func (d *Dir) points(results []*CellResult, names []string, baseline string) []Point {
	seeds, policies := len(d.Seeds), len(d.Policies)
	base := 0
	for i, p := range d.Policies {
		if p == baseline {
			base = i
		}
	}
	var points []Point
	apart := differing(results, seeds)
	for first := 0; first < len(results); first += seeds * policies {
		for p, policy := range d.Policies {
			at := first + p*seeds
			own, theirs := results[at:at+seeds], results[first+base*seeds:first+(base+1)*seeds]
			all := CompletionOf(func(n string) float64 { return Mean(column(own, n)).Mean })
			pt := Point{Values: d.Cells[at].Values, Policy: policy, Left: all.Left(), Apart: slices.Contains(apart[at:at+seeds], true)}
			same := samePairs(own, theirs)
			for _, n := range names {
				xs, bs := column(own, n), column(theirs, n)
				m := Metric{Name: n, Estimate: Mean(xs), Base: Mean(bs).Mean, Apart: !same && !CountsAll(n)}
				m.Diff = Mean(nil)
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

func (d *Dir) tableFrame(points []Point, baseline string) *frame.Frame {
	f := &frame.Frame{}
	d.settings(f)
	for _, c := range []struct {
		name string
		kind frame.Kind
	}{
		{"policy", frame.Text}, {"metric", frame.Text}, {"n", frame.Int}, {"mean", frame.Float}, {"std", frame.Float},
		{"ci95_low", frame.Float}, {"ci95_high", frame.Float}, {"baseline", frame.Text}, {"diff_n", frame.Int},
		{"diff_mean", frame.Float}, {"diff_ci95_low", frame.Float}, {"diff_ci95_high", frame.Float}, {"ratio", frame.Float},
		{"comparable", frame.Text}, // with the baseline: both completed the same requests
	} {
		f.Add(c.name, c.kind)
	}
	for _, p := range points {
		for _, m := range p.Metrics {
			ratio := math.NaN()
			if m.Base != 0 {
				ratio = m.Mean / m.Base
			}
			row := append(d.row(p.Values), p.Policy, m.Name, m.N, m.Mean, m.Std, m.Low, m.High, baseline, m.Diff.N,
				m.Diff.Mean, m.Diff.Low, m.Diff.High, ratio, yesNo(!m.Apart))
			f.Append(row...)
		}
	}
	return f
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
