package report

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"strings"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/bench/series"
	"lorasim/bench/sweep"
)

// The page's script draws from the data below, which is embedded as JSON. Names
// are short where they repeat often.

type pageData struct {
	Title    string      `json:"title"`
	About    string      `json:"about,omitempty"`
	Notes    []string    `json:"notes"`
	Runs     []runData   `json:"runs"`
	Compared *tableData  `json:"compared,omitempty"`
	Sweeps   []sweepData `json:"sweeps"`
	// Probabilities of the quantiles of all runs.
	Probabilities []number `json:"probabilities"`
}

type runData struct {
	Name      string              `json:"name"`
	Source    string              `json:"source"`
	What      string              `json:"what"`
	Quantiles map[string][]number `json:"quantiles,omitempty"` // ms, by latency
	Adapters  []adapterData       `json:"adapters,omitempty"`  // the busiest first
	Series    *seriesData         `json:"series,omitempty"`
	Placement *placementData      `json:"placement,omitempty"`
	Plans     *plansData          `json:"plans,omitempty"`
	Block     string              `json:"block,omitempty"`
}

type adapterData struct {
	Name     string `json:"name"`
	Rank     int    `json:"rank,omitempty"`
	Requests int64  `json:"requests"`
	E2E      number `json:"e2e"` // ms
	P99      number `json:"p99"`
	TTFT     number `json:"ttft"`
}

type seriesData struct {
	Bucket  number       `json:"bucket"`
	End     number       `json:"end"`
	Workers []workerData `json:"workers"`
}

type workerData struct {
	Queued    []number `json:"queued"`
	Running   []number `json:"running"`
	QueuedMax []number `json:"queued_max,omitempty"`
	Loads     []number `json:"loads,omitempty"`
}

// placementData holds stays as worker, first and last column in turn; the run is
// Columns wide.
type placementData struct {
	Columns int             `json:"columns"`
	Rows    []placementRow  `json:"rows"`
	Others  int             `json:"others,omitempty"` // adapters left out, the least used
	Workers int             `json:"workers"`
	Marks   []placementMark `json:"marks"`
}

type placementRow struct {
	Name string `json:"name"`
	GPU  []int  `json:"gpu"`
	Host []int  `json:"host"`
}

// placementMark is a plan on the time axis.
type placementMark struct {
	At    number `json:"at"`
	Loads int    `json:"loads"`
	Moves int    `json:"moves"`
}

type plansData struct {
	Left int        `json:"left"`
	Rows []planData `json:"rows"`
}

type planData struct {
	Made    number   `json:"made"`
	Applied number   `json:"applied"`
	Reason  string   `json:"reason"`
	Dropped string   `json:"dropped,omitempty"`
	Loads   []string `json:"loads"`
	Unloads []string `json:"unloads"`
	Moves   int      `json:"moves"`
	Solver  string   `json:"solver,omitempty"`
	Solve   number   `json:"solve"`
	Gain    *number  `json:"gain,omitempty"` // predicted, s
	Gap     *number  `json:"gap,omitempty"`  // share
}

type tableData struct {
	Rows []tableRow `json:"rows"`
}

type tableRow struct {
	Title  string    `json:"title"`
	Better int       `json:"better"`
	Cells  []*number `json:"cells"` // by run
	Best   []bool    `json:"best"`
	Apart  []bool    `json:"apart"` // not comparable with the other runs
}

type sweepData struct {
	Name     string       `json:"name"`
	About    string       `json:"about,omitempty"`
	Axes     []axisData   `json:"axes"`
	Policies []string     `json:"policies"`
	Baseline string       `json:"baseline"`
	Seeds    int          `json:"seeds"`
	Metrics  []metricData `json:"metrics"`
	Points   []pointData  `json:"points"`
}

type axisData struct {
	Key     string   `json:"key"`
	Label   string   `json:"label"` // with the unit
	Values  []string `json:"values"`
	Numeric bool     `json:"numeric"`
}

type metricData struct {
	Name   string `json:"name"`
	Title  string `json:"title"`
	Better int    `json:"better"`
	All    bool   `json:"all,omitempty"` // about all requests, however they ended
}

// pointData holds mean, low and high of each metric, null where there is none.
type pointData struct {
	At     []int       `json:"at"` // index of the value on each axis
	Policy int         `json:"p"`
	Left   number      `json:"left"`            // share of the requests that did not complete
	Apart  bool        `json:"apart,omitempty"` // not the same requests completed as elsewhere
	Means  [][3]number `json:"m"`
}

// number is written with five significant digits, which is more than a picture
// shows; NaN and infinities are null.
type number float64

// MarshalJSON implements json.Marshaler.
func (n number) MarshalJSON() ([]byte, error) {
	x := float64(n)
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return []byte("null"), nil
	}
	s := strconv.FormatFloat(x, 'g', 5, 64)
	if strings.Contains(s, "e+") { // 1.2346e+05
		y, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return nil, err
		}
		s = strconv.FormatFloat(y, 'f', -1, 64)
	}
	return []byte(s), nil
}

func numbers(xs []float64) []number {
	out := make([]number, len(xs))
	for i, x := range xs {
		out[i] = number(x)
	}
	return out
}

func (p *Page) data() (*pageData, error) {
	d := &pageData{Title: p.Title, About: p.About, Notes: append([]string{}, p.Notes...), Runs: []runData{}, Sweeps: []sweepData{}}
	for i := range series.Quantiles + 1 {
		d.Probabilities = append(d.Probabilities, number(float64(i)/series.Quantiles))
	}
	for _, r := range p.Runs {
		rd, err := r.data()
		if err != nil {
			return nil, err
		}
		d.Runs = append(d.Runs, rd)
	}
	if p.Compared != nil {
		d.Compared = &tableData{}
		for _, row := range p.Compared.Rows {
			tr := tableRow{Title: row.Title, Better: row.Better}
			for _, c := range row.Cells {
				tr.Best, tr.Apart = append(tr.Best, c.Clear), append(tr.Apart, c.Apart)
				if c.N == 0 {
					tr.Cells = append(tr.Cells, nil)
					continue
				}
				v := number(c.Mean)
				tr.Cells = append(tr.Cells, &v)
			}
			d.Compared.Rows = append(d.Compared.Rows, tr)
		}
	}
	for _, s := range p.Sweeps {
		d.Sweeps = append(d.Sweeps, s.data())
	}
	return d, nil
}

func (r *Run) data() (runData, error) {
	d := runData{Name: r.Name, Source: r.Source, What: r.What}
	if r.Result != nil {
		var b bytes.Buffer
		if err := r.Result.WriteBlock(&b, result.SGLang); err != nil {
			return d, err
		}
		d.Block = b.String()
	}
	d.Adapters = r.adapters()
	d.Quantiles = map[string][]number{}
	for name, q := range r.quantiles() {
		d.Quantiles[name] = numbers(q)
	}
	s := r.Series
	if s == nil {
		return d, nil
	}
	if len(s.Workers) > 0 {
		d.Series = &seriesData{Bucket: number(s.Bucket), End: number(s.End)}
		for _, w := range s.Workers {
			d.Series.Workers = append(d.Series.Workers, workerData{numbers(w.Queued), numbers(w.Running), numbers(w.QueuedMax), numbers(w.Loads)})
		}
	}
	if s.Placement != nil && s.End > 0 {
		d.Placement = r.placement()
	}
	if len(s.Plans) > 0 {
		d.Plans = r.plans()
	}
	return d, nil
}

func (s *Sweep) data() sweepData {
	d := sweepData{Name: s.Name, About: s.About, Axes: []axisData{}, Policies: s.Policies, Baseline: s.Baseline, Seeds: len(s.Seeds), Points: []pointData{}}
	for _, a := range s.Axes {
		d.Axes = append(d.Axes, axisData{a.Leaf(), scenario.Label(a.Key), a.Values, a.Numeric()})
	}
	for _, m := range s.Tables.Metrics {
		d.Metrics = append(d.Metrics, metricData{m, sweep.Title(m), sweep.LowerIsBetter(m), sweep.CountsAll(m)})
	}
	for i := range s.Points {
		p := &s.Points[i]
		pd := pointData{Policy: slices.Index(s.Policies, p.Policy), Left: number(p.Left), Apart: p.Apart}
		for k, v := range p.Values {
			pd.At = append(pd.At, slices.Index(s.Axes[k].Values, v))
		}
		for _, name := range s.Tables.Metrics {
			e := sweep.Mean(nil)
			if m, ok := p.Metric(name); ok {
				e = m.Estimate
			}
			pd.Means = append(pd.Means, [3]number{number(e.Mean), number(e.Low), number(e.High)})
		}
		d.Points = append(d.Points, pd)
	}
	return d
}
