package engine

import (
	"errors"
	"fmt"
	"slices"

	"lorasim/sim/tick"
)

// Check returns an error if an invariant does not hold. It is for tests, between events.
func (e *Engine) Check() error {
	filling, ending := e.sched.Orphans(nil), e.Pipeline.Ending()
	tokens := int64(0)
	for _, r := range slices.Concat(filling, ending) {
		tokens += int64(r.Computed)
	}
	for k := range e.Batch.Len() {
		tokens += e.Batch.At(k).Tokens(e.Batch.Steps)
	}
	return errors.Join(checkPlaces(e, filling), e.Batch.check(e.itl.size()+e.Pipeline.check()),
		e.Step.check(&e.Batch), checkBooks(e, slices.Concat(filling, ending)),
		e.KV.Check(int64(e.Batch.Len()), tokens), e.LoRA.Check(), e.sched.Check())
}

// checkPlaces checks that each request is in one place, as its state says. filling are the requests that
// prefill or are parked.
func checkPlaces(e *Engine, filling []*Request) error {
	seen := map[*Request]bool{}
	in := func(rs []*Request, where string, state State) error {
		for _, r := range rs {
			if r.state != state || r.engine != e || seen[r] {
				return fmt.Errorf("request %d is %s in state %d, expected %d; elsewhere too: %v", r.ID, where, r.state,
					state, seen[r])
			}
			seen[r] = true
		}
		return nil
	}
	var queue []*Request
	waiting := map[*Adapter]int32{}
	for r := range e.Queue.All() {
		queue = append(queue, r)
		waiting[r.Row]++
	}
	if len(queue) != e.Queue.n || len(waiting) != len(e.Queue.adapters) {
		return fmt.Errorf("%d requests of %d adapters wait, counted %d of %d", len(queue), len(waiting), e.Queue.n,
			len(e.Queue.adapters))
	}
	for _, a := range e.Queue.adapters {
		if a.Waiting != waiting[a] || a.queue.head == nil || a.queue.seq != a.queue.head.seq {
			return fmt.Errorf("%d requests of adapter %d wait, counted %d", waiting[a], a.Index, a.Waiting)
		}
	}
	entering := slices.Concat(e.FrontEnd.queue, e.FrontEnd.held)
	return errors.Join(in(entering, "in the front end", Entering), in(queue, "in the queue", Waiting),
		in(filling, "prefilling", Filling), in(e.Pipeline.Ending(), "ending", Ending),
		in(e.Batch.Requests(), "in the batch", Running))
}

// check checks that the sums of the batch are those of its requests.
func (b *Batch) check(timed int64) error {
	tokens, left, clipped := int64(0), int64(0), int64(0)
	decoding := map[*Adapter]int32{}
	for k := range b.Len() {
		r := b.At(k)
		tokens += r.Tokens(b.Steps)
		left += b.Left(r)
		if int(r.MaxNew) > b.clip {
			clipped++
		}
		if decoding[r.Row]++; b.heap[k].Key <= b.Steps || b.stops && b.heap[k].Key <= 2*b.Steps {
			return fmt.Errorf("request %d decodes and has all its tokens", r.ID)
		}
	}
	loras, distinct := int64(0), int64(0)
	for a, n := range decoding {
		if a.Decoding != n {
			return fmt.Errorf("%d requests of adapter %d decode, counted %d", n, a.Index, a.Decoding)
		}
		if a.Rank > 0 {
			loras += int64(n)
			distinct++
		}
	}
	switch {
	case tokens != b.kvTokens || left != b.maxNewLeft || clipped != b.clipped:
		return fmt.Errorf("the batch has %d KV tokens, %d to generate and %d long budgets, counted %d, %d and %d",
			tokens, left, clipped, b.kvTokens, b.maxNewLeft, b.clipped)
	case loras != b.loras.loras || distinct != b.loras.distinct:
		return fmt.Errorf("the batch has %d requests of %d adapters, counted %d of %d", loras, distinct, b.loras.loras,
			b.loras.distinct)
	case timed != int64(b.Len()):
		return fmt.Errorf("%d requests wait for their next token, %d decode", timed, b.Len())
	}
	return nil
}

// check checks that a run of decode steps is of the whole batch, and ends no later than its first request.
func (s *Step) check(b *Batch) error {
	if s.kind == decode && !b.stops && (s.run.Batch != int64(b.Len()) || s.run.Count < 1 || s.run.Count > b.steps()) {
		return fmt.Errorf("%d decode steps of %d requests are under way, the batch has %d, the first of which ends in %d",
			s.run.Count, s.run.Batch, b.Len(), b.steps())
	}
	return nil
}

// checkBooks checks that the counters for routers agree with the engine's requests.
func checkBooks(e *Engine, filling []*Request) error {
	type requests struct{ running, queued, unslotted int32 }
	of := map[int32]*requests{}
	tokens, pending, rank, count := int64(0), int64(0), int32(0), requests{}
	add := func(r *Request, running, queued int32) {
		tokens += int64(r.Prompt) + int64(r.Expected)
		if r.FirstTokenAt == tick.Never {
			pending += int64(r.Prompt)
		}
		rank = max(rank, r.Row.Rank)
		if of[r.Adapter] == nil {
			of[r.Adapter] = &requests{}
		}
		of[r.Adapter].running += running
		if r.unslotted {
			of[r.Adapter].unslotted++
		}
		of[r.Adapter].queued += queued
		count.running += running
		count.queued += queued
	}
	for _, r := range slices.Concat(e.FrontEnd.queue, e.FrontEnd.held) {
		add(r, 0, 1)
	}
	for r := range e.Queue.All() {
		add(r, 0, 1)
	}
	for _, r := range filling {
		add(r, 1, 0)
	}
	for k := range e.Batch.Len() {
		add(e.Batch.At(k), 1, 0)
	}
	b := &e.Books
	switch {
	case tokens != b.Tokens || pending != b.PendingPromptTokens || int(rank) != b.MaxRank:
		return fmt.Errorf("requests of %d tokens, %d of them prompts without output, and rank %d; routers see %d, %d, %d",
			tokens, pending, rank, b.Tokens, b.PendingPromptTokens, b.MaxRank)
	case int(count.running) != b.Running || int(count.queued) != b.Queued:
		return fmt.Errorf("%d requests run, %d wait; routers see %d and %d", count.running, count.queued, b.Running,
			b.Queued)
	}
	for a, n := range of {
		if users := e.Rows.Of(a).Users(); users != n.running-n.unslotted {
			return fmt.Errorf("%d requests of adapter %d run, %d use it", n.running-n.unslotted, a, users)
		}
	}
	for a, st := range b.Rows() {
		n := requests{}
		for version, m := range of {
			if e.Rows.isLoRA(version) && e.cfg.adapterOf(version) == a {
				n.running += m.running
				n.queued += m.queued
			}
		}
		if st.Running != n.running || st.Queued != n.queued {
			return fmt.Errorf("%d requests of adapter %d run, %d wait; routers see %d and %d", n.running, a, n.queued,
				st.Running, st.Queued)
		}
	}
	return nil
}

// CheckEmpty returns an error if requests are left on the engine.
func (e *Engine) CheckEmpty() error {
	b, v := &e.Batch, &e.Books
	if len(b.heap) != 0 || b.kvTokens != 0 || b.maxNewLeft != 0 || b.clipped != 0 ||
		b.loras.loras != 0 || b.loras.distinct != 0 || b.loras.ranks.Max != 0 ||
		e.Queue.n != 0 || e.sched.Running() != 0 || v.PendingPromptTokens != 0 {
		return fmt.Errorf("left with batch %+v, %d waiting, %d running, %d prompt tokens without output",
			*b, e.Queue.n, e.sched.Running(), v.PendingPromptTokens)
	}
	return errors.Join(e.KV.CheckEmpty(), e.Check())
}
