// Package engine is one inference engine, whatever its scheduler: requests and their ways, the waiting queue and its
// order, the running batch, steps and leaps over them. What is sglang's or vLLM's alone is in their schedulers.
//
// An engine steps as vLLM's EngineCore and sglang's event loop do: schedule, execute, process the result. Beside the
// loop it has three parts: requests (Queue, Policy, Batch), the KV cache (KV) and the adapters (LoRA).
//
// Invariants, between events ([Engine.Check]; property tests call it whenever simulated time passes):
//   - A request is in one place: in the front end, waiting, prefilling or parked, running, in transit, or it has ended.
//     Only lifecycle.go changes its state (checkPlaces).
//   - The batch's sums are those of its requests, and the engine knows of each when it saw its latest token
//     (Batch.check).
//   - From start to end of a decode run only tokens grow: its steps are of the whole batch (Step.check). Who changes
//     the batch, the slots in use or, where steps scan the queue, VTC counts or the drainer waits, the queue calls
//     Interrupt first.
//   - Routers see the requests that there are: tokens, prompts without output, waiting and running requests of each
//     adapter, the largest rank (checkBooks).
//   - KV cache: no fewer than 0 pages are free; the tokens stored are those of the requests ([kvcache.Pool.Check]).
//   - Adapters: at most max_loras_per_batch hold a slot; who loads or runs is in host memory; an adapter is in use as
//     long as it has requests that run ([lora.Manager.Check]).
//   - Gate: a step looks at the queue when it is open, changed && !full. [Gate] says what that means.
package engine

import (
	"fmt"
	"iter"
	"math"

	"lorasim/router"
	"lorasim/sim/event"
	"lorasim/sim/kvcache"
	"lorasim/sim/lora"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/sim/tick"
	"lorasim/trace"
)

// Config is what an engine is made of.
type Config struct {
	ID       int // its number, which orders the ends of steps at one instant
	Costs    *profile.Costs
	Adapters []trace.Adapter
	View     *router.Worker // what routers see of it; the engine keeps its counters
	Index    *router.Index
	Observer Observer
	Hooks    Hooks

	Start      []int32     // adapters in host memory at the start
	Home       router.Tier // where the others lie
	Prefetch   bool        // load the adapters of waiting requests early
	TokenTimes bool        // fill in Request.Gaps
	Fails      func() bool // draws whether an adapter load fails
	Kind       Kind
}

// Kind is a kind of engine: sglang.Kind, vllm.Kind, slora.Kind.
type Kind struct {
	Scheduler func(e *Engine) (Scheduler, error)
	Rules     func(p *profile.Profile) Rules
}

// Rules are what the kind of an engine decides outside its scheduler.
type Rules struct {
	LoRA     lora.Rules
	Prefixes kvcache.Prefixes // how prefixes are kept
	// Under priority order:
	LowFirst   bool // the lowest value is the first, whatever the profile says
	KeepsPlace bool // a request that comes back takes the place that it had when it came

	Async     bool // a step is formed while the one before it runs, see Pipeline
	KeepsSlot bool // a request whose last token is in flight keeps its adapter's slot
	Overlaps  bool // with Async: as sglang's overlap schedule does it, see Pipeline
}

// Observer sees tokens; record.Observer is one.
type Observer interface {
	Tokens(at tick.Ticks, n int64)
	Steps(s record.Steps)
	Gap(d tick.Ticks, n int64)
}

// Hooks observe an engine. A nil function is not called.
type Hooks struct {
	Tier       func(adapter int32, t router.Tier)
	LoadFailed func(adapter int32)
	// LoadBooked tells that a load of an adapter, into a GPU slot or else to host memory, is to last from one time to
	// another, unless the engine stops.
	LoadBooked func(adapter int32, slot bool, from, to tick.Ticks)
	// Placed tells that a request has entered the front end or the queue, or has begun to run: its State says which.
	Placed func(r *Request)
	// Token tells every single token and Step every step: decode runs are of one step then.
	Token func(id int64, at tick.Ticks)
	Step  func(*Report)
	First func(id int64) // the first token of a request
}

// Host is what an engine runs in.
type Host interface {
	// Finished: a request has ended, which its client sees at the given time. It may be used for another one.
	Finished(r *Request, status record.Status, reason string, at tick.Ticks)
	// Ejected: a request has left that was to leave; it had so many KV tokens, which are freed.
	Ejected(r *Request, kv int64)
}

// Scheduler forms the steps of an engine: sglang.Scheduler, vllm.Scheduler, slora.Scheduler.
type Scheduler interface {
	// Schedule starts the next step, if there is anything to do (get_next_batch_to_run; schedule).
	Schedule()
	// Update ends a step that took prompts; mixed: and decoded (process_batch_result; update_from_output).
	Update(mixed bool)
	// Refuse says why a request can never be served, "" if it can. It cuts the request's budget to what it can get.
	Refuse(r *Request) string
	// Accept prepares a request that is sent here.
	Accept(r *Request)
	// MayWait says whether a request, new or preempted, may wait; false: it was rejected.
	MayWait(r *Request) bool
	// Drop takes out a request that runs or prefills; false: not yet.
	Drop(r *Request) bool
	// Running is the number of running, prefilling and parked requests; a request whose prompt sglang has split
	// counts apart.
	Running() int
	// LeapUntil is until when it would decide nothing, whatever decodes meanwhile.
	LeapUntil() tick.Ticks
	// Orphans lists, when the engine loses its memory, all requests that neither wait nor decode; entering are those
	// in the front end.
	Orphans(entering []*Request) []*Request
	// Check returns an error if an invariant does not hold.
	Check() error
}

// Stats counts what an engine did.
type Stats struct {
	PrefillSteps, DecodeSteps int64
	Busy                      tick.Ticks // time in steps, adapter loads within them included
	Stalled                   tick.Ticks // part of Busy spent waiting for adapter loads
	Retractions               int64      // requests that lost their KV cache
	PeakRunning               int64
	PeakKV                    int64 // tokens
	lora.LoadStats
	kvcache.CacheStats
}

// Engine is one engine. The parts are for its scheduler. Make one with [New] and do not copy it.
type Engine struct {
	Loop   *event.Loop    // the clock
	Costs  *profile.Costs // of steps and loads
	host   Host
	sched  Scheduler
	Books  router.Books // what routers see
	Report *Report      // of the step, where somebody wants it
	ready  bool         // is to begin a step at this instant
	// Merged: an adapter is merged into the weights, so that steps cost what they cost without adapters.
	Merged     bool
	warmExtend bool        // a prefill step has gone on with a partly prefilled prompt
	beginStep  func()      // begin, bound once
	leaving    []*Request  // to be taken out of the batch at the end of the step
	timer      event.Timer // of the end of the step

	Gate   Gate
	Batch  Batch
	itl    itl
	Queue  Queue
	Policy Policy
	Step   Step
	KV     kvcache.Pool
	LoRA   lora.Manager
	Rows   *Table // the adapters
	Stats  Stats

	FrontEnd FrontEnd
	Pipeline *Pipeline // nil: a step is formed when the one before it has ended

	cfg     Config
	Profile profile.Engine
}

// New returns an engine as a server has it at its start.
func New(c Config, host Host, l *event.Loop) (*Engine, error) {
	e := &Engine{host: host, Loop: l}
	e.beginStep = e.begin
	if err := e.init(c); err != nil {
		return nil, err
	}
	return e, nil
}

// init makes the engine as it is at its start, but for its counts and its number of decode steps.
func (e *Engine) init(c Config) error {
	p := c.Costs.Profile()
	kvTokens, err := p.KVTokens()
	if err != nil {
		return err
	}
	q := p.Engine
	q.MixedChunk = q.MixedChunk && q.ChunkedPrefillSize > 0
	q.MaxLoadedLoras = q.HostLoras()
	if q.MaxLoadedLoras > 0 && q.MaxLoadedLoras < q.MaxLorasPerBatch {
		return fmt.Errorf("max_loaded_loras (%d) is less than max_loras_per_batch (%d)", q.MaxLoadedLoras,
			q.MaxLorasPerBatch)
	}
	rules := c.Kind.Rules(p)
	home, start, maxRank := c.Home, c.Start, q.MaxLoraRank
	if rules.LoRA.Unified {
		q.MaxLorasPerBatch = q.Slots(len(c.Adapters))
		home, start, maxRank = router.Host, allAdapters(len(c.Adapters)), math.MaxInt
	}
	*e = Engine{host: e.host, Loop: e.Loop, beginStep: e.beginStep, ready: e.ready, Stats: e.Stats,
		cfg: c, Profile: q, Costs: c.Costs, Batch: Batch{Steps: e.Batch.Steps, clip: q.ClipNewTokens}}
	e.timer = event.NewTimer(event.StepEnd, c.ID, e.endStep)
	e.KV = kvcache.New(kvTokens, int64(q.PageSize), rules.Prefixes, &e.Stats.CacheStats)
	*c.View = router.Worker{
		MaxRunning: q.MaxRunningRequests, KVCapacity: e.KV.CapacityTokens(),
		Slots: q.MaxLorasPerBatch, HostSlots: q.MaxLoadedLoras,
		Adapters: make([]router.AdapterState, len(c.Adapters)),
	}
	e.Books = router.NewBooks(c.View, c.ID, c.Index)
	e.Rows = &Table{at: make([]int32, len(c.Adapters)+1), met: []*Adapter{nil}, adapters: c.Adapters, costs: c.Costs}
	e.FrontEnd.e, e.FrontEnd.enter = e, e.FrontEnd.pass
	if c.Hooks.Step != nil {
		e.Report = newReport()
	}
	if rules.Async {
		newPipeline(e, &rules)
	}
	e.Policy = newPolicy(&q, &rules, c.Adapters, &e.Queue, &e.Batch)
	e.LoRA.Init(lora.Options{
		Worker: c.ID, Adapters: c.Adapters, Costs: c.Costs, Home: home, Fails: c.Fails,
		Slots: q.MaxLorasPerBatch, HostLimit: q.MaxLoadedLoras, MaxRank: maxRank,
		Blocking: q.AdapterLoading == profile.LoadBlocking, FIFO: q.AdapterEviction == profile.EvictFIFO,
		Rules: rules.LoRA,
	}, e.Loop, &e.Books, adapterEvents{e}, &e.Stats.LoadStats, start,
		func(a int32) *lora.Adapter { return &e.Rows.Of(a).Adapter })
	e.sched, err = c.Kind.Scheduler(e)
	return err
}

// allAdapters lists the indices of n adapters.
func allAdapters(n int) []int32 {
	list := make([]int32, n)
	for a := range list {
		list[a] = int32(a)
	}
	return list
}

// Redefine takes note that Config.Adapters says something else of an adapter that no request uses.
func (e *Engine) Redefine(index int32) { e.Rows.Of(index).Rank = e.Rows.rank(index) }

// Refuse says why the engine can never serve a request, "" if it can. It cuts the request's budget to what the engine
// can give it.
func (e *Engine) Refuse(r *Request) string {
	if e.Rows.isLoRA(r.Adapter) && !e.LoRA.Supports(r.Adapter) {
		return fmt.Sprintf(RankTooLarge, e.Rows.rank(r.Adapter), e.Profile.MaxLoraRank)
	}
	return e.sched.Refuse(r)
}

// Next is the waiting request that is admitted next, of those that first gives for the candidates; nil: none. The
// adapter of one that has to wait for its load is loaded, and another request is looked for.
func (e *Engine) Next(candidates func() []*Adapter, first func(a *Adapter) *Request) *Request {
	for {
		r := e.Queue.head
		if e.Policy.kind != fcfs || first(r.Row) != r {
			r = e.Policy.First(candidates(), first)
		}
		if r == nil || !e.LoRA.MustLoad(&r.Row.Adapter) {
			return r
		}
		e.LoRA.StartLoad(&r.Row.Adapter) // its requests wait
	}
}

// Interrupt has the engine choose anew what to do, now or after the decode step under way.
func (e *Engine) Interrupt() {
	switch e.Step.kind {
	case idle:
		e.getReady()
	case decode:
		e.cut()
	}
}

// queueLengthChanged ends the run of decode steps after the step under way if the steps after that take another time,
// the waiting requests being others.
func (e *Engine) queueLengthChanged() {
	if e.Step.kind == decode && e.Costs.ScansQueue() {
		e.cut()
	}
}

// queueChanged tells the engine that the queue may now yield a step with prompts: it takes a look before its next step.
func (e *Engine) queueChanged() {
	e.Gate.changed = true
	if !e.Gate.full || e.Gate.Always {
		e.Interrupt()
	}
}

// CapacityFreed tells the engine that something beside a finished request may let waiting requests in.
func (e *Engine) CapacityFreed() {
	e.Gate.full = false
	if e.Queue.n > 0 {
		e.queueChanged()
	}
}

// getReady makes the engine begin a step at this instant.
func (e *Engine) getReady() {
	if !e.ready {
		e.ready = true
		e.Loop.Yield(e.beginStep)
	}
}

// begin starts the next step.
func (e *Engine) begin() {
	e.ready = false
	if e.Pipeline != nil && e.Books.Up {
		e.Pipeline.begin()
		return
	}
	if !e.Books.Up || e.Step.kind != idle {
		return // what made it ready came while it was beginning a step
	}
	if len(e.leaving) > 0 {
		e.sendLeaving()
	}
	e.sched.Schedule()
}

// run makes the step under way end at a time.
func (e *Engine) run(k kind, end tick.Ticks) {
	e.Step.kind, e.Step.began = k, e.Loop.Now()
	e.Loop.Set(&e.timer, end)
}

// PrepareAdapters gives the adapters of the step's prompts, and of the running requests if it decodes, their slots.
func (e *Engine) PrepareAdapters(decodes bool) {
	e.Step.Stall += e.LoRA.PrepareBatch(e.Step.adapters, decodes)
}

// Run starts the step with the prompts of Step, which waits for loads first. mixed: it decodes too.
func (e *Engine) Run(mixes bool) {
	s, k := &e.Step, prefill
	if mixes {
		k = mixed
	}
	e.Stats.PrefillSteps++
	e.Stats.Stalled += s.Stall
	e.Stats.PeakKV = max(e.Stats.PeakKV, e.KV.Stored())
	e.Books.KVUsed = e.KV.Stored()
	if s.Work.Extends && !e.warmExtend {
		s.Work.FirstExtend, e.warmExtend = true, true
	}
	e.Report.scheduled(e, k)
	takes := s.Stall + e.stepTime(mixes)
	if mixes {
		s.run = record.Steps{Start: e.Loop.Now(), First: takes, Count: 1, Batch: int64(e.Batch.Len())}
	}
	e.run(k, e.Loop.Now()+takes)
}

// RunEmpty starts a step without tokens, which takes no time.
func (e *Engine) RunEmpty() {
	e.Report.scheduled(e, mixed)
	e.run(prefill, e.Loop.Now())
}

// Pause lets time pass in which the engine runs no step; false if it is none.
func (e *Engine) Pause(t tick.Ticks) bool {
	if t > 0 {
		e.Step.clear()
		e.Stats.Stalled += t
		e.run(prefill, e.Loop.Now()+t)
	}
	return t > 0
}

// stepTime is the length of the step under formation; decodes: it computes the next tokens of the batch.
func (e *Engine) stepTime(decodes bool) tick.Ticks {
	k := &e.Step.Work
	k.Waiting = int64(e.Queue.n)
	if decodes {
		k.Batch, k.KV = int64(e.Batch.Len()), e.Batch.kvTokens
	}
	if e.Merged {
		k.LoRATokens = 0
		return e.Costs.Step(k)
	}
	e.Batch.loras.work(k, e.Step.Prompts, decodes, e.Costs.CountsAdapters())
	return e.Costs.Step(k)
}

// endStep ends the step under way.
func (e *Engine) endStep() {
	e.Stats.Busy += e.Loop.Now() - e.Step.began
	if e.Pipeline != nil {
		e.Pipeline.end()
		return
	}
	switch k := e.Step.kind; k {
	case decode:
		e.EndDecode()
	default:
		e.sched.Update(k == mixed)
	}
	e.Step.kind = idle
	if len(e.leaving) > 0 {
		e.sendLeaving()
	}
	e.Report.done(e)
	e.getReady()
}

// adapterEvents are what the adapters' manager tells the engine.
type adapterEvents struct{ e *Engine }

func (v adapterEvents) TierChanged(a *lora.Adapter, t router.Tier) {
	if tell := v.e.cfg.Hooks.Tier; tell != nil {
		tell(a.Index, t)
	}
	if t < router.Host {
		v.e.KV.UnloadAdapter(a.Index)
	}
	if n := v.e.Rows.Cells(a.Index); n > 0 {
		switch {
		case t == router.GPU:
			v.e.KV.TakeForAdapter(n)
		case v.e.Books.Adapters[a.Index].Tier == router.GPU:
			v.e.KV.TakeForAdapter(-n)
		}
	}
}

func (v adapterEvents) LoadBooked(a *lora.Adapter, slot bool, from, to tick.Ticks) {
	if tell := v.e.cfg.Hooks.LoadBooked; tell != nil {
		tell(a.Index, slot, from, to)
	}
}

func (v adapterEvents) LoadFailed(a *lora.Adapter) {
	if tell := v.e.cfg.Hooks.LoadFailed; tell != nil {
		tell(a.Index)
	}
}

func (v adapterEvents) GiveUp(a *lora.Adapter, at tick.Ticks) {
	e := v.e
	for r := e.Rows.Of(a.Index).Head(); r != nil; r = e.Rows.Of(a.Index).Head() {
		e.dequeue(r)
		e.end(r, record.Failed, "its adapter cannot be loaded", at)
	}
}

func (v adapterEvents) LoadEnded() {
	e := v.e
	if e.Step.kind == idle {
		e.LoRA.TrimHost()
	}
	switch {
	case e.Queue.n == 0:
	case e.Gate.LoadOpens:
		e.CapacityFreed()
	default:
		e.queueChanged()
	}
}

func (v adapterEvents) SlotFreed() { v.e.CapacityFreed() }

// Decoding yields the running requests in no order, with the tokens that they have generated, at this instant, since
// they joined the batch.
func (e *Engine) Decoding() iter.Seq2[*Request, int64] {
	return func(yield func(*Request, int64) bool) {
		done := e.Step.done(e.Loop.Now()) - e.Pipeline.ahead()
		for i := range e.Batch.heap {
			if r := e.Batch.heap[i].Value; !yield(r, e.Batch.Steps-r.Joined+done) {
				return
			}
		}
	}
}

// CachedPrefix is how many of a text's first tokens the prefix cache has, for routers.
func (e *Engine) CachedPrefix(text *trace.Text, adapter, tokens int32) int32 {
	return e.KV.Peek(text, adapter, tokens, e.KV.DecodePages(e.Batch.Steps, e.Step.run.Batch,
		e.Step.done(e.Loop.Now())))
}

// Reset makes the engine as it was at its start, but for its counts: it loses its memory. restart: it is another
// process, which counts its steps anew. It returns the requests that it had.
func (e *Engine) Reset(restart bool, start []int32) (orphans []*Request) {
	e.BookPartial()
	e.Loop.Stop(&e.timer)
	e.LoRA.Stop()
	orphans = e.takeAll()
	before := e.Books.Adapters
	if restart {
		e.Batch.Steps = 0
	}
	c := e.cfg
	c.Start = start
	if err := e.init(c); err != nil {
		panic(err) // the same call succeeded before
	}
	for a, st := range e.Books.Adapters {
		if st.Tier != before[a].Tier && c.Hooks.Tier != nil {
			c.Hooks.Tier(int32(a), st.Tier)
		}
	}
	return orphans
}
