package measured

import (
	"context"
	"fmt"
	"math"
	"slices"

	"lorasim/bench/stats"
	"lorasim/internal/parallel"
	"lorasim/sim/profile"
	"lorasim/sim/record"
)

// PredictedRecording is a run and its prediction. Errors are predicted / measured - 1.
type PredictedRecording struct {
	Run string `json:"run"`
	// Cap is the client's limit of requests in flight in the replay; 0: none.
	Cap int `json:"max_concurrency"`
	Comparison
	Requests RequestErrors `json:"requests"`
}

// RequestErrors is the errors of single requests: medians of |predicted / measured - 1|.
type RequestErrors struct {
	Requests           int     `json:"requests"`
	TTFTMedianAbsError float64 `json:"ttft_median_abs_error"`
	E2EMedianAbsError  float64 `json:"e2e_median_abs_error"`
}

// PredictRecordings predicts runs with a profile, on all processors. progress, if not nil, is called with the number of
// finished runs and of all runs.
func PredictRecordings(ctx context.Context, runs []*Recording, p *profile.Profile, progress func(done, total int64)) (
	[]PredictedRecording, error) {
	rows := make([]PredictedRecording, len(runs))
	err := parallel.Do(ctx, len(runs), func(i int) (err error) {
		if rows[i], err = runs[i].predict(ctx, p); err != nil {
			err = fmt.Errorf("%s: %w", runs[i].Name, err)
		}
		return err
	}, progress)
	return rows, err
}

// predict predicts a run.
func (run *Recording) predict(ctx context.Context, p *profile.Profile) (PredictedRecording, error) {
	var waiting record.Waiting
	got, err := run.Simulate(ctx, p, waiting.Watcher())
	if err != nil {
		return PredictedRecording{}, err
	}
	row := PredictedRecording{Run: run.Name, Cap: run.Cap, Requests: requestErrors(run.Measured, got),
		Comparison: Comparison{Measured: Figures(run.Measured, run.Measured)}}
	row.Predict(Figures(got, run.Measured))
	row.Ran = Ran{Base: p, Alike: run.Name, Waiting: waiting.Share(), ValidatedRun: run.validated(p)}
	return row, nil
}

// validated describes the run for intervals.
func (run *Recording) validated(p *profile.Profile) profile.ValidatedRun {
	v := profile.ValidatedRun{Workers: run.Workers, Profile: p, Requests: len(run.Measured),
		Adapters: len(run.Workload.Adapters)}
	for i := range run.Measured {
		v.Prompt += float64(run.Measured[i].Prompt) / float64(len(run.Measured))
		v.Output += float64(run.Measured[i].Output) / float64(len(run.Measured))
	}
	return v
}

// requestErrors compares requests one by one.
func requestErrors(measured, predicted []record.Request) RequestErrors {
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
	return RequestErrors{len(measured), median(ttft), median(e2e)}
}

// AllRequests returns the errors of the requests of all runs: the medians over the runs.
func AllRequests(rows []PredictedRecording) (all RequestErrors) {
	var ttft, e2e []float64
	for _, row := range rows {
		all.Requests += row.Requests.Requests
		ttft, e2e = append(ttft, row.Requests.TTFTMedianAbsError), append(e2e, row.Requests.E2EMedianAbsError)
	}
	all.TTFTMedianAbsError, all.E2EMedianAbsError = median(ttft), median(e2e)
	return all
}

// median returns the median of values, which it sorts; 0 if there are none.
func median(xs []float64) float64 {
	if slices.Sort(xs); len(xs) == 0 {
		return 0
	}
	return stats.Quantile(xs, 0.5)
}
