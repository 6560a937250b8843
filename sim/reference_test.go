package sim

import (
	"slices"

	"lorasim/internal/record"
	"lorasim/internal/tick"
	"lorasim/router"
	"lorasim/sim/profile"
	"lorasim/trace"
)

// The reference engine: it runs every decode step by itself, looks at the whole
// queue before every step, and recomputes every sum from the requests. It
// shares with the simulator the profile's costs and nothing else.

type refRequest struct {
	trace.Request
	order            int // in which it entered a queue
	sent, queuedAt   tick.Ticks
	first, last, end tick.Ticks
	cold             tick.Ticks
	generated        int64
	kv               int64 // tokens in the cache
	status           record.Status
	worker           int
}

func (r *refRequest) need() int64 { return int64(r.Prompt) + r.generated }

type refWorker struct {
	costs                     *profile.Costs
	e                         profile.Engine
	capacity                  int64 // KV pages
	waiting, running, filling []*refRequest
	chunked                   *refRequest
	busy                      bool
	prefilling                bool
	until                     tick.Ticks
	full, extended, mixed     bool
	steps, ratioSince         int64
	ratioFrom                 float64
	ad                        []refAdapter // last: base model
	loads                     []int        // rows, first under way
	refExecution
	drained int
	clock   int
}

type reference struct {
	now     tick.Ticks
	ws      []*refWorker
	route   func(r *refRequest) int
	gaps    map[tick.Ticks]int64
	tokens  map[tick.Ticks]int64
	all     []*refRequest
	entered int
	home    router.Tier
	prefix  bool // prefetch adapters of waiting requests
	ranks   []int
}

func (s *reference) row(r *refRequest) int {
	if r.Adapter == trace.BaseModel {
		return len(s.ranks)
	}
	return int(r.Adapter)
}

func (w *refWorker) pages(tokens int64) int64 {
	p := int64(w.e.PageSize)
	return (tokens + p - 1) / p
}

func (w *refWorker) usedPages() (n int64) {
	for _, r := range w.running {
		n += w.pages(r.kv)
	}
	for _, r := range w.filling {
		n += w.pages(r.kv)
	}
	for _, r := range w.parked {
		n += w.pages(r.kv)
	}
	if w.chunked != nil && !slices.Contains(w.filling, w.chunked) {
		n += w.pages(w.chunked.kv)
	}
	return n
}

func (s *reference) active(w *refWorker, row int) (n int) {
	count := func(r *refRequest) {
		if s.row(r) == row {
			n++
		}
	}
	for _, r := range w.running {
		count(r)
	}
	for _, r := range w.filling {
		count(r)
	}
	for _, r := range w.parked {
		count(r)
	}
	if w.chunked != nil && !slices.Contains(w.filling, w.chunked) {
		count(w.chunked)
	}
	return n
}

func (s *reference) run(reqs []trace.Request) {
	next := 0
	for {
		t := tick.Never
		if next < len(reqs) {
			t = tick.FromSeconds(reqs[next].Arrival)
		}
		for _, w := range s.ws {
			if w.busy {
				t = min(t, w.until)
			}
			if len(w.loads) > 0 {
				t = min(t, w.ad[w.loads[0]].to)
			}
		}
		if t == tick.Never {
			return
		}
		s.now = t
		for _, w := range s.ws {
			if w.busy && w.until == t {
				s.end(w)
			}
		}
		for _, w := range s.ws {
			if len(w.loads) > 0 && w.ad[w.loads[0]].to == t {
				s.loaded(w)
			}
		}
		for next < len(reqs) && tick.FromSeconds(reqs[next].Arrival) == t {
			s.arrive(&refRequest{Request: reqs[next], sent: t, first: tick.Never})
			next++
		}
		for _, w := range s.ws {
			if !w.busy {
				s.begin(w)
			}
		}
	}
}

func (s *reference) arrive(r *refRequest) {
	s.all = append(s.all, r)
	r.worker = s.route(r)
	w := s.ws[r.worker]
	need := int64(r.Prompt) + int64(r.Budget())
	tooLong := int(r.Prompt) >= w.e.ContextLength
	if w.e.ContextOverflow == profile.OverflowReject {
		tooLong = tooLong || int(need) > w.e.ContextLength
	}
	if tooLong || int64(r.Prompt)+int64(min(int(r.Budget()), w.e.ClipNewTokens)) >= w.capacity*int64(w.e.PageSize) {
		r.status, r.end = record.Rejected, s.now+w.costs.Overhead
		return
	}
	s.wait(w, r)
	if row := s.row(r); s.prefix && row < len(s.ranks) && !w.ad[row].slot {
		slots := 0
		for _, a := range w.ad {
			if a.slot {
				slots++
			}
		}
		if slots >= w.e.MaxLorasPerBatch {
			v := s.victim(w)
			if v < 0 || slices.ContainsFunc(w.waiting, func(q *refRequest) bool { return s.row(q) == v }) {
				return
			}
		}
		s.load(w, row)
	}
}

func (s *reference) wait(w *refWorker, r *refRequest) {
	s.entered++
	r.order, r.queuedAt = s.entered, s.now
	w.waiting = append(w.waiting, r)
}

func (s *reference) finish(w *refWorker, r *refRequest, st record.Status) {
	r.status, r.end = st, s.now+w.costs.Overhead
	w.full = false
}

func (s *reference) token(w *refWorker, r *refRequest) {
	r.generated++
	if r.first == tick.Never {
		r.first = s.now + w.costs.Overhead
	} else {
		s.gaps[s.now-r.last]++
	}
	r.last = s.now
	s.tokens[s.now+w.costs.Overhead]++
}

func (s *reference) end(w *refWorker) {
	w.busy = false
	if w.mixed {
		w.mixed = false
		s.endMixed(w)
		return
	}
	if w.prefilling {
		for _, r := range w.filling {
			if r.kv < r.need() {
				continue
			}
			s.token(w, r)
			if r.generated == int64(r.Output) {
				s.finish(w, r, record.OK)
			} else {
				w.running = append(w.running, r)
			}
		}
		w.filling = nil
		return
	}
	w.steps++
	for _, r := range w.running {
		r.kv++
		s.token(w, r)
	}
	w.running = slices.DeleteFunc(w.running, func(r *refRequest) bool {
		if r.generated < int64(r.Output) {
			return false
		}
		s.finish(w, r, record.OK)
		return true
	})
}

func (w *refWorker) decodeNeed() (n int64) {
	for _, r := range w.running {
		n += w.pages(r.kv+1) - w.pages(r.kv)
	}
	return n
}

func (w *refWorker) ratio() float64 {
	lo := w.e.NewTokenRatio * w.e.NewTokenRatioMin
	decay := (w.e.NewTokenRatio - lo) / float64(w.e.NewTokenRatioSteps)
	return max(w.ratioFrom-float64(decay*float64(w.steps-w.ratioSince)), lo)
}

func (s *reference) begin(w *refWorker) {
	if w.e.Scheduler == profile.SchedulerVLLM {
		s.beginVLLM(w)
		return
	}
	for {
		if w.modes && s.pause(w, s.chooseMode(w)) {
			return
		}
		if (len(w.waiting) > 0 && !w.full || w.chunked != nil) && s.formPrefill(w) {
			return
		}
		if len(w.running) == 0 && len(w.parked) > 0 {
			if s.pause(w, s.resume(w)) {
				return
			}
			continue
		}
		if len(w.running) == 0 {
			if len(w.waiting) > 0 && len(w.loads) == 0 {
				r := w.waiting[0]
				w.waiting = w.waiting[1:]
				s.finish(w, r, record.Failed)
				continue
			}
			w.ratioFrom, w.ratioSince = w.e.NewTokenRatio, w.steps
			return
		}
		retracted := false
		for w.decodeNeed() > w.capacity-w.usedPages() {
			retracted = true
			if n := len(w.parked); n > 0 {
				r := w.parked[n-1]
				w.parked = w.parked[:n-1]
				r.kv, w.full = 0, false
				s.wait(w, r)
				continue
			}
			if len(w.running) == 1 {
				s.finish(w, w.running[0], record.Failed)
				w.running = nil
				break
			}
			worst := slices.MinFunc(w.running, func(a, b *refRequest) int {
				if a.generated != b.generated {
					return int(a.generated - b.generated)
				}
				if a.Prompt != b.Prompt {
					return int(b.Prompt - a.Prompt)
				}
				return b.order - a.order
			})
			w.running = slices.DeleteFunc(w.running, func(r *refRequest) bool { return r == worst })
			worst.kv = 0
			w.full = false
			s.wait(w, worst)
		}
		if len(w.running) == 0 {
			continue
		}
		if retracted {
			var gen, maxNew int64
			for _, r := range w.running {
				gen += r.generated
				maxNew += int64(r.Budget())
			}
			w.ratioFrom = min(1, float64(gen+20*int64(len(w.running)))/float64(maxNew))
			w.ratioSince = w.steps
		}
		var ctx, loras int64
		rank := 0
		for _, r := range w.running {
			ctx += r.kv
			if r.Adapter != trace.BaseModel {
				loras++
				rank = max(rank, w.costs.Rank(s.ranks[r.Adapter]))
			}
		}
		if w.merged() {
			loras = 0
		}
		w.fresh = false
		w.busy, w.prefilling = true, false
		w.until = s.now + w.costs.DecodeFixed(int64(len(w.running)), loras, rank) + w.costs.PerKVToken*tick.Ticks(ctx)
		return
	}
}

func (s *reference) formPrefill(w *refWorker) bool {
	var reserved int64
	clip := int64(w.e.ClipNewTokens)
	for _, r := range w.running {
		reserved += min(int64(r.Budget())-r.generated, clip)
	}
	size := int64(w.e.PageSize)
	current := (w.capacity - w.usedPages()) * size
	total := float64(current) - float64(w.ratio()*float64(reserved))
	input, chunk := int64(w.e.MaxPrefillTokens), int64(w.e.ChunkedPrefillSize)
	if chunk == 0 {
		chunk = 1 << 60
	}
	work := profile.PrefillWork{FirstWave: w.steps == 0}
	var stall tick.Ticks
	fill := func(r *refRequest, n, reserve int64) {
		alloc := (w.pages(r.kv+n) - w.pages(r.kv)) * size
		work.Add(n, r.kv, r.Adapter != trace.BaseModel)
		r.kv += n
		total -= float64(alloc + reserve)
		current -= alloc
		input -= n
		chunk -= n
		w.filling = append(w.filling, r)
	}
	if r := w.chunked; r != nil {
		n, reserve := r.need()-r.kv, min(int64(r.Budget())-r.generated, clip)
		if n > chunk {
			n, reserve = chunk, 0
		} else {
			w.chunked = nil
		}
		fill(r, n, reserve)
	}
	s.starvation(w)
	for len(w.waiting) > 0 && !w.full && input > 0 && chunk > 0 {
		if len(w.running)+len(w.filling)+len(w.parked) >= w.e.MaxRunningRequests {
			w.full = true
			break
		}
		k := s.choose(w)
		if k < 0 {
			break
		}
		r := w.waiting[k]
		reserve := min(int64(r.Budget())-r.generated, clip)
		if float64(r.need()+reserve) >= total {
			w.full = true
			break
		}
		if r.need() >= input && len(w.filling) > 0 {
			break
		}
		n := r.need()
		if n > chunk {
			n, reserve = chunk, 0
			w.chunked = r
		}
		row := s.row(r)
		a := &w.ad[row]
		if !a.slot {
			t := s.take(w, row)
			if row < len(s.ranks) {
				a.tier = router.GPU
			}
			stall += t
			r.cold += t
		} else {
			if a.loading {
				stall += a.to - s.now
			}
			r.cold += max(0, a.to-max(a.from, r.queuedAt)) // overlap of the load with the wait
		}
		w.clock++
		a.used = w.clock
		w.waiting = slices.Delete(w.waiting, k, k+1)
		fill(r, n, reserve)
		if total <= 0 || current <= 0 {
			w.full = true
		}
	}
	if len(w.filling) == 0 {
		return false
	}
	if w.fresh = false; w.merged() {
		work.LoRATokens = 0
	}
	if work.Extends && !w.extended {
		work.FirstExtend, w.extended = true, true
	}
	w.busy, w.prefilling = true, true
	w.until = s.now + stall + w.costs.Prefill(work)
	return true
}
