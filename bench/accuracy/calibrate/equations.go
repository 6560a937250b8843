package calibrate

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
func (o *Options) fitEquations(ctx context.Context, knobs []knob, runs []*replay) (*Fit, error) {
	var eqs []span
	for _, run := range runs {
		eqs = append(eqs, equations(run, o.Start)...)
	}
	// The equations are reason enough to leave the start: hence the wide prior.
	_, fit, err := o.fit(ctx, model{profile: o.Start}, knobs, 3, func(_ context.Context, m *model) ([]float64, error) {
		return equationResiduals(eqs, m.profile), nil
	})
	return fit, err
}

// equationResiduals are the relative errors of the equations over the noise.
func equationResiduals(eqs []span, p *profile.Profile) []float64 {
	r := make([]float64, len(eqs))
	for i := range eqs {
		s := &eqs[i]
		r[i] = robust((s.predict(p) - s.seconds) / math.Hypot(clockNoise, recordNoise*s.seconds))
	}
	return r
}

// robust has large errors count less than their square (pseudo-Huber loss):
// where steps were matched wrongly, one is off by much, whatever the coefficients.
func robust(e float64) float64 {
	return math.Copysign(math.Sqrt(2*(math.Sqrt(1+e*e)-1)), e)
}

// span is an equation of a recorded run, linear in the coefficients of the latency
// model: seconds = sum of the amounts times the coefficients. It follows from who
// ran together with whom, which the records tell, so that no simulation is needed.
//
// The time from the first to the last token of a request is the length of its
// decode steps and of the prefill steps between them. Requests of a worker
// decode in lockstep, so two of them share as many steps as the one produced
// tokens while the other ran. And a request that found its worker idle waited
// for nothing but its own prefill.
type span struct {
	seconds float64
	steps   float64 // decode steps
	batch   float64 // sum over them of the requests in the batch
	context float64 // sum over them of the KV tokens
	lora    float64 // sum over them of the backend's factor
	// Backend roofline: how many of them had an adapter, and the sum over their requests of
	// the rank of the adapter.
	adapted, rankTokens float64
	prefill             prefills
	mixed               bool    // decode steps take prompts along
	waits               float64 // request overheads
}

// prefills is one or several prefill steps.
type prefills struct {
	at       float64 // when its requests got their first token, s
	requests int
	steps    float64
	tokens   float64 // prompt tokens
	squares  float64 // sum of tokens * context
	adapter  float64 // prompt tokens of requests with an adapter
	// Backend roofline: the ranks of their adapters, each request by itself, and the sum over
	// their tokens of the rank.
	ranks, rankTokens float64
}

// predict is the length of a span under a profile, s.
func (s *span) predict(p *profile.Profile) float64 {
	l, f := &p.Latency, &s.prefill
	steps := s.steps
	if s.mixed { // a step with a prompt gives a token, too: it has the base of a prefill step
		steps = max(steps-f.steps, 0)
	}
	decode := steps*l.Decode.BaseMs + s.batch*l.Decode.PerRequestMs + s.context*l.Decode.PerKVTokenUs/1000
	fill := f.steps*l.Prefill.BaseMs + f.tokens*l.Prefill.PerTokenUs/1000 + f.squares*l.Prefill.PerTokenCtxNs/1e6
	switch l.LoRA.Backend {
	case profile.BackendCSGMV:
		decode += s.lora * l.LoRA.CSGMVUs / 1000
	case profile.BackendTriton:
		decode += s.lora * l.LoRA.TritonUs / 1000
	case profile.BackendRoofline:
		decode += s.adapted*l.LoRA.LaunchMs + s.lora*l.LoRA.RankUs/1000 + s.rankTokens*l.LoRA.TokenRankNs/1e6
		if f.adapter > 0 {
			fill += f.steps*l.LoRA.LaunchMs + f.ranks*l.LoRA.RankUs/1000 + f.rankTokens*l.LoRA.TokenRankNs/1e6
		}
	}
	// Experts: what a mean step reads beyond what it computes meanwhile.
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

// equations derives spans from the fitted requests of a run, for each worker by
// itself. Ranks, backend and chunk size are those of the profile.
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

// history is what one worker did.
type history struct {
	requests []*record.Request // by first token
	prefills []prefills        // in the order of time
	costs    *profile.Costs
	backend  string
	mixed    bool // see span
}

// together is how far apart, in s, the first tokens of one prefill step may be
// seen: less than the shortest step.
const together = 0.004

// prefillsOf finds the prefill steps: requests that got their first token
// together. A prompt longer than a chunk took several.
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
			rank := float64(costs.Rank(int(r.Rank)))
			f.adapter, f.ranks, f.rankTokens = f.adapter+n, f.ranks+rank, f.rankTokens+n*rank
		}
		f.steps = max(math.Ceil(f.tokens/chunk), 1)
	}
	return out
}

// spans are the equations of the worker's requests.
func (h *history) spans() (out []span) {
	busyUntil := math.Inf(-1)
	var earlier []*record.Request // those that may still run
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

// span is the equation of a request's decode steps: it ran beside those of
// earlier, and of later as far as they began before its end.
func (h *history) span(r *record.Request, earlier, later []*record.Request) span {
	s := span{seconds: r.Finish - r.FirstToken, steps: float64(r.Output - 1), mixed: h.mixed}
	loras := 0.0
	rank := 0
	shares := map[int32]float64{} // by adapter, of the steps
	add := func(q *record.Request) {
		n, context := shared(r, q)
		s.batch += n
		s.context += n * context
		if q.Adapter >= 0 && n > 0 {
			own := h.costs.Rank(int(q.Rank))
			loras += n
			rank = max(rank, own)
			share := min(shares[q.Adapter]+n, s.steps)
			s.rankTokens += n * float64(own)
			if h.backend == profile.BackendRoofline {
				s.lora += (share - shares[q.Adapter]) * float64(own)
			}
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
	switch h.backend { // factors of the mean batch and the largest rank
	case profile.BackendCSGMV:
		s.lora = s.steps * float64(rank)
	case profile.BackendTriton:
		s.lora = loras * float64(rank)
	case profile.BackendRoofline:
		s.adapted = min(loras, s.steps)
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
	}
	return s
}

// shared is the number of decode steps that r and q had in common, and the mean
// of q's KV tokens in them. It is exact where one ran within the other's time
// or the gaps between the tokens are recorded; else both are taken to have
// produced tokens evenly, and the mean of the two estimates counts.
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
	// step k of a request sees its prompt and k tokens
	if q.FirstToken >= r.FirstToken {
		last = first + steps
	} else if q.Finish <= r.Finish {
		first = last - steps
	}
	return steps, float64(q.Prompt) + (first+last-1)/2
}

// progress is the number of tokens after the first one that a request had got
// by time t.
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
