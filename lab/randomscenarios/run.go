package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
)

// Runner runs scenarios in this process, or with another build of lorasim.
type Runner struct {
	Program string        // path of lorasim; "": this process
	Limit   time.Duration // time limit of a run
}

// job is one run that is missing.
type job struct {
	scenario Numbered
	policy   string // name in the folder
	spec     string // name for lorasim
	seed     uint64
}

// Run runs one job. Errors of the job are in the Run, unless ctx ended.
func (r *Runner) Run(ctx context.Context, j job, now func() time.Time) (Run, error) {
	out := Run{Index: j.scenario.Index, Policy: j.policy, Seed: j.seed}
	limited, cancel := context.WithTimeout(ctx, r.Limit)
	defer cancel()
	start := now()
	res, sustained, err := r.result(limited, j)
	out.Seconds = rounded(now().Sub(start).Seconds(), 3)
	switch {
	case ctx.Err() != nil:
		return out, ctx.Err()
	case limited.Err() != nil:
		out.Error = fmt.Sprintf("took more than %s", r.Limit)
	case err != nil:
		out.Error = err.Error()
	default:
		out.take(res)
		out.Sustained = sustained
	}
	return out, nil
}

// result runs a job. If its rate is beyond overload, it also returns the rate that the policy sustains, requests/s; 0
// with another build of lorasim, which cannot tell.
func (r *Runner) result(ctx context.Context, j job) (res *result.Result, sustained float64, err error) {
	if r.Program != "" {
		res, err = r.program(ctx, j)
		return res, 0, err
	}
	sc, err := ParseCommand(j.scenario.Command)
	if err != nil {
		return nil, 0, err
	}
	if err := sc.Set("policy", j.spec); err != nil {
		return nil, 0, err
	}
	sc.Seed = j.seed
	if j.scenario.Load > overload {
		return sustains(ctx, *sc)
	}
	res, err = sc.Simulate(ctx, scenario.RunOptions{})
	return res, 0, err
}

// program runs a job with another build of lorasim.
func (r *Runner) program(ctx context.Context, j job) (*result.Result, error) {
	args := append([]string{"sim"}, strings.Fields(strings.ReplaceAll(j.scenario.Command, "'", ""))...)
	args = append(args, "--policy", j.spec, "--seed", strconv.FormatUint(j.seed, 10), "--json")
	cmd := exec.CommandContext(ctx, r.Program, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return result.ParseJSON(stdout.Bytes())
}

// noSuccess is the error of a run without latencies.
const noSuccess = "no request succeeded"

// take copies the figures of a result.
func (r *Run) take(res *result.Result) {
	r.E2E, _ = res.Metrics.Get(result.MeanE2E)
	r.TTFT, _ = res.Metrics.Get(result.MeanTTFT)
	r.P99TTFT, _ = res.Metrics.Get(result.P99TTFT)
	r.Completed, _ = res.Metrics.Get(result.Completed)
	if e := res.Endings(); e != nil {
		r.Requests = e.Requests
	}
	if res.Steady != nil {
		r.State = string(res.Steady.State)
	}
	r.Throughput, _ = res.Metrics.Get(result.RequestThroughput)
	if r.Completed == 0 {
		r.Error = noSuccess
	}
}

// metrics are the figures that policies are compared by.
func (r *Run) metrics() [numMetrics]float64 { return [numMetrics]float64{r.E2E, r.TTFT, r.P99TTFT} }

// RunAll runs the jobs that are missing in the folder, in parallel on some workers. After a
// scenario has exceeded the time limit under one policy, no further runs of that scenario begin.
func RunAll(ctx context.Context, s *Store, jobs []job, r *Runner, workers int, stderr io.Writer) error {
	dropped := map[int]bool{}
	have := map[runKey]bool{}
	for i := range s.Runs {
		have[s.Runs[i].key()] = true
		if strings.HasPrefix(s.Runs[i].Error, "took more than") {
			dropped[s.Runs[i].Index] = true
		}
	}
	var mu sync.Mutex
	group, running := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	jobs = slices.DeleteFunc(jobs, func(j job) bool { return have[runKey{j.scenario.Index, j.policy, j.seed}] })
	p := progress{out: stderr, total: len(jobs), now: time.Now}
	p.begin()
	for _, j := range jobs {
		if running.Err() != nil {
			break
		}
		group.Go(func() error {
			mu.Lock()
			skip := dropped[j.scenario.Index]
			if skip {
				p.total--
			}
			mu.Unlock()
			if skip {
				return nil
			}
			done, err := r.Run(running, j, time.Now)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			if strings.HasPrefix(done.Error, "took more than") {
				dropped[done.Index] = true
			}
			p.did(done)
			return s.AddRun(done)
		})
	}
	return group.Wait()
}

// progress prints the progress of the runs, at most every 10 s.
type progress struct {
	out         io.Writer
	now         func() time.Time
	total, done int
	start, last time.Time
}

func (p *progress) begin() { p.start = p.now(); p.last = p.start }

func (p *progress) did(r Run) {
	p.done++
	now := p.now()
	if r.Error != "" {
		fmt.Fprintf(p.out, "scenario %d, %s, seed %d: %s\n", r.Index, r.Policy, r.Seed, r.Error)
	}
	if now.Sub(p.last) < 10*time.Second && p.done < p.total {
		return
	}
	p.last = now
	left := time.Duration(float64(now.Sub(p.start)) / float64(p.done) * float64(p.total-p.done))
	fmt.Fprintf(p.out, "%d of %d runs, scenario %d, ETA %s\n", p.done, p.total, r.Index, left.Round(time.Second))
}
