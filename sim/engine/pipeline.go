package engine

import (
	"cmp"
	"slices"

	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/sim/tick"
)

// A Pipeline makes an engine form a step while the one before it runs: vLLM's asynchronous scheduling
// (EngineCore.step_with_batch_queue in v1/engine/core.py with a queue of two batches, AsyncScheduler in
// v1/core/sched/async_scheduler.py) and sglang's overlap schedule (Scheduler.event_loop_overlap in
// managers/scheduler.py).
//
// When a step ends, its tokens and the ends of requests are booked, the step that was formed meanwhile
// begins, and the next one is formed. So a request that comes while step k runs is in step k+2. If no step is
// under way, the first one begins at once and the second is formed right after it.
//
// The scheduler sees the engine in the state after the step under way. The batch, the KV cache and
// [Request.Generated] already have its tokens, which are in flight. Requests with a token in flight may end or
// be preempted:
//   - A request whose length ends it with the step under way is [Ending]. It is in no further step, and keeps its
//     seat and its memory until the step ends.
//   - A request that a stop token ends is also in the next step, which wastes a token.
//   - A preempted request loses its memory, but not its token in flight. Under sglang it loses that too.
//
// Under sglang there are three more differences. A step need not decode. The first tokens of prompts, which
// have been computed, enter the prefix cache with their prompts when they come. The loads of a step's
// adapters begin when the step begins.
//
// Invariant: between events the batch is that of the step formed, or to be formed, next.
type Pipeline struct {
	e                   *Engine
	keepsSlot, overlaps bool

	next   formed
	first  []*Request // whose first token, or first one since they were preempted, is in flight
	ending []*Request // whose last token is in flight, and is not their first
	gone   []*Request // whose token is in flight, but not of first, and that have been preempted since
	firsts int        // requests of first that are Ending

	resumed []*Request // that have joined the batch with tokens from elsewhere since the step under way began

	report *Report // sglang: of the step under way
}

// formed is a step that is formed and has not begun.
type formed struct {
	is, empty, again bool // it exists; it has no tokens; an idle engine is to form another one at once
	kind             kind
	takes, ready     tick.Ticks // how long it runs, and when its adapters are loaded
	stall            tick.Ticks // sglang: how long it loads adapters first
	used             int64      // sglang: when it was formed, by the clock of the adapters' uses
}

func newPipeline(e *Engine, rules *Rules) {
	e.Pipeline = &Pipeline{e: e, keepsSlot: rules.KeepsSlot, overlaps: rules.Overlaps}
	e.Batch.stops = true
	e.KV.TokensLate()
}

// Idle reports whether no step is under way.
func (p *Pipeline) Idle() bool { return p.e.Step.kind == idle }

// Len returns the number of requests whose last token is in flight.
func (p *Pipeline) Len() int {
	if p == nil {
		return 0
	}
	return len(p.ending) + p.firsts
}

// Ending lists the requests whose last token is in flight.
func (p *Pipeline) Ending() []*Request {
	if p == nil {
		return nil
	}
	rs := slices.Clone(p.ending)
	for _, r := range p.first {
		if r.state == Ending {
			rs = append(rs, r)
		}
	}
	return rs
}

// ahead returns the number of decode steps, 0 or 1, in the batch that are not booked.
func (p *Pipeline) ahead() int64 {
	if p == nil || p.Idle() || p.e.Step.run.Batch == 0 {
		return 0
	}
	return 1
}

// Plan stores the step that the scheduler has formed. decodes: the step generates tokens for the batch.
func (p *Pipeline) Plan(decodes bool) {
	e, s := p.e, &p.e.Step
	n, load := &p.next, s.Stall
	n.empty, n.kind, n.takes = false, prefill, 0
	switch {
	case len(s.Prompts) > 0:
		if decodes {
			n.kind = mixed
		}
		if s.Work.Extends && !e.warmExtend {
			s.Work.FirstExtend, e.warmExtend = true, true
		}
		n.takes = e.stepTime(decodes)
	case decodes && e.Batch.Len() > 0:
		n.kind = decode
		s.clear()
		load += e.LoRA.PrepareBatch(nil, true)
		s.Work = profile.StepWork{}
		n.takes = e.stepTime(true)
	default: // a load is all there is
	}
	if p.overlaps {
		n.stall, n.used = load, e.LoRA.Clock()
	} else {
		n.ready = e.Loop.Now() + load
	}
	if n.kind != prefill || len(s.Prompts) > 0 {
		e.Report.scheduled(e, n.kind)
	}
}

// Again makes the engine form another step at once if none is under way.
func (p *Pipeline) Again() { p.next.again = true }

// begin begins the formed step, if any, and forms the next one.
func (p *Pipeline) begin() {
	e := p.e
	for {
		if p.Idle() && len(e.leaving) > 0 {
			e.sendLeaving()
		}
		if !p.next.is {
			p.next = formed{is: true, empty: true}
			e.sched.Schedule()
		}
		switch again := p.next.again; {
		case !p.Idle():
			p.leap()
			return
		case !p.next.empty:
			p.start()
		default:
			p.next.is = false
			if !again {
				return
			}
		}
		if !p.overlaps {
			e.Report.done(e)
		}
	}
}

// start begins the formed step.
func (p *Pipeline) start() {
	e, s, b, n := p.e, &p.e.Step, &p.e.Batch, &p.next
	n.is = false
	at, size := max(e.Loop.Now(), n.ready)+n.stall, int64(b.Len())
	e.Stats.Stalled += at - e.Loop.Now()
	if len(s.Prompts) > 0 {
		e.Stats.PrefillSteps++
	}
	if n.kind == prefill {
		size = 0
	}
	incr := e.Costs.PerKVToken * tick.Ticks(size)
	s.run = record.Steps{Start: at, First: n.takes, Incr: incr, Count: 1, Batch: size}
	if size > 0 || p.overlaps && n.kind != prefill {
		grow(e, 1)
	}
	e.sched.Update(n.kind == mixed)
	for len(b.heap) > 0 && b.heap[0].Key <= 2*b.Steps {
		r := b.heap[0].Value
		stopDecoding(e, r)
		if !p.overlaps {
			e.KV.InsertKnown(&r.Sequence)
		}
		p.ending = append(p.ending, r)
		p.toEnding(r)
	}
	s.clear()
	if p.overlaps && e.Report != nil {
		p.report, e.Report = e.Report, newReport()
	}
	e.Stats.PeakKV = max(e.Stats.PeakKV, e.KV.Stored())
	e.Books.KVUsed = e.KV.Stored()
	e.run(n.kind, s.run.End(1))
}

// EndPrompts adds the requests whose prompts the beginning step completes to the batch. Under sglang, the
// computed part of an incomplete prompt is in the prefix cache when the next step is formed
// (stash_chunked_request).
func (p *Pipeline) EndPrompts() {
	for _, c := range p.e.Step.Prompts {
		if r := c.Request; r.Computed == r.Prompt+r.Generated {
			p.endPrompt(r)
		} else if p.overlaps {
			p.e.KV.Insert(&r.Sequence)
		}
	}
}

// endPrompt adds a request whose prompt the beginning step completes to the batch, unless the token of this
// step is its last.
func (p *Pipeline) endPrompt(r *Request) {
	r.Generated++
	p.first = append(p.first, r)
	if r.Generated < r.Output || r.Stops {
		p.e.startDecoding(r, r.lastTokenAt) // until its token comes
		return
	}
	p.firsts++
	p.e.Batch.number(r)
	p.toEnding(r)
}

func (p *Pipeline) toEnding(r *Request) {
	r.awaitLast()
	if p.keepsSlot {
		return
	}
	r.unslotted = true
	p.e.LoRA.Release(&r.Row.Adapter)
	p.e.Gate.RequestLeft()
}

// leap extends the decode step under way to a run of steps, as long as the batch does not change. The formed
// step is then the one after the run.
func (p *Pipeline) leap() {
	e, s, b := p.e, &p.e.Step, &p.e.Batch
	switch {
	case s.kind != decode || p.next.empty || p.next.kind != decode || s.run.First+s.run.Incr != p.next.takes,
		len(p.first)+len(p.ending)+len(p.gone)+len(p.resumed) > 0 || s.run.Batch != int64(b.Len()) || s.run.Batch == 0,
		e.Gate.Open() && e.Queue.n > 0 || e.cfg.Hooks.Token != nil || e.Report != nil:
		return
	}
	if k := e.KV.StepsThatFit(b.Steps, s.run.Batch, b.steps()); k > 1 {
		s.run.Count = k
		if t := e.sched.LeapUntil(); t != tick.Never && t < s.run.End(k) {
			s.run.Count = s.run.Until(max(t, e.Loop.Now()))
		}
		e.Loop.Set(&e.timer, s.run.End(s.run.Count))
	}
}

// end ends the step, or the run of decode steps, under way.
func (p *Pipeline) end() {
	e, s, report := p.e, &p.e.Step, p.report
	p.report = nil
	if s.run.Batch > 0 {
		p.advance()
	}
	s.kind = idle // from here on what the batch has is booked
	p.reportFirst()
	if p.next.is && !p.next.empty && p.next.kind != prefill {
		e.KV.TakeStep(e.Batch.Steps)
	}
	p.finish()
	if !p.overlaps {
		e.Books.Running = e.sched.Running()
	}
	if len(e.leaving) > 0 {
		e.sendLeaving()
		s.Prompts = slices.DeleteFunc(s.Prompts, func(c Chunk) bool {
			return c.Request.state != Filling || c.Request.engine != e
		})
	}
	if p.next.is && !p.next.empty {
		p.start()
	}
	p.next.is = false
	if p.overlaps {
		report.tell(e)
	} else {
		e.Report.done(e)
	}
	e.getReady()
}

// advance books the decode steps of the run: the tokens of the batch, and of requests that have left it
// since.
func (p *Pipeline) advance() {
	e, run := p.e, p.e.Step.run
	if run.Count > 1 {
		grow(e, run.Count-1)
		p.next.takes = run.First + run.Incr*tick.Ticks(run.Count)
	}
	for _, rs := range [2][]*Request{p.gone, p.ending} {
		for _, r := range rs {
			if e.cfg.TokenTimes {
				e.itl.recordOne(r, e.Batch.Steps-1, &run)
			}
			if token := e.cfg.Hooks.Token; token != nil {
				token(r.ID, e.Loop.Now()+e.Costs.Overhead)
			}
		}
	}
	observe(e, run)
	for _, rs := range [2][]*Request{p.gone, p.ending} {
		for _, r := range rs {
			e.itl.leave(r, e.Batch.Steps)
		}
	}
}

// reportFirst reports the tokens that requests get when their prompts are complete.
func (p *Pipeline) reportFirst() {
	e, now, joined := p.e, p.e.Loop.Now(), int64(0)
	for _, r := range p.first {
		if p.overlaps {
			e.KV.Insert(&r.Sequence)
		}
		e.token(r)
		r.lastTokenAt = now
		if r.state == Running {
			r.joinTime = now
			joined++
		}
	}
	if len(p.first) > 0 {
		e.cfg.Observer.Tokens(now+e.Costs.Overhead, int64(len(p.first)))
	}
	if joined > 0 {
		e.itl.joined(now, joined)
	}
	p.joinResumed()
}

// joinResumed makes the requests that joined the batch during the step under way wait for their next token.
func (p *Pipeline) joinResumed() {
	for _, r := range p.resumed {
		p.e.itl.joined(r.joinTime, 1)
	}
	p.resumed = p.resumed[:0]
}

// finish ends the requests that have their last token, in the order of their admission.
func (p *Pipeline) finish() {
	e, b := p.e, &p.e.Batch
	ends := p.Ending()
	var out []*Request
	for _, r := range slices.Concat(p.first, p.gone) {
		if r.state != Running && r.state != Ending && r.Generated == r.Output {
			ends = append(ends, r)
			out = append(out, r) // of the batch, with its last token in flight: preempted, or to catch up
		}
	}
	p.first, p.ending, p.gone, p.firsts = p.first[:0], p.ending[:0], p.gone[:0], 0
	for len(b.heap) > 0 && b.heap[0].Key <= 2*b.Steps+1 { // a stop token has come
		r := b.heap[0].Value
		e.StopDecoding(r)
		ends = append(ends, r)
		if p.overlaps && p.next.is && p.next.kind != prefill { // which has a token for it, too
			e.LoRA.Use(&r.Row.Adapter, p.next.used)
		}
	}
	slices.SortFunc(ends, func(a, b *Request) int { return cmp.Compare(a.seq, b.seq) })
	for _, r := range ends {
		switch {
		case r.state == Waiting:
			e.dequeue(r)
			r.Leaving = Staying
			e.LoRA.UnloadIfUnused(&r.Row.Adapter)
		case slices.Contains(out, r):
			e.Step.Prompts = slices.DeleteFunc(e.Step.Prompts, func(c Chunk) bool { return c.Request == r })
			e.sched.Drop(r)
		default:
			e.Free(r)
		}
		e.Finish(r, record.OK, "")
	}
}

// left notes that a request of the batch has left it while a step is under way.
func (p *Pipeline) left(r *Request) {
	if k := slices.Index(p.resumed, r); k >= 0 {
		p.resumed = slices.Delete(p.resumed, k, k+1)
		r.lastTokenAt = r.joinTime
		return
	}
	switch {
	case slices.Contains(p.first, r):
	case p.ahead() == 0: // the step under way has no token for it
		p.e.itl.leave(r, p.e.Batch.Steps)
	case r.Joined < p.e.Batch.Steps:
		p.gone = append(p.gone, r)
		r.Unknown = 1
	}
}

// InFlight returns the number of tokens of a running request that are in flight: 0 or 1.
func (p *Pipeline) InFlight(r *Request) int64 {
	if p == nil || p.Idle() {
		return 0
	}
	if r.state == Ending ||
		r.state == Running && (p.ahead() == 1 && r.Joined < p.e.Batch.Steps || slices.Contains(p.first, r)) {
		return 1
	}
	return 0
}

// TokensInFlight returns the number of tokens of the batch's requests that are in flight.
func (p *Pipeline) TokensInFlight() int64 {
	if p == nil || p.Idle() {
		return 0
	}
	if p.ahead() == 1 {
		return int64(p.e.Batch.Len() - len(p.resumed))
	}
	return int64(len(p.first) - p.firsts)
}

// Preempt removes a request whose last token is in flight. The token still comes.
func (p *Pipeline) Preempt(r *Request) {
	if k := slices.Index(p.ending, r); k >= 0 {
		p.ending = slices.Delete(p.ending, k, k+1)
		p.gone = append(p.gone, r)
		r.Unknown = 1
	} else {
		p.firsts--
	}
	r.stopAwaiting()
}

// Forget drops the token in flight of a request that has left the batch.
func (p *Pipeline) Forget(r *Request) {
	if p == nil {
		return
	}
	if k := slices.Index(p.gone, r); k >= 0 {
		p.gone = slices.Delete(p.gone, k, k+1)
		p.e.Step.run.Batch--
		p.e.itl.leave(r, p.e.Batch.Steps-1)
		r.Generated--
	} else if k := slices.Index(p.first, r); k >= 0 {
		p.first = slices.Delete(p.first, k, k+1)
		r.Generated--
	}
}

// lose drops the tokens in flight of an engine that loses its memory. It returns the requests that end with
// them.
func (p *Pipeline) lose() []*Request {
	if p == nil || p.Idle() {
		return nil
	}
	rs := p.Ending()
	decodes := p.ahead()
	p.e.Batch.Steps -= decodes // and with them the tokens of the batch
	for _, r := range p.first {
		if r.state != Running || decodes == 0 {
			r.Generated--
		}
	}
	for _, r := range p.resumed {
		r.Generated += int32(decodes) // it has no token in flight
	}
	p.joinResumed()
	for _, r := range slices.Concat(p.gone, p.ending) {
		p.e.itl.leave(r, p.e.Batch.Steps)
		r.Generated--
	}
	p.first, p.ending, p.gone, p.firsts = nil, nil, nil, 0
	p.e.Step.kind = idle
	return rs
}

// check returns the number of requests that the batch has and itl does not count, less those that only itl
// counts.
func (p *Pipeline) check() (untimed int64) {
	if p == nil {
		return 0
	}
	untimed += int64(len(p.resumed)) - int64(len(p.gone)+len(p.ending))
	for _, r := range p.first {
		if r.state == Running {
			untimed++
		}
	}
	return untimed
}
