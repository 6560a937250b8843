// Command driftpicture plots the policy changes of auto in the run of scripts/drifting-run, and the
// gain of each change.
//
//	go run ./scripts/driftpicture drift.csv docs/img/auto-drift.svg
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/router"
	"lorasim/sim"
	"lorasim/sim/record"
	"lorasim/trace"
)

// candidates are the policies that auto chooses from. Each also runs alone.
var candidates = []string{"static", "least-tokens", "bounded-hash"}

// settings of the run, as in docs/auto.md.
var settings = [][2]string{
	{"num_workers", "2"}, {"profile", "analytic:qwen2.5-32b,h100-64gb"}, {"max_loras_per_batch", "4"},
	{"adapter_home", "remote"},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "driftpicture:", err)
		os.Exit(1)
	}
}

func command(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("expected a workload and a picture (.svg, .png), got %d arguments", len(args))
	}
	auto := "auto:candidates=" + strings.Join(candidates, "+") + ",budget=20"
	var runs []run
	for _, policy := range append([]string{auto}, candidates...) {
		r, err := simulate(ctx, args[0], policy)
		if err != nil {
			return fmt.Errorf("%s: %w", policy, err)
		}
		runs = append(runs, r)
	}
	runs[0].policy = "auto"
	return write(args[1], runs)
}

// run is a run of the workload with one policy.
type run struct {
	policy  string
	mean    float64   // mean E2E latency of all requests, s
	latency []average // mean E2E latency of the requests that arrived in each interval, s
	races   []*router.Race
	until   float64 // arrival of the last request, s
}

// interval is the averaging time of latencies, s.
const interval = 2.5

// average is a sum and a count.
type average struct{ sum, n float64 }

func (a *average) add(x float64) { a.sum, a.n = a.sum+x, a.n+1 }

// simulate runs the workload with a policy.
func simulate(ctx context.Context, workload, policy string) (run, error) {
	sc := scenario.Default()
	for _, s := range append([][2]string{{"workload", workload}, {"policy", policy}}, settings...) {
		if err := sc.Set(s[0], s[1]); err != nil {
			return run{}, err
		}
	}
	r := run{policy: policy}
	res, err := sc.Simulate(ctx, scenario.RunOptions{KeepRecords: true, Watch: func([]trace.Adapter) sim.Hooks {
		return sim.Hooks{Plan: func(p *sim.PlanRecord) {
			if p.Plan.Race != nil {
				r.races = append(r.races, p.Plan.Race)
			}
		}}
	}})
	if err != nil {
		return r, err
	}
	r.mean, _ = res.Metrics.Get(result.MeanE2E)
	r.mean /= 1e3
	r.add(res.Records)
	return r, nil
}

// add averages the latencies of requests over their arrivals.
func (r *run) add(records []record.Request) {
	for i := range records {
		q := &records[i]
		if q.Status != record.OK {
			continue
		}
		k := int(q.Arrival / interval)
		for len(r.latency) <= k {
			r.latency = append(r.latency, average{})
		}
		r.latency[k].add(q.Finish - q.Arrival)
		r.until = max(r.until, q.Arrival)
	}
}

// stay is a time in which one policy routes.
type stay struct {
	policy   string
	from, to float64 // s
	gain     float64 // predicted gain of the race that chose the policy; 0: the first policy
}

// stays returns the routing policies in order of time.
func (r *run) stays() []stay {
	list := []stay{{policy: candidates[0], to: r.until}}
	for _, race := range r.races {
		if race.Chosen == race.Incumbent {
			continue
		}
		i := slices.IndexFunc(race.Candidates, func(c router.Raced) bool { return c.Policy == race.Chosen })
		list[len(list)-1].to = race.At
		list = append(list, stay{race.Chosen, race.At, r.until, race.Candidates[i].Gain})
	}
	return list
}
