package main

import (
	"context"
	"fmt"

	"lorasim/internal/parallel"
	"lorasim/router"
	"lorasim/sim"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/sim/tick"
	"lorasim/trace"
	"lorasim/trace/synth"
)

// seed is the seed of all published runs.
const seed = 42

// Predict simulates runs on all processors with a profile whose memory has the tokens of each run.
// The result does not depend on the number of processors. progress, if not nil, is called with the
// number of finished runs and of all runs.
func Predict(ctx context.Context, runs []Run, p *profile.Profile, progress func(done, total int64)) ([]Figures, error) {
	out := make([]Figures, len(runs))
	err := parallel.Do(ctx, len(runs), func(i int) (err error) {
		if out[i], err = runs[i].predict(ctx, p); err != nil {
			err = fmt.Errorf("run in line %d: %w", runs[i].Line, err)
		}
		return err
	}, progress)
	return out, err
}

// predict simulates a run.
func (r *Run) predict(ctx context.Context, p *profile.Profile) (Figures, error) {
	q := *p
	q.Memory.KVTokens = r.KVTokens
	switch r.System {
	case SLoRAAbort:
		q.Engine.EnableAbort = true
	case SLoRALIFO:
		q.Engine.SchedulePolicy = profile.OrderLIFO
	}
	if err := q.Check(); err != nil {
		return Figures{}, err
	}
	w, err := r.Workload()
	if err != nil {
		return Figures{}, err
	}
	s := &sums{}
	if _, err := sim.Run(ctx, sim.Config{
		Source: w.Source(), Workers: []*profile.Costs{q.Compile()}, Home: router.Disk, Observer: s,
		Router: &router.Router{Policy: router.Always(0)},
	}); err != nil {
		return Figures{}, err
	}
	return s.figures(q.Engine.EnableAbort)
}

// promptTokens is the number of tokens of a prompt beyond the drawn number. The benchmark's prompt is the text "Hello "
// N times (dummy_prompt in benchmarks/trace.py). Llama's tokenizer makes a token of each word, of the beginning and of
// the last space.
const promptTokens = 2

// Workload returns the requests of a run, drawn and tokenized like in S-LoRA's benchmark.
func (r *Run) Workload() (*trace.Workload, error) {
	src, err := synth.NewSLoRA(synth.SLoRA{Adapters: max(r.Adapters, 1), Ranks: synth.Ranks{Values: r.Ranks},
		Alpha: r.Alpha, Rate: r.Rate, CV: r.CV, Duration: r.Duration, Input: r.Input, Output: r.Output, Seed: seed})
	if err != nil {
		return nil, err
	}
	w, err := trace.Collect(src)
	if err != nil {
		return nil, err
	}
	for i := range w.Requests {
		w.Requests[i].Prompt += promptTokens
	}
	if r.Adapters == 0 {
		w.Adapters = nil
		for i := range w.Requests {
			w.Requests[i].Adapter = trace.BaseModel
		}
	}
	return w, nil
}

// sums adds up the requests of a run.
type sums struct {
	last                         float64 // time of the last answer
	n, failed, aborted, attained int
	latency, firstToken          float64
}

// Done implements record.Observer.
func (s *sums) Done(r *record.Request) {
	s.n++
	switch r.Status {
	case record.OK:
	case record.Rejected:
		s.aborted++
		return
	default:
		s.failed++
		return
	}
	s.last = max(s.last, r.Finish)
	s.latency += r.Finish - r.Arrival
	first := r.FirstToken - r.Arrival
	s.firstToken += first
	if first < Objective {
		s.attained++
	}
}

// Tokens implements record.Observer.
func (*sums) Tokens(tick.Ticks, int64) {}

// Steps implements record.Observer.
func (*sums) Steps(record.Steps) {}

// Gap implements record.Observer.
func (*sums) Gap(tick.Ticks, int64) {}

// figures returns the means. A request that failed is an error, since S-LoRA completed or aborted all requests of the
// simulated runs. So is a rejected one unless the server aborts early.
func (s *sums) figures(aborts bool) (Figures, error) {
	if failed := s.failed + s.aborted; failed > 0 && (!aborts || s.failed > 0) {
		return Figures{}, fmt.Errorf("%d of %d requests failed, expected none", failed, s.n)
	}
	n, completed := float64(s.n), float64(s.n-s.aborted)
	return Figures{TotalTime: s.last, Latency: s.latency / completed, FirstToken: s.firstToken / completed,
		Attainment: float64(s.attained) / n, Aborted: float64(s.aborted) / n}, nil
}
