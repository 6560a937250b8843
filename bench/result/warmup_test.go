package result

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"lorasim/sim/record"
	"lorasim/sim/tick"
)

// warmRun is a run of 1000 requests at 2 requests/s, with the calls of a simulator or,
// live, with gaps in the records.
func warmRun(c *Collector, live bool) (sent []float64) {
	rng := rand.New(rand.NewPCG(4, 2))
	t := 0.0
	for id := range int64(1000) {
		t += rng.ExpFloat64() / 2
		r := &record.Request{ID: id, Adapter: -1, Arrival: t, Sent: t, FirstToken: t + 0.25, Finish: t + 1.25,
			Prompt: 10, Output: 5,
			Gaps: []float64{0.25, 0.25, 0.25, 0.25}}
		sent = append(sent, t)
		c.Done(r)
		if live {
			c.AddGaps(r)
			continue
		}
		first := tick.FromSeconds(r.FirstToken)
		c.Tokens(first, 1)
		c.Gap(tick.Second/4, 1)
		c.Steps(record.Steps{Start: first, First: tick.Second / 4, Count: 4, Batch: 1})
	}
	return sent
}

// TestWarmup counts the requests sent after the warm-up, and the tokens seen after it,
// by hand.
func TestWarmup(t *testing.T) {
	for _, live := range []bool{false, true} {
		const from = 100.0
		c := NewCollector(Options{Warmup: Warmup{Seconds: from}, KeepRecords: true})
		sent := warmRun(c, live)
		r := c.Result(Meta{}, nil)
		want := len(slices.DeleteFunc(slices.Clone(sent), func(s float64) bool { return s < from }))
		last := sent[len(sent)-1] + 1.25
		for m, v := range map[ID]float64{
			Completed: float64(want), Duration: last - from, MeanTTFT: 250, MeanE2E: 1250,
			TotalOutputTokens: 5 * float64(want), RequestThroughput: float64(want) / (last - from),
		} {
			if got, _ := r.Metrics.Get(m); math.Abs(got-v) > 1e-6*v {
				t.Errorf("live %v: %s is %v, expected %v", live, m, got, v)
			}
		}
		gaps := 0
		for _, s := range sent {
			for k := 1; k <= 4; k++ {
				if s+0.25+0.25*float64(k) >= from {
					gaps++
				}
			}
		}
		if live && int(c.itl.n) != gaps || math.Abs(float64(int(c.itl.n)-gaps)) > 8 {
			t.Errorf("live %v: %d gaps, expected %d", live, c.itl.n, gaps)
		}
		if len(r.Records) != len(sent) || len(r.Counted()) != want || int(r.Extra.Requests) != want {
			t.Errorf("live %v: %d records, %d counted, %d requests; expected %d, %d, %d",
				live, len(r.Records), len(r.Counted()), r.Extra.Requests, len(sent), want, want)
		}
		if r.Steady.Excluded != from {
			t.Errorf("excluded %v s, expected %v", r.Steady.Excluded, from)
		}
	}
}

// TestAutoWarmup: leaving out what the run turns out to need is leaving it out from the
// start.
func TestAutoWarmup(t *testing.T) {
	for _, live := range []bool{false, true} {
		auto := NewCollector(Options{Warmup: Warmup{Auto: true}})
		warmRun(auto, live)
		got := auto.Result(Meta{}, nil)
		known := NewCollector(Options{Warmup: Warmup{Seconds: got.Steady.Warmup}})
		warmRun(known, live)
		if want := known.Result(Meta{}, nil); got.Metrics != want.Metrics || got.Steady.Excluded != want.Steady.Warmup {
			t.Errorf("live %v: %v, with the warm-up of %v s told %v",
				live, got.Metrics, want.Steady.Warmup, want.Metrics)
		}
	}
}

// TestAfter: what is cut off a run of steps and what is left are the whole run.
func TestAfter(t *testing.T) {
	s := record.Steps{Start: 100, First: 10, Incr: 3, Count: 6, Batch: 2} // ends at 110, 123, 139, 158, 180, 205
	for _, c := range []struct {
		from  tick.Ticks
		count int64
		start tick.Ticks
		first tick.Ticks
	}{{0, 6, 100, 10}, {100, 6, 100, 10}, {105, 6, 100, 10}, {110, 6, 100, 10}, {111, 5, 110, 13}, {158, 3, 139, 19},
		{205, 1, 180, 25}, {206, 0, 0, 0}} {
		got, some := after(s, c.from)
		if some != (c.count > 0) || some &&
			(got.Count != c.count || got.Start != c.start || got.First != c.first ||
				got.End(got.Count) != s.End(s.Count)) {
			t.Errorf("after %d: %+v, %v; expected %d steps from %d on, the first of %d",
				c.from, got, some, c.count, c.start, c.first)
		}
	}
}
