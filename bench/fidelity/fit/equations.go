package fit

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sort"

	"lorasim/sim/profile"
	"lorasim/sim/record"
)

// fitEquations fits the knobs to the equations of runs.
func (o *Options) fitEquations(ctx context.Context, knobs []knob, runs []*replay) (*Result, error) {
	var eqs []span
	for _, run := range runs {
		eqs = append(eqs, equations(run, o.Start)...)
	}
	// The equations justify a large distance from the start: hence the wide prior.
	_, fit, err := o.fit(ctx, model{profile: o.Start}, knobs, 3, func(_ context.Context, m *model) ([]float64, error) {
		return equationResiduals(eqs, m.profile), nil
	})
	return fit, err
}

// equationResiduals returns the relative errors of the equations divided by the noise.
func equationResiduals(eqs []span, p *profile.Profile) []float64 {
	r := make([]float64, len(eqs))
	for i := range eqs {
		s := &eqs[i]
		r[i] = robust((s.predict(p) - s.seconds) / math.Hypot(clockNoise, recordNoise*s.seconds))
	}
	return r
}

// robust makes large errors count less than their square (pseudo-Huber loss): where steps were
// matched wrongly, an error is large for any coefficients.
func robust(e float64) float64 {
	return math.Copysign(math.Sqrt(2*(math.Sqrt(1+e*e)-1)), e)
}

// span is an equation of a recorded run, linear in the coefficients of the latency model: seconds =
// sum of amounts x coefficients. It follows from the requests that ran together, which the records
// show, so that no simulation is needed.
//
// The time from the first to the last token of a request is the length of its decode steps and of
// the prefill steps between them. Requests of a worker decode in lockstep: two requests share as
// many steps as one produced tokens while the other ran. A request that found its worker idle
// waited for its own prefill only.
type span struct {
	seconds float64
	steps   float64 // decode steps
	batch   float64 // sum of the requests in the batch, over the decode steps
	context float64 // sum of the KV tokens, over the decode steps
	lora    float64 // sum of the backend's factor, over the decode steps; measured kernels: their time, ms
	prefill prefills
	mixed   bool    // decode steps include prompt tokens
	waits   float64 // request overheads
}

// prefills is one or several prefill steps.
type prefills struct {
	at       float64 // time of the first tokens of the requests, s
	requests int
	steps    float64
	tokens   float64 // prompt tokens
	squares  float64 // sum of tokens * context
	adapter  float64 // prompt tokens of requests with an adapter
	kernels  float64 // time of measured LoRA kernels, ms
}

// predict returns the length of a span under a profile, s.
func (s *span) predict(p *profile.Profile) float64 {
	l, f := &p.Latency, &s.prefill
	steps := s.steps
	if s.mixed { // a step with a prompt also gives a token: its base is that of a prefill step
		steps = max(steps-f.steps, 0)
	}
	decode := steps*l.Decode.BaseMs + s.batch*l.Decode.PerRequestMs + s.context*l.Decode.PerKVTokenUs/1000
	fill := f.steps*l.Prefill.BaseMs + f.tokens*l.Prefill.PerTokenUs/1000 + f.squares*l.Prefill.PerTokenCtxNs/1e6
	switch backend := l.LoRA.Backend; {
	case l.LoRA.Measured():
		factor := cmp.Or(l.LoRA.KernelTimes.Factor, 1)
		decode += s.lora * factor
		fill += f.kernels * factor
	case backend == profile.BackendCSGMV:
		decode += s.lora * l.LoRA.CSGMVUs / 1000
	case backend == profile.BackendTriton:
		decode += s.lora * l.LoRA.TritonUs / 1000
	}
	// Experts: the time that a mean step reads longer than it computes.
	if s.steps > 0 {
		decode += max(s.steps*l.Experts.MsOf(s.batch/s.steps)-s.batch*l.Decode.PerRequestMs, 0)
	}
	if f.steps > 0 {
		fill += max(f.steps*l.Experts.MsOf(f.tokens/f.steps)-f.tokens*l.Prefill.PerTokenUs/1000, 0)
	}
	if l.LoRA.Backend != profile.BackendNone && f.tokens > 0 {
		fill *= 1 + l.LoRA.PrefillFactor*f.adapter/f.tokens
	}
	return (decode + fill + s.waits*l.RequestOverheadMs) / 1000
}

// equations derives spans from the fitted requests of a run, for each worker separately. Ranks,
// backend and chunk size are those of the profile.
func equations(run *replay, p *profile.Profile) (out []span) {
	byWorker := make([][]*record.Request, run.Workers)
	for i := range run.Measured[:run.fitted] {
		r := &run.Measured[i]
		byWorker[r.WorkerLast] = append(byWorker[r.WorkerLast], r)
	}
	costs := p.Compile()
	for _, rs := range byWorker {
		slices.SortStableFunc(rs, func(a, b *record.Request) int { return cmp.Compare(a.FirstToken, b.FirstToken) })
		h := &history{requests: rs, prefills: prefillsOf(rs, p), costs: costs, backend: p.Latency.LoRA.Backend,
			mixed: p.Engine.Scheduler == profile.SchedulerVLLM || p.Engine.MixedChunk}
		out = append(out, h.spans()...)
	}
	return out
}

// history is the recorded requests and prefill steps of one worker.
type history struct {
	requests []*record.Request // by first token
	prefills []prefills        // by time
	costs    *profile.Costs
	backend  string
	mixed    bool // see span
}

// together is the largest time between the observed first tokens of one prefill step, s. It is less
// than the shortest step.
const together = 0.004

// prefillsOf finds the prefill steps: groups of requests that got their first tokens together. A
// prompt longer than a chunk took several steps.
func prefillsOf(rs []*record.Request, p *profile.Profile) (out []prefills) {
	chunk, costs := float64(p.Engine.ChunkedPrefillSize), p.Compile()
	if p.Engine.Scheduler == profile.SchedulerVLLM {
		chunk = float64(p.Engine.MaxNumBatchedTokens)
	}
	if chunk == 0 {
		chunk = math.Inf(1)
	}
	for _, r := range rs {
		if len(out) == 0 || r.FirstToken-out[len(out)-1].at > together {
			out = append(out, prefills{at: r.FirstToken})
		}
		f := &out[len(out)-1]
		n := float64(r.Prompt)
		f.requests++
		f.tokens += n
		f.squares += n * n / 2
		if r.Adapter >= 0 {
			f.adapter += n
			// as if prompts that are computed together had adapters of their own
			f.kernels += kernelMs(costs, n, 0, 1, float64(costs.Rank(int(r.Rank))))
		}
		f.steps = max(math.Ceil(f.tokens/chunk), 1)
	}
	return out
}

// spans returns the equations of the worker's requests.
func (h *history) spans() (out []span) {
	busyUntil := math.Inf(-1)
	var earlier []*record.Request // requests that may still run
	for i, r := range h.requests {
		own := h.prefills[sort.Search(len(h.prefills), func(k int) bool {
			return h.prefills[k].at+together >= r.FirstToken
		})]
		if own.requests == 1 && own.steps == 1 && r.Sent > busyUntil && r.ColdLoad == 0 {
			out = append(out, span{seconds: r.TTFT(), prefill: own, waits: 1})
		}
		busyUntil = max(busyUntil, r.Finish)
		earlier = slices.DeleteFunc(earlier, func(q *record.Request) bool { return q.Finish <= r.FirstToken })
		if streamed(r) {
			out = append(out, h.span(r, earlier, h.requests[i+1:]))
		}
		earlier = append(earlier, r)
	}
	return out
}

// span returns the equation of a request's decode steps. The request ran beside earlier ones, and
// beside later ones that began before its end.
func (h *history) span(r *record.Request, earlier, later []*record.Request) span {
	s := span{seconds: r.Finish - r.FirstToken, steps: float64(r.Output - 1), mixed: h.mixed}
	loras, adapters, rankTokens := 0.0, 0.0, 0.0 // sums over the decode steps
	rank := 0
	shares := map[int32]float64{} // share of the steps, by adapter
	add := func(q *record.Request) {
		n, context := shared(r, q)
		s.batch += n
		s.context += n * context
		if q.Adapter >= 0 && n > 0 {
			own := h.costs.Rank(int(q.Rank))
			loras += n
			rank = max(rank, own)
			share := min(shares[q.Adapter]+n, s.steps)
			rankTokens += n * float64(own)
			adapters += share - shares[q.Adapter]
			shares[q.Adapter] = share
		}
	}
	add(r)
	for _, q := range earlier {
		add(q)
	}
	for _, q := range later {
		if q.FirstToken >= r.Finish {
			break
		}
		add(q)
	}
	switch measured := h.costs.Profile().Latency.LoRA.Measured(); { // factors of the mean batch and the largest rank
	case measured && loras > 0:
		s.lora = s.steps * kernelMs(h.costs, 0, math.Round(loras/s.steps), max(math.Round(adapters/s.steps), 1),
			math.Round(rankTokens/loras))
	case h.backend == profile.BackendCSGMV:
		s.lora = s.steps * float64(rank)
	case h.backend == profile.BackendTriton:
		s.lora = loras * float64(rank)
	}
	from := sort.Search(len(h.prefills), func(k int) bool { return h.prefills[k].at > r.FirstToken+together })
	for _, f := range h.prefills[from:] {
		if f.at >= r.Finish {
			break
		}
		s.prefill.steps += f.steps
		s.prefill.tokens += f.tokens
		s.prefill.squares += f.squares
		s.prefill.adapter += f.adapter
		s.prefill.kernels += f.kernels
	}
	return s
}

// kernelMs returns the time of measured LoRA kernels in a step with prompt tokens or running requests of adapters of a
// rank, at factor 1.
func kernelMs(c *profile.Costs, tokens, requests, adapters, rank float64) float64 {
	w := profile.StepWork{Tokens: int64(tokens), LoRATokens: int64(tokens), Batch: int64(requests),
		LoRAs: int64(requests), Adapters: int64(adapters), RankTokens: int64((tokens + requests) * rank)}
	return c.KernelMs(&w) / cmp.Or(c.Profile().Latency.LoRA.KernelTimes.Factor, 1)
}

// shared returns the number of decode steps that r and q had in common, and the mean of q's KV
// tokens in them. It is exact if one ran within the other's time or the gaps between the tokens are
// recorded. Else it is the mean of two estimates that assume an even token rate.
func shared(r, q *record.Request) (steps, context float64) {
	from, to := max(r.FirstToken, q.FirstToken), min(r.Finish, q.Finish)
	if to <= from || r.Output < 2 || q.Output < 2 {
		return 0, 0
	}
	ofR := progress(r, to) - progress(r, from)
	first, last := progress(q, from), progress(q, to)
	switch {
	case r.FirstToken >= q.FirstToken && r.Finish <= q.Finish:
		steps = ofR
	case q.FirstToken >= r.FirstToken && q.Finish <= r.Finish:
		steps = last - first
	default:
		steps = (ofR + last - first) / 2
	}
	// Step k of a request reads its prompt and k tokens.
	if q.FirstToken >= r.FirstToken {
		last = first + steps
	} else if q.Finish <= r.Finish {
		first = last - steps
	}
	return steps, float64(q.Prompt) + (first+last-1)/2
}

// progress returns the number of tokens after the first one that a request had at time t.
func progress(r *record.Request, t float64) float64 {
	if len(r.Gaps) != int(r.Output)-1 {
		return float64(r.Output-1) * min(max((t-r.FirstToken)/(r.Finish-r.FirstToken), 0), 1)
	}
	at, n := r.FirstToken, 0
	for _, g := range r.Gaps {
		if at += g; at > t+together/2 {
			break
		}
		n++
	}
	return float64(n)
}
