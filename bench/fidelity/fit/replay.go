package fit

import (
	"context"
	"fmt"

	"lorasim/bench/fidelity/measured"
	"lorasim/sim/profile"
	"lorasim/sim/record"
)

// replay is a recorded run ready to be simulated.
type replay struct {
	*measured.Recording
	fitted int // number of requests that the fit uses: the first ones
}

// newReplays prepares runs. holdout is the share of each run's requests, the last ones, to hold
// out.
func newReplays(records [][]record.Request, maxConcurrency int, holdout float64) (runs []*replay, err error) {
	for i, rs := range records {
		run, err := measured.NewRecording(fmt.Sprintf("run %d", i+1), rs, maxConcurrency)
		if err != nil {
			return nil, fmt.Errorf("run %d: %w", i+1, err)
		}
		runs = append(runs, &replay{run, len(run.Measured) - int(holdout*float64(len(run.Measured)))})
	}
	return runs, nil
}

// simulate returns the simulated requests, in order.
func (run *replay) simulate(ctx context.Context, p *profile.Profile) ([]record.Request, error) {
	got, err := run.Simulate(ctx, p)
	if err != nil {
		err = fmt.Errorf("%s: %w", run.Name, err)
	}
	return got, err
}

// streamed reports whether the client saw the first token before the last one.
func streamed(r *record.Request) bool { return measured.Streamed(r) }

// timed reports whether the times of all tokens of all runs are recorded.
func timed(runs []*replay) bool {
	for _, run := range runs {
		for i := range run.Measured {
			if r := &run.Measured[i]; len(r.Gaps) == 0 && r.Output > 1 && streamed(r) {
				return false
			}
		}
	}
	return true
}
