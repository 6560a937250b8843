package validate

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/gonum/stat"

	"lorasim/bench/stats"
	"lorasim/internal/format"
	"lorasim/sim/profile"
)

// Report is the errors of predicted runs.
type Report struct {
	Schema  string `json:"schema"`
	Profile string `json:"profile"`
	Use     string `json:"use"` // use of the runs, or "all"
	Seeds   int    `json:"seeds"`
	// Summary covers all runs, Clear only runs away from saturation.
	Summary map[Quantity]stats.ErrorSummary `json:"summary"`
	Clear   map[Quantity]stats.ErrorSummary `json:"away_from_saturation"`
	Groups  []GroupSummary                  `json:"groups"`
	Ratio   *Ratios                         `json:"policy_ratio,omitempty"`
	Servers []ServerRatio                   `json:"server_ratio,omitempty"`
	Runs    []Row                           `json:"runs"`
}

// GroupSummary is the summary of the runs of one group under one policy.
type GroupSummary struct {
	Group   string                          `json:"group"`
	Policy  string                          `json:"policy"`
	Summary map[Quantity]stats.ErrorSummary `json:"summary"`
}

// Row is one run with its prediction.
type Row struct {
	Setup
	// Load is the offered load. It is the time until the last request begins if all arrive at once,
	// divided by the time over which they arrived.
	Load           float64 `json:"load,omitempty"`
	NearSaturation bool    `json:"near_saturation,omitempty"`
	Profile        string  `json:"profile,omitempty"` // profile of the run, if runs have different ones
	Comparison
	Skipped string `json:"skipped,omitempty"` // reason why the run was not predicted

	run *Run // nil for a block
}

// Ratios compares the mean E2E latencies under least-loaded and under static: their measured and
// their predicted ratios.
type Ratios struct {
	Pairs int `json:"pairs"`
	// SignRight is the share of the pairs for which the prediction names the faster policy
	// correctly.
	SignRight      float64 `json:"sign_right"`
	MedianAbsError float64 `json:"median_abs_error"`
	P90AbsError    float64 `json:"p90_abs_error"`
	MaxAbsError    float64 `json:"max_abs_error"`
	// ClearMaxAbsError excludes pairs near saturation.
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

// NewReport summarizes predicted runs.
func NewReport(rows []Row) *Report {
	r := &Report{Schema: "lorasim.validate/1", Use: "all", Runs: rows, Summary: Summaries(rows)}
	r.Clear = Summaries(slices.DeleteFunc(slices.Clone(rows), func(row Row) bool { return row.NearSaturation }))
	known := slices.DeleteFunc(slices.Clone(rows), func(row Row) bool { return len(row.Error) == 0 })
	type key struct{ group, policy string }
	keys, groups := stats.GroupBy(known, func(row *Row) key { return key{row.Group, row.Policy} })
	for _, k := range keys {
		r.Groups = append(r.Groups, GroupSummary{k.group, k.policy, Summaries(groups[k])})
	}
	r.Ratio = newRatios(known)
	return r
}

// newRatios pairs runs that differ only in their policy; nil: there are no pairs.
func newRatios(rows []Row) *Ratios {
	type key struct {
		group, trace               string
		rate, cv                   float64
		stride, requests, adapters int
	}
	rows = slices.DeleteFunc(slices.Clone(rows), func(r Row) bool {
		_, ok := r.Error[MeanE2E]
		return !ok || r.run == nil || !strings.HasPrefix(r.Policy, "static") &&
			!strings.HasPrefix(r.Policy, "least-loaded")
	})
	keys, pairs := stats.GroupBy(rows, func(row *Row) key {
		r := row.run
		return key{r.Group, r.Trace, r.Rate, r.CV, r.Stride, r.Requests, r.Adapters}
	})
	var out Ratios
	var all, clear []float64
	for _, k := range keys {
		of := func(policy string) (measured, predicted float64) { // means of repeated runs
			var ms, ps []float64
			for _, r := range pairs[k] {
				if strings.HasPrefix(r.Policy, policy) {
					ms, ps = append(ms, r.Measured[MeanE2E]), append(ps, r.Predicted[MeanE2E])
				}
			}
			return stat.Mean(ms, nil), stat.Mean(ps, nil)
		}
		least, leastPredicted := of("least-loaded")
		static, staticPredicted := of("static")
		if math.IsNaN(least / static) { // one of the policies has no run
			continue
		}
		row := Ratio{Group: k.group, Trace: k.trace, Rate: k.rate, Stride: k.stride,
			Measured: least / static, Predicted: leastPredicted / staticPredicted,
			NearSaturation: slices.ContainsFunc(pairs[k], func(r Row) bool { return r.NearSaturation })}
		row.Error = row.Predicted/row.Measured - 1
		if (row.Measured < 1) == (row.Predicted < 1) {
			out.SignRight++
		}
		if all = append(all, row.Error); !row.NearSaturation {
			clear = append(clear, row.Error)
		}
		out.Rows = append(out.Rows, row)
	}
	if len(out.Rows) == 0 {
		return nil
	}
	s := stats.SummarizeErrors(all)
	out.Pairs, out.SignRight = s.Runs, out.SignRight/float64(s.Runs)
	out.MedianAbsError, out.P90AbsError, out.MaxAbsError = s.MedianAbsError, s.P90AbsError, s.MaxAbsError
	out.ClearMaxAbsError = stats.SummarizeErrors(clear).MaxAbsError
	return &out
}

// Validation returns the summary as lines of a profile's validation table. what names the data.
func (r *Report) Validation(what string) []profile.Validation {
	metrics := Metrics
	if r.blocks() {
		metrics = BlockMetrics
	}
	return ValidationOf(r.Summary, metrics, what)
}

// ValidationOf returns a summary as lines of a profile's validation table. what names the data.
func ValidationOf(summary map[Quantity]stats.ErrorSummary, metrics []Quantity, what string) (out []profile.Validation) {
	round := func(x float64) float64 { return math.Round(x*1e4) / 1e4 } // a hundredth of a percent
	for _, m := range metrics {
		if s, ok := summary[m]; ok {
			out = append(out, profile.Validation{Runs: fmt.Sprintf("%d %s", s.Runs, what), Metric: string(m),
				MedianAbsError: round(s.MedianAbsError), P90AbsError: round(s.P90AbsError)})
		}
	}
	return out
}

// blocks reports whether the rows are blocks of logs.
func (r *Report) blocks() bool {
	return slices.ContainsFunc(r.Runs, func(row Row) bool { return row.run == nil })
}

// Plot draws predicted against measured values as an SVG. It has panels for duration, mean and
// median E2E latency, or, for logs, for mean E2E latency, TTFT and ITL.
func (r *Report) Plot(w io.Writer) error {
	metrics := []Quantity{Duration, MeanE2E, MedianE2E}
	if r.blocks() {
		metrics = []Quantity{MeanE2E, MeanTTFT, MeanITL}
	}
	var panels []Panel
	for _, m := range metrics {
		unit := "ms"
		if m == Duration {
			unit = "s"
		}
		panels = append(panels, NewPanel(r.Runs, m, unit, func(row *Row) string {
			if r.blocks() {
				return row.ID
			}
			policy, _, _ := strings.Cut(row.Policy, ":")
			return row.Group + " " + policy
		}))
	}
	return Plot(w, panels...)
}

// WriteText prints tables of the runs, the summaries, and the ratios of the policies.
func (r *Report) WriteText(w io.Writer) error {
	if !r.blocks() {
		metrics := slices.DeleteFunc(slices.Clone(Metrics), func(m Quantity) bool { return r.Summary[m].Runs == 0 })
		return format.Table(w, slices.Concat(r.runs(metrics), r.summaries(metrics), r.Ratio.table()))
	}
	var rows [][]string
	for i := range r.Runs {
		rows = append(rows, r.Runs[i].block()...)
	}
	if len(r.Servers) > 0 {
		rows = append(rows, nil, []string{"Ratio of the mean E2E latencies"}, []string{
			"SERVERS", "PROMPTS", "CONCURRENCY", "MEASURED", "PREDICTED", "ERROR",
		})
	}
	for _, s := range r.Servers {
		rows = append(rows, []string{
			s.Servers, strconv.Itoa(s.Requests), strconv.Itoa(s.Concurrency), fixed(s.Measured, 4),
			fixed(s.Predicted, 4), percent(s.Error),
		})
	}
	return format.Table(w, rows)
}

// block returns the table of a block, a metric on each line.
func (r *Row) block() [][]string {
	title := fmt.Sprintf("%s:%d %s", r.Group, r.Line, r.ID)
	if r.Skipped != "" {
		return [][]string{nil, {title}, {"skipped: " + r.Skipped}}
	}
	rows := [][]string{nil, {title + ", profile " + r.Profile}, {"METRIC", "MEASURED", "PREDICTED", "ERROR"}}
	for _, m := range BlockMetrics {
		if _, ok := r.Error[m]; ok {
			rows = append(rows, append([]string{m.label()}, r.cells(m)...))
		}
	}
	return rows
}

// runs returns the table of the runs.
func (r *Report) runs(metrics []Quantity) [][]string {
	head := []string{"GROUP", "USE", "POLICY", "TRACE", "RATE", "STRIDE", "LOAD"}
	for _, m := range metrics {
		head = append(head, m.label(), "PREDICTED", "ERROR")
	}
	rows := [][]string{append(head, "NOTE")}
	for i := range r.Runs {
		r := &r.Runs[i]
		cells := []string{
			r.Group, cmp.Or(r.Use, "-"), cmp.Or(r.Policy, "-"), cmp.Or(r.Trace, "-"), number(r.Rate),
			number(float64(r.Stride)), "-",
		}
		if r.Load != 0 {
			cells[6] = fixed(r.Load, 2)
		}
		for _, m := range metrics {
			cells = append(cells, r.cells(m)...)
		}
		note := nearSaturation(r.NearSaturation)
		if r.Skipped != "" {
			note = "skipped: " + r.Skipped
		}
		rows = append(rows, append(cells, note))
	}
	return rows
}

// cells returns a metric as measured and predicted, and the error.
func (c *Comparison) cells(m Quantity) []string {
	e, ok := c.Error[m]
	if !ok {
		return []string{"-", "-", "-"}
	}
	return []string{m.format(c.Measured[m]), m.format(c.Predicted[m]), percent(e)}
}

// summaries returns the table of the errors.
func (r *Report) summaries(metrics []Quantity) [][]string {
	rows := [][]string{
		nil, {"Errors of " + r.Profile}, {"RUNS", "METRIC", "N", "MEDIAN |ERROR|", "P90", "MAX", "MEAN ERROR"},
	}
	add := func(what string, s map[Quantity]stats.ErrorSummary) {
		for _, m := range metrics {
			if v, ok := s[m]; ok {
				rows = append(rows, append([]string{what, string(m)}, v.Cells()...))
			}
		}
	}
	add("all", r.Summary)
	if len(r.Groups) > 1 || r.Ratio != nil {
		add("away from saturation", r.Clear)
		for _, g := range r.Groups {
			add(strings.TrimSpace(g.Group+" "+g.Policy), g.Summary)
		}
	}
	return rows
}

// table returns the table of the ratios; it is empty without pairs.
func (r *Ratios) table() [][]string {
	if r == nil {
		return nil
	}
	rows := [][]string{
		nil, {"Mean E2E latency, least-loaded over static"},
		{"GROUP", "TRACE", "RATE", "STRIDE", "MEASURED", "PREDICTED", "ERROR", "NOTE"},
	}
	for _, q := range r.Rows {
		rows = append(rows, []string{q.Group, cmp.Or(q.Trace, "-"), number(q.Rate), strconv.Itoa(q.Stride),
			fixed(q.Measured, 3), fixed(q.Predicted, 3), percent(q.Error), nearSaturation(q.NearSaturation)})
	}
	return append(rows,
		[]string{fmt.Sprintf(
			"right sign in %.0f %% of %d pairs, median |error| %.1f %%, P90 %.1f %%, max %.1f %% (%.1f %% away from saturation)",
			100*r.SignRight, r.Pairs, 100*r.MedianAbsError, 100*r.P90AbsError, 100*r.MaxAbsError,
			100*r.ClearMaxAbsError)})
}

func nearSaturation(near bool) string {
	if near {
		return "near saturation"
	}
	return ""
}

func percent(e float64) string { return fmt.Sprintf("%+.1f %%", 100*e) }

func fixed(x float64, decimals int) string { return strconv.FormatFloat(x, 'f', decimals, 64) }

func number(x float64) string {
	if x == 0 {
		return "-"
	}
	return strconv.FormatFloat(x, 'g', 6, 64)
}

// label returns the metric's name with its unit, as a heading.
func (m Quantity) label() string {
	if m == Duration {
		return "DURATION s"
	}
	return strings.ToUpper(strings.ReplaceAll(string(m), "_", " ")) + " ms"
}

func (m Quantity) format(v float64) string {
	switch {
	case m == Duration:
		return fixed(v, 1)
	case v < 1000:
		return fixed(v, 2)
	}
	return fixed(v, 0)
}
