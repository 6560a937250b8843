package sweep

import (
	"cmp"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"

	"lorasim/bench/result"
	"lorasim/bench/stats"
	"lorasim/bench/steady"
	"lorasim/internal/suggest"
	"lorasim/internal/table"
	"lorasim/router"
)

// MergeOptions are the options of a merge.
type MergeOptions struct {
	Partial  bool   // leave out cells that are missing or failed
	Baseline string // policy to compare with; "": the sweep's baseline
}

// Tables are the results of a merged sweep.
type Tables struct {
	Points  []Point
	Metrics []string     // names of all metrics
	Left    int          // cells left out
	Broken  []FailedCell // the cells left out because their files are broken

	baseline string
	results  []*CellResult // of all cells; nil: left out
}

// A Point is one combination of settings and policy.
type Point struct {
	Values  []string // values of the axes
	Policy  string
	Metrics []PointValue
	Left    float64 // share of the requests that did not complete; NaN: unknown
	// Sampling reports what changes with the seed. Resample is the setting of the same name.
	Sampling stats.Sampling
	Resample string
	// Apart: some requests did not complete, and the completed ones differ from other points, so latencies are not
	// comparable.
	Apart bool
	// Stationarity reports whether the runs reached a steady state.
	steady.Stationarity

	results []*CellResult // by seed
}

// A PointValue is one number of a point, over the seeds.
type PointValue struct {
	Name string
	stats.Estimate
	Diff stats.Estimate // this policy minus the baseline, paired by seed; NaN for the baseline
	Base float64        // mean of the baseline
	// Apart: the baseline completed other requests, so Diff compares latencies of different requests.
	Apart bool
	// Unsteady: the metric depends on the length of the run, because this policy or the baseline did not reach a
	// steady state.
	Unsteady bool
}

// Metric returns the value of the metric of the point with the given name; false if there is none.
func (p *Point) Metric(name string) (PointValue, bool) {
	i := slices.IndexFunc(p.Metrics, func(m PointValue) bool { return m.Name == name })
	if i < 0 {
		return PointValue{}, false
	}
	return p.Metrics[i], true
}

// Merge reads all cells and writes the tables cells and table, each as .csv, .jsonl and .parquet. It returns an
// [incompleteError] if cells are missing, failed or broken, unless o.Partial is set.
func (d *Dir) Merge(o MergeOptions) (*Tables, error) {
	t, err := d.Tables(o)
	if err == nil {
		err = cmp.Or(d.writeCells(t), d.writePoints(t))
	}
	if err == nil && t.Left == 0 {
		err = d.removeTemporaries()
	}
	if err != nil {
		return nil, err
	}
	return t, nil
}

// Tables returns the tables of [Dir.Merge] without writing them.
func (d *Dir) Tables(o MergeOptions) (*Tables, error) {
	t := &Tables{baseline: router.Canonical(cmp.Or(o.Baseline, d.Baseline)), results: make([]*CellResult, len(d.Cells))}
	if err := suggest.Among("baseline", t.baseline, d.Policies); err != nil {
		return nil, err
	}
	status := d.survey(t.results)
	if status.Done < status.Cells && !o.Partial {
		return nil, &incompleteError{status}
	}
	if status.Done == 0 {
		return nil, fmt.Errorf("%s: no cell has run yet", d.Path)
	}
	t.Left, t.Broken = status.Cells-status.Done, status.Broken
	t.Metrics = slices.DeleteFunc(t.names(), func(n string) bool { return result.MetricOf(n).Hidden })
	t.Points = d.points(t)
	return t, nil
}

// incompleteError lists the cells that are missing from a merge.
type incompleteError struct{ *Status }

func (e *incompleteError) Error() string {
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

// writeTables writes a table in each format.
func (d *Dir) writeTables(name string, columns []table.Column, rows func(write func() error) error) error {
	for _, ext := range []string{".csv", ".jsonl", ".parquet"} {
		if err := d.writeTable(filepath.Join(d.Path, name+ext), columns, nil, rows); err != nil {
			return err
		}
	}
	return nil
}

// writeCells writes one row for each cell: its settings, the cell whose run gave
// its numbers (see Manifest.Runs), and all its numbers.
func (d *Dir) writeCells(t *Tables) error {
	var (
		cell, ran    int64
		policy, seed string // seeds may be beyond 63 bits
		state        string
	)
	settings, set := d.settings()
	columns := slices.Concat([]table.Column{{Name: "cell", Value: &cell}}, settings,
		[]table.Column{
			{Name: "policy", Value: &policy}, {Name: "seed", Value: &seed}, {Name: "run_of_cell", Value: &ran},
			{Name: "state", Value: &state},
		})
	at := map[string]*float64{}
	for _, n := range t.names() {
		if n == result.SteadyStateName { // in words
			continue
		}
		at[n] = new(float64)
		columns = append(columns, table.Column{Name: n, Value: at[n]})
	}
	return d.writeTables("cells", columns, func(write func() error) error {
		for i, r := range t.results {
			if r == nil {
				continue
			}
			c := &d.Cells[i]
			cell, ran, policy, seed = int64(i), int64(d.Runs(c)), c.Policy, strconv.FormatUint(c.Seed, 10)
			set(c.Values)
			for _, number := range at {
				*number = math.NaN()
			}
			for _, v := range r.Values {
				if v.Name != result.SteadyStateName {
					*at[v.Name] = v.Value
				}
			}
			state = string(r.State())
			if err := write(); err != nil {
				return err
			}
		}
		return nil
	})
}

// writePoints writes one row for each combination of settings, policy and number:
// its estimate over the seeds, and the difference to the baseline, paired by seed.
func (d *Dir) writePoints(t *Tables) error {
	var (
		p          Point
		m          PointValue
		n, diffN   int64
		ratio      float64
		comparable string // with the baseline: both completed the same requests in a steady state
		state      string
	)
	columns, set := d.settings()
	columns = append(columns, []table.Column{
		{Name: "policy", Value: &p.Policy}, {Name: "state", Value: &state}, {Name: "metric", Value: &m.Name},
		{Name: "n", Value: &n}, {Name: "mean", Value: &m.Mean},
		{Name: "std", Value: &m.Std}, {Name: "ci95_low", Value: &m.Low}, {Name: "ci95_high", Value: &m.High},
		{Name: "baseline", Value: &t.baseline}, {Name: "diff_n", Value: &diffN},
		{Name: "diff_mean", Value: &m.Diff.Mean},
		{Name: "diff_ci95_low", Value: &m.Diff.Low}, {Name: "diff_ci95_high", Value: &m.Diff.High},
		{Name: "ratio", Value: &ratio},
		{Name: "comparable", Value: &comparable},
	}...)
	return d.writeTables("table", columns, func(write func() error) error {
		for _, p = range t.Points {
			set(p.Values)
			state = string(p.State)
			for _, m = range p.Metrics {
				n, diffN, ratio, comparable = int64(m.N), int64(m.Diff.N), math.NaN(), "yes"
				if m.Base != 0 {
					ratio = m.Mean / m.Base
				}
				if m.Apart || m.Unsteady {
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
	seeds, base := len(d.Seeds), slices.Index(d.Policies, t.baseline)
	apart := differing(t.results, seeds)
	sampling := d.samplings()
	for at := 0; at < len(t.results); at += seeds {
		policy := at / seeds % len(d.Policies)
		own, theirs := t.results[at:][:seeds], t.results[at+(base-policy)*seeds:][:seeds]
		p := Point{
			Values: d.Cells[at].Values, Policy: d.Policies[policy], Apart: slices.Contains(apart[at:at+seeds], true),
			results: own,
		}
		p.Left = result.CompletionOf(func(n string) float64 { return stats.Mean(column(own, n)).Mean }).Left()
		p.Sampling, p.Resample = sampling(&d.Cells[at])
		same := samePairs(own, theirs)
		p.Stationarity = stationarity(own)
		judge := p.Judge() && stationarity(theirs).Judge()
		for _, n := range t.Metrics {
			xs, bs := column(own, n), column(theirs, n)
			m := PointValue{
				Name: n, Diff: stats.Mean(nil), Base: stats.Mean(bs).Mean,
				Apart: !same && !result.MetricOf(n).AllRequests, Unsteady: !judge && result.MetricOf(n).NeedsSteady,
			}
			m.Estimate = result.OverRuns(p.Sampling, n, func(name string) []float64 { return column(own, name) })
			if policy != base {
				m.Diff = stats.PairedOf(p.Sampling, xs, bs)
			}
			if m.N > 0 {
				p.Metrics = append(p.Metrics, m)
			}
		}
		points = append(points, p)
	}
	return points
}

// samplings returns a function that returns what changes with the seed in a cell, and the cell's setting of resample.
func (m *Manifest) samplings() func(c *Cell) (stats.Sampling, string) {
	known := map[string]stats.Sampling{}
	return func(c *Cell) (stats.Sampling, string) {
		sc, err := m.ScenarioOf(c)
		if err != nil {
			return stats.Fresh, ""
		}
		k := workloadKey(sc)
		of, ok := known[k]
		if !ok {
			of = sc.Sampling()
			known[k] = of
		}
		return of, sc.Workload.Resample.String()
	}
}

// Sampling reports what changes with the seed in the cells. all is false if cells differ in that.
func (m *Manifest) Sampling() (of stats.Sampling, all bool) {
	sampling := m.samplings()
	for i := 0; i < len(m.Cells); i += len(m.Seeds) {
		s, _ := sampling(&m.Cells[i])
		if i > 0 && s != of {
			return of, false
		}
		of = s
	}
	return of, true
}

func stationarity(results []*CellResult) steady.Stationarity {
	return result.StationarityOf(func(name string) []float64 { return column(results, name) })
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
		var ran []int
		var done []result.Completion
		for i := s; i < len(results); i += seeds {
			if results[i] != nil {
				ran, done = append(ran, i), append(done, result.CompletionOf(results[i].Value))
			}
		}
		if slices.ContainsFunc(done, func(c result.Completion) bool { return !c.Same(done[0]) }) {
			for k, i := range ran {
				out[i] = !done[k].Whole()
			}
		}
	}
	return out
}

// samePairs reports whether in each pair of runs both completed the same requests.
func samePairs(as, bs []*CellResult) bool {
	for i := range as {
		if as[i] != nil && bs[i] != nil && !result.CompletionOf(as[i].Value).Same(result.CompletionOf(bs[i].Value)) {
			return false
		}
	}
	return true
}

// BySeed returns a metric of each run of the point, in the order of the seeds; NaN if a run has no value.
func (p *Point) BySeed(metric string) []float64 { return column(p.results, metric) }

// SameRequests reports whether the runs of two points completed the same requests for every seed. Only then are their
// latencies comparable.
func (p *Point) SameRequests(o *Point) bool { return samePairs(p.results, o.results) }
