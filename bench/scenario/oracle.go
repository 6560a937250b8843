package scenario

import (
	"lorasim/bench/result"
	"lorasim/internal/record"
	"lorasim/sim/oracle"
	"lorasim/sim/profile"
)

// oracleObserver notes what the oracle has to know of the requests that ended
// well.
type oracleObserver struct {
	requests []oracle.Request
	latency  float64 // s, summed
	end      float64 // s
}

func (o *oracleObserver) Done(r *record.Request) {
	o.end = max(o.end, r.Finish)
	if r.Status == record.OK {
		o.requests = append(o.requests, oracle.Request{Release: r.Sent, Prompt: r.Prompt, Output: r.Output})
		o.latency += r.Finish - r.Sent
	}
}

// bound compares the run with what perfect knowledge could have reached; nil if
// no request ended well.
func (o *oracleObserver) bound(workers []*profile.Costs) *result.Oracle {
	if len(o.requests) == 0 {
		return nil
	}
	b := oracle.Of(o.requests, workers)
	mean := o.latency / float64(len(o.requests))
	return &result.Oracle{
		MeanE2E: 1000 * b.MeanE2E, Duration: b.Duration,
		E2ERegret: mean/b.MeanE2E - 1, DurationRegret: o.end/b.Duration - 1,
	}
}
