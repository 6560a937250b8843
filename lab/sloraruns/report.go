package main

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
	System  string // one of Systems
	Runs    []Run
	// Predicted is the predicted figures of each run.
	Predicted []Figures
	Skipped   Skipped
}

// metric is a compared figure. The error of a share is a difference; other errors are relative.
type metric struct {
	name, heading string
	of            func(f Figures) float64
	share         bool
}

var metrics = []metric{
	{"total_time", "TOTAL TIME, s", func(f Figures) float64 { return f.TotalTime }, false},
	{"avg_latency", "LATENCY, s", func(f Figures) float64 { return f.Latency }, false},
	{"avg_first_token", "FIRST TOKEN, s", func(f Figures) float64 { return f.FirstToken }, false},
	{"attainment", "ATTAINMENT", func(f Figures) float64 { return f.Attainment }, true},
	{"aborted", "ABORTED", func(f Figures) float64 { return f.Aborted }, true},
}

// metrics returns the compared figures. Only early abort has aborted requests.
func (r *Report) metrics() []metric {
	if r.System == SLoRAAbort {
		return metrics
	}
	return metrics[:len(metrics)-1]
}

// error returns predicted / measured - 1, and predicted - measured for a share; NaN if nothing was measured.
func (m *metric) error(predicted, measured Figures) float64 {
	p, q := m.of(predicted), m.of(measured)
	if m.share {
		return p - q
	}
	return p/q - 1
}

// summary returns the errors of a metric over the runs.
func (r *Report) summary(m metric) stats.ErrorSummary {
	var es []float64
	for k, run := range r.Runs {
		if e := m.error(r.Predicted[k], run.Measured); !math.IsNaN(e) {
			es = append(es, e)
		}
	}
	return stats.SummarizeErrors(es)
}

// Summary returns the errors of a metric over the runs, or the zero summary for an unknown name.
func (r *Report) Summary(metric string) stats.ErrorSummary {
	for _, m := range metrics {
		if m.name == metric {
			return r.summary(m)
		}
	}
	return stats.ErrorSummary{}
}

// WriteText prints a row for each run and the median and worst error of each metric.
func (r *Report) WriteText(w io.Writer) error {
	tw := format.Columns(w)
	fmt.Fprint(tw, "LINE\tUSE\tSETTING\tADAPTERS\tRATE\tCV")
	for _, m := range r.metrics() {
		fmt.Fprint(tw, "\t"+m.heading)
	}
	fmt.Fprintln(tw)
	for k, run := range r.Runs {
		fmt.Fprintf(tw, "%d\t%s\t%s\t%d\t%g\t%g", run.Line, run.Use, run.Setting, run.Adapters, run.Rate, run.CV)
		for _, m := range r.metrics() {
			if e, measured := m.error(r.Predicted[k], run.Measured), m.of(run.Measured); m.share {
				fmt.Fprintf(tw, "\t%.3f %+.3f", measured, e)
			} else {
				fmt.Fprintf(tw, "\t%.4g %+.1f %%", measured, 100*e)
			}
		}
		fmt.Fprintln(tw)
	}
	fmt.Fprintf(tw, "\nprofile %s, system %s: |error|, shares as a difference\nMETRIC\tRUNS\tMEDIAN\tWORST\n",
		r.Profile,
		r.System)
	for _, m := range r.metrics() {
		if s := r.summary(m); m.share {
			fmt.Fprintf(tw, "%s\t%d\t%.3f\t%.3f\n", m.name, s.Runs, s.MedianAbsError, s.MaxAbsError)
		} else {
			fmt.Fprintf(tw, "%s\t%d\t%s\t%s\n", m.name, s.Runs, format.Percent(s.MedianAbsError, 1),
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
		errors := map[string]any{}
		for _, m := range r.metrics() {
			errors[m.name] = format.Number(m.error(r.Predicted[k], run.Measured))
		}
		rows = append(rows, map[string]any{"line": run.Line, "use": run.Use, "setting": run.Setting,
			"adapters": run.Adapters, "rate": run.Rate, "cv": run.CV, "error": errors,
			"predicted": r.figures(r.Predicted[k]), "measured": r.figures(run.Measured)})
	}
	summary := map[string]any{}
	for _, m := range r.metrics() {
		s := r.summary(m)
		summary[m.name] = map[string]any{"runs": s.Runs, "median_abs_error": s.MedianAbsError,
			"max_abs_error": s.MaxAbsError}
	}
	return json.Marshal(map[string]any{"profile": r.Profile, "system": r.System, "use": r.Use, "rows": rows,
		"summary": summary, "skipped": r.Skipped})
}

// figures returns figures by metric, with null for unknown values.
func (r *Report) figures(f Figures) map[string]any {
	out := map[string]any{}
	for _, m := range r.metrics() {
		out[m.name] = format.Number(m.of(f))
	}
	return out
}
