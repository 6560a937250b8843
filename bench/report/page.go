package report

import (
	"bytes"
	"cmp"
	"embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	jsonv1 "github.com/go-json-experiment/json/v1"

	"lorasim/bench/compare"
	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/bench/series"
	"lorasim/bench/sweep"
	"lorasim/internal/format"
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
	Probabilities []float64 `json:"probabilities"`
}

type runData struct {
	Name      string               `json:"name"`
	Source    string               `json:"source"`
	What      string               `json:"what"`
	Quantiles map[string][]float64 `json:"quantiles,omitempty"` // ms, by latency
	Adapters  []adapterData        `json:"adapters,omitempty"`  // the busiest first
	Series    *series.Series       `json:"series,omitempty"`
	Placement *placementData       `json:"placement,omitempty"`
	Plans     *plansData           `json:"plans,omitempty"`
	Block     string               `json:"block,omitempty"`
}

type adapterData struct {
	Name     string  `json:"name"`
	Rank     int     `json:"rank,omitempty"`
	Requests int64   `json:"requests"`
	E2E      float64 `json:"e2e"` // ms
	P99      float64 `json:"p99"`
	TTFT     float64 `json:"ttft"`
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
	At    float64 `json:"at"`
	Loads int     `json:"loads"`
	Moves int     `json:"moves"`
}

type plansData struct {
	Left int           `json:"left"`
	Rows []series.Plan `json:"rows"`
}

type tableData struct {
	Rows []tableRow `json:"rows"`
}

type tableRow struct {
	Title  string    `json:"title"`
	Better int       `json:"better"`
	Cells  []float64 `json:"cells"` // by run; NaN: none
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
	Maps     []mapData    `json:"maps,omitempty"`
}

type axisData struct {
	Key     string   `json:"key"`
	Label   string   `json:"label"` // with the unit
	Values  []string `json:"values"`
	Numeric bool     `json:"numeric"`
}

func newAxis(a sweep.Axis) axisData {
	return axisData{a.Leaf(), scenario.Label(a.Key), a.Values, a.Numeric()}
}

type metricData struct {
	Name   string `json:"name"`
	Title  string `json:"title"`
	Better int    `json:"better"`
	All    bool   `json:"all,omitempty"` // about all requests, however they ended
}

// pointData holds mean, low and high of each metric, NaN where there is none.
type pointData struct {
	At     []int        `json:"at"` // index of the value on each axis
	Policy int          `json:"p"`
	Left   float64      `json:"left"`            // share of the requests that did not complete
	Apart  bool         `json:"apart,omitempty"` // not the same requests completed as elsewhere
	Means  [][3]float64 `json:"m"`
}

// short writes a number with five significant digits, which is more than a
// picture shows; NaN and infinities are null.
func short(x float64) ([]byte, error) {
	if !format.IsFinite(x) {
		return []byte("null"), nil
	}
	s := strconv.FormatFloat(x, 'g', 5, 64)
	if strings.Contains(s, "e+") { // 1.2346e+05
		y, err := strconv.ParseFloat(s, 64)
		return strconv.AppendFloat(nil, y, 'f', -1, 64), err
	}
	return []byte(s), nil
}

//go:embed assets
var assets embed.FS

// WriteHTML writes the page as one file that needs no other.
func (p *Page) WriteHTML(w io.Writer) error {
	d, err := p.data()
	if err != nil {
		return err
	}
	// escapes <, so that no text can end the script element
	data, err := json.Marshal(d, jsonv1.DefaultOptionsV1(), json.WithMarshalers(json.MarshalFunc(short)))
	if err != nil {
		return err
	}
	t, err := template.ParseFS(assets, "assets/page.html")
	if err != nil {
		return err
	}
	style, err := assets.ReadFile("assets/style.css")
	if err != nil {
		return err
	}
	var script []byte
	for _, name := range []string{"base.js", "chart.js", "sections.js", "placement.js"} {
		part, err := assets.ReadFile("assets/" + name)
		if err != nil {
			return err
		}
		script = append(append(script, part...), '\n')
	}
	return t.Execute(w, struct {
		Title, About string
		Style        template.CSS
		Data, Script template.JS
	}{p.Title, p.About, template.CSS(style), template.JS(data), template.JS(script)})
}

func (p *Page) data() (*pageData, error) {
	d := &pageData{Title: p.Title, About: p.About, Notes: append([]string{}, p.Notes...), Runs: []runData{}, Sweeps: []sweepData{}}
	for i := range series.Quantiles + 1 {
		d.Probabilities = append(d.Probabilities, float64(i)/series.Quantiles)
	}
	for _, r := range p.Runs {
		rd, err := r.data()
		if err != nil {
			return nil, err
		}
		d.Runs = append(d.Runs, rd)
	}
	if p.Compared != nil {
		d.Compared = compared(p.Compared)
	}
	for _, s := range p.Sweeps {
		d.Sweeps = append(d.Sweeps, s.data())
	}
	return d, nil
}

func compared(t *compare.Table) *tableData {
	d := &tableData{}
	for _, row := range t.Rows {
		tr := tableRow{Title: row.Title, Better: row.Better}
		for _, c := range row.Cells {
			tr.Cells, tr.Best, tr.Apart = append(tr.Cells, c.Mean), append(tr.Best, c.Clear), append(tr.Apart, c.Apart)
		}
		d.Rows = append(d.Rows, tr)
	}
	return d
}

func (r *Run) data() (runData, error) {
	d := runData{Name: r.Name, Source: r.Source, What: r.What, Adapters: r.adapters(), Quantiles: r.quantiles()}
	if r.Result != nil {
		var b bytes.Buffer
		if err := r.Result.WriteBlock(&b, result.SGLang); err != nil {
			return d, err
		}
		d.Block = b.String()
	}
	s := r.Series
	if s == nil {
		return d, nil
	}
	if len(s.Workers) > 0 {
		d.Series = s
	}
	if s.Placement != nil && s.End > 0 {
		d.Placement = r.placement()
	}
	if len(s.Plans) > 0 {
		d.Plans = &plansData{s.PlansLeft, s.Plans}
	}
	return d, nil
}

func (s *Sweep) data() sweepData {
	d := sweepData{Name: s.Name, About: s.About, Axes: []axisData{}, Policies: s.Policies, Baseline: s.Baseline, Seeds: len(s.Seeds), Points: []pointData{}, Maps: s.maps()}
	for _, a := range s.Axes {
		d.Axes = append(d.Axes, newAxis(a))
	}
	for _, m := range s.Tables.Metrics {
		d.Metrics = append(d.Metrics, metricData{m, sweep.Title(m), sweep.LowerIsBetter(m), sweep.CountsAll(m)})
	}
	for i := range s.Points {
		p := &s.Points[i]
		pd := pointData{Policy: slices.Index(s.Policies, p.Policy), Left: p.Left, Apart: p.Apart}
		for k, v := range p.Values {
			pd.At = append(pd.At, slices.Index(s.Axes[k].Values, v))
		}
		for _, name := range s.Tables.Metrics {
			e := sweep.Mean(nil)
			if m, ok := p.Metric(name); ok {
				e = m.Estimate
			}
			pd.Means = append(pd.Means, [3]float64{e.Mean, e.Low, e.High})
		}
		d.Points = append(d.Points, pd)
	}
	return d
}

// quantiles returns the latency quantiles of a run in ms, by latency.
func (r *Run) quantiles() (out map[string][]float64) {
	if r.Series != nil {
		l, of := r.Series.Latencies, series.QuantilesOf
		out = map[string][]float64{"e2e": of(l.E2E), "ttft": of(l.TTFT), "tpot": of(l.TPOT)}
	} else {
		out = map[string][]float64{
			"e2e":  meanOf(r.Kept, func(c *sweep.CellResult) []float64 { return c.E2E }),
			"ttft": meanOf(r.Kept, func(c *sweep.CellResult) []float64 { return c.TTFT }),
			"tpot": meanOf(r.Kept, func(c *sweep.CellResult) []float64 { return c.TPOT }),
		}
	}
	maps.DeleteFunc(out, func(_ string, q []float64) bool { return len(q) != series.Quantiles+1 })
	return out
}

// meanOf is the mean of lists over the seeds, one by one; nil where they differ
// in length.
func meanOf(cells []*sweep.CellResult, list func(*sweep.CellResult) []float64) (out []float64) {
	for i, c := range cells {
		xs := list(c)
		if i == 0 {
			out = make([]float64, len(xs))
		}
		if len(xs) != len(out) {
			return nil
		}
		for i, x := range xs {
			out[i] += x / float64(len(cells))
		}
	}
	return out
}

// adapters lists how the adapters of a run fared, the busiest first.
func (r *Run) adapters() (out []adapterData) {
	switch {
	case r.Result == nil:
		return r.keptAdapters()
	case r.Result.Extra == nil:
		return nil
	}
	for _, a := range r.Result.Extra.Adapters {
		d := adapterData{a.Name, 0, a.Requests, a.MeanE2E, a.P99E2E, a.MeanTTFT}
		if r.Series != nil && a.Index >= 0 && int(a.Index) < len(r.Series.Adapters) {
			d.Name, d.Rank = r.Series.Adapters[a.Index].Name, r.Series.Adapters[a.Index].Rank
		}
		out = append(out, d)
	}
	return out
}

// keptAdapters takes the means over the seeds, each weighed by its requests.
func (r *Run) keptAdapters() (out []adapterData) {
	sums := map[int]sweep.CellAdapter{}
	for _, c := range r.Kept {
		for _, a := range c.Adapters {
			s, n := sums[a.Index], a.Requests
			sums[a.Index] = sweep.CellAdapter{Index: a.Index, Requests: s.Requests + n, E2E: s.E2E + a.E2E*n, P99E: s.P99E + a.P99E*n, TTFT: s.TTFT + a.TTFT*n}
		}
	}
	for _, s := range slices.SortedFunc(maps.Values(sums), func(a, b sweep.CellAdapter) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Index, b.Index))
	}) {
		name := fmt.Sprintf("adapter %d", s.Index)
		if s.Index < 0 {
			name = "base model"
		}
		n := max(s.Requests, 1)
		out = append(out, adapterData{name, 0, int64(s.Requests) / int64(len(r.Kept)), s.E2E / n, s.P99E / n, s.TTFT / n})
	}
	return out
}

// Limits of what the page holds of a placement.
const (
	placementColumns = 1000 // no screen shows more
	placementRows    = 256
)

// byRequests orders a run's adapters, the busiest first.
func byRequests(s *series.Series) []int {
	order := make([]int, len(s.Adapters))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(s.ByAdapter[b].Requests, s.ByAdapter[a].Requests) })
	return order
}

func (r *Run) placement() *placementData {
	s := r.Series
	order := byRequests(s)
	shown := order[:min(len(order), placementRows)]
	d := &placementData{Columns: placementColumns, Workers: len(s.Workers), Marks: []placementMark{}, Others: len(order) - len(shown)}
	for _, a := range shown {
		row := placementRow{Name: s.Adapters[a].Name, GPU: []int{}, Host: []int{}}
		for w := range s.Workers {
			i := w*len(s.Adapters) + a
			row.GPU = appendStays(row.GPU, w, s.Placement.GPU[i], s.End)
			row.Host = appendStays(row.Host, w, s.Placement.Host[i], s.End)
		}
		d.Rows = append(d.Rows, row)
	}
	for i := range s.Plans {
		if p := &s.Plans[i]; !p.Empty() && p.Dropped == "" {
			d.Marks = append(d.Marks, placementMark{p.Applied, len(p.Loads), p.Moves})
		}
	}
	return d
}

// appendStays adds the stays on one worker in columns, each at least one column
// wide; those that touch become one.
func appendStays(out []int, worker int, stays series.Stays, end float64) []int {
	first := len(out)
	for _, st := range stays {
		a := min(int(st[0]/end*placementColumns), placementColumns-1)
		b := max(min(int(math.Ceil(st[1]/end*placementColumns)), placementColumns), a+1)
		if n := len(out); n > first && a <= out[n-1] {
			out[n-1] = max(out[n-1], b)
			continue
		}
		out = append(out, worker, a, b)
	}
	return out
}
