package main

import (
	"context"
	"errors"
	"fmt"
	"math"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/bench/steady"
	"lorasim/trace/settings"
)

// Parameters of the runs that measure the sustained rate of a cluster.
const (
	probeRequests = 1500
	probeFirst    = 0.25 // rate of the first run with conversations, requests/s per worker
	probeStep     = 3    // factor between the rates of such runs
	probeRuns     = 9
)

// sustainable returns the rate that a cluster sustains, under the best of a few simple policies, in
// requests/s. Requests all arrive at once. Conversations need a rate: it grows until queues grow.
func sustainable(ctx context.Context, sc scenario.Scenario) (float64, error) {
	policies := []string{"least-loaded", "affinity:variant=residency"}
	if sc.Cluster.Engine.PrefixCache {
		policies = append(policies, "kv-router")
	}
	sc.Workload.NumPrompts = settings.Some[int64](probeRequests)
	best := 0.0
	for _, policy := range policies {
		if err := sc.Set("policy", policy); err != nil {
			return 0, err
		}
		rate, err := saturated(ctx, sc)
		if err != nil {
			return 0, err
		}
		best = max(best, rate)
	}
	if best == 0 {
		return 0, errors.New("the cluster was never saturated")
	}
	return best, nil
}

// saturated returns the rate at which the scenario's policy serves waiting requests, in requests/s.
func saturated(ctx context.Context, sc scenario.Scenario) (float64, error) {
	if !sc.Workload.Conversations.Given() && !sc.Workload.Sessions.Given() {
		sc.Workload.RequestRate = math.Inf(1)
		res, err := simulate(ctx, &sc)
		if err != nil {
			return 0, err
		}
		if res.Steady.SustainableRate > 0 {
			return res.Steady.SustainableRate, nil
		}
		rate, _ := res.Metrics.Get(result.RequestThroughput)
		return rate, nil
	}
	workers, err := sc.Workers()
	if err != nil {
		return 0, err
	}
	sc.Workload.RequestRate = probeFirst * float64(workers)
	for range probeRuns {
		res, err := simulate(ctx, &sc)
		if err != nil {
			return 0, err
		}
		if res.Steady.State == steady.Overloaded && res.Steady.SustainableRate > 0 {
			return res.Steady.SustainableRate, nil
		}
		sc.Workload.RequestRate *= probeStep
	}
	return 0, nil
}

// runs returns the reason why a scenario cannot be judged, or nil.
func runs(ctx context.Context, sc scenario.Scenario) error {
	if err := sc.Set("policy", "least-loaded"); err != nil {
		return err
	}
	_, err := simulate(ctx, &sc)
	return err
}

// simulate runs a scenario. It returns an error if workers cannot serve more than 1 % of the
// requests.
func simulate(ctx context.Context, sc *scenario.Scenario) (*result.Result, error) {
	res, err := sc.Simulate(ctx, scenario.RunOptions{})
	if err != nil {
		return nil, err
	}
	if e := res.Endings(); e != nil && 100*e.Unsuccessful() > e.Requests {
		return nil, fmt.Errorf("%d of %d requests did not succeed", e.Unsuccessful(), e.Requests)
	}
	return res, nil
}
