package result

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"lorasim/bench/steady"
	"lorasim/internal/format"
	"lorasim/sim/record"
	"lorasim/sim/tick"
	"lorasim/trace"
)

// defaultSampleLimit is the default of Options.SampleLimit.
const defaultSampleLimit = 1 << 20

// Resolutions of the histograms, see NewHistogram.
const (
	latencyBits = 11 // 0.05 %
	adapterBits = 5  // 3 %: the P99 per adapter of runs beyond the sample limit
)

// Options configures a Collector.
type Options struct {
	// NonStreaming reports whether the client waits for whole replies. TTFT is then E2E,
	// there is no ITL, and all tokens of a reply count at its end.
	NonStreaming bool
	Workers      int             // number of workers; more are added as they appear
	Adapters     []trace.Adapter // names for the per-adapter table
	PrefixCache  bool            // count the prompt tokens found in prefix caches
	SLO          SLO             // for goodput; an empty SLO disables it
	Noisy        []int32         // adapters with flash crowds; the goodput of the others is reported separately
	KeepRecords  bool            // copy every record into Result.Records
	// Duration is the duration of the run, s. 0 means from time 0, when the first request
	// was scheduled, to the last finish.
	Duration float64
	Warmup   Warmup // start of the run that the metrics leave out
	// Period is the time after which the arrival rate repeats, s; 0: it does not.
	Period float64
	// SampleLimit is the number of exact samples of each latency; beyond it a histogram
	// replaces them. 0 means 1<<20. Token gaps from Steps and Gap are too many to keep and
	// always go to a histogram.
	SampleLimit int
}

// A Collector computes a Result from the records of a run's requests. It uses the metric
// definitions of the reference benchmark: only successful requests count, percentiles are
// numpy's, and a missing value is 0.
//
// Token times come in one of two ways, never both for the same request. A simulator calls
// Tokens, Steps and Gap. A driver whose records have token gaps calls AddGaps in addition
// to Done; Done never reads the gaps. Tokens of requests that fail later count in the peak
// throughput.
//
// A Collector is not safe for concurrent use. The same calls in the same order give the
// same Result, bit for bit. Requests may come in any order. Times lie between 0 and
// tick.Max.
type Collector struct {
	opt Options

	counts               Extra // counts so far; Result derives the other fields
	reasons              map[Reason]int64
	input, output        int64      // tokens of successful requests
	end                  tick.Ticks // last finish
	ttftPerToken         float64    // s, summed over successful requests
	good                 Goodput    // its shares hold counts until Result
	e2e, ttft, tpot, itl distribution
	// From arrival, with the time in the client; not kept (late is false) until a request is sent after its arrival.
	// Until then they are e2e and ttft.
	arrivalE2E, arrivalTT distribution
	late                  bool
	othersTTFT            distribution // of requests to adapters not in Options.Noisy
	stale                 staleness    // of requests for adapters with new versions
	seconds               perSecond
	adapters              []adapterState // by index + 1: base model first
	records               []record.Request
	steady                *steady.Recorder
	now                   tick.Ticks // latest time of a token
	tape                  *tape      // nil unless Warmup.Auto: the warm-up is then known only at the end
	gaps                  bool       // AddGaps was called
}

var _ record.Observer = (*Collector)(nil)

// NewCollector returns a collector for one run.
func NewCollector(opt Options) *Collector {
	latency := distribution{limit: cmp.Or(opt.SampleLimit, defaultSampleLimit), bits: latencyBits}
	c := &Collector{
		opt: opt, reasons: map[Reason]int64{},
		e2e: latency, ttft: latency, tpot: latency, itl: latency, othersTTFT: latency, stale: staleness{age: latency},
		counts: Extra{Workers: make([]WorkerStats, opt.Workers)},
		steady: steady.NewRecorder(opt.NonStreaming),
	}
	c.steady.Period = opt.Period
	if opt.Warmup.Auto {
		c.tape = &tape{}
	}
	return c
}

// Done implements record.Observer. It counts a request that ended.
func (c *Collector) Done(r *record.Request) {
	c.steady.Done(r)
	if c.tape != nil {
		c.tape.add(r)
		return
	}
	if c.opt.KeepRecords {
		c.records = append(c.records, kept(r))
	}
	finish := record.Ticks(r.Finish)
	c.end = max(c.end, finish)
	if c.opt.Warmup.excludes(r) {
		return
	}
	a, e := c.adapter(r.Adapter), &c.counts
	a.Requests++
	e.Requests++
	if r.ColdLoad > 0 {
		e.ColdStarts++
		e.ColdStartWait += r.ColdLoad
	}
	if r.Migrations > 0 {
		e.Migrated++
	}
	if r.Version > 0 {
		c.stale.add(r)
	}
	var w WorkerStats // discarded: of a request that never reached a worker
	worker := &w
	if i := int(r.WorkerLast); i >= 0 {
		for i >= len(e.Workers) {
			e.Workers = append(e.Workers, w)
		}
		worker = &e.Workers[i]
	}
	worker.Requests++
	if r.Status != record.OK {
		*e.Of(r.Status)++
		c.failure(r.Status, r.Error)
		return
	}
	tokens := int64(r.Prompt) + int64(r.Output)
	a.Tokens += tokens
	worker.Tokens += tokens
	if c.opt.PrefixCache {
		for _, to := range []**Reuse{&e.Reuse, &a.Reuse, &worker.Reuse} {
			if *to == nil {
				*to = new(Reuse)
			}
			(*to).add(r)
		}
	}
	c.success(r, a, finish)
}

// success adds the tokens and latencies of a successful request.
func (c *Collector) success(r *record.Request, a *adapterState, finish tick.Ticks) {
	c.counts.CompletedSet = completedSet(c.counts.CompletedSet, r)
	c.input += int64(r.Prompt)
	c.output += int64(r.Output)

	sent := record.Ticks(r.Sent)
	queued := tick.Ticks(0) // in the client
	if r.Arrival < r.Sent {
		queued = sent - record.Ticks(r.Arrival)
	}
	e2e, ttft, tpot, textless := latencies(r, c.opt.NonStreaming)
	switch {
	case c.opt.NonStreaming:
		c.seconds.addTokens(finish, int64(r.Output))
	case textless:
		c.counts.TextlessReplies++
	}
	c.ttftPerToken += ttft.Seconds() / float64(max(r.Output, 1))
	if r.Output > 1 {
		c.tpot.add(tpot)
	}
	if queued > 0 && !c.late {
		c.late, c.arrivalE2E, c.arrivalTT = true, c.e2e.clone(), c.ttft.clone()
	}
	c.e2e.add(e2e)
	c.ttft.add(ttft)
	if len(c.opt.Noisy) > 0 && !slices.Contains(c.opt.Noisy, r.Adapter) {
		c.othersTTFT.add(ttft)
	}
	if c.late {
		c.arrivalE2E.add(e2e + queued)
		c.arrivalTT.add(ttft + queued)
	}
	c.seconds.addRequest(sent, finish)
	if c.e2e.hist != nil { // beyond the limit no samples are kept
		a.e2e.fold()
	}
	a.e2e.add(e2e)
	a.ttft += float64(ttft)
	a.normalized += float64(e2e) / float64(max(r.Output, 1))
	if c.good.count(c.opt.SLO, ttft, tpot, e2e, textless) && !c.opt.SLO.Empty() {
		a.Good++
	}
}

// latencies returns the latencies of a successful request. A streamed reply without a
// first token is textless, and its TTFT is 0.
func latencies(r *record.Request, nonStreaming bool) (e2e, ttft, tpot tick.Ticks, textless bool) {
	sent := record.Ticks(r.Sent)
	e2e = max(record.Ticks(r.Finish)-sent, 0)
	ttft, textless = e2e, !nonStreaming && math.IsNaN(r.FirstToken)
	if textless {
		ttft = 0
	} else if !nonStreaming {
		ttft = max(record.Ticks(r.FirstToken)-sent, 0)
	}
	if r.Output > 1 {
		n := tick.Ticks(r.Output - 1)
		tpot = max(e2e-ttft+n/2, 0) / n // to the nearest tick
	}
	return e2e, ttft, tpot, textless
}

// Tokens implements record.Observer. It counts n tokens at time at.
func (c *Collector) Tokens(at tick.Ticks, n int64) {
	if c.tape != nil {
		c.tape.tokens = append(c.tape.tokens, tokenCall{kind: tokensCall, at: at, n: n})
		return
	}
	c.now = max(c.now, at)
	if !c.opt.NonStreaming && at >= c.opt.Warmup.ticks() {
		c.seconds.addTokens(at, n)
	}
}

// Steps implements record.Observer. It counts the tokens of a run of decode steps.
func (c *Collector) Steps(s record.Steps) {
	if c.tape != nil {
		c.tape.tokens = append(c.tape.tokens, tokenCall{kind: stepsCall, steps: s})
		return
	}
	if c.opt.NonStreaming || s.Count <= 0 || s.Batch <= 0 {
		return
	}
	c.now = max(c.now, s.Start)
	if c.opt.Warmup.Seconds > 0 {
		var some bool
		if s, some = after(s, c.opt.Warmup.ticks()); !some {
			return
		}
	}
	c.seconds.addSteps(s)
	if s.Count > 1 {
		c.itl.addRun(s.First+s.Incr, s.Incr, s.Count-1, s.Batch)
	}
}

// Gap implements record.Observer. It counts n gaps of length d between tokens.
func (c *Collector) Gap(d tick.Ticks, n int64) {
	if c.tape != nil {
		c.tape.tokens = append(c.tape.tokens, tokenCall{kind: gapCall, at: d, n: n})
		return
	}
	if !c.opt.NonStreaming && c.now >= c.opt.Warmup.ticks() {
		c.itl.addMany(d, n)
	}
}

// AddGaps adds the token times of a successful request, from its first token and its
// gaps. It replaces Tokens, Steps and Gap.
func (c *Collector) AddGaps(r *record.Request) {
	if c.gaps = true; c.tape != nil { // they are in the record
		return
	}
	if c.opt.NonStreaming || r.Status != record.OK || math.IsNaN(r.FirstToken) {
		return
	}
	from, at := c.opt.Warmup.Seconds, r.FirstToken
	if at >= from {
		c.seconds.addTokens(record.Ticks(at), 1)
	}
	for _, g := range r.Gaps {
		if at += g; at >= from {
			c.seconds.addTokens(record.Ticks(at), 1)
			c.itl.add(record.Ticks(g))
		}
	}
}

// Result returns the result of the requests collected so far. counters may be nil.
func (c *Collector) Result(meta Meta, counters *RunCounters) *Result {
	if c.tape != nil {
		return c.settled(meta, counters)
	}
	r := &Result{Meta: meta, Records: c.records, Steady: c.steady.Assess()}
	whole := c.opt.Duration
	if whole == 0 {
		whole = c.end.Seconds()
	}
	r.Steady.Excluded = c.opt.Warmup.Seconds
	duration := max(whole-c.opt.Warmup.Seconds, 0)
	completed, input, output := float64(c.e2e.n), float64(c.input), float64(c.output)
	for m, v := range map[ID]float64{
		Duration: duration, Completed: completed,
		TotalInputTokens: input, TotalInputTextTokens: input, TotalOutputTokens: output,
		TotalOutputTokensRetokenized: output,
		RequestThroughput:            ratio(completed, duration), InputThroughput: ratio(input, duration),
		OutputThroughput: ratio(output, duration), TotalThroughput: ratio(float64(c.input+c.output), duration),
		Concurrency:         ratio(c.e2e.total()/float64(tick.Second), duration),
		MaxOutputTokensPerS: float64(c.seconds.peakTokens()), MaxConcurrentRequests: float64(c.seconds.peakRequests()),
		MaxITL: ms(float64(c.itl.max)),
	} {
		r.Metrics.Set(m, v)
	}
	var stats [4]Stats
	for i, d := range []*distribution{&c.e2e, &c.ttft, &c.tpot, &c.itl} {
		stats[i] = d.stats()
		f, s := families[i], stats[i]
		for stat, v := range [numStats]float64{s.Mean, s.Median, s.Std, s.P90, s.P95, s.P99} {
			r.Metrics.Set(f.first+ID(stat), v)
		}
		if d.approximate() {
			r.Approximate = append(r.Approximate, f.key)
		}
	}

	e := c.counts
	e.Workers = slices.Clone(e.Workers)
	for reason, n := range c.reasons {
		reason.Count = n
		e.Reasons = append(e.Reasons, reason)
	}
	slices.SortFunc(e.Reasons, func(a, b Reason) int { // what happened most first, then by name
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Status, b.Status), cmp.Compare(a.Reason, b.Reason))
	})
	if e.ScheduledE2E, e.ScheduledTTFT = stats[0], stats[1]; c.late {
		e.ScheduledE2E, e.ScheduledTTFT = c.arrivalE2E.stats(), c.arrivalTT.stats()
	}
	e.TTFTPerToken = ratio(c.ttftPerToken, completed)
	e.Adapters, e.Fairness = c.adapterStats()
	e.Balance = balance(e.Workers)
	if counters != nil {
		e.addCounters(counters, whole)
		if p := counters.Pushes; p != nil {
			e.Pushes = new(*p)
			c.stale.enter(e.Pushes)
		}
	}
	if !c.opt.SLO.Empty() {
		g := c.good
		g.SLO = c.opt.SLO.String()
		g.PerS, g.Share = ratio(float64(g.Good), duration), ratio(float64(g.Good), float64(e.Requests))
		g.TTFT, g.TPOT, g.E2E = ratio(g.TTFT, completed), ratio(g.TPOT, completed), ratio(g.E2E, completed)
		g.addAdapters(c.opt.SLO, e.Adapters, c.opt.Noisy)
		if g.Others != nil {
			g.Others.TTFT = c.othersTTFT.stats().P99
		}
		e.Goodput = &g
	}
	r.Extra = &e
	return r
}

// CountGood sets Goodput from the records of an imported run and an SLO. It does nothing
// if the result has an Extra or lacks records.
func (r *Result) CountGood(slo SLO) {
	if r.Extra != nil || len(r.Records) == 0 {
		return
	}
	duration, _ := r.Metrics.Get(Duration)
	c := NewCollector(Options{SLO: slo, Adapters: r.Adapters, Duration: duration})
	for i := range r.Records {
		c.Done(&r.Records[i])
	}
	r.Goodput = c.Result(Meta{}, nil).Extra.Goodput
}

// Limits on the reasons kept, since their texts may come from outside.
const (
	maxReasons   = 64
	maxReasonLen = 240
	otherReasons = "(other reasons)"
)

// failure counts a reason why a request did not succeed.
func (c *Collector) failure(s record.Status, reason string) {
	reason, _, _ = strings.Cut(strings.ToValidUTF8(strings.TrimSpace(reason), "\uFFFD"), "\n")
	key := Reason{Status: s.String(), Reason: cmp.Or(format.Clip(reason, maxReasonLen), "no reason given")}
	if _, ok := c.reasons[key]; !ok && len(c.reasons) >= maxReasons {
		key.Reason = otherReasons
	}
	c.reasons[key]++
}
