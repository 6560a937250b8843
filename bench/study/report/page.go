package report

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"

	"lorasim/bench/pages"
	"lorasim/bench/result"
	"lorasim/bench/result/series"
	"lorasim/bench/scenario"
	"lorasim/bench/stats"
	"lorasim/bench/steady"
	"lorasim/bench/study/compare"
	"lorasim/bench/study/sweep"
	"lorasim/internal/format"
)

// The page's script draws from what data returns, which is embedded as JSON. Names
// are short where they repeat often.

type adapterData struct {
	Name     string  `json:"name"`
	Rank     int     `json:"rank,omitempty"`
	Requests int64   `json:"requests"`
	E2E      float64 `json:"e2e"` // ms
	P99      float64 `json:"p99"`
	TTFT     float64 `json:"ttft"`
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

// object writes an object, with what is set for the numbers in it.
func object(enc *jsontext.Encoder, o format.Object) error {
	err := enc.WriteToken(jsontext.BeginObject)
	for name, v := range o.All() {
		err = cmp.Or(err, enc.WriteToken(jsontext.String(name)), json.MarshalEncode(enc, v))
	}
	return cmp.Or(err, enc.WriteToken(jsontext.EndObject))
}

// WriteHTML writes the page as a single, self-contained file.
func (p *Page) WriteHTML(w io.Writer) error {
	d, err := p.data()
	if err != nil {
		return err
	}
	// escapes <, so that no text can end the script element
	data, err := json.Marshal(d, jsonv1.DefaultOptionsV1(),
		json.WithMarshalers(json.JoinMarshalers(json.MarshalFunc(short), json.MarshalToFunc(object))))
	if err != nil {
		return err
	}
	return pages.Report.WriteFile(w, pages.Content{Title: p.Title, About: p.About, Data: string(data)})
}

func (p *Page) data() (format.Object, error) {
	runs, sweeps := []any{}, []any{}
	for _, r := range p.Runs {
		o, err := r.data()
		if err != nil {
			return nil, err
		}
		runs = append(runs, o)
	}
	for _, s := range p.Sweeps {
		sweeps = append(sweeps, s.data())
	}
	probabilities := make([]float64, series.Quantiles+1) // of the quantiles of all runs
	for i := range probabilities {
		probabilities[i] = float64(i) / series.Quantiles
	}
	var table any
	if p.Compared != nil {
		table = compared(p.Compared)
	}
	sections := []any{}
	for i := range p.Sections {
		sections = append(sections, p.Sections[i].data())
	}
	return format.Object{"title", p.Title, "about,omitempty", p.About, "sections,omitempty", sections,
		"notes", append([]string{}, p.Notes...),
		"at", append([]string{}, p.At...), "runs", runs,
		"compared,omitempty", table, "sweeps", sweeps, "probabilities", probabilities}, nil
}

// compared has the cells of a row by run; NaN: none.
func compared(t *compare.Table) any {
	var rows []any
	for _, row := range t.Rows {
		var means []float64
		var best, apart []bool
		for _, c := range row.Cells {
			means, best, apart = append(means, c.Mean), append(best, c.Clear), append(apart, c.Apart)
		}
		rows = append(rows, format.Object{
			"title", row.Title, "better", row.Better, "cells", means, "best", best, "apart", apart,
		})
	}
	var states []any // of the runs; empty where it is unknown
	for _, r := range t.Runs {
		states = append(states, stateData(r.Stationarity()))
	}
	return format.Object{"rows", rows, "states", states}
}

// stateData is a state with its mark and its words; empty where it is unknown.
func stateData(s steady.Stationarity) format.Object {
	if s.State == "" {
		return format.Object{}
	}
	return format.Object{"state", string(s.State), "mark", s.Mark(), "text", s.String()}
}

func (r *Run) data() (format.Object, error) {
	o := format.Object{
		"name", r.Name, "source", r.Source, "what", r.What, "quantiles,omitempty", r.quantiles(),
		"adapters,omitempty", r.adapters(),
	}
	if s := r.Series; s != nil {
		if len(s.Workers) > 0 {
			o = append(o, "series", s)
		}
		if s.Placement != nil && s.End > 0 {
			o = append(o, "placement", r.placement())
		}
		if len(s.Plans) > 0 {
			o = append(o, "plans", format.Object{"left", s.PlansLeft, "rows", s.Plans})
		}
	}
	var b bytes.Buffer
	if r.Result != nil {
		if err := cmp.Or(r.Result.WriteScenario(&b), r.Result.WriteBlock(&b, result.SGLang)); err != nil {
			return nil, err
		}
	}
	return append(o, "block,omitempty", b.String()), nil
}

func (s *Sweep) data() format.Object {
	axes, points := []any{}, []any{}
	var metrics []any
	for _, a := range s.Axes {
		axes = append(axes, newAxis(a))
	}
	for _, name := range s.Tables.Metrics { // all: about all requests, however they ended
		m := result.MetricOf(name)
		metrics = append(metrics, format.Object{
			"name", name, "title", m.Title, "better", m.Better, "all,omitempty", m.AllRequests,
		})
	}
	for i := range s.Points {
		p := &s.Points[i]
		var at []int // index of the value on each axis
		for k, v := range p.Values {
			at = append(at, slices.Index(s.Axes[k].Values, v))
		}
		var means [][3]float64 // mean, low and high of each metric, NaN where there is none
		for _, name := range s.Tables.Metrics {
			e := stats.Mean(nil)
			if m, ok := p.Metric(name); ok {
				e = m.Estimate
			}
			means = append(means, [3]float64{e.Mean, e.Low, e.High})
		}
		points = append(points,
			format.Object{"at", at, "p", slices.Index(s.Policies, p.Policy), "left", p.Left, "apart,omitempty", p.Apart,
				"reached,omitempty", stateData(p.Stationarity), "m", means})
	}
	return format.Object{"name", s.Name, "about,omitempty", s.About, "axes", axes, "policies", s.Policies,
		"baseline", s.Baseline, "seeds", len(s.Seeds), "intervals", s.Tables.Intervals(len(s.Seeds)),
		"metrics", metrics, "points", points, "maps,omitempty", s.maps()}
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
	if r.Result == nil {
		return r.keptAdapters()
	}
	if r.Result.Extra == nil {
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
			sums[a.Index] = sweep.CellAdapter{
				Index: a.Index, Requests: s.Requests + n, E2E: s.E2E + a.E2E*n, P99E: s.P99E + a.P99E*n,
				TTFT: s.TTFT + a.TTFT*n,
			}
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
		out = append(out, adapterData{
			name, 0, int64(s.Requests) / int64(len(r.Kept)), s.E2E / n, s.P99E / n, s.TTFT / n,
		})
	}
	return out
}

// Limits of what the page holds of a placement.
const (
	placementColumns = 1000 // no screen shows more
	placementRows    = 256
)

// byRequests orders a run's adapters, the busiest first.
func byRequests(s *series.Series) (order []int) {
	for i := range s.Adapters {
		order = append(order, i)
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(s.Requests[b], s.Requests[a]) })
	return order
}

// placement holds stays as worker, first and last column in turn; the run is
// placementColumns wide.
func (r *Run) placement() format.Object {
	s := r.Series
	order := byRequests(s)
	shown := order[:min(len(order), placementRows)]
	var rows []any
	for _, a := range shown {
		gpu, host := []int{}, []int{}
		for w := range s.Workers {
			i := w*len(s.Adapters) + a
			gpu, host = appendStays(gpu, w, s.Placement.GPU[i], s.End), appendStays(host, w, s.Placement.Host[i], s.End)
		}
		rows = append(rows, format.Object{"name", s.Adapters[a].Name, "gpu", gpu, "host", host})
	}
	marks := []any{} // plans
	for i := range s.Plans {
		if p := &s.Plans[i]; !p.Empty() && p.Dropped == "" {
			marks = append(marks, format.Object{"at", p.Applied, "loads", len(p.Loads), "moves", p.Moves})
		}
	}
	return format.Object{
		"show,omitempty", tellingTier(s), "columns", placementColumns, "rows", rows,
		"others,omitempty", len(order) - len(shown), "workers", len(s.Workers), "marks", marks,
	}
}

// tellingTier is where the placement of adapters tells something: host memory, or
// the GPU slots where host memory holds every adapter on every worker all the time;
// "": neither.
func tellingTier(s *series.Series) string {
	for _, tier := range []struct {
		name  string
		stays []series.Stays
	}{{"host", s.Placement.Host}, {"gpu", s.Placement.GPU}} {
		all := func(of series.Stays) bool { return len(of) == 1 && of[0][0] <= 0 && of[0][1] >= s.End*0.999 }
		held := slices.ContainsFunc(tier.stays, func(of series.Stays) bool { return len(of) > 0 })
		if held && slices.ContainsFunc(tier.stays, func(of series.Stays) bool { return !all(of) }) {
			return tier.name
		}
	}
	return ""
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
		} else {
			out = append(out, worker, a, b)
		}
	}
	return out
}
