package sim

import (
	"math"

	"lorasim/internal/tick"
	"lorasim/sim/profile"
)

// chunk is the part of a request's prompt that one prefill step computes.
type chunk struct {
	req    int32
	tokens int32
}

// admission is the room left while a prefill step is being formed, as sglang's
// PrefillAdder counts it.
type admission struct {
	total   float64 // tokens left after what running and chosen requests are expected to need
	current int64   // tokens left after what is allocated
	input   int64   // prompt tokens left of max_prefill_tokens
	chunk   int64   // prompt tokens left of chunked_prefill_size
}

// beginPrefill forms a prefill step from the waiting queue, first come first
// served, and starts it. It reports whether there was one.
func (w *worker) beginPrefill() bool {
	room := admission{
		current: w.kv.freeTokens(),
		input:   int64(w.eng.MaxPrefillTokens),
		chunk:   int64(w.eng.ChunkedPrefillSize),
	}
	if room.chunk == 0 {
		room.chunk = math.MaxInt64
	}
	room.total = float64(room.current) - float64(w.ratio()*float64(w.reserved()))
	work := profile.PrefillWork{FirstWave: w.steps == 0}
	w.filling = w.filling[:0]
	var load tick.Ticks

	if w.chunked >= 0 {
		w.continueChunked(&room, &work)
	}
	w.guard()
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
	if len(w.filling) == 0 {
		if load > 0 { // for requests that bring their KV cache, or whose adapter failed to load
			w.stats.Stalled += load
			w.schedule(prefill, w.s.now+load)
		}
		return load > 0
	}
	if w.exec != nil {
		w.exec.fresh = false
		if w.exec.row != unmerged {
			work.LoRATokens = 0
		}
	}
	w.stats.PrefillSteps++
	w.stats.Stalled += load
	w.stats.PeakKV = max(w.stats.PeakKV, w.kv.tokens)
	w.v.KVUsed = w.kv.tokens
	if work.Extends && !w.extended {
		work.FirstExtend, w.extended = true, true
	}
	w.schedule(prefill, w.s.now+load+w.costs.Prefill(work))
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

// admit adds a waiting request, or its first chunk, to the prefill step. It
// returns the time the step has to wait for the request's adapter, and false if
// the request did not fit.
func (w *worker) admit(i int32, room *admission, work *profile.PrefillWork) (load tick.Ticks, ok bool) {
	r := &w.s.reqs[i]
	prompt := int64(r.prompt + r.generated)
	reserve := w.reserve(r, 0)
	if r.carried > 0 {
		return w.admitCarried(i, reserve, room)
	}
	if float64(prompt+reserve) >= room.total {
		w.full = true
		return 0, false
	}
	if prompt >= room.input && len(w.filling) > 0 {
		return 0, false
	}
	if load, ok = w.start(i); !ok {
		return load, true // it is gone; others may follow
	}
	n := prompt
	if n > room.chunk {
		n, reserve = room.chunk, 0
		w.chunked = i
	}
	r.state = filling
	w.fill(i, n, reserve, room, work)
	if room.total <= 0 || room.current <= 0 {
		w.full = true
	}
	return load, true
}

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
		w.full = true
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
// prefilled.
func (w *worker) continueChunked(room *admission, work *profile.PrefillWork) {
	i := w.chunked
	r := &w.s.reqs[i]
	left := int64(r.prompt + r.generated - r.prefilled)
	n, reserve := left, w.reserve(r, 0)
	if n > room.chunk {
		n, reserve = room.chunk, 0
	} else {
		w.chunked = -1
	}
	w.fill(i, n, reserve, room, work)
}

// fill counts n prompt tokens of request i into the prefill step.
func (w *worker) fill(i int32, n, reserve int64, room *admission, work *profile.PrefillWork) {
	r := &w.s.reqs[i]
	before := w.kv.used
	w.kv.grow(int64(r.prefilled), n)
	alloc := (w.kv.used - before) * w.kv.size
	work.Add(n, int64(r.prefilled), w.isLoRA(r.adapter))
	r.prefilled += int32(n)
	room.total -= float64(alloc + reserve)
	room.current -= alloc
	room.input -= n
	room.chunk -= n
	w.filling = append(w.filling, chunk{i, int32(n)})
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
