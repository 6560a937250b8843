package result

import (
	"slices"

	"lorasim/sim/record"
	"lorasim/sim/tick"
)

// Warmup is the part at the start of a run that the metrics leave out. Metrics cover the
// requests sent after the warm-up, and the time after it. Tokens count from its end on,
// whichever request they belong to. The counters of workers, plans and elastic clusters
// cover the whole run.
type Warmup struct {
	Seconds float64 // length, s; 0: no warm-up
	// Auto replaces Seconds by the time to reach the steady state (see
	// steady.Assessment). The collector then holds the whole run in memory.
	Auto bool
}

// excludes reports whether a request belongs to the warm-up.
func (w *Warmup) excludes(r *record.Request) bool { return r.Sent < w.Seconds }

// ticks returns the end of the warm-up.
func (w *Warmup) ticks() tick.Ticks { return record.Ticks(w.Seconds) }

// tape records the calls of a run for a second collector.
type tape struct {
	done   []record.Request
	tokens []tokenCall
}

// tokenCall is a call of Tokens (n tokens at a time), of Steps, or of Gap (n gaps).
type tokenCall struct {
	kind  tokenKind
	at    tick.Ticks // a time, or the length of a gap
	n     int64
	steps record.Steps
}

type tokenKind uint8

const (
	tokensCall tokenKind = iota
	stepsCall
	gapCall
)

func (t *tape) add(r *record.Request) { t.done = append(t.done, kept(r)) }

// kept returns a copy of a record. Records are valid only during the call.
func kept(r *record.Request) record.Request {
	q := *r
	q.Gaps = slices.Clone(r.Gaps)
	return q
}

// play repeats the calls. gaps reports whether AddGaps was called, too.
func (t *tape) play(c *Collector, gaps bool) {
	for i := range t.tokens {
		switch q := &t.tokens[i]; q.kind {
		case tokensCall:
			c.Tokens(q.at, q.n)
		case stepsCall:
			c.Steps(q.steps)
		case gapCall:
			c.Gap(q.at, q.n)
		}
	}
	for i := range t.done {
		c.Done(&t.done[i])
		if gaps {
			c.AddGaps(&t.done[i])
		}
	}
}

// settled returns the result without the warm-up that the assessment found.
func (c *Collector) settled(meta Meta, counters *RunCounters) *Result {
	opt := c.opt
	opt.Warmup = Warmup{Seconds: c.steady.Assess().Warmup}
	again := NewCollector(opt)
	c.tape.play(again, c.gaps)
	return again.Result(meta, counters)
}

// after returns the steps of s that end at or after from; false if there are none.
func after(s record.Steps, from tick.Ticks) (record.Steps, bool) {
	if s.Start >= from || s.Count <= 0 {
		return s, s.Count > 0
	}
	if s.End(s.Count) < from {
		return s, false
	}
	n := s.Until(from) - 1 // steps that end before
	return record.Steps{
		Start: s.End(n), First: s.First + s.Incr*tick.Ticks(n), Incr: s.Incr, Count: s.Count - n, Batch: s.Batch,
	}, true
}

// Counted returns the records that the metrics cover, of requests sent after the
// warm-up.
func (r *Result) Counted() []record.Request {
	if r.Steady == nil || r.Steady.Excluded == 0 {
		return r.Records
	}
	w := Warmup{Seconds: r.Steady.Excluded}
	return slices.DeleteFunc(slices.Clone(r.Records), func(q record.Request) bool {
		return w.excludes(&q)
	})
}
