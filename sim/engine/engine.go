// Package engine simulates one inference engine with a scheduler of sglang, vLLM or S-LoRA (see packages
// sglang, vllm and slora). It has the parts that schedulers share: requests and their states, the waiting
// queue and its order, the running batch, and steps. Runs of decode steps are one event each.
//
// An [Engine] steps as vLLM's EngineCore and sglang's event loop do: schedule, execute, process the result.
// Its parts are requests ([Queue], [Policy], [Batch]), the KV cache ([kvcache.Pool]) and the adapters
// ([lora.Manager]).
//
// Invariants, between events ([Engine.Check]; property tests call it whenever simulated time passes):
//   - A request is in one place: in the front end, waiting, prefilling or parked, running, in transit, or it has
//     ended. Only lifecycle.go and pipeline.go change its state (checkPlaces).
//   - The batch's sums are those of its requests, and the engine has the time of each request's latest token
//     (Batch.check).
//   - From start to end of a decode run only tokens grow: its steps are of the whole batch (Step.check). Code that
//     changes the batch or the slots in use calls Interrupt first. It also does before it changes the queue, if
//     steps scan the queue, VTC counts or the drainer waits.
//   - Counters for routers agree with the requests: tokens, prompts without output, waiting and running requests of
//     each adapter, the largest rank (checkBooks).
//   - KV cache: free pages >= 0; the tokens stored are those of the requests ([kvcache.Pool.Check]).
//   - Adapters: at most max_loras_per_batch hold a slot; an adapter that loads or runs is in host memory; an adapter
//     is in use as long as it has running requests ([lora.Manager.Check]).
//   - Gate: a step looks at the queue if the gate is open: changed && !full; see [Gate].
package engine

import (
	"fmt"
	"iter"
	"math"
	"slices"

	"lorasim/router"
	"lorasim/sim/event"
	"lorasim/sim/kvcache"
	"lorasim/sim/lora"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/sim/tick"
	"lorasim/trace"
)

// A Config holds the parameters of an engine.
type Config struct {
	ID       int // number of the engine; orders the ends of steps at one instant
	Costs    *profile.Costs
	Adapters []trace.Adapter
	// Versions has the adapter of each of Adapters that routers see, if Adapters has several versions of adapters; nil:
	// routers see Adapters. See router.Books.
	Versions []int32
	View     *router.Worker // the engine's state as routers see it; the engine updates its counters
	Index    *router.Index
	Observer Observer
	Hooks    Hooks

	Start      []int32     // adapters in host memory at the start
	Whole      bool        // Start lists all adapters, and all of them fit into a slot
	Home       router.Tier // tier of the other adapters at the start
	Prefetch   bool        // load the adapters of waiting requests early
	TokenTimes bool        // record Request.Gaps
	Fails      func() bool // decides at random whether an adapter load fails
	Kind       Kind
}

// A Kind is a kind of engine. See sglang.Kind, vllm.Kind and slora.Kind.
type Kind struct {
	Scheduler func(e *Engine) (Scheduler, error)
	Rules     func(p *profile.Profile) Rules
}

// Rules are the rules of a kind of engine outside its scheduler.
type Rules struct {
	LoRA     lora.Rules
	Prefixes kvcache.Prefixes // kind of prefix cache
	// Rules of priority order.
	LowFirst   bool // the lowest value comes first, whatever the profile's setting
	KeepsPlace bool // a preempted request returns to its original place in the queue

	Async     bool // a step is formed while the one before it runs; see Pipeline
	KeepsSlot bool // a request whose last token is in flight keeps its adapter's slot
	Overlaps  bool // with Async: follow sglang's overlap schedule; see Pipeline
}

// An Observer receives the tokens of an engine. record.Observer implements it.
type Observer interface {
	Tokens(at tick.Ticks, n int64) // n requests got a token at time at
	Steps(s record.Steps)          // a run of decode steps
	Gap(d tick.Ticks, n int64)     // n requests got a token, d after the one before it
}

// Hooks are functions that observe an engine. A nil function is not called.
type Hooks struct {
	Tier func(adapter int32, t router.Tier) // reports the new tier of an adapter
	// LoadBooked reports a load of an adapter, into a GPU slot or into host memory. It lasts from one time to
	// the other, unless the engine stops.
	LoadBooked func(adapter int32, slot bool, from, to tick.Ticks)
	// Placed reports a request that has entered the front end or the queue, or has begun to run; see its
	// State.
	Placed func(r *Request)
	// Token reports every single token, and Step every step. Runs of decode steps then have one step each.
	Token func(id int64, at tick.Ticks)
	Step  func(*Report)
	First func(r *Request) // reports the first token of a request
}

// A Host owns an engine and receives the requests that leave it.
type Host interface {
	// Finished reports that a request has ended. Its client sees that at the given time. The host may reuse
	// r.
	Finished(r *Request, status record.Status, reason string, at tick.Ticks)
	// Ejected reports that a request has left after [Engine.Eject]. kv is the number of its KV tokens, which
	// are freed.
	Ejected(r *Request, kv int64)
}

// A Scheduler forms the steps of an engine. See sglang.Scheduler, vllm.Scheduler and slora.Scheduler.
type Scheduler interface {
	// Schedule starts the next step, if there is work (get_next_batch_to_run in sglang, schedule in vLLM).
	Schedule()
	// Update ends a step with prompts. mixed: the step decoded too (process_batch_result in sglang,
	// update_from_output in vLLM).
	Update(mixed bool)
	// Refuse returns the reason why a request can never be served, or "". It limits the request's budget to
	// what the engine can serve.
	Refuse(r *Request) string
	// Accept prepares a request that is sent to this engine.
	Accept(r *Request)
	// MayWait reports whether a new or preempted request may wait. If not, MayWait has rejected it.
	MayWait(r *Request) bool
	// Drop removes a running or prefilling request. It returns false if the request cannot be removed yet.
	Drop(r *Request) bool
	// Running returns the number of running, prefilling and parked requests. A request whose prompt sglang
	// has split is not included.
	Running() int
	// LeapUntil returns the time until which the scheduler makes no decision while requests only decode.
	LeapUntil() tick.Ticks
	// Orphans lists the requests that neither wait nor decode, when the engine loses its memory. entering are
	// the requests in the front end.
	Orphans(entering []*Request) []*Request
	// Check returns an error if an invariant does not hold.
	Check() error
}

// Stats counts the work of an engine.
type Stats struct {
	record.Counters           // but LoadTime; see Total
	PrefillSteps, DecodeSteps int64
	Busy                      tick.Ticks // time in steps, including adapter loads within them
	Stalled                   tick.Ticks // part of Busy spent waiting for adapter loads
	PeakRunning               int64
	PeakKV                    int64 // tokens
	kvcache.CacheStats
}

// Total returns the counters of the worker so far.
func (s *Stats) Total() record.Counters {
	c := s.Counters
	c.LoadTime = s.Stalled.Seconds()
	return c
}

// An Engine simulates one inference engine. Its exported fields are for its scheduler. Make one with [New]
// and do not copy it.
type Engine struct {
	Loop   *event.Loop    // the clock
	Costs  *profile.Costs // of steps and loads
	host   Host
	sched  Scheduler
	Books  router.Books // the engine's state as routers see it
	Report *Report      // report of the step; nil without Hooks.Step
	ready  bool         // a step begins at this instant
	// Merged: an adapter is merged into the weights, so steps take as long as without adapters.
	Merged     bool
	warmExtend bool        // a prefill step has continued a partly prefilled prompt
	beginStep  func()      // begin, bound once
	leaving    []*Request  // leave the batch at the end of the step
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

// New returns an engine in the state of a server at its start. It returns an error if the profile's limits
// exclude each other.
func New(c Config, host Host, l *event.Loop) (*Engine, error) {
	e := &Engine{host: host, Loop: l}
	e.beginStep = e.begin
	if err := e.init(c); err != nil {
		return nil, err
	}
	return e, nil
}

// init sets the engine to its state at the start. It keeps its counts and its number of decode steps.
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
		cfg: c, Profile: q, Costs: c.Costs, Batch: Batch{Steps: e.Batch.Steps, clip: q.ClipNewTokens,
			loras: loraCounts{heights: c.Costs.TileHeights()}}}
	e.timer = event.NewTimer(event.StepEnd, c.ID, e.endStep)
	e.KV = kvcache.New(kvTokens, int64(q.PageSize), rules.Prefixes, &e.Stats.CacheStats)
	*c.View = router.Worker{
		MaxRunning: q.MaxRunningRequests, KVCapacity: e.KV.CapacityTokens(),
		Slots: q.MaxLorasPerBatch, HostSlots: q.MaxLoadedLoras,
	}
	e.Books = router.NewBooks(c.View, c.ID, c.Index)
	if c.Versions != nil {
		e.Books.SetAdapters(c.shown(), home)
		e.Books.TrackVersions(c.Versions)
	}
	e.Rows = newTable(c.Adapters, c.Costs)
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
		Rules: rules.LoRA, Whole: c.Whole && !rules.LoRA.Unified,
	}, e.Loop, &e.Books, adapterEvents{e}, &e.Stats.Counters, start,
		func(a int32) *lora.Adapter { return &e.Rows.Of(a).Adapter })
	e.sched, err = c.Kind.Scheduler(e)
	return err
}

// shown returns the number of adapters that routers see.
func (c *Config) shown() int {
	if c.Versions == nil {
		return len(c.Adapters)
	}
	return int(slices.Max(c.Versions)) + 1
}

// adapterOf returns the adapter that routers see for an index of Adapters.
func (c *Config) adapterOf(index int32) int32 {
	if c.Versions == nil {
		return index
	}
	return c.Versions[index]
}

// allAdapters lists the indices of n adapters.
func allAdapters(n int) []int32 {
	list := make([]int32, n)
	for a := range list {
		list[a] = int32(a)
	}
	return list
}

// Redefine updates an adapter after a change of its entry in Config.Adapters. No request may use the adapter.
func (e *Engine) Redefine(index int32) { e.Rows.Of(index).Rank = e.Rows.rank(index) }

// Refuse returns the reason why the engine can never serve a request, or "". It limits the request's budget
// to what the engine can serve.
func (e *Engine) Refuse(r *Request) string {
	if e.Rows.isLoRA(r.Adapter) && !e.LoRA.Supports(r.Adapter) {
		return fmt.Sprintf(RankTooLarge, e.Rows.rank(r.Adapter), e.Profile.MaxLoraRank)
	}
	return e.sched.Refuse(r)
}

// Next returns the waiting request to admit next, or nil. It chooses among the requests that first returns
// for the candidates. If a request must wait for the load of its adapter, Next starts the load and chooses
// another request.
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

// Interrupt makes the engine decide anew, now or after the decode step under way.
func (e *Engine) Interrupt() {
	switch e.Step.kind {
	case idle:
		e.getReady()
	case decode:
		e.cut()
	}
}

// queueLengthChanged ends the run of decode steps after the step under way if the length of steps depends on
// the number of waiting requests.
func (e *Engine) queueLengthChanged() {
	if e.Step.kind == decode && e.Costs.ScansQueue() {
		e.cut()
	}
}

// queueChanged notes that a look at the queue may now find prompts for a step. The engine looks before its
// next step.
func (e *Engine) queueChanged() {
	e.Gate.changed = true
	if !e.Gate.full || e.Gate.Always {
		e.Interrupt()
	}
}

// CapacityFreed notes that waiting requests may be admitted for another reason than the end of a request.
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
	defer e.Books.Touch()
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

// run makes the step under way end at the given time.
func (e *Engine) run(k kind, end tick.Ticks) {
	e.Step.kind, e.Step.began = k, e.Loop.Now()
	e.Loop.Set(&e.timer, end)
}

// PrepareAdapters assigns slots to the adapters of the step's prompts and, if the step decodes, of the
// running requests.
func (e *Engine) PrepareAdapters(decodes bool) {
	e.Step.Stall += e.LoRA.PrepareBatch(e.Step.adapters, decodes)
}

// Run starts the step with the prompts of Step, after its adapters are loaded. mixes: the step decodes too.
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

// Pause lets time t pass without a step. It returns false if t is 0.
func (e *Engine) Pause(t tick.Ticks) bool {
	if t > 0 {
		e.Step.clear()
		e.Stats.Stalled += t
		e.run(prefill, e.Loop.Now()+t)
	}
	return t > 0
}

// stepTime returns the length of the step being formed. decodes: it computes the next tokens of the batch.
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
	defer e.Books.Touch()
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

// adapterEvents handles the events of the adapters' manager.
type adapterEvents struct{ e *Engine }

func (v adapterEvents) TierChanged(a *lora.Adapter, t router.Tier) {
	if tell := v.e.cfg.Hooks.Tier; tell != nil {
		if shown, ok := v.e.Books.Shown(a.Index); ok {
			tell(shown, t)
		}
	}
	if t < router.Host {
		v.e.KV.UnloadAdapter(a.Index)
	}
	if n := v.e.Rows.Cells(a.Index); n > 0 {
		switch {
		case t == router.GPU:
			v.e.KV.TakeForAdapter(n)
		case v.e.Books.State(a.Index).Tier == router.GPU:
			v.e.KV.TakeForAdapter(-n)
		}
	}
}

func (v adapterEvents) LoadBooked(a *lora.Adapter, slot bool, from, to tick.Ticks) {
	if tell := v.e.cfg.Hooks.LoadBooked; tell != nil {
		tell(v.e.cfg.adapterOf(a.Index), slot, from, to)
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

// Decoding yields the running requests in no order. With each it yields the number of tokens that the request
// has generated since it joined the batch, at this instant.
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

// CachedPrefix returns how many of a text's first tokens are in the prefix cache, for routers.
func (e *Engine) CachedPrefix(text *trace.Text, adapter, tokens int32) int32 {
	return e.KV.Peek(text, adapter, tokens, e.KV.DecodePages(e.Batch.Steps, e.Step.run.Batch,
		e.Step.done(e.Loop.Now())))
}

// Reset simulates the loss of the engine's memory. It sets the engine to its state at the start, with the
// adapters of start in host memory, and returns the requests that were on it. Counts are kept. restart: the
// engine is a new process, which counts its steps from 0.
func (e *Engine) Reset(restart bool, start []int32) (orphans []*Request) {
	e.BookPartial()
	e.Loop.Stop(&e.timer)
	e.LoRA.Stop()
	orphans = e.takeAll()
	e.Books.Clear()
	before := *e.Books.Worker
	if restart {
		e.Batch.Steps = 0
	}
	c := e.cfg
	c.Start, c.Whole = start, false
	if err := e.init(c); err != nil {
		panic(err) // the same call succeeded before
	}
	if c.Hooks.Tier != nil {
		for a := range int32(e.Books.NumAdapters()) {
			if t := e.Books.Adapter(a).Tier; t != before.Adapter(a).Tier {
				c.Hooks.Tier(a, t)
			}
		}
	}
	return orphans
}
