// Package check compares the simulator with measured runs. It summarizes the errors of their predictions
// ([lorasim/bench/fidelity/measured]), and derives prediction intervals from the errors.
//
//	runs, err := textfile.Read(ctx, "runs.csv", measured.ReadRuns)
//	hists, err := textfile.Read(ctx, "histograms.json", measured.ReadHistograms)
//	report, err := check.Runs(ctx, runs, hists, measured.RunOptions{Profile: p, Seeds: 8})
//	report.WriteText(os.Stdout)
//
// Each format of measured runs has a report of its own: [Records], [Logs], [Points], [Runs], [Hours].
package check

import (
	"fmt"
	"io"
	"math"

	"lorasim/bench/fidelity/measured"
	"lorasim/bench/stats"
	"lorasim/internal/figure"
	"lorasim/sim/profile"
)

// Report is what the checks of all formats have in common. In JSON, each is an object of its own schema.
type Report interface {
	WriteText(io.Writer) error
	Plot(io.Writer) error // predicted against measured values, as an SVG
	// Intervals derives prediction intervals from the runs that were not fitted.
	Intervals() *IntervalReport
}

// Summary is the errors of runs by metric.
type Summary map[measured.Metric]stats.ErrorSummary

// compared is a pointer to a row that embeds a comparison.
type compared[Row any] interface {
	*Row
	Compared() *measured.Comparison
}

// summarize summarizes the errors of runs by metric.
func summarize[Row any, P compared[Row]](rows []Row) Summary {
	errors := map[measured.Metric][]float64{}
	for i := range rows {
		for m, e := range P(&rows[i]).Compared().Error {
			errors[m] = append(errors[m], e)
		}
	}
	return stats.SummarizeErrorsBy(errors)
}

// Validation returns the summary as lines of a profile's validation table. what names the data.
func (s Summary) Validation(metrics []measured.Metric, what string) (out []profile.Validation) {
	round := func(x float64) float64 { return math.Round(x*1e4) / 1e4 } // a hundredth of a percent
	for _, m := range metrics {
		if s, ok := s[m]; ok {
			out = append(out, profile.Validation{Runs: fmt.Sprintf("%d %s", s.Runs, what), Metric: string(m),
				MedianAbsError: round(s.MedianAbsError), P90AbsError: round(s.P90AbsError)})
		}
	}
	return out
}

// plot draws predicted against measured values, a panel for each metric. group returns the group of a row.
func plot[Row any, P compared[Row]](w io.Writer, rows []Row, metrics []measured.Metric, group func(*Row) string) error {
	panels := make([]figure.Panel, len(metrics))
	for k, m := range metrics {
		p := figure.Panel{Title: string(m), Unit: m.Unit()}
		for i := range rows {
			c := P(&rows[i]).Compared()
			if _, ok := c.Error[m]; ok && c.Predicted[m] > 0 {
				p.Points = append(p.Points,
					figure.Point{Group: group(&rows[i]), Measured: c.Measured[m], Predicted: c.Predicted[m]})
			}
		}
		panels[k] = p
	}
	return figure.WritePanels(w, panels)
}

// percent returns a relative error with its sign.
func percent(e float64) string { return fmt.Sprintf("%+.1f %%", 100*e) }
