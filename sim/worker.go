package sim

import (
	"fmt"

	"lorasim/internal/record"
	"lorasim/internal/tick"
	"lorasim/router"
	"lorasim/sim/profile"
)

// phase is what a worker is doing.
type phase uint8

const (
	idle    phase = iota // between steps
	prefill              // in a prefill step
	mixed                // in a step of vLLM's scheduler with prompt tokens
	decode               // in a run of decode steps
)

// worker is one inference engine instance.
type worker struct {
	s     *sim
	id    int
	costs *profile.Costs
	eng   profile.Engine
	v     *router.Worker // what routers see; its counters are the worker's own
	stats WorkerStats

	phase phase
	ready bool // is to begin a step at this instant
	vllm  bool // runs vLLM's scheduler
	rules rules
	exec  *execution // merged or unmerged; nil: the backend knows no such modes

	// Waiting requests. retry: something changed since the queue was last
	// found unable to fill a prefill step. full: only a request that leaves
	// the batch can change that.
	queue queue
	retry bool
	full  bool

	// The running batch.
	batch  []int32 // requests, a heap by finishStep
	steps  int64   // decode steps so far
	ctx    int64   // KV tokens of the batch
	budget int64   // sum over the batch of max_new_tokens - generated
	large  int64   // requests of the batch whose budget may exceed what the scheduler clips to
	ranks  rankCount

	order      int64 // of the latest request to join the batch
	front      int64 // of the latest request to join it before all others
	firstOfAll bool  // the batch was empty when the prefill step began
	extended   bool  // a prefill step has gone on with a partly prefilled prompt

	// The step under way.
	run     record.Steps
	filling []chunk // requests of the prefill step
	chunked int32   // request whose prompt is only partly prefilled, -1: none
	partial []int32 // scheduler vllm: running requests whose prompts are partly prefilled
	noted   *Step   // the step, for a StepListener
	begun   tick.Ticks

	// When the batch's requests saw their latest token: older of them at
	// lastDecode, the others when the prefill step of their group ended.
	lastDecode tick.Ticks
	older      int64
	groups     []group

	door     frontEnd
	kv       pages
	adapters adapterTable

	departing []int32    // requests to take out of the batch at the end of the step
	held      int64      // KV tokens of requests whose copy is under way
	linkFree  tick.Ticks // when its link can carry the next KV cache
	failedAt  tick.Ticks // when it last failed

	ratioFrom  float64 // new-token ratio ratioSince steps ago
	ratioSince int64   // steps at that time
}

// group is requests whose first token came at the end of the same prefill step.
type group struct {
	at tick.Ticks
	n  int64
}

// rules are what the names in a profile stand for.
type rules struct {
	blocks   bool // head_of_line block
	blocking bool // adapter_loading blocking
	fifo     bool // adapter_eviction fifo
	reject   bool // context_overflow reject
	ignore   bool // context_overflow ignore
}

func rulesOf(e *profile.Engine) rules {
	return rules{
		blocks:   e.HeadOfLine == profile.HeadOfLineBlock,
		blocking: e.AdapterLoading == profile.LoadBlocking,
		fifo:     e.AdapterEviction == profile.EvictFIFO,
		reject:   e.ContextOverflow == profile.OverflowReject,
		ignore:   e.ContextOverflow == profile.OverflowIgnore,
	}
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
	*w = worker{s: s, id: id, costs: costs, eng: e, rules: rulesOf(&e), v: &s.view.Workers[id], chunked: -1, failedAt: -1, ratioFrom: e.NewTokenRatio}
	w.kv.init(kvTokens, int64(e.PageSize))
	*w.v = router.Worker{
		Up: true, MaxRunning: e.MaxRunningRequests, KVCapacity: w.kv.capacity * w.kv.size,
		Slots: e.MaxLorasPerBatch, HostSlots: e.MaxLoadedLoras,
		Adapters: make([]router.AdapterState, len(s.adapters)),
	}
	w.queue.init(len(s.adapters) + 1)
	w.ranks.init(costs, s.adapters)
	w.initAdapters()
	if b := p.Latency.LoRA.Backend; b == profile.BackendMerged || b == profile.BackendDLoRA {
		w.initExecution()
	}
	if w.vllm = e.Scheduler == profile.SchedulerVLLM; w.vllm {
		w.initVLLM()
	}
	return nil
}

// refuses says why the worker can never serve a request, "" if it can. It cuts
// the request's budget to what the worker can give it.
func (w *worker) refuses(r *request) string {
	if w.isLoRA(r.adapter) && !w.rankFits(r.adapter) {
		return fmt.Sprintf("its adapter does not load: rank %d over max_lora_rank %d", w.costs.Rank(w.s.adapters[r.adapter].Rank), w.eng.MaxLoraRank)
	}
	limit := w.longest()
	if w.rules.reject && int(r.prompt)+int(r.maxNew) > limit {
		return fmt.Sprintf("prompt + max_new_tokens over the context length %d", limit)
	}
	if int(r.prompt) >= limit {
		return fmt.Sprintf("prompt over the context length %d", limit)
	}
	kv := w.kv.capacity * w.kv.size
	switch {
	case w.vllm:
		return ""
	case w.rules.ignore:
		if reserve := int64(r.prompt) + int64(min(int(r.maxNew), w.eng.ClipNewTokens)); reserve >= kv {
			return fmt.Sprintf("needs more than the worker's %d KV tokens", kv)
		}
		return ""
	}
	// TpModelWorker.get_worker_info (managers/tp_worker.py), validate_input_length
	// (managers/utils.py) and Scheduler.init_req_max_new_tokens (managers/scheduler.py)
	longest := min(int64(limit), kv) - 1
	if int64(r.prompt) >= longest-inputMargin {
		if kv < int64(limit) {
			return fmt.Sprintf("needs more than the worker's %d KV tokens", kv)
		}
		return fmt.Sprintf("prompt over the context length %d, less %d tokens", limit, 1+inputMargin)
	}
	r.maxNew = int32(min(int64(r.maxNew), longest-int64(r.prompt)-1))
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
		return int(min(int64(w.eng.ContextLength), w.kv.capacity*w.kv.size+1)) // the last token is not stored
	}
	return w.eng.ContextLength
}

// inputMargin is how many tokens a prompt stays below the longest request
// (max_req_input_len in managers/tp_worker.py).
const inputMargin = 5

// enqueue takes a request that a router has sent.
func (w *worker) enqueue(i int32) {
	r := &w.s.reqs[i]
	if w.vllm {
		r.output = min(r.output, int32(w.longest())-r.prompt)
	}
	r.worker = int32(w.id)
	w.v.Tokens += int64(r.prompt) + int64(r.expected)
	w.ranks.addToWorker(r.adapter, 1)
	w.v.MaxRank = w.ranks.maxOfAll()
	if !w.pass(i) {
		w.engage(i)
	}
}

// engage puts a request that has passed the front end into the engine's queue.
func (w *worker) engage(i int32) {
	r := &w.s.reqs[i]
	w.wait(i)
	w.adapters.rows[r.adapter].leaving = false // it is needed after all
	if w.s.cfg.Router.Prefetch {
		w.prefetch(r.adapter)
		if w.vllm {
			w.full = false // the load may have taken the slot of the request that found no memory
		}
	}
	w.fetchMissing(r.adapter)
	w.wake()
}

// wait appends a request to the waiting queue; new and retracted ones alike.
func (w *worker) wait(i int32) {
	r := &w.s.reqs[i]
	r.queued = w.s.now
	r.state = waiting
	w.queue.push(w.s.reqs, i)
	w.queueChanged()
	w.v.Queued++
	w.v.QueuedToks += int64(r.prompt)
	w.countAdapter(r.adapter, 0, 1)
}

// dequeue takes a request out of the waiting queue.
func (w *worker) dequeue(i int32) {
	r := &w.s.reqs[i]
	w.queue.remove(w.s.reqs, i)
	w.queueChanged()
	w.v.Queued--
	w.v.QueuedToks -= int64(r.prompt)
	w.countAdapter(r.adapter, 0, -1)
}

// leave drops a request from the counts that routers see.
func (w *worker) leave(i int32) {
	r := &w.s.reqs[i]
	w.v.Tokens -= int64(r.prompt) + int64(r.expected)
	w.ranks.addToWorker(r.adapter, -1)
	w.v.MaxRank = w.ranks.maxOfAll()
}

// wake tells the worker that the queue may now yield a prefill step: it takes
// a look before its next step.
func (w *worker) wake() {
	w.retry = true
	if w.full && w.exec == nil {
		return
	}
	switch w.phase {
	case idle:
		w.getReady()
	case decode:
		w.shorten()
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

// getReady makes the worker begin a step at this instant.
func (w *worker) getReady() {
	if !w.ready {
		w.ready = true
		w.s.ready = append(w.s.ready, int32(w.id))
	}
}

// begin starts the next step: a prefill step if one can be formed, else decode
// steps, else none.
func (w *worker) begin() {
	w.ready = false
	if !w.v.Up || w.phase != idle {
		return // what made it ready came while it was beginning a step
	}
	if len(w.departing) > 0 {
		w.sendDeparting()
	}
	if w.vllm {
		w.beginVLLM()
		return
	}
	for {
		w.trimHost(-1)
		if w.seats() == 0 {
			w.full = false // nobody is left who could make room
		}
		if w.drainerOn() && w.starvesAt() <= w.s.now {
			w.retry = true
		}
		if w.exec != nil && w.pause(w.chooseMode()) {
			return
		}
		if w.chunked >= 0 || w.retry && !w.full && w.queue.n > 0 {
			if w.beginPrefill() {
				return
			}
			w.retry = false
		}
		if len(w.batch) == 0 && w.exec != nil && len(w.exec.parked) > 0 {
			if w.pause(w.resume()) {
				return
			}
			continue
		}
		if len(w.batch) == 0 {
			if w.queue.n > 0 && len(w.adapters.queue) == 0 && w.held == 0 {
				w.giveUp() // nothing runs or loads, so nothing would ever change
				continue
			}
			w.phase = idle
			w.ratioFrom, w.ratioSince = w.eng.NewTokenRatio, w.steps // an idle server forgets its estimate
			return
		}
		w.retract()
		if len(w.batch) > 0 {
			w.beginDecode()
			return
		}
		// the last request of the batch failed for lack of memory; look at the queue again
	}
}

// giveUp fails the first waiting request, which cannot even run alone.
func (w *worker) giveUp() {
	i := w.queue.head
	w.dequeue(i)
	w.leave(i)
	w.settle(w.s.reqs[i].adapter)
	w.full, w.retry = false, true
	if w.exec != nil {
		w.exec.decided = false
	}
	w.s.finish(i, record.Failed, "does not fit on the worker", w.s.now+w.costs.Overhead)
}

// endStep ends the step under way.
func (w *worker) endStep() {
	w.stats.Busy += w.s.now - w.begun
	switch w.phase {
	case prefill:
		w.endChunks()
	case mixed:
		if w.vllm {
			w.endMixed()
		} else {
			w.endMixedChunk()
		}
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

// schedule makes the step under way end at t.
func (w *worker) schedule(p phase, end tick.Ticks) {
	w.phase, w.begun = p, w.s.now
	w.s.timers.set(w.id, end)
}

// complete reports a request whose last token is out.
func (w *worker) complete(i int32) {
	w.leave(i)
	w.s.finish(i, record.OK, "", w.s.now+w.costs.Overhead)
}

// ratio is the share of their remaining budgets that running requests are
// expected to use.
func (w *worker) ratio() float64 {
	lo := w.eng.NewTokenRatio * w.eng.NewTokenRatioMin
	decay := (w.eng.NewTokenRatio - lo) / float64(w.eng.NewTokenRatioSteps)
	if w.steps < w.ratioSince {
		return w.ratioFrom
	}
	return max(w.ratioFrom-float64(decay*float64(w.steps-w.ratioSince)), lo)
}

// countAdapter adjusts the counts of an adapter's requests that routers see.
func (w *worker) countAdapter(a int32, running, queued int32) {
	if int(a) < len(w.v.Adapters) {
		w.v.Count(a, running, queued)
	}
}
