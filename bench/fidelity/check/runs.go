package check

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/gonum/stat"

	"lorasim/bench/fidelity/measured"
	"lorasim/bench/stats"
	"lorasim/internal/format"
	"lorasim/sim/profile"
)

// runErrors are the errors of runs of a table or of logs.
type runErrors struct {
	Schema  string `json:"schema"`
	Profile string `json:"profile"`
	Use     string `json:"use"` // use of the runs, or "all"
	Seeds   int    `json:"seeds"`
	// Summary covers all runs, Clear only runs away from saturation.
	Summary Summary        `json:"summary"`
	Clear   Summary        `json:"away_from_saturation"`
	Groups  []groupSummary `json:"groups"`
}

// groupSummary is the summary of the runs of one group under one policy.
type groupSummary struct {
	Group   string  `json:"group"`
	Policy  string  `json:"policy"`
	Summary Summary `json:"summary"`
}

// newRunErrors summarizes predicted runs. of returns the set-up of a run, and whether it is near saturation.
func newRunErrors[Row any, P compared[Row]](rows []Row, of func(*Row) (*measured.Setup, bool)) runErrors {
	r := runErrors{Schema: "lorasim.validate/1", Use: "all", Summary: summarize[Row, P](rows)}
	r.Clear = summarize[Row, P](slices.DeleteFunc(slices.Clone(rows), func(row Row) bool {
		_, near := of(&row)
		return near
	}))
	type key struct{ group, policy string }
	known := slices.DeleteFunc(slices.Clone(rows), func(row Row) bool { return len(P(&row).Compared().Error) == 0 })
	keys, groups := stats.GroupBy(known, func(row *Row) key {
		s, _ := of(row)
		return key{s.Group, s.Policy}
	})
	for _, k := range keys {
		r.Groups = append(r.Groups, groupSummary{k.group, k.policy, summarize[Row, P](groups[k])})
	}
	return r
}

// RunsReport is the errors of the predicted runs of a table.
type RunsReport struct {
	runErrors
	Ratio *Ratios                 `json:"policy_ratio,omitempty"`
	Runs  []measured.PredictedRun `json:"runs"`
}

// Runs predicts the runs of a table and reports on them. hists are the invocations per adapter.
func Runs(ctx context.Context, runs []measured.Run, hists measured.Histograms, o measured.RunOptions) (
	*RunsReport, error) {
	rows, err := measured.PredictRuns(ctx, runs, hists, o)
	if err != nil {
		return nil, err
	}
	r := NewRunsReport(rows)
	r.Profile, r.Seeds = o.Profile.Name, o.Seeds
	return r, nil
}

// NewRunsReport reports on predicted runs.
func NewRunsReport(rows []measured.PredictedRun) *RunsReport {
	return &RunsReport{runErrors: newRunErrors(rows, func(r *measured.PredictedRun) (*measured.Setup, bool) {
		return &r.Setup, r.NearSaturation
	}), Ratio: newRatios(rows), Runs: rows}
}

// Intervals implements [Report].
func (r *RunsReport) Intervals() *IntervalReport {
	return intervals(unfitted(r.Runs, func(r *measured.PredictedRun) string { return r.Use }))
}

// Validation returns the summary as lines of a profile's validation table. what names the data.
func (r *RunsReport) Validation(what string) []profile.Validation {
	return r.Summary.Validation(measured.RunMetrics, what)
}

// Plot implements [Report]: duration, mean and median E2E latency, with a colour for each group and policy.
func (r *RunsReport) Plot(w io.Writer) error {
	return plot(w, r.Runs, []measured.Metric{measured.Duration, measured.MeanE2E, measured.MedianE2E},
		func(row *measured.PredictedRun) string {
			policy, _, _ := strings.Cut(row.Policy, ":")
			return row.Group + " " + policy
		})
}

// WriteText prints tables of the runs, the summaries, and the ratios of the policies.
func (r *RunsReport) WriteText(w io.Writer) error {
	metrics := slices.DeleteFunc(slices.Clone(measured.RunMetrics), func(m measured.Metric) bool {
		return r.Summary[m].Runs == 0
	})
	return format.Table(w, slices.Concat(r.runs(metrics), r.summaries(metrics), r.Ratio.table()))
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

// newRatios pairs runs that differ only in their policy; nil: there are no pairs.
func newRatios(rows []measured.PredictedRun) *Ratios {
	type key struct {
		group, trace               string
		rate, cv                   float64
		stride, requests, adapters int
	}
	rows = slices.DeleteFunc(slices.Clone(rows), func(r measured.PredictedRun) bool {
		_, ok := r.Error[measured.MeanE2E]
		return !ok || !strings.HasPrefix(r.Policy, "static") &&
			!strings.HasPrefix(r.Policy, "least-loaded")
	})
	keys, pairs := stats.GroupBy(rows, func(row *measured.PredictedRun) key {
		r := row.Run
		return key{r.Group, r.Trace, r.Rate, r.CV, r.Stride, r.Requests, r.Adapters}
	})
	var out Ratios
	var all, clear []float64
	for _, k := range keys {
		of := func(policy string) (mean, meanPredicted float64) { // means of repeated runs
			var ms, ps []float64
			for _, r := range pairs[k] {
				if strings.HasPrefix(r.Policy, policy) {
					ms, ps = append(ms, r.Measured[measured.MeanE2E]), append(ps, r.Predicted[measured.MeanE2E])
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
			NearSaturation: slices.ContainsFunc(pairs[k],
				func(r measured.PredictedRun) bool { return r.NearSaturation })}
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

// runs returns the table of the runs.
func (r *RunsReport) runs(metrics []measured.Metric) [][]string {
	head := []string{"GROUP", "USE", "POLICY", "TRACE", "RATE", "STRIDE", "LOAD"}
	for _, m := range metrics {
		head = append(head, m.Label(), "PREDICTED", "ERROR")
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
			cells = append(cells, comparisonCells(&r.Comparison, m)...)
		}
		note := nearSaturation(r.NearSaturation)
		if r.Skipped != "" {
			note = "skipped: " + r.Skipped
		}
		rows = append(rows, append(cells, note))
	}
	return rows
}

// comparisonCells returns a metric as measured and predicted, and the error.
func comparisonCells(c *measured.Comparison, m measured.Metric) []string {
	e, ok := c.Error[m]
	if !ok {
		return []string{"-", "-", "-"}
	}
	return []string{m.Format(c.Measured[m]), m.Format(c.Predicted[m]), percent(e)}
}

// summaries returns the table of the errors.
func (r *RunsReport) summaries(metrics []measured.Metric) [][]string {
	rows := [][]string{
		nil, {"Errors of " + r.Profile}, {"RUNS", "METRIC", "N", "MEDIAN |ERROR|", "P90", "MAX", "MEAN ERROR"},
	}
	add := func(what string, s Summary) {
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

func fixed(x float64, decimals int) string { return strconv.FormatFloat(x, 'f', decimals, 64) }

func number(x float64) string {
	if x == 0 {
		return "-"
	}
	return strconv.FormatFloat(x, 'g', 6, 64)
}
