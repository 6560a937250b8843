package calibrate

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"lorasim/router"
	"lorasim/sim"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/trace"
)

// replay is a recorded run ready to be simulated.
type replay struct {
	measured []record.Request // by the time they were sent
	fitted   int              // number of requests that the fit uses: the first ones
	workload trace.Workload
	workers  int
}

func newReplay(rs []record.Request) (*replay, error) {
	run := &replay{}
	for _, r := range rs {
		switch {
		case r.Status != record.OK:
		case r.WorkerLast < 0:
			return nil, fmt.Errorf("request %d: no worker is recorded", r.ID)
		case r.Output < 1 || r.Prompt < 1:
			return nil, fmt.Errorf("request %d: %d prompt and %d output tokens, expected at least 1 each",
				r.ID, r.Prompt, r.Output)
		case r.Migrations == 0:
			run.measured = append(run.measured, r)
		}
	}
	if len(run.measured) < 10 {
		return nil, fmt.Errorf("%d successful requests, expected at least 10", len(run.measured))
	}
	slices.SortStableFunc(run.measured, func(a, b record.Request) int { return cmp.Compare(a.Sent, b.Sent) })
	adapters := 0
	for _, r := range run.measured {
		adapters, run.workers = max(adapters, int(r.Adapter)+1), max(run.workers, int(r.WorkerLast)+1)
	}
	if adapters > 1_000_000 || run.workers > 100_000 {
		return nil, fmt.Errorf("adapter index %d and worker index %d, expected below 10^6 and 10^5",
			adapters-1, run.workers-1)
	}
	run.workload.Adapters = trace.Names(adapters, nil)
	for i, r := range run.measured {
		if r.Adapter >= 0 {
			run.workload.Adapters[r.Adapter].Rank = int(r.Rank)
		}
		run.workload.Requests = append(run.workload.Requests, trace.Request{
			ID: int64(i), Arrival: r.Sent, Adapter: r.Adapter, Prompt: r.Prompt, Output: r.Output,
			MaxNew: max(r.Requested, r.Output),
		})
	}
	return run, nil
}

// simulate returns the simulated requests, in order; every request goes where it
// went.
func (run *replay) simulate(ctx context.Context, p *profile.Profile) ([]record.Request, error) {
	got := make([]record.Request, len(run.measured))
	failed, reason := 0, ""
	_, err := sim.Run(ctx, sim.Config{
		Source: run.workload.Source(), Workers: slices.Repeat([]*profile.Costs{p.Compile()}, run.workers),
		Home:   router.Disk,
		Router: &router.Router{Policy: router.Fixed(func(id int64) int { return int(run.measured[id].WorkerLast) })},
		Observer: record.Ends(func(r *record.Request) {
			if got[r.ID] = *r; r.Status != record.OK {
				failed++
				reason = r.Error
			}
		}),
	})
	if err == nil && failed > 0 {
		err = fmt.Errorf(
			"%d requests that succeeded live do not in the simulation (%s): the profile's engine or memory is not that of the workers", failed, reason)
	}
	return got, err
}

// streamed says whether the client saw the first token before the last one.
func streamed(r *record.Request) bool { return r.Output > 1 && r.FirstToken < r.Finish }
