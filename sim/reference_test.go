package sim

import (
	"slices"

	"lorasim/router"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/sim/tick"
	"lorasim/trace"
)

// The reference engine: it runs every decode step by itself, looks at the whole
// queue before every step, and recomputes every sum from the requests. It
// shares with the simulator the profile's costs and nothing else.

type refRequest struct {
	chunk int64 // prompt tokens in its latest step
	trace.Request
	order            int // in which it entered a queue
	sent, queuedAt   tick.Ticks
	first, last, end tick.Ticks
	cold             tick.Ticks
	generated        int64
	kv               int64 // tokens in the cache
	status           record.Status
	worker           int
	decodes          bool // scheduler vllm: had a token in the latest step
	ran              bool
	looked           int64 // prompt and reply when it was last looked at
	flying           int64 // tokens in flight, with asynchronous scheduling
	ending           bool  // the step under way gives its last token, by its length
}

func (r *refRequest) need() int64 { return int64(r.Prompt) + r.generated }

type refWorker struct {
	costs                     *profile.Costs
	e                         profile.Engine
	capacity                  int64 // KV pages
	waiting, running, filling []*refRequest
	chunked                   *refRequest
	busy                      bool
	prefilling                bool
	until                     tick.Ticks
	full, extended, mixed     bool
	steps, ratioSince         int64
	ratioFrom                 float64
	ad                        []refAdapter // last: base model
	loads                     []refLoad    // the first is under way
	wasEmpty                  bool         // nothing ran when the prefill step began
	mixing                    bool
	refExecution
	refSLoRA
	clock     int
	scheduled map[*refRequest]int64 // scheduler vllm: tokens in this step

	entering []refEntering // in the front end
	frontEnd tick.Ticks    // when it is free
	known    map[int32]bool
	refOrder
	refAsync
	refOverlap
}

type refEntering struct {
	r  *refRequest
	at tick.Ticks
}

type refLoad struct {
	row  int
	slot bool // else to host memory
}

type reference struct {
	now        tick.Ticks
	ws         []*refWorker
	route      func(r *refRequest) int
	gaps       map[tick.Ticks]int64
	tokens     map[tick.Ticks]int64
	all        []*refRequest
	entered    int
	home       router.Tier
	prefix     bool // prefetch adapters of waiting requests
	ranks      []int
	priorities []int

	refPower
	fresh func() *refWorker // one that has just started, without adapters
}

func (s *reference) row(r *refRequest) int {
	if r.Adapter == trace.BaseModel {
		return len(s.ranks)
	}
	return int(r.Adapter)
}

func (w *refWorker) pages(tokens int64) int64 {
	p := int64(w.e.PageSize)
	return (tokens + p - 1) / p
}

func (w *refWorker) usedPages() (n int64) {
	for _, r := range w.running {
		n += w.pages(r.kv)
	}
	for _, r := range w.filling {
		n += w.pages(r.kv)
	}
	for _, r := range w.parked {
		n += w.pages(r.kv)
	}
	if w.chunked != nil && !slices.Contains(w.filling, w.chunked) {
		n += w.pages(w.chunked.kv)
	}
	return n
}

func (s *reference) active(w *refWorker, row int) (n int) {
	count := func(r *refRequest) {
		if s.row(r) == row {
			n++
		}
	}
	for _, r := range w.running {
		if !r.ending || w.e.VLLMVersion == "0.33" {
			count(r)
		}
	}
	for _, r := range w.filling {
		count(r)
	}
	for _, r := range w.parked {
		count(r)
	}
	for _, r := range w.preempted {
		count(r)
	}
	if w.chunked != nil && !slices.Contains(w.filling, w.chunked) {
		count(w.chunked)
	}
	return n
}

func (s *reference) run(reqs []trace.Request) {
	next := 0
	for {
		if s.ws[0].ahead() && s.ended(len(reqs)) {
			return // a step may be under way for nothing
		}
		t := tick.Never
		if next < len(reqs) {
			t = tick.FromSeconds(reqs[next].Arrival)
		}
		for _, w := range s.ws {
			if w.busy {
				t = min(t, w.until)
			}
			if len(w.loads) > 0 {
				t = min(t, w.ad[w.loads[0].row].to)
			}
			for _, e := range w.entering {
				t = min(t, e.at)
			}
		}
		if t == tick.Never && len(s.held) == 0 {
			return
		}
		t = min(t, s.nextPower())
		s.now = t
		for _, w := range s.ws {
			if w.busy && w.until == t {
				s.end(w)
			}
		}
		for _, w := range s.ws {
			if len(w.loads) > 0 && w.ad[w.loads[0].row].to == t {
				s.loaded(w)
			}
		}
		s.started()
		for _, w := range s.ws {
			for len(w.entering) > 0 && w.entering[0].at == t {
				r := w.entering[0].r
				w.entering = w.entering[1:]
				s.engage(w, r)
			}
		}
		for next < len(reqs) && tick.FromSeconds(reqs[next].Arrival) == t {
			s.arrive(&refRequest{Request: reqs[next], sent: t, first: tick.Never})
			next++
		}
		s.drained()
		s.resize(len(reqs))
		for _, w := range s.ws {
			if !w.busy || w.ahead() {
				s.begin(w)
			}
		}
		s.drained()
	}
}

func (s *reference) arrive(r *refRequest) {
	s.all = append(s.all, r)
	s.send(r)
}

func (s *reference) send(r *refRequest) {
	if s.noneOn(r) {
		return
	}
	r.worker, r.looked = s.route(r), 0
	w := s.ws[r.worker]
	if s.refuse(w, r) {
		r.status, r.end = record.Rejected, s.now+w.costs.Overhead
		return
	}
	l := &w.costs.Profile().Latency.FrontEnd
	takes := tick.FromMilliseconds(l.PerRequestMs)
	if r.Adapter != trace.BaseModel && !w.known[r.Adapter] {
		w.known[r.Adapter] = true
		takes += tick.FromMilliseconds(l.FirstUseMs)
	}
	w.frontEnd = max(w.frontEnd, s.now) + takes
	if w.frontEnd > s.now {
		w.entering = append(w.entering, refEntering{r, w.frontEnd})
		return
	}
	s.engage(w, r)
}

// engage gives the engine a request that has passed the front end.
func (s *reference) engage(w *refWorker, r *refRequest) {
	if !s.wait(w, r) {
		return
	}
	if w.e.Scheduler == profile.SchedulerVLLM {
		w.full = false // it is set only in the order vtc, see beginVLLM
	}
	row := s.row(r)
	if row == len(s.ranks) || w.slora() {
		return
	}
	if a := &w.ad[row]; s.prefix && !a.slot && !a.fetch && s.active(w, row) == 0 {
		room := s.slots(w)+s.unplaced(w) < w.e.MaxLorasPerBatch
		if !room && s.slotFree(w) {
			v := s.victim(w, nil)
			room = v >= 0 && !slices.ContainsFunc(w.waiting, func(q *refRequest) bool { return s.row(q) == v })
		}
		if room {
			s.load(w, row)
		}
	}
	if a := &w.ad[row]; !s.inHost(w, row) && !a.fetch && !a.loading {
		s.fetch(w, row)
	}
}

func (s *reference) refuse(w *refWorker, r *refRequest) bool {
	prompt, budget, context := int(r.Prompt), int(r.Budget()), w.e.ContextLength
	kv := int(w.capacity) * w.e.PageSize
	if w.slora() {
		return s.refuseSLoRA(w, r)
	}
	if row := s.row(r); row < len(s.ranks) && w.costs.Rank(s.ranks[row]) > w.e.MaxLoraRank {
		return true
	}
	if w.e.Scheduler == profile.SchedulerVLLM {
		longest := min(context, kv+1)
		r.Output = min(r.Output, int32(longest-prompt))
		return prompt >= longest || w.e.ContextOverflow == profile.OverflowReject && prompt+budget > longest ||
			w.overLimits()
	}
	if prompt >= context || w.e.ContextOverflow == profile.OverflowReject && prompt+budget > context {
		return true
	}
	if w.e.ContextOverflow == profile.OverflowIgnore {
		return prompt+min(budget, w.e.ClipNewTokens) >= kv
	}
	maxReqLen := min(context-1, kv-1)
	if maxInput := maxReqLen - 5; prompt >= maxInput {
		return true
	}
	budget = min(budget, maxReqLen-prompt-1)
	r.MaxNew = int32(budget)
	if r.Output = min(r.Output, r.MaxNew); w.e.IgnoreEOS {
		r.Output = r.MaxNew
	}
	return false
}

// wait puts a request into the queue, if it may wait.
func (s *reference) wait(w *refWorker, r *refRequest) bool {
	if !s.queues(w, r) {
		return false
	}
	s.lift(w, r)
	s.entered++
	r.order, r.queuedAt = s.entered, s.now
	w.waiting = append(w.waiting, r)
	return true
}

func (s *reference) finish(w *refWorker, r *refRequest, st record.Status) {
	r.status, r.end = st, s.now+w.costs.Overhead
	w.full = false
}

func (s *reference) token(w *refWorker, r *refRequest) {
	r.generated++
	s.serve(w, r, 2)
	if r.first == tick.Never {
		r.first = s.now + w.costs.Overhead
	} else {
		s.gaps[s.now-r.last]++
	}
	r.last = s.now
	s.tokens[s.now+w.costs.Overhead]++
}

func (s *reference) end(w *refWorker) {
	w.busy = false
	switch {
	case w.async():
		s.endAsync(w)
		return
	case w.overlaps():
		s.endOverlap(w)
		return
	}
	if w.mixed {
		w.mixed = false
		s.endMixed(w)
		return
	}
	if w.prefilling && w.slora() {
		s.endSLoRA(w)
		return
	}
	if w.prefilling && !w.mixing {
		reopens := len(w.filling) > 0 && (w.chunked != nil || w.wasEmpty)
		w.running = append(w.running, s.endFilling(w)...)
		w.full = w.full && !reopens
		return
	}
	s.stampRunning(w) // with the prompts of the step: one batch uses all its adapters at once
	filled := w.filling
	w.filling = nil
	s.endDecode(w)
	if w.mixing {
		w.mixing = false
		w.ratioSince++
		w.filling = filled
		w.running = append(s.endFilling(w), w.running...)
		w.full = false
	}
}

// endFilling ends the prefill of a step's requests, and returns those that go on.
func (s *reference) endFilling(w *refWorker) (joined []*refRequest) {
	for _, r := range w.filling {
		if r.kv < r.need() {
			continue
		}
		s.token(w, r)
		if r.generated == int64(r.Output) {
			s.finish(w, r, record.OK)
		} else {
			joined = append(joined, r)
		}
	}
	w.filling = nil
	return joined
}

func (s *reference) endDecode(w *refWorker) {
	w.steps++
	for _, r := range w.running {
		r.kv++
		s.token(w, r)
	}
	w.running = slices.DeleteFunc(w.running, func(r *refRequest) bool {
		if r.generated < int64(r.Output) {
			return false
		}
		s.finish(w, r, record.OK)
		return true
	})
}

func (w *refWorker) decodeNeed(running []*refRequest) (n int64) {
	for _, r := range running {
		n += w.pages(r.kv+1) - w.pages(r.kv)
	}
	return n
}

func (w *refWorker) ratio() float64 {
	lo := w.e.NewTokenRatio * w.e.NewTokenRatioMin
	decay := (w.e.NewTokenRatio - lo) / float64(w.e.NewTokenRatioSteps)
	if w.steps < w.ratioSince {
		return w.ratioFrom
	}
	return max(w.ratioFrom-float64(decay*float64(w.steps-w.ratioSince)), lo)
}

func (s *reference) begin(w *refWorker) {
	switch {
	case w.async():
		s.beginAsync(w)
		return
	case w.overlaps():
		s.beginOverlap(w)
		return
	}
	if w.e.Scheduler == profile.SchedulerVLLM {
		s.beginVLLM(w)
		return
	}
	if w.slora() {
		s.beginSLoRA(w)
		return
	}
	for {
		s.keep(w, -1)
		if w.modes && s.pause(w, s.chooseMode(w)) {
			return
		}
		if len(w.running) == 0 && len(w.parked) == 0 || w.preempts() {
			w.full = false
		}
		if (len(w.waiting) > 0 && !w.full || w.chunked != nil) && s.formPrefill(w) {
			return
		}
		if len(w.running) == 0 && len(w.parked) > 0 {
			if s.pause(w, s.resume(w)) {
				return
			}
			continue
		}
		if len(w.running) == 0 {
			if len(w.waiting) > 0 && len(w.loads) == 0 {
				s.sort(w)
				r := s.dequeue(w, 0)
				w.decided = false
				s.finish(w, r, record.Failed)
				continue
			}
			w.ratioFrom, w.ratioSince = w.e.NewTokenRatio, w.steps
			return
		}
		if s.retract(w); len(w.running) == 0 {
			continue
		}
		load := s.place(w, w.running)
		w.fresh, w.decided = false, false
		w.busy, w.prefilling = true, false
		w.until = s.now + load + w.costs.Step(s.work(w, w.running, nil, profile.StepWork{}))
		return
	}
}

// retract is ScheduleBatch.retract_decode, where the next decode step finds no memory.
func (s *reference) retract(w *refWorker) {
	retracted := false
	for w.decodeNeed(w.running) > w.capacity-w.usedPages() {
		retracted = true
		if n := len(w.parked); n > 0 {
			r := w.parked[n-1]
			w.parked = w.parked[:n-1]
			r.kv, w.full = 0, false
			s.wait(w, r)
			continue
		}
		if len(w.running) == 1 {
			s.finish(w, w.running[0], record.Failed)
			w.running = nil
			break
		}
		backwards := slices.Clone(w.running) // of equals the last in the batch
		slices.Reverse(backwards)
		worst := slices.MinFunc(backwards, func(a, b *refRequest) int {
			if a.generated != b.generated {
				return int(a.generated - b.generated)
			}
			return int(b.Prompt - a.Prompt)
		})
		w.running = slices.DeleteFunc(w.running, func(r *refRequest) bool { return r == worst })
		worst.kv = 0
		w.full = false
		w.loseToken(worst)
		s.wait(w, worst)
	}
	if !retracted || len(w.running) == 0 {
		return
	}
	var gen, maxNew int64
	for _, r := range w.running {
		gen += r.generated
		maxNew += int64(r.Budget())
	}
	w.ratioFrom = min(1, float64(gen+20*int64(len(w.running)))/float64(maxNew+1))
	w.ratioSince = w.steps + 1
}

// formPrefill follows Scheduler._get_new_batch_prefill_raw and PrefillAdder of
// sglang, line by line where it can.
func (s *reference) formPrefill(w *refWorker) bool {
	clip, size := int64(w.e.ClipNewTokens), int64(w.e.PageSize)
	ceil := func(n int64) int64 { return w.pages(n) * size }
	available := (w.capacity - w.usedPages()) * size
	known := w.e.IgnoreEOS && w.e.DisableRadixCache
	ratio := w.ratio()
	if w.e.IgnoreEOS {
		ratio = 1
	}
	var reserved int64
	for _, r := range w.running {
		reserved += min(int64(r.Budget())-r.generated, clip)
	}
	offset, offsetTotal := int64(0), int64(0)
	input, chunk, chunks := int64(w.e.MaxPrefillTokens), int64(w.e.ChunkedPrefillSize), w.e.ChunkedPrefillSize > 0
	mixed := w.e.MixedChunk && chunks
	if mixed {
		n := int64(len(w.running))
		offset, offsetTotal, input, chunk = n, n, input-n, chunk-n
	}
	total := func() float64 {
		return float64(available-offsetTotal) - float64(ratio*float64(reserved))
	}
	work := profile.StepWork{FirstWave: w.steps == 0}
	var stall tick.Ticks
	commit := func(r *refRequest, n, maxNew int64) {
		work.Add(n, r.kv, r.Adapter != trace.BaseModel)
		r.chunk = n
		r.kv += n
		offset += ceil(n) + size
		offsetTotal += ceil(n) + size + maxNew
		input -= ceil(n)
		chunk -= ceil(n)
		w.filling = append(w.filling, r)
	}
	canRun := func() int { return len(w.filling) }
	if r := w.chunked; r != nil {
		rem := min(chunk, int64(total()))
		if !chunks {
			rem = int64(total())
		}
		if rem <= 0 {
			rem = chunk
			if !chunks {
				rem = 1 << 60
			}
		}
		rem = min(rem, available)
		if rem > 0 {
			n, maxNew := r.need()-r.kv, min(int64(r.Budget()), clip)
			if n > rem {
				n, maxNew = rem, 0
			} else {
				w.chunked = nil
			}
			commit(r, n, maxNew)
		}
	}
	s.updateDraining(w)
	var states [][2]int64 // tokens left, tokens occupied
	spent := w.full
	for len(w.waiting) > 0 && !spent && input > 0 && (!chunks || chunk > 0) {
		if len(w.running)+canRun()+len(w.parked) >= w.e.MaxRunningRequests {
			w.full = true
			if !w.preempts() {
				break
			}
		}
		k := s.choose(w)
		if k < 0 {
			break
		}
		r := w.waiting[k]
		if w.full {
			out := s.makeWay(w, r, total(), ratio)
			if out == nil {
				break
			}
			for _, q := range out {
				available += w.pages(q.kv) * size
				reserved -= min(int64(q.Budget())-q.generated, clip)
				w.running = slices.DeleteFunc(w.running, func(o *refRequest) bool { return o == q })
				w.preempted = append(w.preempted, q)
				w.loseToken(q)
				q.kv = 0
			}
		}
		r.looked = r.need()
		n, maxNew := r.need(), min(int64(r.Budget()), clip)
		fits := float64(n+min(int64(r.Budget())-r.generated, clip)+size) < total()
		if known {
			state := func(r *refRequest) [2]int64 {
				return [2]int64{int64(r.Budget()) - r.generated, int64(r.Prompt) + r.generated}
			}
			paged := ceil(n) + size
			fits = paged <= available-offset && float64(paged) <= total()
			switch {
			case !fits:
			case states == nil:
				for _, q := range append([]*refRequest{r}, append(slices.Clone(w.running), w.filling...)...) {
					states = append(states, state(q))
				}
				slices.SortStableFunc(states, func(a, b [2]int64) int { return int(a[0] - b[0]) })
			default:
				at := 0
				for at = range states {
					if state(r)[0] <= states[at][0] {
						break
					}
				}
				states = slices.Insert(states, at, state(r))
			}
			free, freed := available-offset-paged, int64(0)
			for i, st := range states {
				b := int64(len(states) - i)
				fits = fits && free+freed-st[0]*b > b
				freed += st[1]
			}
		}
		if !fits {
			spent, w.full = true, canRun() > 0 || len(w.running)+len(w.parked) > 0
			break
		}
		if !chunks && !known && canRun() > 0 && ceil(n) >= input {
			break
		}
		split := chunks && (known && n > chunk || !known && ceil(n) > chunk)
		if split {
			n, maxNew = chunk, 0
			if !known {
				n = chunk / size * size
			}
			if n <= 0 {
				break
			}
		}
		stall += s.use(w, r)
		if split {
			w.chunked = r
		}
		s.dequeue(w, k)
		s.admitted(w, r)
		commit(r, n, maxNew)
		if total() <= 0 || available-offset <= 0 {
			spent, w.full = true, true
		}
	}
	for _, q := range w.preempted {
		s.wait(w, q)
	}
	w.preempted = nil
	if len(w.filling) == 0 {
		w.clock++
		return false
	}
	w.fresh, w.decided = false, false
	filling := slices.Clone(w.filling)
	batch, running := filling, w.decoding()
	if w.mixing = mixed && len(running) > 0 && w.decodeNeed(running) <= w.capacity-w.usedPages(); w.mixing {
		for _, r := range running {
			r.looked = r.need()
		}
		batch = append(slices.Clone(filling), running...)
	} else {
		running = nil
	}
	stall += s.place(w, batch)
	if work.Extends && !w.extended {
		work.FirstExtend, w.extended = true, true
	}
	w.wasEmpty = len(w.running) == 0
	takes := stall + w.costs.Step(s.work(w, running, filling, work))
	if w.overlaps() {
		w.formed = &refBatch{fills: filling, decodes: running, chunked: w.chunked, takes: takes}
		w.formed.allocate()
		return true
	}
	w.busy, w.prefilling, w.until = true, true, s.now+takes
	return true
}

// work is what a step computes that gives the running requests a token each and
// takes prompt tokens of the filling ones.
func (s *reference) work(w *refWorker, running, filling []*refRequest, k profile.StepWork) *profile.StepWork {
	k.Batch, k.Waiting = int64(len(running)), int64(len(w.waiting))
	met := map[int32]int64{} // tokens by adapter
	for _, r := range running {
		k.KV += r.kv
		if r.Adapter != trace.BaseModel && !w.merged() {
			met[r.Adapter]++
			rank := w.costs.Rank(s.ranks[r.Adapter])
			k.RankTokens += int64(rank)
			k.RequestRanks += int64(rank)
			k.LoRAs++
			k.MaxRank = max(k.MaxRank, rank)
		}
	}
	for _, r := range filling {
		if r.Adapter != trace.BaseModel && !w.merged() {
			met[r.Adapter] += r.chunk
			k.RankTokens += r.chunk * int64(w.costs.Rank(s.ranks[r.Adapter]))
		}
	}
	for a, tokens := range met {
		k.Ranks += int64(w.costs.Rank(s.ranks[a]))
		for i, height := range w.costs.TileHeights() {
			for tokens := tokens; tokens > 0 && height > 0; tokens -= height {
				k.Tiles[i]++
			}
		}
	}
	if w.merged() {
		k.LoRATokens = 0
	}
	k.Adapters = int64(len(met))
	return &k
}
