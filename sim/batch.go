package sim

import (
	"lorasim/internal/heap"
	"lorasim/internal/record"
	"lorasim/internal/tick"
	"lorasim/sim/profile"
)

// join takes a request whose prompt is prefilled into the running batch. Its
// latest token came at time at.
func (w *worker) join(r *request, at tick.Ticks) {
	r.state = running
	r.joinTime = at
	w.order++
	r.order = w.order
	w.batch.Push(heap.Entry[*request]{Key: w.steps + int64(r.output-r.generated), Tie: r.seq, Value: r, Place: &r.place})
	w.kv.StartDecoding(&r.Sequence, w.steps)
	w.countBatch(r, 1)
}

// running lists the requests of the batch, in no order.
func (w *worker) running() []*request {
	rs := make([]*request, len(w.batch))
	for k, e := range w.batch {
		rs[k] = e.Value
	}
	return rs
}

// rejoin takes a request that saw its latest token elsewhere, or long ago, into
// the batch.
func (w *worker) rejoin(r *request) {
	w.join(r, r.last)
	w.groups = append(w.groups, group{r.last, 1})
}

// joinCarried takes a request that brings its KV cache into the batch.
func (w *worker) joinCarried(r *request) {
	w.kv.Grow(&r.Sequence, r.carried)
	r.carried = 0
	w.rejoin(r)
}

// unbatch takes a request that has not ended, or just did, out of the running
// batch and notes how far it is; it keeps its KV cache.
func (w *worker) unbatch(r *request) {
	w.batch.Remove(int(r.place))
	w.forgetGap(r)
	r.generated += int32(w.steps - r.Joined)
	w.kv.StopDecoding(&r.Sequence, w.steps)
	w.countBatch(r, -1)
}

// countBatch counts a request of the batch in, 1, or out, -1.
func (w *worker) countBatch(r *request, d int64) {
	w.serve(r.Adapter, 0)
	w.ctx += d * int64(r.Computed)
	w.budget += d * int64(r.maxNew-r.generated)
	if int(r.maxNew) > w.eng.ClipNewTokens {
		w.large += d
	}
	w.ranks.add(&r.row.ranks, int32(d))
}

// leaveBatch takes a request out of the running batch and frees its KV cache.
func (w *worker) leaveBatch(r *request) {
	w.unbatch(r)
	w.free(r)
}

// free frees the KV cache of a request that was running and is not in the batch.
func (w *worker) free(r *request) {
	w.kv.Release(&r.Sequence)
	w.v.KVUsed = w.kv.Stored()
	w.v.Running--
	w.countAdapter(r.Adapter, -1, 0)
	w.deactivate(r.Adapter)
	w.settle(r.Adapter)
	w.reopen()
}

// beginDecode starts as many decode steps as pass without a change of the batch.
func (w *worker) beginDecode() {
	b := int64(len(w.batch))
	k := w.kv.StepsThatFit(w.steps, b, w.batch[0].Key-w.steps)
	if (w.retry && !w.full || w.preempts) && w.queue.n > 0 || w.s.token != nil || w.s.step != nil {
		k = 1 // a request retracted just now may be taken back after one step; hooks hear of every token
	}
	if w.exec != nil {
		k = min(k, w.stepsInMode())
		w.exec.fresh, w.exec.decided = false, false
	}
	load := w.placeAdapters(true)
	w.stats.Stalled += load
	w.run = record.Steps{
		Start: w.s.loop.Now() + load,
		First: w.stepTime(&profile.StepWork{}, true),
		Incr:  w.costs.PerKVToken * tick.Ticks(b),
		Count: k,
		Batch: b,
	}
	if t := w.starvesAt(); t < w.run.End(k) {
		w.run.Count = w.run.Until(max(t, w.s.loop.Now()))
	}
	w.noteStep(decode)
	w.schedule(decode, w.run.End(w.run.Count))
}

// shorten ends the run of decode steps after the step under way.
func (w *worker) shorten() {
	if k := w.run.Until(w.s.loop.Now()); k < w.run.Count {
		w.run.Count = k
		w.s.loop.Set(&w.timer, w.run.End(k))
	}
}

// stepsDone is the number of steps of the run that are over at this instant.
func (w *worker) stepsDone() int64 {
	if w.phase != decode || w.s.loop.Now() <= w.run.Start {
		return 0
	}
	k := w.run.Until(w.s.loop.Now())
	if w.run.End(k) > w.s.loop.Now() {
		k--
	}
	return k
}

// kvNow is the number of KV tokens at this instant, within a run of steps.
func (w *worker) kvNow() int64 { return w.kv.Stored() + w.stepsDone()*w.run.Batch }

// inCache is the number of tokens that a running request had in the KV cache at
// the latest boundary between runs of steps.
func (w *worker) inCache(r *request) int64 {
	if r.state == running {
		return r.Tokens(w.steps)
	}
	return int64(r.Computed)
}

// endDecode books the run of decode steps and reports the requests it finished.
func (w *worker) endDecode() {
	w.advance()
	for len(w.batch) > 0 && w.batch[0].Key == w.steps {
		r := w.batch[0].Value
		w.leaveBatch(r)
		w.finish(r, record.OK, "")
	}
}

// advance books the steps of the run.
func (w *worker) advance() {
	run := w.run
	k, b := run.Count, run.Batch
	w.adapters.stampRunning()
	w.kv.Decode(w.steps, b, k)
	w.steps += k
	w.ctx += k * b
	w.budget -= k * b
	w.stats.DecodeSteps += k
	w.stats.PeakKV = max(w.stats.PeakKV, w.kv.Stored())
	w.v.KVUsed = w.kv.Stored()
	if w.s.cfg.TokenTimes {
		w.recordGaps(&run)
	}
	if w.s.token != nil {
		for _, e := range w.batch {
			w.s.token(e.Value.id, w.s.loop.Now()+w.costs.Overhead)
		}
	}
	w.reportGaps(run.End(1))
	run.Start += w.costs.Overhead
	w.s.cfg.Observer.Steps(run)
	w.lastDecode, w.older = w.run.End(k), b
}

// reportGaps reports the gap before the first token of a run, which comes at
// time t: how long each request of the batch has waited depends on when its
// latest token came.
func (w *worker) reportGaps(t tick.Ticks) {
	if w.older > 0 {
		w.s.cfg.Observer.Gap(t-w.lastDecode, w.older)
	}
	for _, g := range w.groups {
		if g.n > 0 {
			w.s.cfg.Observer.Gap(t-g.at, g.n)
		}
	}
	w.groups = w.groups[:0]
}

// recordGaps notes the gaps of a run for each request of the batch. It is
// called when the run's steps are counted, but its requests are all still there.
func (w *worker) recordGaps(run *record.Steps) {
	before := w.steps - run.Count
	for _, e := range w.batch {
		r, last := e.Value, w.lastDecode
		if r.Joined == before {
			last = r.joinTime
		}
		for k := range run.Count {
			end := run.End(k + 1)
			r.gaps = append(r.gaps, (end - last).Seconds())
			last = end
		}
	}
}

// forgetGap takes a request that is leaving the batch out of the counts of
// reportGaps and notes when its latest token came.
func (w *worker) forgetGap(r *request) {
	if r.Joined < w.steps {
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
	if w.kv.StepNeed(w.steps) <= w.kv.Free() {
		return
	}
	for w.kv.StepNeed(w.steps) > w.kv.Free() {
		switch {
		case w.exec != nil && len(w.exec.parked) > 0:
			w.dropParked()
		case len(w.batch) > 1:
			r := w.leastProgress()
			r.Retracted, r.matched = true, 0
			w.leaveBatch(r)
			w.putBack(r, false)
			if w.noted != nil {
				w.noted.Retracted++
			}
		default:
			r := w.batch[0].Value
			w.leaveBatch(r)
			w.finish(r, record.Failed, "out of KV cache")
			return
		}
	}
	w.reestimate()
}

// leastProgress is the request of the batch to retract.
func (w *worker) leastProgress() *request {
	best := w.batch[0].Value
	for _, e := range w.batch[1:] {
		r := e.Value
		// all decode in lockstep, so fewest tokens = largest difference
		d := r.Joined - int64(r.generated) - (best.Joined - int64(best.generated))
		if d > 0 || d == 0 && (r.Prompt > best.Prompt || r.Prompt == best.Prompt && r.order > best.order) {
			best = r
		}
	}
	return best
}

// putBack returns a request that has lost its KV cache to the queue, last or
// first.
func (w *worker) putBack(r *request, first bool) {
	r.moving = notMoving // a migration that was under way is off
	w.notePreemption(r)
	w.stats.Retractions++
	if w.queues(r) {
		w.wait(r, first)
	}
}

// retractHeadroom is the number of decode steps that the estimate after a
// retraction provides for (sglang's RETRACT_DECODE_STEPS).
const retractHeadroom = 20

// reestimate sets the new-token ratio from what the running requests have used
// (NewTokenRatioTracker.estimate_new_token_ratio_after_retract). The decode
// step that follows does not lower it (Scheduler.update_running_batch).
func (w *worker) reestimate() {
	var generated, maxNew int64
	for _, e := range w.batch {
		r := e.Value
		generated += int64(r.generated) + w.steps - r.Joined
		maxNew += int64(r.maxNew)
	}
	w.ratioFrom = min(1, float64(generated+retractHeadroom*int64(len(w.batch)))/float64(maxNew+1))
	w.ratioSince = w.steps + 1
}

// ratio is the share of their remaining budgets that running requests are
// expected to use.
func (w *worker) ratio() float64 {
	if w.steps < w.ratioSince {
		return w.ratioFrom
	}
	lo := w.eng.NewTokenRatio * w.eng.NewTokenRatioMin
	decay := (w.eng.NewTokenRatio - lo) / float64(w.eng.NewTokenRatioSteps)
	return max(w.ratioFrom-float64(decay*float64(w.steps-w.ratioSince)), lo)
}
