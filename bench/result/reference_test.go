package result

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"lorasim/sim/record"
	"lorasim/sim/tick"
)

// slowMetrics computes the metrics as the reference benchmark does, from lists
// of everything.
func slowMetrics(rs []record.Request, duration float64) map[ID]float64 {
	var e2e, ttft, tpot, itl []float64
	var input, output, completed float64
	tokens, active := map[int]float64{}, map[int]float64{}
	for _, r := range rs {
		if r.Status != record.OK {
			continue
		}
		completed++
		input += float64(r.Prompt)
		output += float64(r.Output)
		latency := r.Finish - r.Sent
		first := 0.0
		if !math.IsNaN(r.FirstToken) {
			first = r.FirstToken - r.Sent
			at := r.FirstToken
			tokens[int(at)]++
			for _, g := range r.Gaps {
				at += g
				tokens[int(at)]++
				itl = append(itl, g)
			}
		}
		e2e, ttft = append(e2e, latency), append(ttft, first)
		if r.Output > 1 {
			tpot = append(tpot, (latency-first)/float64(r.Output-1))
		}
		for s := int(r.Sent); s <= int(r.Finish); s++ {
			active[s]++
		}
	}
	m := map[ID]float64{
		Duration: duration, Completed: completed, TotalInputTokens: input, TotalInputTextTokens: input,
		TotalOutputTokens: output, TotalOutputTokensRetokenized: output,
		RequestThroughput: completed / duration, InputThroughput: input / duration,
		OutputThroughput: output / duration, TotalThroughput: (input + output) / duration,
		Concurrency: sum(e2e) / duration, MaxITL: 0,
		MaxOutputTokensPerS: largest(tokens), MaxConcurrentRequests: largest(active),
	}
	for _, v := range itl {
		m[MaxITL] = max(m[MaxITL], 1000*v)
	}
	for first, list := range map[ID][]float64{MeanE2E: e2e, MeanTTFT: ttft, MeanTPOT: tpot, MeanITL: itl} {
		n := float64(max(len(list), 1))
		mean := sum(list) / n
		var squares float64
		for _, v := range list {
			squares += (v - mean) * (v - mean)
		}
		m[first] = 1000 * mean
		m[first+ID(Std)] = 1000 * math.Sqrt(squares/n)
		for stat, p := range map[Stat]float64{Median: 50, P90: 90, P95: 95, P99: 99} {
			m[first+ID(stat)] = 1000 * slowPercentile(list, p)
		}
	}
	return m
}

func sum(xs []float64) (s float64) {
	for _, x := range xs {
		s += x
	}
	return s
}

func largest(m map[int]float64) (l float64) {
	for _, v := range m {
		l = max(l, v)
	}
	return l
}

func slowPercentile(xs []float64, p float64) float64 {
	if len(xs) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(xs))
	rank := p / 100 * float64(len(s)-1)
	i := int(rank)
	return s[i] + (s[min(i+1, len(s)-1)]-s[i])*(rank-float64(i))
}

// drawRun draws the records of a run; times are whole milliseconds, kept off
// the borders of seconds, where the floats of the slow side could go astray.
func drawRun(t *rapid.T) []record.Request {
	milli := func(lo, hi int, name string) float64 {
		v := rapid.IntRange(lo, hi).Draw(t, name)
		if v%1000 == 0 {
			v++
		}
		return float64(v) / 1000
	}
	rs := make([]record.Request, rapid.IntRange(0, 30).Draw(t, "requests"))
	for i := range rs {
		r := &rs[i]
		*r = record.Request{
			ID: int64(i), Adapter: int32(i % 3), Prompt: int32(i), WorkerFirst: 0, WorkerLast: int32(i % 2),
		}
		r.Arrival = milli(0, 5000, "arrival")
		r.Sent = r.Arrival + float64(rapid.IntRange(0, 3).Draw(t, "queued"))/8
		r.Status = record.Status(rapid.SampledFrom([]int{0, 0, 0, 1, 2, 3}).Draw(t, "status"))
		r.FirstToken, r.Finish = math.NaN(), r.Sent+milli(1, 3000, "failure")
		if r.Status != record.OK {
			r.Error = "broken"
			continue
		}
		if rapid.IntRange(0, 5).Draw(t, "textless") == 0 {
			continue
		}
		r.FirstToken = r.Sent + milli(1, 3000, "ttft")
		at := r.FirstToken
		r.Gaps = []float64{}
		for range rapid.IntRange(0, 8).Draw(t, "gaps") {
			g := milli(1, 900, "gap")
			r.Gaps = append(r.Gaps, g)
			at += g
		}
		r.Output = int32(len(r.Gaps) + 1)
		r.Finish = at
	}
	return rs
}

// nearBorder says whether any of the times of a run is so near a full second that rounding decides on its bucket.
func nearBorder(rs []record.Request) bool {
	border := func(t float64) bool {
		return math.Abs(t-math.Round(t)) < 1e-6 && math.Round(t) != 0
	}
	for _, r := range rs {
		at := r.FirstToken
		if border(r.Sent) || border(r.Finish) || border(at) {
			return true
		}
		for _, g := range r.Gaps {
			if at += g; border(at) {
				return true
			}
		}
	}
	return false
}

func TestCollectorAgainstSlowReference(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rs := drawRun(rt)
		duration := 1e-9
		for _, r := range rs {
			duration = max(duration, r.Finish)
		}
		if nearBorder(rs) {
			rt.Skip("on the border of a second")
		}
		c := NewCollector(Options{})
		if len(rs) == 0 {
			c.opt.Duration = duration
		}
		for i := range rs {
			c.Done(&rs[i])
			c.AddGaps(&rs[i])
		}
		got := c.Result(Meta{}, nil)
		for m, want := range slowMetrics(rs, duration) {
			tolerance := 1e-7 // ms; ticks are 1e-8 ms
			if m >= MeanITL && m < MaxITL {
				tolerance += 0.0005 * want
			}
			if v, ok := got.Metrics.Get(m); !ok || math.Abs(v-want) > tolerance+1e-9*math.Abs(want) {
				rt.Errorf("%v = %v (%v), slow reference %v", m, v, ok, want)
			}
		}
	})
}

// Steps count like their tokens and gaps one by one.
func TestStepsAreTheirTokens(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		bulk, single := NewCollector(Options{}), NewCollector(Options{})
		for range rapid.IntRange(1, 4).Draw(rt, "runs") {
			s := record.Steps{
				Start: tick.FromMilliseconds(float64(rapid.IntRange(300, 3000).Draw(rt, "start"))),
				First: tick.Ticks(rapid.Int64Range(0, int64(3*tick.Second)).Draw(rt, "first")),
				Count: rapid.Int64Range(0, 60).Draw(rt, "count"),
				Batch: rapid.Int64Range(0, 9).Draw(rt, "batch"),
			}
			s.Incr = tick.Ticks(
				rapid.Int64Range(-int64(s.First)/max(s.Count, 1), int64(tick.Second/10)).Draw(rt, "incr"))
			bulk.Steps(s)
			for i := range s.Count {
				if s.Batch == 0 {
					break
				}
				single.Tokens(s.End(i+1), s.Batch)
				if i > 0 {
					single.Gap(s.First+tick.Ticks(i)*s.Incr, s.Batch)
				}
			}
		}
		a, b := bulk.Result(Meta{}, nil), single.Result(Meta{}, nil)
		if a.Metrics != b.Metrics {
			rt.Fatalf("steps %v\none by one %v", a.Metrics, b.Metrics)
		}
		if x, y := bulk.seconds.tokens, single.seconds.tokens; !slices.EqualFunc(x, y, slices.Equal[[]int64]) {
			rt.Fatalf("tokens by second %v, one by one %v", x, y)
		}
	})
}
