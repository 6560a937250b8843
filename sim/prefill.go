package sim

import (
	"cmp"
	"math"
	"slices"

	"lorasim/internal/record"
	"lorasim/internal/tick"
	"lorasim/sim/profile"
)

// sglang is the scheduler of sglang: prefill steps if one can be formed, else
// decode steps.
type sglang struct{ *worker }

func (w sglang) begin() {
	for {
		w.trimHost(-1)
		if w.seats() == 0 {
			w.full = false // nobody is left who could make room
		}
		if w.starvesAt() <= w.s.loop.Now() {
			w.retry = true
		}
		if w.preempts {
			w.full, w.retry = false, true
		}
		if w.exec != nil && w.pause(w.chooseMode()) {
			return
		}
		if w.chunked != nil || w.retry && !w.full && w.queue.n > 0 {
			if w.beginPrefill() {
				return
			}
			w.retry = false
		}
		switch {
		case len(w.batch) > 0:
			if w.retract(); len(w.batch) > 0 {
				w.beginDecode()
				return
			}
			// its last request failed for lack of memory; look at the queue again
		case w.exec != nil && len(w.exec.parked) > 0:
			if w.pause(w.resume()) {
				return
			}
		case w.queue.n > 0 && len(w.adapters.queue) == 0 && w.kv.Reserved() == 0:
			w.giveUp() // nothing runs or loads, so nothing would ever change
		default:
			w.ratioFrom, w.ratioSince = w.eng.NewTokenRatio, w.steps // an idle server forgets its estimate
			return
		}
	}
}

// chunk is the part of a request's prompt that one prefill step computes.
type chunk struct {
	req    *request
	tokens int32
}

// admission is the room left while a prefill step is being formed, as sglang's
// PrefillAdder counts it (managers/schedule_policy.py, mem_cache/prefill_budget.py).
type admission struct {
	work    profile.StepWork
	ratio   float64 // share of what running requests may generate that they are expected to
	total   float64 // tokens left after what running and chosen requests are expected to need
	current int64   // tokens left after what is allocated
	input   int64   // prompt tokens left of max_prefill_tokens
	chunk   int64   // prompt tokens left of chunked_prefill_size, or noChunks
	states  []claim // what running and chosen requests of known length will free, see [worker.fitsKnown]
	counted bool    // states is filled
	spent   bool    // nobody else is let in
}

// noChunks: prompts are never split.
const noChunks = math.MaxInt64

// openAdmission gives the room at the beginning of a prefill step. In a mixed
// one the running requests take a token each.
func (w *worker) openAdmission(a *admission) {
	a.spent, a.ratio, a.current = w.full, 1, w.kv.FreeTokens()
	a.input, a.chunk = int64(w.eng.MaxPrefillTokens), int64(w.eng.ChunkedPrefillSize)
	a.work.FirstWave = w.steps == 0
	if w.eng.MixedChunk {
		b := int64(len(w.batch))
		a.current -= b
		a.input -= b
		a.chunk -= b
	}
	if w.eng.ChunkedPrefillSize == 0 {
		a.chunk = noChunks
	}
	if !w.eng.IgnoreEOS { // what requests of known length need is no estimate
		a.ratio = w.ratio()
	}
	a.total = float64(a.current) - float64(a.ratio*float64(w.reserved()))
}

// beginPrefill forms a prefill step from the waiting queue, first come first
// served, and starts it. It reports whether there was one. The rules are those
// of Scheduler._get_new_batch_prefill_raw (managers/scheduler.py).
func (w *worker) beginPrefill() bool {
	var room admission
	w.openAdmission(&room)
	w.filling = w.filling[:0]
	if w.chunked != nil {
		w.continueChunked(&room)
	}
	w.drain()
	var load tick.Ticks
	for w.queue.n > 0 && !room.spent && room.input > 0 && room.chunk > 0 {
		if w.seats()+len(w.filling) >= w.eng.MaxRunningRequests {
			if w.full = true; !w.preempts {
				break
			}
		}
		r := w.pick()
		if r == nil || w.full && !w.preemptFor(r, &room) {
			break
		}
		t, ok := w.admit(r, &room)
		load += t
		if !ok {
			break
		}
	}
	w.requeue()
	// a mixed step takes the running requests along, unless they find no memory
	// for a token each
	mixes := w.eng.MixedChunk && len(w.batch) > 0 && len(w.filling) > 0 && w.kv.StepNeed(w.steps) <= w.kv.Free()
	load += w.placeAdapters(mixes)
	if len(w.filling) == 0 {
		return w.pause(load) // for requests that bring their KV cache, or whose adapter failed to load
	}
	if w.exec != nil {
		w.exec.fresh, w.exec.decided = false, false
	}
	w.firstOfAll = len(w.batch) == 0
	if mixes {
		for _, e := range w.batch {
			e.Value.looked = e.Value.Prompt + e.Value.generated + int32(w.steps-e.Value.Joined)
		}
		w.startStep(mixed, &room.work, load)
	} else {
		w.startStep(prefill, &room.work, load)
	}
	return true
}

// reserved is the number of tokens that the running requests may still
// generate, each clipped.
func (w *worker) reserved() int64 {
	if w.large == 0 {
		return w.budget
	}
	sum := int64(0)
	for _, e := range w.batch {
		sum += w.reserve(e.Value, w.steps-e.Value.Joined)
	}
	return sum
}

// reserve is what a request may still generate after k more tokens, clipped.
func (w *worker) reserve(r *request, k int64) int64 {
	return min(int64(r.maxNew-r.generated)-k, int64(w.eng.ClipNewTokens))
}

// wholeReserve is what a request is charged for its output once its whole
// prompt is chosen: what it may generate in all, clipped, even where it has
// generated some of it before it was retracted.
func (w *worker) wholeReserve(r *request) int64 {
	return int64(min(int(r.maxNew), w.eng.ClipNewTokens))
}

// admit adds a waiting request, or its first chunk, to the prefill step
// (PrefillAdder.add_one_req). It returns the time the step has to wait for the
// request's adapter, and false if the request did not fit.
func (w *worker) admit(r *request, room *admission) (load tick.Ticks, ok bool) {
	if r.carried > 0 {
		return w.admitCarried(r, room)
	}
	match, idle := w.kv.MatchPrefix(&r.Sequence, r.Prompt+r.generated-1, w.steps)
	r.looked, r.matched = r.Prompt+r.generated, int32(match)
	n, known := int64(r.Prompt+r.generated)-match, w.eng.IgnoreEOS && w.eng.DisableRadixCache
	// what is kept and nobody holds counts as free until the request takes it
	fits := float64(n+w.reserve(r, 0)+w.kv.PageSize()) < room.total-float64(idle)
	if known {
		fits = w.fitsKnown(r, n, room)
	}
	if !fits {
		w.noRoom(room)
		return 0, false
	}
	reserve, unit := w.wholeReserve(r), w.kv.PageSize()
	if known {
		unit = 1 // is not rounded up to pages
	}
	size := (n + unit - 1) / unit * unit
	split := size > room.chunk
	switch {
	case room.chunk == noChunks && !known && size >= room.input && len(w.filling) > 0:
		return 0, false
	case split:
		if n, reserve = room.chunk/unit*unit, 0; n == 0 {
			return 0, false
		}
	}
	if load, ok = w.start(r); !ok {
		return load, true // it is gone; others may follow
	}
	if split {
		w.chunked = r
	}
	r.state = filling
	w.lockPrefix(r)
	room.total -= float64(idle)
	room.current -= idle
	w.fill(r, n, reserve, room)
	if room.total <= 0 || room.current <= 0 {
		w.noRoom(room)
	}
	return load, true
}

// noRoom notes that the next request of the queue finds no memory. Only a
// request that leaves the batch makes some, so the queue is not looked at
// before, unless there is none that could leave.
func (w *worker) noRoom(room *admission) {
	room.spent, w.full = true, len(w.filling) > 0 || w.seats() > 0
}

// start takes a request from the queue to run it. It returns the time to wait
// for its adapter, and false if that could not be loaded: the request has then
// failed.
func (w *worker) start(r *request) (load tick.Ticks, ok bool) {
	if load, ok = w.useAdapter(r); !ok {
		return load, false
	}
	w.dequeue(r)
	if r.started == tick.Never {
		w.serve(r.Adapter, promptWeight*int64(r.Prompt))
	}
	w.v.Running++
	w.countAdapter(r.Adapter, 1, 0)
	w.stats.PeakRunning = max(w.stats.PeakRunning, int64(w.v.Running))
	r.started = min(r.started, w.s.loop.Now())
	return load, true
}

// admitCarried is admit for a request that brings its KV cache, so that there is
// nothing to prefill.
func (w *worker) admitCarried(r *request, room *admission) (load tick.Ticks, ok bool) {
	reserve := w.reserve(r, 0)
	if float64(r.carried+reserve) >= room.total {
		w.noRoom(room)
		return 0, false
	}
	if load, ok = w.start(r); ok {
		before := w.kv.FreeTokens()
		w.joinCarried(r)
		alloc := before - w.kv.FreeTokens()
		room.total -= float64(alloc + reserve)
		room.current -= alloc
	}
	return load, true
}

// continueChunked adds the next chunk of the request whose prompt is partly
// prefilled (PrefillAdder.add_chunked_req).
func (w *worker) continueChunked(room *admission) {
	r := w.chunked
	limit := min(room.chunk, int64(room.total))
	if limit <= 0 {
		limit = room.chunk // it has to go on so that it is done some time
	}
	// where that is more than there is, sglang breaks down; here it waits
	limit = min(limit, w.kv.FreeTokens())
	if limit <= 0 {
		return
	}
	n, reserve := int64(r.Prompt+r.generated-r.Computed), w.wholeReserve(r)
	if n > limit {
		n, reserve = limit, 0
	} else {
		w.chunked = nil
	}
	w.fill(r, n, reserve, room)
}

// fill counts n prompt tokens of a request into the prefill step
// (PrefillAdder._update_prefill_budget): every request is charged whole pages,
// and one more.
func (w *worker) fill(r *request, n, reserve int64, room *admission) {
	w.take(r, n, &room.work)
	paged := w.kv.RoundUp(n)
	room.total -= float64(paged + w.kv.PageSize() + reserve)
	room.current -= paged + w.kv.PageSize()
	room.input -= paged
	if room.chunk != noChunks {
		room.chunk -= paged
	}
}

// take counts n prompt tokens of a request into the step.
func (w *worker) take(r *request, n int64, work *profile.StepWork) {
	work.Add(n, int64(r.Computed), w.isLoRA(r.Adapter))
	w.kv.Grow(&r.Sequence, n)
	w.filling = append(w.filling, chunk{r, int32(n)})
	if w.vllm {
		w.kv.Insert(&r.Sequence)
	}
}

// lockPrefix has a request that is admitted hold what is kept of its prompt; one token is always left to compute.
func (w *worker) lockPrefix(r *request) {
	found := w.kv.LockPrefix(&r.Sequence, r.Prompt+r.generated-1)
	if w.noted != nil {
		w.noted.CachedTokens += int64(found)
	}
}

// endChunks ends a prefill step. sglang keeps the note that the queue finds no
// memory with the running batch: it goes when the chunked request is taken out
// of the step's batch, and where that takes the place of an empty running batch
// (Scheduler.get_next_batch_to_run).
func (w *worker) endChunks() {
	reopens := len(w.filling) > 0 && (w.chunked != nil || w.firstOfAll)
	w.endPrefill()
	if reopens {
		w.reopen()
	}
}

// endMixed ends a prefill step that took the running requests along
// (Scheduler._get_new_batch_prefill_raw, last part): its batch replaces the
// running one, with the new requests in front. Such steps leave the new-token
// ratio as it is.
func (w sglang) endMixed() {
	w.endDecode()
	w.ratioSince++
	last := w.order
	w.front -= int64(len(w.filling))
	w.order = w.front - 1
	w.endPrefill()
	w.order = last
	w.reopen()
}

// endPrefill gives every request whose prompt is complete its next token. One
// whose only (or last) token that is never joins the batch.
func (w *worker) endPrefill() {
	var first, joined int64
	for _, c := range w.filling {
		r := c.req
		if !w.vllm {
			w.kv.Insert(&r.Sequence)
		}
		if r.Computed < r.Prompt+r.generated {
			continue // it goes on
		}
		w.serve(r.Adapter, outputWeight)
		if r.first == tick.Never {
			w.tokenless -= int64(r.Prompt)
			r.first = w.s.loop.Now() + w.costs.Overhead
		} else {
			w.s.cfg.Observer.Gap(w.s.loop.Now()-r.last, 1)
			if w.s.cfg.TokenTimes {
				r.gaps = append(r.gaps, (w.s.loop.Now() - r.last).Seconds())
			}
		}
		first++
		r.generated++
		if w.s.token != nil {
			w.s.token(r.id, w.s.loop.Now()+w.costs.Overhead)
		}
		if r.generated == r.output {
			w.free(r)
			w.finish(r, record.OK, "")
			continue
		}
		w.join(r, w.s.loop.Now())
		joined++
	}
	w.filling = w.filling[:0]
	if first > 0 {
		w.s.cfg.Observer.Tokens(w.s.loop.Now()+w.costs.Overhead, first)
	}
	if joined > 0 {
		w.groups = append(w.groups, group{w.s.loop.Now(), joined})
	}
	w.v.Running = w.seats()
	if w.chunked != nil {
		w.v.Running++
	}
}

// Requests sent with ignore_eos run to their budget, so that their lengths are
// known in advance. Without a radix cache sglang then asks, instead of
// reserving a share of every budget, whether memory lasts if all requests run
// to their ends (PrefillAdder.add_one_req_ignore_eos in
// managers/schedule_policy.py).

// claim is a request's part in that: the tokens it will still take, and those
// it holds without them.
type claim struct{ left, holds int64 }

// fitsKnown says whether a waiting request, n tokens of which are to be
// prefilled, fits beside the running and chosen requests.
func (w *worker) fitsKnown(r *request, n int64, room *admission) bool {
	take := w.kv.RoundUp(n) + w.kv.PageSize()
	if take > room.current || float64(take) > room.total {
		return false
	}
	w.countClaim(r, room)
	free, freed := room.current-take, int64(0)
	for k, c := range room.states {
		b := int64(len(room.states) - k)
		if free+freed-c.left*b <= b { // a token for each, to be safe
			return false
		}
		freed += c.holds
	}
	return true
}

// countClaim enters a request among the claims, in the order of their ends.
func (w *worker) countClaim(r *request, room *admission) {
	if room.counted {
		c := w.claimOf(r)
		if c.left <= 0 {
			return
		}
		// add_req_state inserts one that ends after all others before the last
		at := max(len(room.states)-1, 0)
		if k := slices.IndexFunc(room.states, func(o claim) bool { return c.left <= o.left }); k >= 0 {
			at = k
		}
		room.states = slices.Insert(room.states, at, c)
		return
	}
	room.counted = true
	running := w.running()
	slices.SortFunc(running, func(a, b *request) int { return cmp.Compare(a.order, b.order) })
	add := func(r *request) {
		if c := w.claimOf(r); c.left > 0 {
			room.states = append(room.states, c)
		}
	}
	add(r)
	for _, o := range running {
		add(o)
	}
	for _, c := range w.filling {
		add(c.req)
	}
	slices.SortStableFunc(room.states, func(a, b claim) int { return cmp.Compare(a.left, b.left) })
}

func (w *worker) claimOf(r *request) claim {
	done := int64(r.generated)
	if r.state == running {
		done += w.steps - r.Joined
	}
	return claim{left: int64(r.maxNew) - done, holds: int64(r.Prompt) + done}
}
