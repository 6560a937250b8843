package sloraruns

import (
	"encoding/json"
	"fmt"
	"io"
	"math"

	"lorasim/bench/stats"
	"lorasim/internal/format"
)

// Report is the errors of predicted runs.
type Report struct {
	Profile string
	Use     string // "": all
	Runs    []Run
	// Predicted is the predicted figures of each run.
	Predicted []Figures
	Skipped   Skipped
}

// metrics are the compared figures. The error of the attainment is a difference; other errors are
// relative.
var metrics = []struct {
	name     string
	of       func(f Figures) float64
	absolute bool
}{
	{"total_time", func(f Figures) float64 { return f.TotalTime }, false},
	{"avg_latency", func(f Figures) float64 { return f.Latency }, false},
	{"avg_first_token", func(f Figures) float64 { return f.FirstToken }, false},
	{"attainment", func(f Figures) float64 { return f.Attainment }, true},
}

// errorsOf returns the errors of a prediction, in the order of metrics. It is predicted / measured
// - 1, and predicted - measured for the attainment; NaN if nothing was measured.
func errorsOf(predicted, measured Figures) (out [4]float64) {
	for i, m := range metrics {
		p, q := m.of(predicted), m.of(measured)
		if out[i] = p/q - 1; m.absolute {
			out[i] = p - q
		}
	}
	return out
}

// summary returns the errors of all runs by metric, in the order of metrics.
func (r *Report) summary() (out [4]stats.ErrorSummary) {
	for i := range metrics {
		var es []float64
		for k, run := range r.Runs {
			if e := errorsOf(r.Predicted[k], run.Measured)[i]; !math.IsNaN(e) {
				es = append(es, e)
			}
		}
		out[i] = stats.SummarizeErrors(es)
	}
	return out
}

// Summary returns the errors of a metric over the runs, or the zero summary for an unknown name.
func (r *Report) Summary(metric string) stats.ErrorSummary {
	for i, s := range r.summary() {
		if metrics[i].name == metric {
			return s
		}
	}
	return stats.ErrorSummary{}
}

// WriteText prints a row for each run and the median and worst error of each metric.
func (r *Report) WriteText(w io.Writer) error {
	tw := format.Columns(w)
	fmt.Fprintln(tw, "LINE\tUSE\tSETTING\tADAPTERS\tRATE\tCV\tTOTAL TIME, s\tLATENCY, s\tFIRST TOKEN, s\tATTAINMENT")
	for k, run := range r.Runs {
		fmt.Fprintf(tw, "%d\t%s\t%s\t%d\t%g\t%g", run.Line, run.Use, run.Setting, run.Adapters, run.Rate, run.CV)
		for i, e := range errorsOf(r.Predicted[k], run.Measured) {
			measured := metrics[i].of(run.Measured)
			if metrics[i].absolute {
				fmt.Fprintf(tw, "\t%.3f %+.3f", measured, e)
			} else {
				fmt.Fprintf(tw, "\t%.4g %+.1f %%", measured, 100*e)
			}
		}
		fmt.Fprintln(tw)
	}
	fmt.Fprintf(tw, "\nprofile %s: |error|, attainment as a difference\nMETRIC\tRUNS\tMEDIAN\tWORST\n", r.Profile)
	for i, s := range r.summary() {
		if metrics[i].absolute {
			fmt.Fprintf(tw, "%s\t%d\t%.3f\t%.3f\n", metrics[i].name, s.Runs, s.MedianAbsError, s.MaxAbsError)
		} else {
			fmt.Fprintf(tw, "%s\t%d\t%s\t%s\n", metrics[i].name, s.Runs, format.Percent(s.MedianAbsError, 1),
				format.Percent(s.MaxAbsError, 1))
		}
	}
	if len(r.Skipped) > 0 {
		fmt.Fprint(tw, "\n"+r.Skipped.Text())
	}
	return tw.Flush()
}

// MarshalJSON writes the content of WriteText as a JSON object.
func (r *Report) MarshalJSON() ([]byte, error) {
	rows := []map[string]any{}
	for k, run := range r.Runs {
		row := map[string]any{"line": run.Line, "use": run.Use, "setting": run.Setting, "adapters": run.Adapters,
			"rate": run.Rate, "cv": run.CV, "predicted": r.Predicted[k], "measured": measured(run.Measured)}
		es := map[string]any{}
		for i, e := range errorsOf(r.Predicted[k], run.Measured) {
			es[metrics[i].name] = format.Number(e)
		}
		row["error"] = es
		rows = append(rows, row)
	}
	summary := map[string]any{}
	for i, s := range r.summary() {
		summary[metrics[i].name] = map[string]any{"runs": s.Runs, "median_abs_error": s.MedianAbsError,
			"worst_abs_error": s.MaxAbsError}
	}
	return json.Marshal(map[string]any{"profile": r.Profile, "use": r.Use, "rows": rows, "summary": summary,
		"skipped": r.Skipped})
}

// measured returns figures with null for unknown values.
func measured(f Figures) map[string]any {
	out := map[string]any{}
	for _, m := range metrics {
		out[m.name] = format.Number(m.of(f))
	}
	return out
}
