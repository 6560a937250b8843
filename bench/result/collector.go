package result

import (
	"math"

	"lorasim/internal/record"
	"lorasim/internal/tick"
	"lorasim/trace"
)

// DefaultSampleLimit is the number of latency samples kept exactly.
const DefaultSampleLimit = 1 << 20

// Resolutions of the histograms, see NewHistogram.
const (
	latencyBits = 11 // 0.05 %
	adapterBits = 5  // 3 %: the P99 per adapter of runs beyond the sample limit
)

// Options says what a Collector is to collect.
type Options struct {
	// NonStreaming: the client waits for whole replies, so that TTFT is E2E,
	// there is no ITL, and a reply's tokens arrive together.
	NonStreaming bool
	Workers      int             // workers of the run; more are added as they appear
	Adapters     []trace.Adapter // names for the per-adapter table
	SLO          SLO             // for goodput; empty: none
	KeepRecords  bool            // copy every record into Result.Records
	// SampleLimit is the number of samples of each latency kept exactly before
	// they fold into a histogram; 0: DefaultSampleLimit. Gaps between tokens
	// that come through Steps and Gap, too many to keep, do so at once.
	SampleLimit int
}

// Collector turns the fates of a run's requests into a Result, with the metric
// definitions of the reference benchmark: only successful requests count,
// percentiles are numpy's, a missing value is 0.
//
// Token times come in one of two ways, never both for the same request: a
// simulator calls Tokens, Steps and Gap; a driver whose records carry their
// gaps calls AddGaps beside Done. Done itself never reads the gaps. Tokens of
// requests that fail later count in the peak throughput, as they were seen.
//
// A Collector is for one goroutine. The same calls in the same order give the
// same Result, bit for bit. Requests come in any order; times lie between 0 and
// tick.Max.
type Collector struct {
	opt Options

	requests, completed   int64
	input, output         int64 // tokens of successful requests
	textless, retokenized int64
	end                   tick.Ticks // last finish
	duration              float64    // s; NaN: from end
	coldStarts, migrated  int64
	coldWait              float64 // s
	ttftPerToken          float64 // s, summed over successful requests
	attained              attained
	e2e, ttft, tpot, itl  distribution
	arrivalE2E, arrivalTT distribution
	seconds               perSecond
	adapters              []adapterState // by index + 1: base model first
	workers               []WorkerStats
	failures              failures
	completedSet          uint64
	records               []record.Request
}

var _ record.Observer = (*Collector)(nil)

// NewCollector returns a collector for one run.
func NewCollector(opt Options) *Collector {
	if opt.SampleLimit <= 0 {
		opt.SampleLimit = DefaultSampleLimit
	}
	latency := distribution{limit: opt.SampleLimit, bits: latencyBits}
	return &Collector{
		opt: opt,
		e2e: latency, ttft: latency, tpot: latency, itl: latency, arrivalE2E: latency, arrivalTT: latency,
		duration:    math.NaN(),
		retokenized: -1,
		workers:     make([]WorkerStats, opt.Workers),
	}
}

// SetFirstSent says when the first request was sent, in seconds since the start
// of the run: the one-second buckets of the peaks begin there, as in the
// reference. To be called before anything is collected; without it they begin
// at 0.
func (c *Collector) SetFirstSent(s float64) { c.seconds.origin = ticks(s) }

// SetDuration sets the benchmark duration in seconds; without it the run lasts
// from time 0, when its first request was scheduled, to the last finish.
func (c *Collector) SetDuration(s float64) { c.duration = s }

// SetRetokenized sets the number of output tokens that the client's own
// tokenizer counted; without it the tokens are taken to be exact.
func (c *Collector) SetRetokenized(n int64) { c.retokenized = n }

// ticks converts seconds; a time that never came counts as 0.
func ticks(s float64) tick.Ticks {
	if !(s > 0) {
		return 0
	}
	return tick.FromSeconds(min(s, tick.Max.Seconds()))
}

// Done implements record.Observer.
func (c *Collector) Done(r *record.Request) {
	if c.opt.KeepRecords {
		c.keep(r)
	}
	finish := ticks(r.Finish)
	a := c.adapter(r.Adapter)
	c.requests++
	a.requests++
	c.end = max(c.end, finish)
	if r.ColdLoad > 0 {
		c.coldStarts++
		c.coldWait += r.ColdLoad
	}
	if r.Migrations > 0 {
		c.migrated++
	}
	w := c.worker(r.WorkerLast)
	if w != nil {
		w.Requests++
	}
	if r.Status != record.OK {
		c.failures.add(r.Status, r.Error)
		return
	}
	tokens := int64(r.Prompt) + int64(r.Output)
	a.tokens += tokens
	if w != nil {
		w.Tokens += tokens
	}
	c.success(r, a, finish)
}

// success enters the latencies of a successful request.
func (c *Collector) success(r *record.Request, a *adapterState, finish tick.Ticks) {
	c.completed++
	c.completedSet = completedSet(c.completedSet, r)
	c.input += int64(r.Prompt)
	c.output += int64(r.Output)

	sent := ticks(r.Sent)
	queued := tick.Ticks(0) // in the client
	if r.Arrival < r.Sent {
		queued = sent - ticks(r.Arrival)
	}
	e2e := max(finish-sent, 0)
	ttft := e2e
	textless := false
	if !c.opt.NonStreaming {
		if textless = math.IsNaN(r.FirstToken); textless {
			c.textless++
			ttft = 0
		} else {
			ttft = max(ticks(r.FirstToken)-sent, 0)
		}
	} else {
		c.seconds.addTokens(finish, int64(r.Output))
	}
	c.ttftPerToken += ttft.Seconds() / float64(max(r.Output, 1))
	tpot := tick.Ticks(0)
	if r.Output > 1 {
		n := tick.Ticks(r.Output - 1)
		tpot = max(e2e-ttft+n/2, 0) / n // to the nearest tick
		c.tpot.add(tpot)
	}
	c.e2e.add(e2e)
	c.ttft.add(ttft)
	c.arrivalE2E.add(e2e + queued)
	c.arrivalTT.add(ttft + queued)
	c.seconds.addRequest(sent, finish)
	a.success(e2e, ttft, r.Output, c.e2e.hist != nil)
	if !c.opt.SLO.Empty() {
		c.attained.count(c.opt.SLO, ttft, tpot, e2e, textless)
	}
}

// Tokens implements record.Observer.
func (c *Collector) Tokens(at tick.Ticks, n int64) {
	if !c.opt.NonStreaming {
		c.seconds.addTokens(at, n)
	}
}

// Steps implements record.Observer.
func (c *Collector) Steps(s record.Steps) {
	if c.opt.NonStreaming || s.Count <= 0 || s.Batch <= 0 {
		return
	}
	c.seconds.addSteps(s)
	if s.Count > 1 {
		c.itl.addRun(s.First+s.Incr, s.Incr, s.Count-1, s.Batch)
	}
}

// Gap implements record.Observer.
func (c *Collector) Gap(d tick.Ticks, n int64) {
	if !c.opt.NonStreaming {
		c.itl.addMany(d, n)
	}
}

// AddGaps enters the token times of a successful request from its first token
// and its gaps, in place of Tokens, Steps and Gap.
func (c *Collector) AddGaps(r *record.Request) {
	if c.opt.NonStreaming || r.Status != record.OK || math.IsNaN(r.FirstToken) {
		return
	}
	at := r.FirstToken
	c.seconds.addTokens(ticks(at), 1)
	for _, g := range r.Gaps {
		at += g
		c.seconds.addTokens(ticks(at), 1)
		c.itl.add(ticks(g))
	}
}

// keep copies a record, which is only valid during the call.
func (c *Collector) keep(r *record.Request) {
	kept := *r
	kept.Gaps = append([]float64(nil), r.Gaps...)
	c.records = append(c.records, kept)
}

// worker returns the counters of a worker; nil for a request that never reached
// one.
func (c *Collector) worker(index int32) *WorkerStats {
	if index < 0 {
		return nil
	}
	for int(index) >= len(c.workers) {
		c.workers = append(c.workers, WorkerStats{})
	}
	return &c.workers[index]
}
