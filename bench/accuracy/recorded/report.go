package recorded

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"lorasim/bench/accuracy/validate"
	"lorasim/bench/result"
	"lorasim/bench/stats"
	"lorasim/internal/format"
	"lorasim/internal/parallel"
	"lorasim/sim/profile"
	"lorasim/sim/record"
)

// Row is a run and its prediction. Errors are predicted / measured - 1.
type Row struct {
	Run string `json:"run"`
	// Cap is the client's limit of requests in flight in the replay; 0: none.
	Cap int `json:"max_concurrency"`
	validate.Comparison
	Requests Requests `json:"requests"`
}

// Requests is the errors of single requests: medians of |predicted / measured - 1|.
type Requests struct {
	Requests           int     `json:"requests"`
	TTFTMedianAbsError float64 `json:"ttft_median_abs_error"`
	E2EMedianAbsError  float64 `json:"e2e_median_abs_error"`
}

// Summary is the errors of a figure over the runs.
type Summary struct {
	Runs           int     `json:"runs"`
	MedianAbsError float64 `json:"median_abs_error"`
	WorstAbsError  float64 `json:"worst_abs_error"`
}

// Report compares a profile with recorded runs.
type Report struct {
	Schema  string                        `json:"schema"`
	Profile string                        `json:"profile"`
	Runs    []Row                         `json:"runs"`
	Summary map[validate.Quantity]Summary `json:"summary"`
	// Requests is the medians over the runs.
	Requests Requests `json:"requests"`
}

// Compare predicts runs with a profile, on all processors. progress, if not nil, is called with the
// number of finished runs and of all runs.
func Compare(ctx context.Context, runs []*Run, p *profile.Profile, progress func(done, total int64)) (*Report, error) {
	rows := make([]Row, len(runs))
	err := parallel.Do(ctx, len(runs), func(i int) (err error) {
		if rows[i], err = runs[i].compare(ctx, p); err != nil {
			err = fmt.Errorf("%s: %w", runs[i].Name, err)
		}
		return err
	}, progress)
	if err != nil {
		return nil, err
	}
	return newReport(rows, p.Name), nil
}

// compare predicts a run.
func (run *Run) compare(ctx context.Context, p *profile.Profile) (Row, error) {
	var waiting record.Waiting
	got, err := run.Simulate(ctx, p, waiting.Watcher())
	if err != nil {
		return Row{}, err
	}
	row := Row{Run: run.Name, Cap: run.Cap, Requests: requestErrors(run.Measured, got),
		Comparison: validate.Comparison{Measured: Figures(run.Measured, run.Measured)}}
	row.Predict(Figures(got, run.Measured))
	row.Ran = validate.Ran{Base: p, Alike: run.Name, Waiting: waiting.Share(), ValidatedRun: run.validated(p)}
	return row, nil
}

// validated describes the run for intervals.
func (run *Run) validated(p *profile.Profile) profile.ValidatedRun {
	v := profile.ValidatedRun{Workers: run.Workers, Profile: p, Requests: len(run.Measured),
		Adapters: len(run.Workload.Adapters)}
	for i := range run.Measured {
		v.Prompt += float64(run.Measured[i].Prompt) / float64(len(run.Measured))
		v.Output += float64(run.Measured[i].Output) / float64(len(run.Measured))
	}
	return v
}

// requestErrors compares requests one by one.
func requestErrors(measured, predicted []record.Request) Requests {
	var ttft, e2e []float64
	off := func(xs []float64, a, b float64) []float64 {
		if !(a > 0) {
			return xs
		}
		return append(xs, math.Abs(b/a-1))
	}
	for i := range measured {
		a, b := &measured[i], &predicted[i]
		e2e = off(e2e, a.E2E(), b.E2E())
		if Streamed(a) {
			ttft = off(ttft, a.TTFT(), b.TTFT())
		}
	}
	return Requests{len(measured), median(ttft), median(e2e)}
}

// median returns the median of values, which it sorts; 0 if there are none.
func median(xs []float64) float64 {
	if slices.Sort(xs); len(xs) == 0 {
		return 0
	}
	return stats.Quantile(xs, 0.5)
}

func newReport(rows []Row, name string) *Report {
	r := &Report{Schema: "lorasim.recorded/1", Profile: name, Runs: rows, Summary: map[validate.Quantity]Summary{}}
	for m, s := range validate.Summaries(rows) {
		r.Summary[m] = Summary{s.Runs, s.MedianAbsError, s.MaxAbsError}
	}
	var ttft, e2e []float64
	for _, row := range rows {
		r.Requests.Requests += row.Requests.Requests
		ttft, e2e = append(ttft, row.Requests.TTFTMedianAbsError), append(e2e, row.Requests.E2EMedianAbsError)
	}
	r.Requests.TTFTMedianAbsError, r.Requests.E2EMedianAbsError = median(ttft), median(e2e)
	return r
}

// Intervals derives the intervals of the runs. None of the runs may have been fitted.
func (r *Report) Intervals() *validate.IntervalReport {
	return validate.Intervals(r.Runs, map[validate.Quantity]result.ID{
		Duration: result.Duration, TTFTMean: result.MeanTTFT, TTFTMedian: result.MedianTTFT, TTFTP99: result.P99TTFT,
		TPOTMean: result.MeanTPOT, E2EMean: result.MeanE2E, E2EP99: result.P99E2E,
	})
}

// Validation returns the summary as lines of a profile's validation table. what names the data.
func (r *Report) Validation(what string) []profile.Validation {
	return validate.ValidationOf(validate.Summaries(r.Runs), Metrics, what)
}

// Plot draws predicted against measured values as an SVG: duration and the means of TTFT, TPOT and
// E2E, with a colour for each run.
func (r *Report) Plot(w io.Writer) error {
	run := func(row *Row) string { return row.Run }
	return validate.Plot(w,
		validate.NewPanel(r.Runs, Duration, "s", run), validate.NewPanel(r.Runs, TTFTMean, "ms", run),
		validate.NewPanel(r.Runs, TPOTMean, "ms", run), validate.NewPanel(r.Runs, E2EMean, "ms", run),
	)
}

// WriteText prints a table of the runs and the summary.
func (r *Report) WriteText(w io.Writer) error {
	head := []string{"RUN", "REQUESTS", "LIMIT"}
	shown := []validate.Quantity{Duration, TTFTMean, TTFTP99, TPOTMean, E2EMean, E2EP99}
	for _, m := range shown {
		unit := "ms"
		if m == Duration {
			unit = "s"
		}
		head = append(head, string(m)+" "+unit, "ERROR")
	}
	rows := [][]string{append(head, "TTFT EACH", "E2E EACH")}
	for _, row := range r.Runs {
		cells := []string{row.Run, strconv.Itoa(row.Requests.Requests), "-"}
		if row.Cap > 0 {
			cells[2] = strconv.Itoa(row.Cap)
		}
		for _, m := range shown {
			if e, ok := row.Error[m]; ok {
				cells = append(cells, fmt.Sprintf("%.4g", row.Measured[m]), fmt.Sprintf("%+.1f %%", 100*e))
			} else {
				cells = append(cells, "-", "-")
			}
		}
		rows = append(rows, append(cells, format.Percent(row.Requests.TTFTMedianAbsError, 1),
			format.Percent(row.Requests.E2EMedianAbsError, 1)))
	}
	rows = append(rows, nil, []string{"Errors of " + r.Profile}, []string{"METRIC", "RUNS", "MEDIAN |ERROR|", "WORST"})
	for _, m := range Metrics {
		if s, ok := r.Summary[m]; ok {
			rows = append(rows, []string{string(m), strconv.Itoa(s.Runs), format.Percent(s.MedianAbsError, 1),
				format.Percent(s.WorstAbsError, 1)})
		}
	}
	rows = append(rows, []string{"each request", strconv.Itoa(r.Requests.Requests) + " requests",
		"TTFT " + format.Percent(r.Requests.TTFTMedianAbsError, 1),
		"E2E " + format.Percent(r.Requests.E2EMedianAbsError, 1)})
	return format.Table(w, rows)
}
