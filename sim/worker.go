package sim

import (
	"fmt"

	"lorasim/internal/heap"
	"lorasim/internal/record"
	"lorasim/internal/tick"
	"lorasim/router"
	"lorasim/sim/event"
	"lorasim/sim/kvcache"
	"lorasim/sim/profile"
)

// phase is what a worker is doing.
type phase uint8

const (
	idle    phase = iota // between steps
	prefill              // in a prefill step, or paused
	mixed                // in a step that takes prompt tokens and decodes
	decode               // in a run of decode steps
)

// scheduler forms the steps of an engine: [sglang] or [vllm].
type scheduler interface {
	// begin starts the next step, or leap, if there is anything to do.
	begin()
	// endMixed ends a step that took prompt tokens and decoded.
	endMixed()
}

// worker is one inference engine instance.
type worker struct {
	s     *sim
	id    int
	costs *profile.Costs
	eng   profile.Engine
	v     *router.Worker // what routers see; its counters are the worker's own
	stats WorkerStats

	phase     phase
	ready     bool   // is to begin a step at this instant
	begins    func() // is begin, bound once
	scheduler scheduler
	vllm      bool // that is vLLM's
	// What the names in the profile stand for: head_of_line block, adapter_loading
	// blocking, adapter_eviction fifo.
	blocks, blocking, fifo bool
	exec                   *execution // merged or unmerged; nil: the backend knows no such modes

	// Whether to look at the waiting requests before the next step. retry:
	// something changed since they were last found unable to fill a prefill step.
	// full: nothing but a request that leaves the batch can let one in, so that
	// they are not looked at whatever else changes. wake, roomMade and reopen are
	// the ways from one to the other.
	retry, full bool
	queue       queue
	ordering    ordering
	preempts    bool       // running requests make way for those of better priority
	preempted   []*request // in the step that is being formed
	lastOut     int32      // row of the request whose leaving emptied the queue, -1: none
	tokenless   int64      // prompt tokens of the requests without a token

	// The running batch.
	batch  heap.Heap[*request] // by the step of the last token, then as they came
	steps  int64               // decode steps so far
	ctx    int64               // KV tokens of the batch
	budget int64               // sum over the batch of max_new_tokens - generated
	large  int64               // requests of the batch whose budget may exceed what the scheduler clips to
	ranks  rankCount

	order      int64 // of the latest request to join the batch
	front      int64 // of the latest request to join it before all others
	firstOfAll bool  // the batch was empty when the prefill step began
	extended   bool  // a prefill step has gone on with a partly prefilled prompt

	// The step under way.
	run     record.Steps
	filling []chunk    // requests of the prefill step
	chunked *request   // whose prompt is only partly prefilled, where there is but one
	partial []*request // scheduler vllm: running requests whose prompts are partly prefilled
	noted   *Step      // the step, for a StepListener
	begun   tick.Ticks
	timer   event.Timer // of its end

	// When the batch's requests saw their latest token: older of them at
	// lastDecode, the others when the prefill step of their group ended.
	lastDecode tick.Ticks
	older      int64
	groups     []group

	door     frontEnd
	kv       kvcache.Pool
	adapters adapterTable

	departing []*request // to be taken out of the batch at the end of the step
	linkFree  tick.Ticks // when its link can carry the next KV cache
	failedAt  tick.Ticks // when it last failed
	life

	ratioFrom  float64 // new-token ratio ratioSince steps ago
	ratioSince int64   // steps at that time
}

// group is requests whose first token came at the end of the same prefill step.
type group struct {
	at tick.Ticks
	n  int64
}

func (w *worker) init(s *sim, id int, costs *profile.Costs) error {
	p := costs.Profile()
	kvTokens, err := p.KVTokens()
	if err != nil {
		return err
	}
	e := p.Engine
	e.MixedChunk = e.MixedChunk && e.ChunkedPrefillSize > 0
	e.MaxLoadedLoras = e.HostLoras()
	if e.MaxLoadedLoras > 0 && e.MaxLoadedLoras < e.MaxLorasPerBatch {
		return fmt.Errorf("max_loaded_loras (%d) is less than max_loras_per_batch (%d)", e.MaxLoadedLoras, e.MaxLorasPerBatch)
	}
	*w = worker{s: s, id: id, costs: costs, eng: e, v: &s.view.Workers[id], life: w.life, failedAt: -1, ratioFrom: e.NewTokenRatio,
		blocks: e.HeadOfLine == profile.HeadOfLineBlock, blocking: e.AdapterLoading == profile.LoadBlocking, fifo: e.AdapterEviction == profile.EvictFIFO,
		timer: event.NewTimer(event.StepEnd, id, w.endStep),
	}
	prefixes := kvcache.NoPrefixes
	switch {
	case !e.PrefixCache:
	case e.Scheduler == profile.SchedulerVLLM:
		prefixes = kvcache.BlockPool
	case e.PrefixEviction == profile.EvictNodes:
		prefixes = kvcache.RadixNodes
	default:
		prefixes = kvcache.RadixPages
	}
	w.kv = kvcache.New(kvTokens, int64(e.PageSize), prefixes, &w.stats.CacheStats)
	*w.v = router.Worker{
		MaxRunning: e.MaxRunningRequests, KVCapacity: w.kv.CapacityTokens(),
		Slots: e.MaxLorasPerBatch, HostSlots: e.MaxLoadedLoras,
		Adapters: make([]router.AdapterState, len(s.adapters)),
	}
	w.show()
	w.door.enter, w.begins = w.enter, w.begin
	w.initAdapters()
	if b := p.Latency.LoRA.Backend; b == profile.BackendMerged || b == profile.BackendDLoRA {
		w.initExecution()
	}
	w.scheduler = sglang{w}
	if e.Scheduler == profile.SchedulerVLLM {
		w.vllm, w.scheduler = true, vllm{w}
		w.blocks, w.eng.LoraDrainWait = false, 0
		w.eng.MaxLorasPerBatch++ // one for the base model, which keeps it; routers do not see that one
		w.takeSlot(int32(len(s.adapters)), -1)
	}
	w.initOrder()
	return nil
}

// inputMargin is how many tokens a prompt stays below the longest request
// (max_req_input_len in managers/tp_worker.py).
const inputMargin = 5

// Reasons why a worker can never serve a request, with a limit of the worker.
const (
	RankTooLarge   = "its adapter does not load: rank %d over max_lora_rank %d"
	BudgetTooLarge = "prompt + max_new_tokens over the context length %d"
	PromptTooLarge = "prompt over the context length %d"
	KVTooSmall     = "needs more than the worker's %d KV tokens"
)

// refuses says why the worker can never serve a request, "" if it can. It cuts
// the request's budget to what the worker can give it.
func (w *worker) refuses(r *request) string {
	if w.isLoRA(r.Adapter) && !w.rankFits(r.Adapter) {
		return fmt.Sprintf(RankTooLarge, w.costs.Rank(w.s.adapters[r.Adapter].Rank), w.eng.MaxLoraRank)
	}
	limit, kv, prompt := int64(w.longest()), w.kv.CapacityTokens(), int64(r.Prompt)
	longest, ignores := min(limit, kv)-1, w.eng.ContextOverflow == profile.OverflowIgnore
	over := w.eng.ContextOverflow == profile.OverflowReject && prompt+int64(r.maxNew) > limit
	switch {
	case w.vllm && limit < int64(w.eng.ContextLength) && (over || prompt >= limit): // it is the KV cache that limits
		return fmt.Sprintf(KVTooSmall, kv)
	case over:
		return fmt.Sprintf(BudgetTooLarge, limit)
	case prompt >= limit:
		return fmt.Sprintf(PromptTooLarge, limit)
	case w.vllm:
		return w.overLimits()
	case ignores && prompt+int64(min(int(r.maxNew), w.eng.ClipNewTokens)) < kv:
		return ""
	case ignores, prompt >= longest-inputMargin && kv < limit:
		return fmt.Sprintf(KVTooSmall, kv)
	case prompt >= longest-inputMargin:
		return fmt.Sprintf(PromptTooLarge+", less %d tokens", limit, 1+inputMargin)
	}
	// TpModelWorker.get_worker_info (managers/tp_worker.py), validate_input_length
	// (managers/utils.py) and Scheduler.init_req_max_new_tokens (managers/scheduler.py)
	r.maxNew = int32(min(int64(r.maxNew), longest-prompt-1))
	r.output = min(r.output, r.maxNew)
	if w.eng.IgnoreEOS {
		r.output = r.maxNew
	}
	return ""
}

// longest is the most tokens that a request may have, prompt and output. vLLM
// ends a request there (v1/core/sched/utils.py, check_stop), and does not start
// with a KV cache that holds less.
func (w *worker) longest() int {
	if w.vllm {
		return int(min(int64(w.eng.ContextLength), w.kv.CapacityTokens()+1)) // the last token is not stored
	}
	return w.eng.ContextLength
}

// enqueue takes a request that a router has sent.
func (w *worker) enqueue(r *request) {
	if w.vllm {
		r.output = min(r.output, int32(w.longest())-r.Prompt)
	}
	r.worker, r.row, r.looked, r.matched = int32(w.id), w.adapters.rows.of(r.Adapter), 0, 0
	w.count(r, 1)
	if !w.pass(r) {
		w.engage(r)
	}
}

// count counts a request into what routers see, 1, or out of it, -1.
func (w *worker) count(r *request, d int64) {
	w.v.Tokens += d * (int64(r.Prompt) + int64(r.expected))
	if r.first == tick.Never {
		w.tokenless += d * int64(r.Prompt)
	}
	w.ranks.all.add(r.row.ranks.rank, int32(d))
	w.v.MaxRank = w.ranks.all.max
	if w.open += int(d); w.power == Draining {
		w.leaveWhenEmpty()
	}
}

// frontEnd is a server's front end: it hands requests to the engine one after
// the other, in the order in which they came.
type frontEnd struct {
	queue []*request
	free  tick.Ticks // when it has no more work
	enter func()
}

// pass takes a request into the front end. It returns false if the engine gets
// it at once.
func (w *worker) pass(r *request) bool {
	f, takes := &w.door, w.costs.FrontEnd
	if !r.row.known && w.isLoRA(r.Adapter) {
		r.row.known = true
		takes += w.costs.FirstUse
	}
	f.free = max(f.free, w.s.loop.Now()) + takes
	if f.free == w.s.loop.Now() {
		return false
	}
	r.state, r.queued = entering, f.free
	w.countQueued(r, 1)
	f.queue = append(f.queue, r)
	w.s.loop.At(f.free, event.Enter, f.enter)
	return true
}

// enter hands the engine the request whose time in the front end is over.
func (w *worker) enter() {
	if f := &w.door; len(f.queue) > 0 && f.queue[0].queued <= w.s.loop.Now() { // else the worker failed, or its client gave it up
		r := f.queue[0]
		f.queue = f.queue[1:]
		w.countQueued(r, -1)
		w.engage(r)
	}
}

// engage puts a request that has passed the front end into the engine's queue.
func (w *worker) engage(r *request) {
	if !w.queues(r) {
		return
	}
	w.wait(r, false)
	r.row.leaving = false // it is needed after all
	if w.preempts || w.vllm && w.ordering != asTheyCame {
		w.full = false // it may be the first now
	}
	if w.s.cfg.Router.Prefetch {
		w.prefetch(r.Adapter)
		if w.vllm {
			w.full = false // the load may have taken the slot of the request that found no memory
		}
	}
	w.fetchMissing(r.Adapter)
	w.wake()
}

// wait puts a request into the waiting queue, last or first; new and retracted
// ones alike.
func (w *worker) wait(r *request, first bool) {
	r.queued = w.s.loop.Now()
	r.state = waiting
	if w.ordering == byService {
		w.lift(r.Adapter)
	}
	w.queue.add(r, first)
	w.queueChanged()
	w.countQueued(r, 1)
}

// dequeue takes a request out of the waiting queue.
func (w *worker) dequeue(r *request) {
	w.queue.remove(r)
	if w.ordering == byService && w.queue.n == 0 {
		w.lastOut = r.Adapter
	}
	w.queueChanged()
	w.countQueued(r, -1)
}

// queueChanged ends the run of decode steps after the step under way if the
// steps after that take another time, the waiting requests being others.
func (w *worker) queueChanged() {
	if w.phase == decode && w.costs.ScansQueue() {
		w.shorten()
	}
}

// countQueued counts a request among those that routers see waiting, 1, or no
// longer, -1.
func (w *worker) countQueued(r *request, d int32) {
	w.v.Queued += int(d)
	w.v.QueuedToks += int64(d) * int64(r.Prompt)
	w.countAdapter(r.Adapter, 0, d)
}

// countAdapter adjusts the counts of an adapter's requests that routers see.
func (w *worker) countAdapter(a int32, running, queued int32) {
	if w.isLoRA(a) {
		if w.v.Count(a, running, queued) {
			w.index(a)
		}
	}
}

// finish ends a request that is neither in the queue nor in the batch any more.
func (w *worker) finish(r *request, status record.Status, reason string) {
	w.count(r, -1)
	w.s.finish(r, status, reason, w.s.loop.Now()+w.costs.Overhead)
}

// wake tells the worker that the queue may now yield a prefill step: it takes
// a look before its next step.
func (w *worker) wake() {
	w.retry = true
	if !w.full || w.exec != nil {
		w.interrupt()
	}
}

// roomMade tells the worker that something beside a finished request may let
// waiting requests in.
func (w *worker) roomMade() {
	w.full = false
	if w.queue.n > 0 {
		w.wake()
	}
}

// reopen notes, between steps, that a request has left the batch.
func (w *worker) reopen() { w.full, w.retry = false, true }

// interrupt has the worker choose anew what to do, now or after the decode step
// under way.
func (w *worker) interrupt() {
	switch w.phase {
	case idle:
		w.getReady()
	case decode:
		w.shorten()
	}
}

// getReady makes the worker begin a step at this instant.
func (w *worker) getReady() {
	if !w.ready {
		w.ready = true
		w.s.loop.Yield(w.begins)
	}
}

// begin starts the next step.
func (w *worker) begin() {
	w.ready = false
	if !w.v.Up || w.phase != idle {
		return // what made it ready came while it was beginning a step
	}
	if len(w.departing) > 0 {
		w.sendDeparting()
	}
	w.scheduler.begin()
}

// schedule makes the step under way end at a time.
func (w *worker) schedule(p phase, end tick.Ticks) {
	w.phase, w.begun = p, w.s.loop.Now()
	w.s.loop.Set(&w.timer, end)
}

// startStep starts the step with the prompts that w.filling lists, which waits
// for loads first. It decodes too if it is mixed.
func (w *worker) startStep(p phase, work *profile.StepWork, load tick.Ticks) {
	w.stats.PrefillSteps++
	w.stats.Stalled += load
	w.stats.PeakKV = max(w.stats.PeakKV, w.kv.Stored())
	w.v.KVUsed = w.kv.Stored()
	if work.Extends && !w.extended {
		work.FirstExtend, w.extended = true, true
	}
	w.noteStep(p)
	takes := load + w.stepTime(work, p == mixed)
	if p == mixed {
		w.run = record.Steps{Start: w.s.loop.Now(), First: takes, Count: 1, Batch: int64(len(w.batch))}
	}
	w.schedule(p, w.s.loop.Now()+takes)
}

// pause lets time pass in which the worker runs no step; false if it is none.
func (w *worker) pause(t tick.Ticks) bool {
	if t > 0 {
		w.filling = w.filling[:0]
		w.stats.Stalled += t
		w.schedule(prefill, w.s.loop.Now()+t)
	}
	return t > 0
}

// endStep ends the step under way.
func (w *worker) endStep() {
	w.stats.Busy += w.s.loop.Now() - w.begun
	switch w.phase {
	case prefill:
		w.endChunks()
	case mixed:
		w.scheduler.endMixed()
	default:
		w.endDecode()
	}
	w.phase = idle
	if len(w.departing) > 0 {
		w.sendDeparting()
	}
	w.stepNoted()
	w.getReady()
}

// interrupted books what was done of the step under way, which is not to end.
func (w *worker) interrupted() {
	if k := w.stepsDone(); k > 0 { // their tokens are out
		w.run.Count = k
		w.advance()
	}
	if w.phase != idle {
		w.stats.Busy += w.s.loop.Now() - w.begun
	}
}

// giveUp fails the first waiting request, which cannot even run alone.
func (w *worker) giveUp() {
	r := w.head()
	w.dequeue(r)
	w.settle(r.Adapter)
	w.reopen()
	if w.exec != nil {
		w.exec.decided = false
	}
	w.finish(r, record.Failed, "does not fit on the worker")
}

// seats is the number of running requests: those in the batch, partly prefilled
// or parked.
func (w *worker) seats() int {
	n := len(w.batch) + len(w.partial)
	if w.exec != nil {
		n += len(w.exec.parked)
	}
	return n
}

// isLoRA says whether a row of the adapter table is an adapter.
func (w *worker) isLoRA(row int32) bool { return int(row) < len(w.s.adapters) }
