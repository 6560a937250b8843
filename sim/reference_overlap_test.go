package sim

import (
	"slices"

	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/sim/tick"
)

// The reference of sglang's overlap schedule, after its source: requests know the tokens that have come (generated),
// memory those that are in flight, too (kv).

// refOverlap is what a worker with the overlap schedule has under way.
type refOverlap struct {
	launched, formed *refBatch
	tried            bool // to form the step after the one that is launched
}

// refBatch is a step that is formed, or launched.
type refBatch struct {
	fills, decodes []*refRequest
	gives          []*refRequest // get a token from it
	chunked        *refRequest
	takes          tick.Ticks
}

func (w *refWorker) overlaps() bool { return w.e.OverlapSchedule }

// ahead says whether a step is formed while the one before it runs.
func (w *refWorker) ahead() bool { return w.async() || w.overlaps() }

// finishes says whether the token in flight is a request's last, by its length (_reqs_finishing_inflight).
func (w *refWorker) finishes(r *refRequest) bool {
	return w.launched != nil && slices.Contains(w.launched.gives, r) && r.generated+1 >= int64(r.Budget())
}

// decoding lists the running requests that a step has tokens for.
func (w *refWorker) decoding() []*refRequest {
	return slices.DeleteFunc(slices.Clone(w.running), w.finishes)
}

// loseToken has a request that is retracted lose its token in flight.
func (w *refWorker) loseToken(r *refRequest) {
	if w.launched != nil {
		w.launched.gives = slices.DeleteFunc(w.launched.gives, func(q *refRequest) bool { return q == r })
	}
}

func (s *reference) beginOverlap(w *refWorker) {
	for {
		if !w.tried {
			w.formed, w.tried = s.formOverlap(w), true
		}
		switch {
		case w.busy:
			return
		case w.formed != nil:
			s.launch(w)
			continue
		}
		w.tried = false
		switch {
		case len(w.running) > 0: // failed for lack of memory
		case len(w.waiting) > 0 && len(w.loads) == 0:
			s.sort(w)
			s.finish(w, s.dequeue(w, 0), record.Failed)
		default:
			w.ratioFrom, w.ratioSince = w.e.NewTokenRatio, w.steps
			return
		}
	}
}

// formOverlap is Scheduler.get_next_batch_to_run, nil: no batch.
func (s *reference) formOverlap(w *refWorker) *refBatch {
	for {
		s.keep(w, -1)
		if len(w.running) == 0 || w.preempts() {
			w.full = false
		}
		if (len(w.waiting) > 0 && !w.full || w.chunked != nil) && s.formPrefill(w) {
			return w.formed
		}
		decodes := w.decoding()
		lacks := w.decodeNeed(decodes) > w.capacity-w.usedPages()
		if len(decodes) == 0 || lacks && len(decodes) < len(w.running) {
			return nil
		}
		if lacks {
			s.retract(w)
		}
		if len(w.running) > 0 {
			break
		}
		if w.launched != nil {
			return nil
		}
	}
	k := &refBatch{decodes: w.decoding()}
	k.takes = s.place(w, k.decodes) + w.costs.Step(s.work(w, k.decodes, nil, profile.StepWork{}))
	k.allocate()
	return k
}

// allocate gives the requests that decode the memory for it.
func (k *refBatch) allocate() {
	for _, r := range k.fills {
		if r.kv == r.need() {
			k.gives = append(k.gives, r)
		}
	}
	for _, r := range k.decodes {
		r.kv++
		k.gives = append(k.gives, r)
	}
}

// launch begins the step that is formed. Its new requests run from then on.
func (s *reference) launch(w *refWorker) {
	k := w.formed
	w.formed, w.launched, w.tried = nil, k, false
	if len(k.decodes) > 0 {
		w.steps++
		s.stampRunning(w)
	}
	if len(k.fills) > 0 {
		joined := slices.DeleteFunc(slices.Clone(k.fills), func(r *refRequest) bool { return r == k.chunked })
		if len(k.decodes) > 0 {
			w.ratioSince++
			w.running = append(joined, w.running...)
		} else {
			w.running = append(w.running, joined...)
		}
		w.full = w.full && k.chunked == nil && !w.wasEmpty && len(k.decodes) == 0
		w.filling = nil
	}
	w.busy, w.until = true, s.now+k.takes
}

// endOverlap is process_batch_result.
func (s *reference) endOverlap(w *refWorker) {
	k := w.launched
	w.launched = nil
	for _, r := range k.gives {
		if r.end != 0 {
			continue // it ended with the step before
		}
		s.token(w, r)
		if r.generated < int64(r.Output) {
			continue
		}
		w.running = slices.DeleteFunc(w.running, func(q *refRequest) bool { return q == r })
		s.finish(w, r, record.OK)
	}
	if w.formed != nil {
		s.launch(w)
	} else {
		w.tried = false
	}
}
