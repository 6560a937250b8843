package validate

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"lorasim/sim/profile"
)

// Report says how well runs were predicted.
type Report struct {
	Schema  string `json:"schema"`
	Profile string `json:"profile"`
	Use     string `json:"use"` // of the runs; "all"
	Seeds   int    `json:"seeds"`
	// Summary is over all runs, Clear over those away from saturation.
	Summary map[Metric]Summary `json:"summary"`
	Clear   map[Metric]Summary `json:"away_from_saturation"`
	Groups  []GroupSummary     `json:"groups"`
	Ratio   *Ratios            `json:"policy_ratio,omitempty"`
	Servers []ServerRatio      `json:"server_ratio,omitempty"`
	Runs    []Row              `json:"runs"`
}

// Schema names the version of the JSON form of a report.
const Schema = "lorasim.validate/1"

// GroupSummary is the summary of the runs of one group under one policy.
type GroupSummary struct {
	Group   string             `json:"group"`
	Policy  string             `json:"policy"`
	Summary map[Metric]Summary `json:"summary"`
}

// Row is one run. Errors and spreads are fractions.
type Row struct {
	Line           int     `json:"line,omitempty"`
	Group          string  `json:"group"`
	Use            string  `json:"use,omitempty"`
	ID             string  `json:"run_id,omitempty"`
	Policy         string  `json:"policy,omitempty"`
	Trace          string  `json:"trace,omitempty"`
	Rate           float64 `json:"total_rate,omitempty"`
	Stride         int     `json:"map_stride,omitempty"`
	Load           float64 `json:"load,omitempty"`
	NearSaturation bool    `json:"near_saturation,omitempty"`
	Profile        string  `json:"profile,omitempty"` // where runs have different ones
	Measured       Values  `json:"measured"`
	Predicted      Values  `json:"predicted,omitempty"`
	Spread         Values  `json:"spread,omitempty"`
	Error          Values  `json:"error,omitempty"`
	Skipped        string  `json:"skipped,omitempty"`
}

// Ratios compares the mean E2E latency under least-loaded with that under
// static, measured and predicted.
type Ratios struct {
	Pairs int `json:"pairs"`
	// SignRight is the share of the pairs in which the prediction tells
	// correctly which policy is faster.
	SignRight      float64 `json:"sign_right"`
	MedianAbsError float64 `json:"median_abs_error"`
	P90AbsError    float64 `json:"p90_abs_error"`
	MaxAbsError    float64 `json:"max_abs_error"`
	// ClearMaxAbsError leaves out pairs near saturation.
	ClearMaxAbsError float64 `json:"away_from_saturation_max_abs_error"`
	Rows             []Ratio `json:"rows"`
}

// Ratio is one pair of runs, or of sets of repeated runs.
type Ratio struct {
	Group          string  `json:"group"`
	Trace          string  `json:"trace"`
	Rate           float64 `json:"total_rate"`
	Stride         int     `json:"map_stride"`
	Measured       float64 `json:"measured"`
	Predicted      float64 `json:"predicted"`
	Error          float64 `json:"error"`
	NearSaturation bool    `json:"near_saturation,omitempty"`
}

// NewReport summarizes predictions.
func NewReport(ps []Prediction) *Report {
	r := &Report{Schema: Schema, Use: "all", Summary: map[Metric]Summary{}, Clear: map[Metric]Summary{}}
	for i := range ps {
		r.Runs = append(r.Runs, newRow(&ps[i]))
	}
	r.summarize()
	r.Ratio = newRatios(ps)
	return r
}

func newRow(p *Prediction) Row {
	run := &p.Run
	row := Row{Line: run.Line, Group: run.Group, Use: run.Use, ID: run.ID, Policy: run.Policy, Trace: run.Trace,
		Rate: run.Rate, Stride: run.Stride, Load: p.Load, NearSaturation: p.NearSaturation(),
		Measured: run.Measured, Predicted: p.Predicted, Skipped: p.Skipped, Spread: Values{}, Error: Values{}}
	for m, v := range p.Predicted {
		if s, ok := p.Spread[m]; ok && v != 0 {
			row.Spread[m] = s / v
		}
		if e, ok := Relative(run.Measured, p.Predicted, m); ok {
			row.Error[m] = e
		}
	}
	return row
}

// summarize fills in the summaries from the rows.
func (r *Report) summarize() {
	r.Summary = summaries(r.Runs, func(*Row) bool { return true })
	r.Clear = summaries(r.Runs, func(row *Row) bool { return !row.NearSaturation })
	type key struct{ group, policy string }
	var keys []key
	for i := range r.Runs {
		if k := (key{r.Runs[i].Group, r.Runs[i].Policy}); len(r.Runs[i].Error) > 0 && !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	for _, k := range keys {
		s := summaries(r.Runs, func(row *Row) bool { return row.Group == k.group && row.Policy == k.policy })
		r.Groups = append(r.Groups, GroupSummary{k.group, k.policy, s})
	}
}

func summaries(rows []Row, take func(*Row) bool) map[Metric]Summary {
	errors := map[Metric][]float64{}
	for i := range rows {
		for m, e := range rows[i].Error {
			if take(&rows[i]) {
				errors[m] = append(errors[m], e)
			}
		}
	}
	out := map[Metric]Summary{}
	for m, es := range errors {
		out[m] = Summarize(es)
	}
	return out
}

// newRatios pairs runs that differ in their policy alone; nil: there are none.
func newRatios(ps []Prediction) *Ratios {
	type key struct {
		group, trace               string
		rate, cv                   float64
		stride, requests, adapters int
	}
	type side struct{ measured, predicted []float64 }
	type pair struct {
		sides [2]side // static, least-loaded
		near  bool
	}
	var order []key
	pairs := map[key]*pair{}
	for i := range ps {
		p := &ps[i]
		which := slices.IndexFunc([]string{"static", "least-loaded"}, func(name string) bool { return strings.HasPrefix(p.Run.Policy, name) })
		a, okA := p.Run.Measured[MeanE2E]
		b, okB := p.Predicted[MeanE2E]
		if which < 0 || !okA || !okB {
			continue
		}
		r := &p.Run
		k := key{r.Group, r.Trace, r.Rate, r.CV, r.Stride, r.Requests, r.Adapters}
		if pairs[k] == nil {
			pairs[k] = &pair{}
			order = append(order, k)
		}
		s := &pairs[k].sides[which]
		s.measured, s.predicted = append(s.measured, a), append(s.predicted, b)
		pairs[k].near = pairs[k].near || p.NearSaturation()
	}
	var out Ratios
	var abs, clear []float64
	right := 0
	for _, k := range order {
		static, loaded := pairs[k].sides[0], pairs[k].sides[1]
		if len(static.measured) == 0 || len(loaded.measured) == 0 {
			continue
		}
		row := Ratio{Group: k.group, Trace: k.trace, Rate: k.rate, Stride: k.stride, NearSaturation: pairs[k].near,
			Measured: mean(loaded.measured) / mean(static.measured), Predicted: mean(loaded.predicted) / mean(static.predicted)}
		row.Error = row.Predicted/row.Measured - 1
		if (row.Measured < 1) == (row.Predicted < 1) {
			right++
		}
		abs = append(abs, math.Abs(row.Error))
		if !row.NearSaturation {
			clear = append(clear, math.Abs(row.Error))
		}
		out.Rows = append(out.Rows, row)
	}
	if len(out.Rows) == 0 {
		return nil
	}
	s := Summarize(abs)
	out.Pairs, out.SignRight = len(out.Rows), float64(right)/float64(len(out.Rows))
	out.MedianAbsError, out.P90AbsError, out.MaxAbsError = s.MedianAbsError, s.P90AbsError, s.MaxAbsError
	out.ClearMaxAbsError = Summarize(clear).MaxAbsError
	return &out
}

func mean(xs []float64) float64 {
	m, _ := meanStd(xs)
	return m
}

// WriteJSON writes the report as one JSON object.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// Validation is the summary as lines of a profile's validation table.
func (r *Report) Validation(what string, metrics []Metric) []profile.Validation {
	var out []profile.Validation
	for _, m := range metrics {
		if s, ok := r.Summary[m]; ok {
			out = append(out, profile.Validation{Runs: fmt.Sprintf("%d %s", s.Runs, what), Metric: string(m),
				MedianAbsError: round(s.MedianAbsError), P90AbsError: round(s.P90AbsError)})
		}
	}
	return out
}

// round keeps a hundredth of a percent.
func round(x float64) float64 { return math.Round(x*1e4) / 1e4 }
