// Package oracle computes lower bounds on the latencies of a workload. No policy can reach less, even with perfect
// knowledge of the future. The bounds are the reference for regret:
//
//	b := oracle.Of(requests, costs)
//	regret := (meanE2E - b.MeanE2E) / b.MeanE2E
//
// A bound is the larger result of two relaxations. In the first, each request runs alone on the fastest worker: its
// prefill, then one decode step per further token. No schedule is faster. In the second, each request takes its share
// of a worker's time in the fullest batch, which is the least it can cost. All workers together are at most as good as
// one divisible machine of their total speed. There, serving the shortest remaining work first minimizes the sum of
// latencies (Schrage, 1968). Adapters, their loads and the KV cache cost nothing here, so the bound is loose where they
// matter.
package oracle

import (
	"cmp"
	"container/heap"
	"math"
	"slices"

	"lorasim/sim/profile"
)

// Request is a request of the workload.
type Request struct {
	Release float64 // time of sending, s
	Prompt  int32   // tokens
	Output  int32   // tokens, >= 1
}

// Bound holds the lower bounds, in seconds.
type Bound struct {
	MeanE2E  float64 // on the mean latency from sending to the last token
	Duration float64 // on the time from the start of the run to the last token
}

// Of returns lower bounds for requests on workers with the given costs. Without requests or workers they are 0.
func Of(requests []Request, workers []*profile.Costs) Bound {
	if len(requests) == 0 || len(workers) == 0 {
		return Bound{}
	}
	rs := slices.Clone(requests)
	slices.SortStableFunc(rs, func(a, b Request) int { return cmp.Compare(a.Release, b.Release) })
	kinds := distinct(workers)
	longest := int64(0)
	for _, r := range rs {
		longest = max(longest, int64(r.Prompt)+int64(r.Output))
	}
	overhead := math.Inf(1)
	for _, k := range kinds {
		overhead = min(overhead, k.Overhead.Seconds())
	}
	alone := 0.0
	var b Bound
	var work [2][]float64 // by reading and by computing
	for _, r := range rs {
		least, share := math.Inf(1), [2]float64{math.Inf(1), math.Inf(1)}
		for _, k := range kinds {
			least = min(least, aloneTime(k, r))
			reading, computing := fullestShares(k, r, longest)
			share[0], share[1] = min(share[0], reading), min(share[1], computing)
		}
		alone += least
		for k := range work {
			work[k] = append(work[k], share[k]/float64(len(workers)))
		}
		b.Duration = max(b.Duration, r.Release+least+overhead)
	}
	n := float64(len(rs))
	b.MeanE2E = alone/n + overhead
	for _, w := range work {
		b.MeanE2E = max(b.MeanE2E, shortestFirst(rs, w)/n+overhead)
		b.Duration = max(b.Duration, drained(rs, w)+overhead)
	}
	// the simulator counts in ticks, this in seconds
	b.MeanE2E *= 1 - 1e-9
	b.Duration *= 1 - 1e-9
	return b
}

func distinct(workers []*profile.Costs) []*profile.Costs {
	var kinds []*profile.Costs
	for _, w := range workers {
		if !slices.Contains(kinds, w) {
			kinds = append(kinds, w)
		}
	}
	return kinds
}

// aloneTime is the time of a request that has a worker to itself: prefill in
// one step, then one step for each further token.
func aloneTime(c *profile.Costs, r Request) float64 {
	steps := int64(max(r.Output-1, 0))
	t := promptStep(c, int64(r.Prompt))
	return t + float64(steps)*c.Step(&profile.StepWork{Batch: 1}).Seconds() + c.PerKVToken.Seconds()*kvReads(r)
}

// promptStep returns the time of a step with the given number of prompt tokens and nothing else.
func promptStep(c *profile.Costs, tokens int64) float64 {
	return c.Step(&profile.StepWork{Tokens: tokens}).Seconds()
}

// kvReads is the sum over a request's decode steps of the KV tokens they read.
func kvReads(r Request) float64 {
	steps := float64(max(r.Output-1, 0))
	return steps*float64(r.Prompt) + steps*(steps-1)/2
}

// fullestShares is the least time of a worker that a request can cost: its part
// of prefill steps as long as any and of decode steps of the largest batch. Under law
// roofline, where a step that does both takes the longer of reading and computing, it
// is the part of each by itself: a worker spends at least the sum of either over all
// requests, but not of the longer of each request. Elsewhere both are the same.
func fullestShares(c *profile.Costs, r Request, longest int64) (reading, computing float64) {
	l := &c.Profile().Latency
	e := &c.Profile().Engine
	if l.Law != profile.LawRoofline || e.Scheduler != profile.SchedulerVLLM && !e.MixedChunk {
		share := fullestShare(c, r, longest)
		return share, share
	}
	batch, steps := int64(max(e.MaxRunningRequests, 1)), float64(max(r.Output-1, 0))
	kv := c.PerKVToken.Seconds() * kvReads(r)
	each := steps * (l.StepMs/float64(batch) + l.StepPerRequestMs)
	reading = each + steps*(l.Decode.BaseMs/float64(batch)+l.Decode.PerRequestMs)
	computing = each + l.Prefill.PerTokenUs/1000*(float64(r.Prompt)+steps)
	return reading/1000 + kv, computing/1000 + kv
}

// fullestShare is the share under a law that adds what the phases of a step take.
func fullestShare(c *profile.Costs, r Request, longest int64) float64 {
	e := &c.Profile().Engine
	batch := int64(max(e.MaxRunningRequests, 1))
	kv, _ := c.Profile().KVTokens() // no error: the profile was checked
	tokens := max(e.PrefillTokens(kv), longest)
	steps := float64(max(r.Output-1, 0))
	prompt := promptStep(c, tokens)
	if e.Scheduler == profile.SchedulerVLLM || e.MixedChunk {
		prompt = min(prompt, besideDecode(c, tokens, batch))
	}
	t := float64(r.Prompt) * prompt / float64(tokens)
	return t + steps*c.Step(&profile.StepWork{Batch: batch}).Seconds()/float64(batch) +
		c.PerKVToken.Seconds()*kvReads(r)
}

// besideDecode is what prompt tokens add to a decode step: where steps do both, tokens of
// both kinds read the same experts once.
func besideDecode(c *profile.Costs, tokens, batch int64) float64 {
	both := c.Step(&profile.StepWork{Tokens: tokens, Batch: batch}) - c.Step(&profile.StepWork{Batch: batch})
	if c.Profile().Latency.Experts.ReadMs == 0 {
		return math.Inf(1)
	}
	return max(both, 0).Seconds()
}

// drained returns the earliest time at which all work can be done. Work that is released from some time on cannot be
// done before it.
func drained(rs []Request, work []float64) float64 {
	end, rest := 0.0, 0.0
	for i := len(rs) - 1; i >= 0; i-- {
		rest += work[i]
		end = max(end, rs[i].Release+rest)
	}
	return end
}

// shortestFirst is the least sum of latencies on one machine: the shortest
// remaining work first, preemptively.
func shortestFirst(rs []Request, work []float64) float64 {
	var open jobs
	now, sum := 0.0, 0.0
	for i := 0; i < len(rs) || len(open) > 0; {
		if len(open) == 0 {
			now = max(now, rs[i].Release)
		}
		for i < len(rs) && rs[i].Release <= now {
			heap.Push(&open, job{work[i], rs[i].Release})
			i++
		}
		next := math.Inf(1)
		if i < len(rs) {
			next = rs[i].Release
		}
		if now+open[0].left <= next {
			now += open[0].left
			sum += now - open[0].release
			heap.Pop(&open)
		} else {
			open[0].left -= next - now
			now = next
		}
	}
	return sum
}

type job struct{ left, release float64 }

// jobs is a heap by the work that is left.
type jobs []job

func (j jobs) Len() int           { return len(j) }
func (j jobs) Less(a, b int) bool { return j[a].left < j[b].left }
func (j jobs) Swap(a, b int)      { j[a], j[b] = j[b], j[a] }
func (j *jobs) Push(x any)        { *j = append(*j, x.(job)) }
func (j *jobs) Pop() any {
	last := (*j)[len(*j)-1]
	*j = (*j)[:len(*j)-1]
	return last
}
