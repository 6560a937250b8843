package scenario

import (
	"fmt"
	"math"

	"lorasim/bench/result"
	"lorasim/bench/steady"
	"lorasim/internal/format"
	"lorasim/trace/resample"
)

const (
	// manyPeriods is the least number of periods in a run that need not end with a whole one.
	manyPeriods = 10
	// wholePeriod is how much a run may be off a whole number of periods, as a share of the run.
	wholePeriod = 0.05
	// conversationsInTurn and blocksInTurn are the least lengths of a run with intervals, in mean lengths of a
	// conversation and in blocks of a resampled log: shorter runs draw too few of them (lab/docs/steady.md). So each of
	// the 20 batches of the interval is as long as a conversation.
	conversationsInTurn, blocksInTurn = 20, 30
	// wholeWindow is the share of the window that a recorded workload must cover.
	wholeWindow = 0.9
)

// Covers returns the number of requests after which a run has seen all of the workload's rate pattern; 0: the rate is
// constant.
func (s *Scenario) Covers() float64 {
	p := s.Workload.Pattern.Value()
	rate := s.Workload.RequestRate * p.Mean()
	requests := rate * p.Covers()
	if f := p.Flash; f.Duration > 0 {
		requests += rate * f.Duration * (f.Factor - 1)
	}
	return requests
}

// period is the time after which the workload's rate repeats, s; 0: it does not.
func (s *Scenario) period() float64 {
	if s.Workload.File != "" || s.Workload.usesTrace() {
		return 0
	}
	return s.Workload.Pattern.Value().Period()
}

// judgeLoad sets the state to transient if the run has only a part of the load that the scenario describes: the run
// ends within a period of the rate, or a recorded workload ends before the window.
func (s *Scenario) judgeLoad(res *result.Result) {
	if a := res.Steady; a != nil {
		if why := s.partOfLoad(a.LastArrival); why != "" && s.bearsMean(a) {
			a.State, a.Reason = steady.Transient, why
			a.NoIntervals()
			if covers := roundUp(s.Covers()); covers > float64(res.Extra.Requests) {
				a.Needed = int64(covers)
			}
		}
		s.judgeIntervals(res)
	}
}

// judgeIntervals removes the intervals of a run that is short against the memory of its arrivals, or has a flash crowd:
// one run does not tell how flash crowds differ.
func (s *Scenario) judgeIntervals(res *result.Result) {
	a, least := res.Steady, s.leastTime()
	if s.Workload.Pattern.Value().Flash.Duration > 0 {
		a.NoIntervals()
		return
	}
	if len(a.Intervals) == 0 || a.LastArrival >= least {
		return
	}
	needed := int64(roundUp(float64(res.Extra.Requests) * least / a.LastArrival))
	for _, in := range a.Intervals {
		a.TooShort = append(a.TooShort, steady.TooShort{Metric: in.Metric, Needed: needed})
	}
	a.Intervals = nil
}

// leastTime is the least length of a run with intervals of means, s: several conversations one after the other, or
// several blocks of a resampled log.
func (s *Scenario) leastTime() (seconds float64) {
	w := &s.Workload
	if c := w.Conversations.Value(); w.Conversations.Given() {
		think := c.Think * math.Exp(c.ThinkSigma*c.ThinkSigma/2)
		seconds = conversationsInTurn * (c.MeanTurns() - 1) * think
	}
	if r := w.Resample.Value(); w.Resample.Given() && r.Kind == resample.Block {
		seconds = max(seconds, blocksInTurn*r.Seconds)
	}
	return seconds
}

// bearsMean reports whether workers may keep up with the mean rate.
func (s *Scenario) bearsMean(a *steady.Assessment) bool {
	mean := s.Workload.RequestRate * s.Workload.Pattern.Value().Mean()
	return a.State != steady.Overloaded || !(a.SustainableRate > 0 && a.SustainableRate < mean)
}

// partOfLoad returns why requests up to a time, s, are only a part of the load; "": they are all of it.
func (s *Scenario) partOfLoad(until float64) string {
	w := &s.Workload
	if (w.File != "" || w.usesTrace()) && until < wholeWindow*w.Window {
		return fmt.Sprintf("the requests cover %s s of the window of %s s, and tell nothing about the rest",
			format.Digits(until), format.Digits(w.Window))
	}
	p := w.Pattern.Value()
	covers, period := p.Covers(), p.Period()
	if covers == 0 || math.IsInf(w.RequestRate, 1) || w.File != "" || w.usesTrace() {
		return ""
	}
	needs := fmt.Sprintf("needs about %.0f requests", roundUp(s.Covers()))
	switch n := until / max(period, 1e-9); {
	case period > 0 && until < period*(1-wholePeriod):
		return fmt.Sprintf("the run covers %s s of a period of %s s of the pattern: %s", format.Digits(until),
			format.Digits(period), needs)
	case until < covers*(1-wholePeriod):
		return fmt.Sprintf("the run ends after %s s, before the flash crowd is over: %s", format.Digits(until), needs)
	case period > 0 && n < manyPeriods && math.Abs(n-math.Round(n)) > wholePeriod*n:
		return fmt.Sprintf("the run covers %.2f periods of the pattern, expected a whole number: %.0f requests a period",
			n, s.Workload.RequestRate*p.Mean()*period)
	}
	return ""
}

// roundUp rounds up to two digits.
func roundUp(x float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(max(x, 1)))-1)
	return math.Ceil(x/unit) * unit
}
