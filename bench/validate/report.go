package validate

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/gonum/stat"

	"lorasim/internal/figure"
	"lorasim/internal/format"
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

// GroupSummary is the summary of the runs of one group under one policy.
type GroupSummary struct {
	Group   string             `json:"group"`
	Policy  string             `json:"policy"`
	Summary map[Metric]Summary `json:"summary"`
}

// Row is one run.
type Row struct {
	Setup
	// Load is the offered load: the time until the last request has begun when
	// all of them come at once, as a multiple of the time over which they came.
	Load           float64 `json:"load,omitempty"`
	NearSaturation bool    `json:"near_saturation,omitempty"`
	Profile        string  `json:"profile,omitempty"` // where runs have different ones
	Comparison
	Skipped string `json:"skipped,omitempty"` // why the run was not predicted

	run *Run // nil: a block
}

func (r *Row) comparison() *Comparison { return &r.Comparison }

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
func NewReport(rows []Row) *Report {
	r := &Report{Schema: "lorasim.validate/1", Use: "all", Runs: rows, Summary: Summaries(rows, (*Row).comparison)}
	r.Clear = Summaries(slices.DeleteFunc(slices.Clone(rows), func(row Row) bool { return row.NearSaturation }), (*Row).comparison)
	known := slices.DeleteFunc(slices.Clone(rows), func(row Row) bool { return len(row.Error) == 0 })
	type key struct{ group, policy string }
	keys, groups := GroupBy(known, func(row *Row) key { return key{row.Group, row.Policy} })
	for _, k := range keys {
		r.Groups = append(r.Groups, GroupSummary{k.group, k.policy, Summaries(groups[k], (*Row).comparison)})
	}
	r.Ratio = newRatios(known)
	return r
}

// newRatios pairs runs that differ in their policy alone; nil: there are none.
func newRatios(rows []Row) *Ratios {
	type key struct {
		group, trace               string
		rate, cv                   float64
		stride, requests, adapters int
	}
	rows = slices.DeleteFunc(slices.Clone(rows), func(r Row) bool {
		_, ok := r.Error[MeanE2E]
		return !ok || r.run == nil || !strings.HasPrefix(r.Policy, "static") && !strings.HasPrefix(r.Policy, "least-loaded")
	})
	keys, pairs := GroupBy(rows, func(row *Row) key {
		r := row.run
		return key{r.Group, r.Trace, r.Rate, r.CV, r.Stride, r.Requests, r.Adapters}
	})
	var out Ratios
	var abs, clear []float64
	right := 0
	for _, k := range keys {
		mean := func(policy string, of func(*Row) float64) float64 {
			var xs []float64
			for i := range pairs[k] {
				if r := &pairs[k][i]; strings.HasPrefix(r.Policy, policy) {
					xs = append(xs, of(r))
				}
			}
			return stat.Mean(xs, nil)
		}
		ratio := func(of func(*Row) float64) float64 { return mean("least-loaded", of) / mean("static", of) }
		row := Ratio{Group: k.group, Trace: k.trace, Rate: k.rate, Stride: k.stride,
			Measured:  ratio(func(r *Row) float64 { return r.Measured[MeanE2E] }),
			Predicted: ratio(func(r *Row) float64 { return r.Predicted[MeanE2E] })}
		if math.IsNaN(row.Measured) { // one of the policies has no run
			continue
		}
		row.NearSaturation = slices.ContainsFunc(pairs[k], func(r Row) bool { return r.NearSaturation })
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

// Validation is the summary as lines of a profile's validation table.
func (r *Report) Validation(what string) []profile.Validation {
	metrics := Metrics
	if r.blocks() {
		metrics = BlockMetrics
	}
	return ValidationOf(r.Summary, metrics, what)
}

// ValidationOf is a summary as lines of a profile's validation table.
func ValidationOf(summary map[Metric]Summary, metrics []Metric, what string) (out []profile.Validation) {
	round := func(x float64) float64 { return math.Round(x*1e4) / 1e4 } // a hundredth of a percent
	for _, m := range metrics {
		if s, ok := summary[m]; ok {
			out = append(out, profile.Validation{Runs: fmt.Sprintf("%d %s", s.Runs, what), Metric: string(m),
				MedianAbsError: round(s.MedianAbsError), P90AbsError: round(s.P90AbsError)})
		}
	}
	return out
}

// blocks says whether the report is on blocks of logs.
func (r *Report) blocks() bool {
	return slices.ContainsFunc(r.Runs, func(row Row) bool { return row.run == nil })
}

// Plot draws predicted against measured as an SVG: a panel for each of the
// metrics duration, mean and median E2E latency, or for logs the mean E2E
// latency, TTFT and ITL.
func (r *Report) Plot(w io.Writer) error {
	metrics := []Metric{Duration, MeanE2E, MedianE2E}
	if r.blocks() {
		metrics = []Metric{MeanE2E, MeanTTFT, MeanITL}
	}
	var panels []figure.Panel
	for _, m := range metrics {
		unit := "ms"
		if m == Duration {
			unit = "s"
		}
		panels = append(panels, Panel(r.Runs, m, unit, func(row *Row) (*Comparison, string) {
			if r.blocks() {
				return &row.Comparison, row.ID
			}
			policy, _, _ := strings.Cut(row.Policy, ":")
			return &row.Comparison, row.Group + " " + policy
		}))
	}
	return figure.WritePanels(w, panels)
}

// WriteText prints the report as tables: the runs, the summaries, the ratio of
// the policies.
func (r *Report) WriteText(w io.Writer) error {
	p := &printer{w: w}
	if r.blocks() {
		for i := range r.Runs {
			p.block(&r.Runs[i])
		}
		p.servers(r.Servers)
		return p.err
	}
	metrics := slices.DeleteFunc(slices.Clone(Metrics), func(m Metric) bool { return r.Summary[m].Runs == 0 })
	p.runs(r.Runs, metrics)
	p.summaries(r, metrics)
	if r.Ratio != nil {
		p.ratios(r.Ratio)
	}
	return p.err
}

// printer prints tables until one fails.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) table(title string, rows [][]string) {
	if p.err == nil && title != "" {
		_, p.err = fmt.Fprintf(p.w, "\n%s\n", title)
	}
	if p.err == nil {
		p.err = format.Table(p.w, rows)
	}
}

// block prints one block, a metric on each line.
func (p *printer) block(r *Row) {
	title := fmt.Sprintf("%s:%d %s", r.Group, r.Line, r.ID)
	if r.Skipped != "" {
		p.table(title, [][]string{{"skipped: " + r.Skipped}})
		return
	}
	rows := [][]string{{"METRIC", "MEASURED", "PREDICTED", "ERROR"}}
	for _, m := range BlockMetrics {
		if _, ok := r.Error[m]; ok {
			rows = append(rows, append([]string{m.label()}, r.cells(m)...))
		}
	}
	p.table(title+", profile "+r.Profile, rows)
}

func (p *printer) servers(rs []ServerRatio) {
	if len(rs) == 0 {
		return
	}
	rows := [][]string{{"SERVERS", "PROMPTS", "CONCURRENCY", "MEASURED", "PREDICTED", "ERROR"}}
	for _, r := range rs {
		rows = append(rows, []string{r.Servers, strconv.Itoa(r.Requests), strconv.Itoa(r.Concurrency),
			fixed(r.Measured, 4), fixed(r.Predicted, 4), percent(r.Error)})
	}
	p.table("Ratio of the mean E2E latencies", rows)
}

func (p *printer) runs(runs []Row, metrics []Metric) {
	head := []string{"GROUP", "USE", "POLICY", "TRACE", "RATE", "STRIDE", "LOAD"}
	for _, m := range metrics {
		head = append(head, m.label(), "PREDICTED", "ERROR")
	}
	rows := [][]string{append(head, "NOTE")}
	for i := range runs {
		r := &runs[i]
		cells := []string{r.Group, dash(r.Use), dash(r.Policy), dash(r.Trace), number(r.Rate), number(float64(r.Stride)), "-"}
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
	p.table("", rows)
}

// cells are a metric as measured and predicted, and the error.
func (c *Comparison) cells(m Metric) []string {
	e, ok := c.Error[m]
	if !ok {
		return []string{"-", "-", "-"}
	}
	return []string{m.format(c.Measured[m]), m.format(c.Predicted[m]), percent(e)}
}

func (p *printer) summaries(r *Report, metrics []Metric) {
	rows := [][]string{{"RUNS", "METRIC", "N", "MEDIAN |ERROR|", "P90", "MAX", "MEAN ERROR"}}
	add := func(what string, s map[Metric]Summary) {
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
	p.table("Errors of "+r.Profile, rows)
}

// Cells are the number of runs and the errors.
func (s Summary) Cells() []string {
	return []string{strconv.Itoa(s.Runs), format.Percent(s.MedianAbsError, 1), format.Percent(s.P90AbsError, 1),
		format.Percent(s.MaxAbsError, 1), percent(s.MeanError)}
}

func (p *printer) ratios(r *Ratios) {
	rows := [][]string{{"GROUP", "TRACE", "RATE", "STRIDE", "MEASURED", "PREDICTED", "ERROR", "NOTE"}}
	for _, q := range r.Rows {
		rows = append(rows, []string{q.Group, dash(q.Trace), number(q.Rate), strconv.Itoa(q.Stride),
			fixed(q.Measured, 3), fixed(q.Predicted, 3), percent(q.Error), nearSaturation(q.NearSaturation)})
	}
	p.table("Mean E2E latency, least-loaded over static", rows)
	p.table("", [][]string{{fmt.Sprintf("right sign in %.0f %% of %d pairs, median |error| %.1f %%, P90 %.1f %%, max %.1f %% (%.1f %% away from saturation)",
		100*r.SignRight, r.Pairs, 100*r.MedianAbsError, 100*r.P90AbsError, 100*r.MaxAbsError, 100*r.ClearMaxAbsError)}})
}

func nearSaturation(near bool) string {
	if near {
		return "near saturation"
	}
	return ""
}

func percent(e float64) string { return fmt.Sprintf("%+.1f %%", 100*e) }

func fixed(x float64, decimals int) string { return strconv.FormatFloat(x, 'f', decimals, 64) }

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func number(x float64) string {
	if x == 0 {
		return "-"
	}
	return strconv.FormatFloat(x, 'g', 6, 64)
}

// label is the metric's name with its unit, as a heading.
func (m Metric) label() string {
	if m == Duration {
		return "DURATION s"
	}
	return strings.ToUpper(strings.ReplaceAll(string(m), "_", " ")) + " ms"
}

func (m Metric) format(v float64) string {
	switch {
	case m == Duration:
		return fixed(v, 1)
	case v < 1000:
		return fixed(v, 2)
	}
	return fixed(v, 0)
}
