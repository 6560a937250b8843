package calibrate

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sort"

	"lorasim/internal/record"
	"lorasim/router"
	"lorasim/sim/profile"
)

// Steps of a recorded run, from the times of its tokens. The tokens of a step
// reach the client together, so that the tokens of all requests of a worker fall
// into bursts, one for each step. From burst to burst the worker did one step,
// if some request went on; and the requests of the burst were in it. Nothing has
// to be assumed of the scheduler: whether prompts have steps of their own or
// share those of the running requests is seen.

// step is one step of a worker, as its tokens tell.
type step struct {
	seconds  float64
	work     profile.StepWork
	loads    []load  // that it waited for
	arrivals float64 // requests that came meanwhile
	run      int     // index
	waits    float64 // 1: seconds go from the sending of its only request
}

// token is a token that the client saw.
type token struct {
	at float64
	r  *record.Request
	n  int // 0: the first one
}

// heldUp is the least time between two bursts, in s: those that come sooner were
// held up on their way.
const heldUp = 0.001

// seesTokens says whether the times of a request's tokens are recorded.
func seesTokens(r *record.Request) bool { return len(r.Gaps) > 0 || r.Output == 1 || !streamed(r) }

// stepsOf finds the steps of a run until the time at which its request n was
// sent.
func stepsOf(run *replay, n int, p *profile.Profile) []step {
	until := math.Inf(1)
	if n < len(run.measured) {
		until = run.measured[n].Sent
	}
	tokens := make([][]token, run.count)
	sent := make([][]float64, run.count)
	for i := range run.measured {
		r := &run.measured[i]
		w := r.WorkerLast
		sent[w] = append(sent[w], r.Sent)
		at := r.FirstToken
		tokens[w] = append(tokens[w], token{at, r, 0})
		with := max(int(r.Output)-1-len(r.Gaps), 0) // tokens that came with the first one and leave no gap
		for k := range with {
			tokens[w] = append(tokens[w], token{at, r, k + 1})
		}
		for k, gap := range r.Gaps {
			at += gap
			tokens[w] = append(tokens[w], token{at, r, with + k + 1})
		}
	}
	var out []step
	for w := range tokens {
		bursts := burstsOf(tokens[w])
		end := sort.Search(len(bursts), func(k int) bool { return bursts[k][0].at >= until })
		out = append(out, stepsBetween(bursts[:end], sent[w], &p.Engine)...)
	}
	return out
}

// burstsOf sorts tokens into bursts. No request has two tokens in one.
func burstsOf(tokens []token) [][]token {
	slices.SortFunc(tokens, func(a, b token) int { return cmp.Compare(a.at, b.at) })
	var out [][]token
	from := 0
	in := map[*record.Request]bool{}
	for i, t := range tokens {
		if i > from && (in[t.r] || t.at-tokens[i-1].at > together) {
			out = append(out, tokens[from:i])
			from = i
			clear(in)
		}
		in[t.r] = true
	}
	if len(tokens) > 0 {
		out = append(out, tokens[from:])
	}
	return out
}

// stepsBetween are the steps between the bursts of one worker; sent is when its
// requests were sent, ascending. A burst that lacks a token of a running request
// is none: a step was torn apart, or two were seen as one.
func stepsBetween(bursts [][]token, sent []float64, e *profile.Engine) []step {
	var out []step
	running := map[*record.Request]bool{}
	held := newHolding(e)
	next := 0             // request to be sent
	last := math.Inf(-1)  // when the burst before came
	ended := math.Inf(-1) // when the latest step of out did
	known := false        // that was one step's, and some request went on
	for _, b := range bursts {
		at, first := b[0].at, b[0].r
		s, whole := compose(b, running, e)
		for s.arrivals = 0; next < len(sent) && sent[next] < at; next++ {
			s.arrivals++
		}
		loads, certain := held.use(b)
		s.loads = loads
		switch {
		case !certain:
		case whole && known && at-last < heldUp: // what the client read late it read in one
			if ended == last {
				out = out[:len(out)-1]
			}
		case whole && known:
			s.seconds, ended = at-last, at
			out = append(out, s)
		case whole && len(running) == 0 && len(b) == 1 && first.Sent > last && first.ColdLoad == 0: // found it idle
			s.seconds, s.waits, s.arrivals, ended = first.TTFT(), 1, 0, at
			out = append(out, s)
		}
		for _, t := range b {
			running[t.r] = t.n < int(t.r.Output)-1
		}
		maps.DeleteFunc(running, func(_ *record.Request, goesOn bool) bool { return !goesOn })
		last, known = at, whole && len(running) > 0
	}
	return out
}

// compose says what a step computed that ended with a burst, and whether the
// burst is whole: all running requests have a token, or, where prompts have
// steps of their own, none has.
func compose(b []token, running map[*record.Request]bool, e *profile.Engine) (s step, whole bool) {
	adapters := map[int32]int64{} // running requests
	for _, t := range b {
		if t.n == 0 {
			s.work.Add(int64(t.r.Prompt), 0, t.r.Adapter >= 0)
		} else {
			s.work.Batch++
			s.work.KV += int64(int(t.r.Prompt) + t.n)
		}
		if a := t.r.Adapter; a >= 0 && t.n > 0 {
			s.work.LoRAs++
			adapters[a]++
		} else if a >= 0 {
			adapters[a] += 0
		}
	}
	w := &s.work
	w.Adapters = int64(len(adapters))
	for _, n := range adapters {
		w.Squares += n * n
	}
	chunk := e.ChunkedPrefillSize
	if e.Scheduler == profile.SchedulerVLLM {
		chunk = e.MaxNumBatchedTokens
	}
	if chunk > 0 && int(w.Tokens+w.Batch) > chunk {
		return s, false // of several steps
	}
	if apart := e.Scheduler == profile.SchedulerSGLang && !e.MixedChunk; apart && w.Prompts > 0 {
		return s, w.Batch == 0
	}
	return s, int(w.Batch) == len(running)
}

// load is one of an adapter of a rank from a tier to a slot.
type load struct {
	rank int
	from router.Tier
}

// holding are the adapters that a worker has in its slots and in host memory: of
// those of the run the latest used.
type holding struct {
	slots, host recent
	fetches     bool // steps wait for loads into host memory, too
}

func newHolding(e *profile.Engine) *holding {
	return &holding{slots: recent{size: e.MaxLorasPerBatch}, host: recent{size: e.HostLoras()}, fetches: e.Scheduler == profile.SchedulerVLLM}
}

// use takes in the adapters of a burst. It returns the loads that its step waited
// for, and whether they are known: not where the run is too young to tell what
// the worker held before it.
func (h *holding) use(b []token) (loads []load, known bool) {
	known = true
	for _, t := range b {
		a := t.r.Adapter
		if a < 0 {
			continue
		}
		inHost, hostKnown := h.host.use(a)
		inSlot, slotKnown := h.slots.use(a)
		from := router.Host
		if h.fetches && !inHost {
			from = router.Disk
		}
		if !inSlot {
			loads = append(loads, load{int(t.r.Rank), from})
			known = known && slotKnown && (hostKnown || !h.fetches)
		}
	}
	return loads, known
}

// recent are the latest used adapters, as many as fit, the latest one last; size
// 0: there is no limit.
type recent struct {
	size int
	list []int32
}

// use says whether an adapter was among them, and whether that is known, and
// makes it the latest.
func (s *recent) use(a int32) (found, known bool) {
	i := slices.Index(s.list, a)
	full := s.size > 0 && len(s.list) >= s.size
	switch {
	case i >= 0:
		s.list = slices.Delete(s.list, i, i+1)
	case full:
		s.list = s.list[1:]
	}
	s.list = append(s.list, a)
	return i >= 0, i >= 0 || full
}
