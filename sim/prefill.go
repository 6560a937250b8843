package sim

import (
	"math"

	"lorasim/internal/record"
	"lorasim/internal/tick"
	"lorasim/sim/profile"
)

// chunk is the part of a request's prompt that one prefill step computes.
type chunk struct {
	req    int32
	tokens int32
}

// admission is the room left while a prefill step is being formed, as sglang's
// PrefillAdder counts it (managers/schedule_policy.py, mem_cache/prefill_budget.py).
type admission struct {
	total   float64 // tokens left after what running and chosen requests are expected to need
	current int64   // tokens left after what is allocated
	input   int64   // prompt tokens left of max_prefill_tokens
	chunk   int64   // prompt tokens left of chunked_prefill_size, or noChunks
	states  []claim // what running and chosen requests of known length will free, see [worker.fitsKnown]
	counted bool    // states is filled
}

// noChunks: prompts are never split.
const noChunks = math.MaxInt64

// openAdmission gives the room at the beginning of a prefill step. In a mixed
// one the running requests take a token each.
func (w *worker) openAdmission(room *admission) {
	room.current = w.kv.freeTokens()
	room.input = int64(w.eng.MaxPrefillTokens)
	room.chunk = int64(w.eng.ChunkedPrefillSize)
	if w.eng.MixedChunk {
		b := int64(len(w.batch))
		room.current -= b
		room.input -= b
		room.chunk -= b
	}
	if w.eng.ChunkedPrefillSize == 0 {
		room.chunk = noChunks
	}
	ratio := 1.0 // what requests of known length need is no estimate
	if !w.eng.IgnoreEOS {
		ratio = w.ratio()
	}
	room.total = float64(room.current) - float64(ratio*float64(w.reserved()))
}

// beginPrefill forms a prefill step from the waiting queue, first come first
// served, and starts it. It reports whether there was one. The rules are those
// of Scheduler._get_new_batch_prefill_raw (managers/scheduler.py).
func (w *worker) beginPrefill() bool {
	var room admission
	w.openAdmission(&room)
	var work profile.StepWork
	work.FirstWave = w.steps == 0
	w.filling = w.filling[:0]
	var load tick.Ticks

	if w.chunked >= 0 {
		w.continueChunked(&room, &work)
	}
	w.drain()
	for w.queue.n > 0 && !w.full && room.input > 0 && room.chunk > 0 {
		if w.seats()+len(w.filling) >= w.eng.MaxRunningRequests {
			w.full = true
			break
		}
		i := w.pick()
		if i < 0 {
			break
		}
		t, ok := w.admit(i, &room, &work)
		load += t
		if !ok {
			break
		}
	}
	load += w.placeAdapters(w.mixes())
	if len(w.filling) == 0 {
		if load > 0 { // for requests that bring their KV cache, or whose adapter failed to load
			w.stats.Stalled += load
			w.schedule(prefill, w.s.now+load)
		}
		return load > 0
	}
	if w.exec != nil {
		w.exec.fresh, w.exec.decided = false, false
	}
	w.stats.PrefillSteps++
	w.stats.Stalled += load
	w.stats.PeakKV = max(w.stats.PeakKV, w.kv.tokens)
	w.v.KVUsed = w.kv.tokens
	if work.Extends && !w.extended {
		work.FirstExtend, w.extended = true, true
	}
	w.firstOfAll = len(w.batch) == 0
	w.noteStep()
	if w.mixes() {
		takes := load + w.stepTime(&work, true)
		w.run = record.Steps{Start: w.s.now, First: takes, Count: 1, Batch: int64(len(w.batch))}
		w.schedule(mixed, w.s.now+takes)
		return true
	}
	w.schedule(prefill, w.s.now+load+w.stepTime(&work, false))
	return true
}

// reserved is the number of tokens that the running requests may still
// generate, each clipped.
func (w *worker) reserved() int64 {
	if w.large == 0 {
		return w.budget
	}
	sum := int64(0)
	for _, i := range w.batch {
		sum += w.reserve(&w.s.reqs[i], w.steps-w.s.reqs[i].joinStep)
	}
	return sum
}

// reserve is what a request may still generate after k more tokens, clipped.
func (w *worker) reserve(r *request, k int64) int64 {
	return min(int64(r.maxNew-r.generated)-k, int64(w.eng.ClipNewTokens))
}

// admit adds a waiting request, or its first chunk, to the prefill step
// (PrefillAdder.add_one_req). It returns the time the step has to wait for the
// request's adapter, and false if the request did not fit.
func (w *worker) admit(i int32, room *admission, work *profile.StepWork) (load tick.Ticks, ok bool) {
	r := &w.s.reqs[i]
	if r.carried > 0 {
		return w.admitCarried(i, w.reserve(r, 0), room)
	}
	n, known := int64(r.prompt+r.generated), w.eng.IgnoreEOS && w.eng.DisableRadixCache
	fits := float64(n+w.reserve(r, 0)+w.kv.size) < room.total
	if known {
		fits = w.fitsKnown(i, n, room)
	}
	if !fits {
		w.noRoom()
		return 0, false
	}
	if room.chunk == noChunks && !known && w.paged(n) >= room.input && len(w.filling) > 0 {
		return 0, false
	}
	reserve, split := w.wholeReserve(r), false
	switch {
	case room.chunk == noChunks:
	case known && n > room.chunk:
		n, reserve, split = room.chunk, 0, true
	case !known && w.paged(n) > room.chunk:
		n, reserve, split = room.chunk/w.kv.size*w.kv.size, 0, true
		if n == 0 {
			return 0, false
		}
	}
	if load, ok = w.start(i); !ok {
		return load, true // it is gone; others may follow
	}
	if split {
		w.chunked = i
	}
	r.state = filling
	w.fill(i, n, reserve, room, work)
	if room.total <= 0 || room.current <= 0 {
		w.noRoom()
	}
	return load, true
}

// mixes says whether the prefill step that was formed takes the running
// requests along: where they do not find memory for a token they sit it out.
func (w *worker) mixes() bool {
	return w.eng.MixedChunk && len(w.batch) > 0 && len(w.filling) > 0 && w.kv.stepNeed(w.steps) <= w.kv.capacity-w.kv.used
}

// noRoom notes that the next request of the queue finds no memory. Only a
// request that leaves the batch makes some, so the queue is not looked at
// before, unless there is none that could leave.
func (w *worker) noRoom() { w.full = len(w.filling) > 0 || w.seats() > 0 }

// wholeReserve is what a request is charged for its output once its whole
// prompt is chosen: what it may generate in all, clipped, even where it has
// generated some of it before it was retracted.
func (w *worker) wholeReserve(r *request) int64 {
	return int64(min(int(r.maxNew), w.eng.ClipNewTokens))
}

// paged rounds tokens up to whole pages.
func (w *worker) paged(tokens int64) int64 { return w.kv.pagesOf(tokens) * w.kv.size }

// start takes a request from the queue to run it. It returns the time to wait
// for its adapter, and false if that could not be loaded: the request has then
// failed.
func (w *worker) start(i int32) (load tick.Ticks, ok bool) {
	r := &w.s.reqs[i]
	if load, ok = w.useAdapter(i); !ok {
		return load, false
	}
	w.dequeue(i)
	w.v.Running++
	w.countAdapter(r.adapter, 1, 0)
	w.stats.PeakRunning = max(w.stats.PeakRunning, int64(w.v.Running))
	r.started = min(r.started, w.s.now)
	return load, true
}

// admitCarried takes a request that brings its KV cache into the batch: there
// is nothing to prefill.
func (w *worker) admitCarried(i int32, reserve int64, room *admission) (load tick.Ticks, ok bool) {
	r := &w.s.reqs[i]
	if float64(r.carried+reserve) >= room.total {
		w.noRoom()
		return 0, false
	}
	if load, ok = w.start(i); !ok {
		return load, true
	}
	before := w.kv.used
	w.kv.grow(0, r.carried)
	alloc := (w.kv.used - before) * w.kv.size
	room.total -= float64(alloc + reserve)
	room.current -= alloc
	r.prefilled, r.carried = int32(r.carried), 0
	w.join(i, r.last)
	w.groups = append(w.groups, group{r.last, 1})
	return load, true
}

// continueChunked adds the next chunk of the request whose prompt is partly
// prefilled (PrefillAdder.add_chunked_req).
func (w *worker) continueChunked(room *admission, work *profile.StepWork) {
	i := w.chunked
	r := &w.s.reqs[i]
	limit := min(room.chunk, int64(room.total))
	if limit <= 0 {
		limit = room.chunk // it has to go on so that it is done some time
	}
	// where that is more than there is, sglang breaks down; here it waits
	limit = min(limit, w.kv.freeTokens())
	if limit <= 0 {
		return
	}
	n, reserve := int64(r.prompt+r.generated-r.prefilled), w.wholeReserve(r)
	if n > limit {
		n, reserve = limit, 0
	} else {
		w.chunked = -1
	}
	w.fill(i, n, reserve, room, work)
}

// fill counts n prompt tokens of request i into the prefill step
// (PrefillAdder._update_prefill_budget): every request is charged whole pages,
// and one more.
func (w *worker) fill(i int32, n, reserve int64, room *admission, work *profile.StepWork) {
	r := &w.s.reqs[i]
	w.kv.grow(int64(r.prefilled), n)
	work.Add(n, int64(r.prefilled), w.isLoRA(r.adapter))
	r.prefilled += int32(n)
	paged := w.paged(n)
	room.total -= float64(paged + w.kv.size + reserve)
	room.current -= paged + w.kv.size
	room.input -= paged
	if room.chunk != noChunks {
		room.chunk -= paged
	}
	w.filling = append(w.filling, chunk{i, int32(n)})
}

// endChunks ends a prefill step. sglang keeps the note that the queue finds no
// memory with the running batch: it goes when the chunked request is taken out
// of the step's batch, and where that takes the place of an empty running batch
// (Scheduler.get_next_batch_to_run).
func (w *worker) endChunks() {
	reopens := len(w.filling) > 0 && (w.chunked >= 0 || w.firstOfAll)
	w.endPrefill()
	if reopens {
		w.full, w.retry = false, true
	}
}

// endMixedChunk ends a prefill step that took the running requests along
// (Scheduler._get_new_batch_prefill_raw, last part): its batch replaces the
// running one, with the new requests in front. Such steps leave the new-token
// ratio as it is.
func (w *worker) endMixedChunk() {
	w.endDecode()
	w.ratioSince++
	last := w.order
	w.front -= int64(len(w.filling))
	w.order = w.front - 1
	w.endPrefill()
	w.order = last
	w.full, w.retry = false, true
}

// endPrefill gives every request whose prompt is complete its next token.
func (w *worker) endPrefill() {
	var first, joined int64
	for _, c := range w.filling {
		r := &w.s.reqs[c.req]
		if r.prefilled < r.prompt+r.generated {
			continue // the chunked request goes on
		}
		if r.first == tick.Never {
			r.first = w.s.now + w.costs.Overhead
		} else {
			w.s.obs.Gap(w.s.now-r.last, 1)
			if w.s.gaps != nil {
				w.s.gaps[c.req] = append(w.s.gaps[c.req], (w.s.now - r.last).Seconds())
			}
		}
		first++
		r.generated++
		if w.s.listener != nil {
			w.s.listener.Token(r.id, w.s.now+w.costs.Overhead)
		}
		if r.generated == r.output {
			w.completePrefill(c.req)
			continue
		}
		w.join(c.req, w.s.now)
		joined++
	}
	w.filling = w.filling[:0]
	if first > 0 {
		w.s.obs.Tokens(w.s.now+w.costs.Overhead, first)
	}
	if joined > 0 {
		w.groups = append(w.groups, group{w.s.now, joined})
	}
	w.v.Running = w.seats()
	if w.chunked >= 0 {
		w.v.Running++
	}
}

// completePrefill ends a request whose only (or last) token came with its
// prefill, so that it never joined the batch.
func (w *worker) completePrefill(i int32) {
	r := &w.s.reqs[i]
	w.kv.release(int64(r.prefilled))
	w.v.KVUsed = w.kv.tokens
	w.countAdapter(r.adapter, -1, 0)
	w.deactivate(r.adapter)
	w.settle(r.adapter)
	w.full, w.retry = false, true
	w.complete(i)
}
