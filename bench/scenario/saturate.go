package scenario

import (
	"context"
	"fmt"
	"math"

	"lorasim/bench/result"
	"lorasim/bench/steady"
	"lorasim/trace/settings"
)

// A run that is too short to tell whether its rate can be sustained is judged by a
// second one: the same workload, with more requests, at a rate that no worker keeps up
// with.
const (
	// saturating is the rate of the second run, as a multiple of what the first one
	// finished.
	saturating = 4
	// leastProbe and mostProbe bound the requests of the second run, so that it costs about as much as the first one.
	// With fewer, most runs do not saturate the workers.
	leastProbe, mostProbe = 2000, 4000
	// probeShare times the most requests that were in flight are the least requests that saturate the workers.
	probeShare = 5
	// fewest is the least number of requests of a first run that gets a second one: less is a trial.
	fewest = 200
	// probeError is how much the sustainable rate of a second run of leastProbe requests may be off: twice its standard
	// deviation over seeds. It falls with the root of the number of requests (lab/docs/steady.md).
	probeError = 0.063
)

// unmeasured ends the reason of a run that gets no second run.
const unmeasured = "; the sustainable rate was not measured: that takes a longer second run"

// saturate completes the assessment of a run by that of a saturated one where the run
// itself is too short, and its workload can go on: a generated one, at a constant rate,
// on a fixed cluster.
func (s *Scenario) saturate(ctx context.Context, res *result.Result) error {
	a := res.Steady
	own := res.Extra.Requests
	peak, _ := res.Metrics.Get(result.MaxConcurrentRequests)
	finished, _ := res.Metrics.Get(result.RequestThroughput)
	n := min(max(own, leastProbe, int64(probeShare*peak)), mostProbe)
	if a.State == steady.Steady || own < fewest || a.State == steady.Overloaded && own >= leastProbe || finished == 0 ||
		!s.prolongs() {
		return nil
	}
	if probeShare*peak > mostProbe {
		a.Reason += unmeasured
		return nil
	}
	probe := *s
	probe.Workload.NumPrompts = settings.Some(n)
	probe.Workload.RequestRate = saturating * min(finished, s.Workload.RequestRate)
	probe.Workload.Window, probe.Client.Warmup = 0, defaults.Client.Warmup
	r, err := probe.Simulate(ctx, RunOptions{})
	if err != nil {
		return err
	}
	if r.Steady.State != steady.Overloaded || r.Steady.SustainableRate == 0 {
		a.Reason += unmeasured
		return nil
	}
	off := probeError * math.Sqrt(leastProbe/float64(n))
	a.SustainableRate = r.Steady.SustainableRate
	if a.State == steady.Overloaded {
		return nil
	}
	switch rate := s.Workload.RequestRate; {
	case rate > a.SustainableRate*(1+off):
		a.State, a.OfferedRate, a.Needed = steady.Overloaded, rate, 0
		a.Reason = fmt.Sprintf("the queue has only begun to grow after %d requests", own)
	case rate > a.SustainableRate*(1-off):
		a.Reason += fmt.Sprintf("; %g requests/s are close to the sustainable rate", rate)
	}
	a.NeedsAt(s.Workload.RequestRate)
	return nil
}

// prolongs reports whether the workload can have more requests, at another rate, and is
// otherwise the same.
func (s *Scenario) prolongs() bool {
	w := &s.Workload
	return w.File == "" && !w.usesTrace() && w.Compat == "" && !w.Pattern.Given() && w.RampUpStrategy == "" &&
		w.Drift == 0 &&
		!w.Conversations.Given() && !w.Sessions.Given() && !math.IsInf(w.RequestRate, 1) &&
		s.Client.MaxConcurrency == 0 && s.Client.MaxInFlightFail == 0 &&
		!s.Cluster.Elastic.Given() && !s.Cluster.Outages.Given() && !s.Routing.Shed.Given() &&
		!s.Routing.RateLimit.Given()
}
