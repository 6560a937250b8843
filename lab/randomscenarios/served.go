package main

import (
	"context"
	"math"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/sim/record"
	"lorasim/trace"
)

// overload is the factor of the drawn rates beyond which runs show what a policy sustains.
const overload = 1.5

// Beyond overload, mean rates are within leastOverload and mostOverload times what simple policies sustain. Below, a
// policy may keep up, and its rate is the offered one. Far above, queues are so long that all policies fill all
// batches.
const (
	leastOverload = 1.15
	mostOverload  = 1.3
)

// Beyond overload, runs have longer times the requests, and mostLonger times if a request decodes for more than
// 1/leastDecodings of the time in which all arrive.
const (
	longer         = 4
	mostLonger     = 32
	leastDecodings = 30
)

// saturate changes the rate and the number of requests of a scenario so that a run shows what a policy sustains.
// sustained is the rate that simple policies sustain with few requests, requests/s. If least-loaded serves more of the
// scenario's rate, that counts.
func saturate(ctx context.Context, sc *scenario.Scenario, sustained float64) error {
	w := &sc.Workload
	most := mostLonger * w.NumPrompts.Value
	w.NumPrompts.Value *= longer
	probe := *sc
	if err := probe.Set("policy", "least-loaded"); err != nil {
		return err
	}
	res, served, err := servedBy(ctx, probe)
	if err != nil {
		return err
	}
	sustained = max(sustained, served)
	offered := float64(w.NumPrompts.Value) / res.Steady.LastArrival // bursts and crowds come on top of the drawn rate
	rate := min(max(offered, leastOverload*sustained), mostOverload*sustained)
	w.RequestRate = rounded(w.RequestRate*rate/offered, 4)
	e2e, _ := res.Metrics.Get(result.MeanE2E)
	ttft, _ := res.Metrics.Get(result.MeanTTFT)
	needed := leastDecodings * (e2e - ttft) / 1000 * rate
	w.NumPrompts.Value = max(w.NumPrompts.Value, min(100*int64(needed/100), most))
	return nil
}

// rungs are the shares of a scenario's rate at which a policy runs to tell the rate that it sustains, in ascending
// order. A policy may serve less of a higher rate: once KV caches are full, batches have more adapters.
var rungs = []float64{0.8, 0.9, 1}

// sustains runs a scenario at all rungs. It returns the result at the scenario's rate, and the largest rate served.
func sustains(ctx context.Context, sc scenario.Scenario) (res *result.Result, rate float64, err error) {
	full := sc.Workload.RequestRate
	for _, share := range rungs {
		sc.Workload.RequestRate = share * full
		served := 0.0
		if res, served, err = servedBy(ctx, sc); err != nil {
			return nil, 0, err
		}
		rate = max(rate, served)
	}
	return res, rate, nil
}

// servedBy runs a scenario. It also returns the rate at which the cluster serves requests, requests/s.
func servedBy(ctx context.Context, sc scenario.Scenario) (*result.Result, float64, error) {
	var ends ends
	res, err := sc.Simulate(ctx, scenario.RunOptions{
		Watch: func([]trace.Adapter) record.Watcher { return record.WatchEnds(ends.add) },
	})
	return res, ends.rate(), err
}

// ends collects the times of requests that ended, to tell the rate at which the cluster serves them.
type ends struct {
	times []struct{ sent, begun, finish float64 }
	last  float64 // s: when the last one was sent
}

func (e *ends) add(r *record.Request) {
	begun := r.FirstToken
	if math.IsNaN(begun) {
		begun = r.Finish
	}
	e.times = append(e.times, struct{ sent, begun, finish float64 }{r.Sent, begun, r.Finish})
	e.last = max(e.last, r.Sent)
}

// rate returns how many requests are served until the last one is sent, requests/s; 0 without requests. A request that
// is decoding then counts by the share of its time from the first token to the last one.
//
// What comes after the last arrival does not count: workers run dry one after the other. The sustainable rate of
// package steady is another one: that of the first worker at its capacity, by its share of the requests. It is right if
// the shares are given, and takes longer requests on a worker for a lack of capacity if they are not.
func (e *ends) rate() float64 {
	if e.last == 0 {
		return 0
	}
	served := 0.0
	for _, t := range e.times {
		switch {
		case t.finish <= e.last:
			served++
		case t.begun < e.last:
			served += (e.last - t.begun) / (t.finish - t.begun)
		}
	}
	return served / e.last
}
