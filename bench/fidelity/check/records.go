package check

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"lorasim/bench/fidelity/measured"
	"lorasim/internal/format"
	"lorasim/sim/profile"
)

// Records predicts recorded runs with a profile and reports on them. progress, if not nil, is called with the number of
// finished runs and of all runs.
func Records(ctx context.Context, runs []*measured.Recording, p *profile.Profile, progress func(done, total int64)) (
	*RecordsReport, error) {
	rows, err := measured.PredictRecordings(ctx, runs, p, progress)
	if err != nil {
		return nil, err
	}
	return newRecordsReport(rows, p.Name), nil
}

// RecordsReport compares a profile with recorded runs.
type RecordsReport struct {
	Schema  string                        `json:"schema"`
	Profile string                        `json:"profile"`
	Runs    []measured.PredictedRecording `json:"runs"`
	Summary Summary                       `json:"summary"`
	// Requests is the medians over the runs.
	Requests measured.RequestErrors `json:"requests"`
}

func newRecordsReport(rows []measured.PredictedRecording, name string) *RecordsReport {
	r := &RecordsReport{Schema: "lorasim.recorded/1", Profile: name, Runs: rows,
		Summary: summarize(rows)}
	r.Requests = measured.AllRequests(rows)
	return r
}

// Intervals implements [Report]. None of the runs may have been fitted.
func (r *RecordsReport) Intervals() *IntervalReport { return intervals(r.Runs) }

// Plot implements [Report]: duration and the means of TTFT, TPOT and E2E, with a colour for each run.
func (r *RecordsReport) Plot(w io.Writer) error {
	return plot(w, r.Runs, []measured.Metric{measured.Duration, measured.TTFTMean, measured.TPOTMean, measured.E2EMean},
		func(row *measured.PredictedRecording) string { return row.Run })
}

// WriteText prints a table of the runs and the summary.
func (r *RecordsReport) WriteText(w io.Writer) error {
	head := []string{"RUN", "REQUESTS", "LIMIT"}
	shown := []measured.Metric{measured.Duration, measured.TTFTMean, measured.TTFTP99, measured.TPOTMean,
		measured.E2EMean, measured.E2EP99}
	for _, m := range shown {
		head = append(head, string(m)+" "+m.Unit(), "ERROR")
	}
	rows := [][]string{append(head, "TTFT EACH", "E2E EACH")}
	for _, row := range r.Runs {
		cells := []string{row.Run, strconv.Itoa(row.Requests.Requests), "-"}
		if row.Cap > 0 {
			cells[2] = strconv.Itoa(row.Cap)
		}
		for _, m := range shown {
			if e, ok := row.Error[m]; ok {
				cells = append(cells, fmt.Sprintf("%.4g", row.Measured[m]), percent(e))
			} else {
				cells = append(cells, "-", "-")
			}
		}
		rows = append(rows, append(cells, format.Percent(row.Requests.TTFTMedianAbsError, 1),
			format.Percent(row.Requests.E2EMedianAbsError, 1)))
	}
	rows = append(rows, nil, []string{"Errors of " + r.Profile}, []string{"METRIC", "RUNS", "MEDIAN |ERROR|", "WORST"})
	for _, m := range measured.RecordingMetrics {
		if s, ok := r.Summary[m]; ok {
			rows = append(rows, []string{string(m), strconv.Itoa(s.Runs), format.Percent(s.MedianAbsError, 1),
				format.Percent(s.MaxAbsError, 1)})
		}
	}
	rows = append(rows, []string{"each request", strconv.Itoa(r.Requests.Requests) + " requests",
		"TTFT " + format.Percent(r.Requests.TTFTMedianAbsError, 1),
		"E2E " + format.Percent(r.Requests.E2EMedianAbsError, 1)})
	return format.Table(w, rows)
}
