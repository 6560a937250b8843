package sim

import (
	"math"

	"lorasim/internal/record"
	"lorasim/internal/tick"
	"lorasim/sim/profile"
)

// join takes a request whose prompt is prefilled into the running batch. Its
// latest token came at time at.
func (w *worker) join(i int32, at tick.Ticks) {
	r := &w.s.reqs[i]
	n := int64(r.prefilled)
	r.state = running
	r.joinStep, r.joinTime = w.steps, at
	w.order++
	r.order = w.order
	r.finishStep = w.steps + int64(r.output-r.generated)
	w.push(i)
	w.ctx += n
	w.budget += int64(r.maxNew - r.generated)
	if int(r.maxNew) > w.eng.ClipNewTokens {
		w.large++
	}
	w.ranks.add(r.adapter, 1)
	w.kv.join(n, w.steps)
}

// part takes a request out of the running batch and frees its KV cache; the
// heap is the caller's business.
func (w *worker) part(i int32) {
	r := &w.s.reqs[i]
	k := int32(w.steps - r.joinStep)
	n := int64(r.prefilled + k)
	w.ctx -= n
	w.budget -= int64(r.maxNew - r.generated - k)
	if int(r.maxNew) > w.eng.ClipNewTokens {
		w.large--
	}
	w.ranks.add(r.adapter, -1)
	w.kv.leave(n, w.steps)
	r.generated += k
	r.prefilled += k
	w.free(r)
}

// free frees the KV cache of a request that was running and is not in the batch.
func (w *worker) free(r *request) {
	w.kv.release(int64(r.prefilled))
	w.v.KVUsed = w.kv.tokens
	r.prefilled = 0
	w.v.Running--
	w.countAdapter(r.adapter, -1, 0)
	w.deactivate(r.adapter)
	w.settle(r.adapter)
	w.full, w.retry = false, true // room for others
}

// isLoRA says whether a row of the adapter table is an adapter.
func (w *worker) isLoRA(row int32) bool { return int(row) < len(w.s.adapters) }

// beginDecode starts as many decode steps as pass without a change of the batch.
func (w *worker) beginDecode() {
	b := int64(len(w.batch))
	k := w.s.reqs[w.batch[0]].finishStep - w.steps
	k = w.kv.stepsThatFit(w.steps, b, k)
	if w.retry && !w.full && w.queue.n > 0 {
		k = 1 // a request retracted just now may be taken back after one step
	}
	if w.s.listener != nil {
		k = 1 // it hears of every token
	}
	if w.exec != nil {
		k = min(k, w.stepsInMode())
		w.exec.fresh, w.exec.decided = false, false
	}
	load := w.placeRunning()
	w.stats.Stalled += load
	w.run = record.Steps{
		Start: w.s.now + load,
		First: w.stepTime(&profile.StepWork{}, true),
		Incr:  w.costs.PerKVToken * tick.Ticks(b),
		Count: k,
		Batch: b,
	}
	if w.drainerOn() {
		if t := w.starvesAt(); t < w.run.End(k) {
			w.run.Count = w.stepsUntil(max(t, w.s.now))
		}
	}
	w.noteStep()
	w.schedule(decode, w.run.End(w.run.Count))
}

// shorten ends the run of decode steps after the step under way.
func (w *worker) shorten() {
	if k := w.stepsUntil(w.s.now); k < w.run.Count {
		w.run.Count = k
		w.s.timers.set(w.id, w.run.End(k))
	}
}

// stepsUntil is the smallest number of steps of the run, at least 1 and at
// most all, that end at t or later.
func (w *worker) stepsUntil(t tick.Ticks) int64 {
	run := &w.run
	if run.Count == 1 || run.End(1) >= t {
		return 1
	}
	// solve Start + k*First + k(k-1)/2*Incr = t, then mend the rounding
	var k int64
	d := float64(t - run.Start)
	if run.Incr == 0 {
		k = int64(d / float64(run.First))
	} else {
		half := float64(run.Incr) / 2
		b := float64(run.First) - half
		k = int64(2 * d / (b + math.Sqrt(float64(b*b)+float64(4*half*d))))
	}
	k = min(max(k, 1), run.Count)
	for k < run.Count && run.End(k) < t {
		k++
	}
	for k > 1 && run.End(k-1) >= t {
		k--
	}
	return k
}

// endDecode books the run of decode steps and reports the requests it finished.
func (w *worker) endDecode() {
	w.advance()
	for len(w.batch) > 0 && w.s.reqs[w.batch[0]].finishStep == w.steps {
		i := w.batch[0]
		w.remove(0)
		w.older--
		w.part(i)
		w.complete(i)
	}
}

// advance books the steps of the run.
func (w *worker) advance() {
	run := w.run
	k, b := run.Count, run.Batch
	w.stampRunning()
	w.kv.decode(w.steps, b, k)
	w.steps += k
	w.ctx += k * b
	w.budget -= k * b
	w.stats.DecodeSteps += k
	w.stats.PeakKV = max(w.stats.PeakKV, w.kv.tokens)
	w.v.KVUsed = w.kv.tokens

	if w.s.gaps != nil {
		w.recordGaps(&run)
	}
	if w.s.listener != nil {
		w.reportTokens()
	}
	w.reportGaps(run.End(1))
	run.Start += w.costs.Overhead
	w.s.obs.Steps(run)
	w.lastDecode, w.older = w.run.End(k), b
}

// reportGaps reports the gap before the first token of a run, which comes at
// time t: how long each request of the batch has waited depends on when its
// latest token came.
func (w *worker) reportGaps(t tick.Ticks) {
	if w.older > 0 {
		w.s.obs.Gap(t-w.lastDecode, w.older)
	}
	for _, g := range w.groups {
		if g.n > 0 {
			w.s.obs.Gap(t-g.at, g.n)
		}
	}
	w.groups = w.groups[:0]
}

// recordGaps notes the gaps of a run for each request of the batch. It is
// called when the run's steps are counted, but its requests are all still there.
func (w *worker) recordGaps(run *record.Steps) {
	before := w.steps - run.Count
	for _, i := range w.batch {
		last := w.lastDecode
		if r := &w.s.reqs[i]; r.joinStep == before {
			last = r.joinTime
		}
		for k := range run.Count {
			end := run.End(k + 1)
			w.s.gaps[i] = append(w.s.gaps[i], (end - last).Seconds())
			last = end
		}
	}
}

// forget takes a request that is leaving the batch unfinished out of the
// counts of reportGaps and notes when its latest token came.
func (w *worker) forget(r *request) {
	if r.joinStep < w.steps {
		w.older--
		r.last = w.lastDecode
		return
	}
	r.last = r.joinTime
	for k := range w.groups {
		if w.groups[k].at == r.joinTime && w.groups[k].n > 0 {
			w.groups[k].n--
			return
		}
	}
}

// retract returns requests to the queue until the next decode step has memory:
// those with the fewest tokens first, of these the longest prompt, of these the
// last in the batch. A request that is left alone and still finds none fails
// (ScheduleBatch.retract_decode in sglang's managers/schedule_batch.py).
func (w *worker) retract() {
	if w.kv.stepNeed(w.steps) <= w.kv.capacity-w.kv.used {
		return
	}
	for w.exec != nil && len(w.exec.parked) > 0 {
		w.dropParked()
		if w.kv.stepNeed(w.steps) <= w.kv.capacity-w.kv.used {
			w.reestimate()
			return
		}
	}
	for len(w.batch) > 1 {
		w.putBack(w.leastProgress())
		if w.kv.stepNeed(w.steps) <= w.kv.capacity-w.kv.used {
			break
		}
	}
	if w.kv.stepNeed(w.steps) > w.kv.capacity-w.kv.used {
		i := w.batch[0]
		w.remove(0)
		w.forget(&w.s.reqs[i])
		w.part(i)
		w.leave(i)
		w.s.finish(i, record.Failed, "out of KV cache", w.s.now+w.costs.Overhead)
		return
	}
	w.reestimate()
}

// leastProgress is the index in the batch of the request to retract.
func (w *worker) leastProgress() int {
	best := 0
	for k := 1; k < len(w.batch); k++ {
		a, b := &w.s.reqs[w.batch[k]], &w.s.reqs[w.batch[best]]
		// all decode in lockstep, so fewest tokens = largest difference
		da, db := a.joinStep-int64(a.generated), b.joinStep-int64(b.generated)
		if da != db {
			if da > db {
				best = k
			}
		} else if a.prompt != b.prompt {
			if a.prompt > b.prompt {
				best = k
			}
		} else if a.order > b.order {
			best = k
		}
	}
	return best
}

// putBack retracts the request at index k of the batch.
func (w *worker) putBack(k int) {
	i := w.batch[k]
	w.remove(k)
	w.forget(&w.s.reqs[i])
	w.part(i)
	w.s.reqs[i].moving = notMoving // a migration that was under way is off
	w.notePreemption(&w.s.reqs[i])
	w.stats.Retractions++
	w.wait(i)
}

// retractHeadroom is the number of decode steps that the estimate after a
// retraction provides for (sglang's RETRACT_DECODE_STEPS).
const retractHeadroom = 20

// reestimate sets the new-token ratio from what the running requests have used
// (NewTokenRatioTracker.estimate_new_token_ratio_after_retract). The decode
// step that follows does not lower it (Scheduler.update_running_batch).
func (w *worker) reestimate() {
	var generated, maxNew int64
	for _, i := range w.batch {
		r := &w.s.reqs[i]
		generated += int64(r.generated) + w.steps - r.joinStep
		maxNew += int64(r.maxNew)
	}
	w.ratioFrom = min(1, float64(generated+retractHeadroom*int64(len(w.batch)))/float64(maxNew+1))
	w.ratioSince = w.steps + 1
}

// stepsDone is the number of steps of the run that are over at this instant.
func (w *worker) stepsDone() int64 {
	if w.phase != decode || w.s.now <= w.run.Start {
		return 0
	}
	k := w.stepsUntil(w.s.now)
	if w.run.End(k) > w.s.now {
		k--
	}
	return k
}

// kvNow is the number of KV tokens at this instant, within a run of steps.
func (w *worker) kvNow() int64 { return w.kv.tokens + w.stepsDone()*w.run.Batch }

// push adds a request to the heap of the batch.
func (w *worker) push(i int32) {
	w.batch = append(w.batch, i)
	w.siftUp(len(w.batch) - 1)
}

// remove takes the request at index k out of the heap of the batch.
func (w *worker) remove(k int) {
	last := len(w.batch) - 1
	moved := w.batch[last]
	w.batch = w.batch[:last]
	if k < last {
		w.batch[k] = moved
		w.siftDown(k)
		w.siftUp(k)
	}
}

// before orders the batch by the step of the last token, then by the order in
// which requests joined.
func (w *worker) before(a, b int32) bool {
	ra, rb := &w.s.reqs[a], &w.s.reqs[b]
	if ra.finishStep != rb.finishStep {
		return ra.finishStep < rb.finishStep
	}
	return ra.seq < rb.seq
}

func (w *worker) siftUp(k int) {
	i := w.batch[k]
	for k > 0 {
		p := (k - 1) / 2
		if !w.before(i, w.batch[p]) {
			break
		}
		w.batch[k] = w.batch[p]
		k = p
	}
	w.batch[k] = i
}

func (w *worker) siftDown(k int) {
	i, n := w.batch[k], len(w.batch)
	for {
		c := 2*k + 1
		if c >= n {
			break
		}
		if c+1 < n && w.before(w.batch[c+1], w.batch[c]) {
			c++
		}
		if !w.before(w.batch[c], i) {
			break
		}
		w.batch[k] = w.batch[c]
		k = c
	}
	w.batch[k] = i
}
