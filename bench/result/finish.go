package result

import (
	"math"
	"slices"

	"lorasim/internal/record"
	"lorasim/internal/tick"
)

// Result derives the result of what was collected so far. counters may be nil.
func (c *Collector) Result(meta Meta, counters *Counters) *Result {
	r := &Result{Meta: meta, Records: c.records}
	duration := c.duration
	if math.IsNaN(duration) {
		duration = c.end.Seconds()
	}
	m := &r.Metrics
	m.Set(Duration, duration)
	c.setTotals(m, duration)
	for i, d := range []*distribution{&c.e2e, &c.ttft, &c.tpot, &c.itl} {
		f, s := families[i], d.stats()
		for stat, v := range [numStats]float64{s.Mean, s.Median, s.Std, s.P90, s.P95, s.P99} {
			m.Set(f.first+Metric(stat), v)
		}
		if d.approximate() {
			r.Approximate = append(r.Approximate, f.key)
		}
	}
	m.Set(MaxITL, ms(float64(c.itl.max)))
	r.Extra = c.extra(duration, counters)
	return r
}

// setTotals enters the counts, the throughputs and the peaks.
func (c *Collector) setTotals(m *Metrics, duration float64) {
	retokenized := c.retokenized
	if retokenized < 0 {
		retokenized = c.output
	}
	m.Set(Completed, float64(c.completed))
	m.Set(TotalInputTokens, float64(c.input))
	m.Set(TotalInputTextTokens, float64(c.input))
	m.Set(TotalOutputTokens, float64(c.output))
	m.Set(TotalOutputTokensRetokenized, float64(retokenized))
	m.Set(RequestThroughput, ratio(float64(c.completed), duration))
	m.Set(InputThroughput, ratio(float64(c.input), duration))
	m.Set(OutputThroughput, ratio(float64(c.output), duration))
	m.Set(TotalThroughput, ratio(float64(c.input+c.output), duration))
	m.Set(Concurrency, ratio(c.e2e.total()/float64(tick.Second), duration))
	m.Set(MaxOutputTokensPerS, float64(c.seconds.peakTokens()))
	m.Set(MaxConcurrentRequests, float64(c.seconds.peakRequests()))
}

// extra derives what lies beyond the reference's metrics.
func (c *Collector) extra(duration float64, counters *Counters) *Extra {
	e := &Extra{
		Endings: Endings{
			Requests:   c.requests,
			Failed:     c.failures.byStatus[record.Failed],
			Rejected:   c.failures.byStatus[record.Rejected],
			Aborted:    c.failures.byStatus[record.Aborted],
			Unfinished: c.failures.byStatus[record.Unfinished],
			Reasons:    c.failures.reasons(), CompletedSet: int64(c.completedSet),
		},

		TextlessReplies: c.textless,
		ScheduledE2E:    c.arrivalE2E.stats(),
		ScheduledTTFT:   c.arrivalTT.stats(),
		TTFTPerToken:    ratio(c.ttftPerToken, float64(c.completed)),

		ColdStarts: c.coldStarts, ColdStartWait: c.coldWait, Migrated: c.migrated,
		Workers: slices.Clone(c.workers),
	}
	e.Adapters, e.Fairness = c.adapterStats()
	e.Balance = balance(e.Workers)
	var reached int64
	for _, w := range e.Workers {
		reached += w.Requests
	}
	for i := range e.Workers {
		e.Workers[i].Share = ratio(float64(e.Workers[i].Requests), float64(reached))
	}
	if counters != nil {
		e.addCounters(counters, duration)
	}
	if !c.opt.SLO.Empty() {
		ok := float64(c.completed)
		e.Goodput = &Goodput{
			SLO: c.opt.SLO.String(), Good: c.attained.all,
			PerS:  ratio(float64(c.attained.all), duration),
			Share: ratio(float64(c.attained.all), float64(c.requests)),
			TTFT:  ratio(float64(c.attained.ttft), ok),
			TPOT:  ratio(float64(c.attained.tpot), ok),
			E2E:   ratio(float64(c.attained.e2e), ok),
		}
	}
	return e
}
