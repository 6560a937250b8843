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
	// probeRequests, probeShare times the most requests that were in flight, and those of
	// probeSeconds of arrivals, are the least requests that the second run has.
	probeRequests, probeShare, probeSeconds = 20_000, 10, 60
	// maxProbe bounds them: larger clusters get no second run, which would take longer
	// than the first.
	maxProbe = 40_000
	// fewest is the least number of requests of a first run that gets a second one: less
	// is a trial.
	fewest = 200
	// undecided is the length of the first run, as a multiple of the second one's, up to
	// which a second one is made where the first did not decide.
	undecided = 5
	// probeError is how much the sustainable rate of the second run may be off: twice
	// its standard deviation over seeds (docs/steady.md).
	probeError = 0.02
)

// saturate completes the assessment of a run by that of a saturated one where the run
// itself is too short, and its workload can go on: a generated one, at a constant rate,
// on a fixed cluster.
func (s *Scenario) saturate(ctx context.Context, res *result.Result) error {
	a := res.Steady
	peak, _ := res.Metrics.Get(result.MaxConcurrentRequests)
	finished, _ := res.Metrics.Get(result.RequestThroughput)
	rate := saturating * min(finished, s.Workload.RequestRate)
	n := int64(max(probeRequests, probeShare*peak, probeSeconds*rate))
	enough := n
	if a.State == steady.Transient {
		enough *= undecided
	}
	own := res.Extra.Requests
	if a.State == steady.Steady || own < fewest || own >= enough || n > maxProbe || finished == 0 || !s.prolongs() {
		return nil
	}
	probe := *s
	probe.Workload.NumPrompts, probe.Workload.RequestRate = settings.Some(n), rate
	probe.Workload.Window, probe.Client.Warmup = 0, defaults.Client.Warmup
	r, err := probe.Simulate(ctx, RunOptions{})
	if err != nil || r.Steady.State != steady.Overloaded || r.Steady.SustainableRate == 0 {
		return err
	}
	a.SustainableRate = r.Steady.SustainableRate
	if a.State == steady.Overloaded {
		return nil
	}
	switch rate := s.Workload.RequestRate; {
	case rate > a.SustainableRate*(1+probeError):
		a.State, a.OfferedRate = steady.Overloaded, rate
		a.Reason = fmt.Sprintf("the queue has only begun to grow after %d requests", own)
	case rate > a.SustainableRate*(1-probeError):
		a.Reason += fmt.Sprintf("; %g requests/s are close to the sustainable rate", rate)
	}
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
