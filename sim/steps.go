package sim

// Step is what one step of an engine did, with requests by ID.
type Step struct {
	Tokens    map[int64]int32 // scheduled
	New       []int64         // running for the first time, in the order of their admission
	Resumed   []int64         // running again after a preemption
	Preempted []int64         // or retracted, before the step
	Computed  map[int64]int32 // of New and Resumed: tokens found in the KV cache

	Prompts      int   // requests of which it took prompt tokens
	PromptTokens int64 // of all of these
	Before       int   // requests that were running, whether it took them along or not

	// After the step: requests that run and wait, free KV pages, tokens stored.
	Running, Waiting int
	FreePages        int64
	KVTokens         int64
}

// A StepListener is a [Listener] that hears of every step, at its end; requests that ended with it have done so before.
type StepListener interface {
	Listener
	Step(s *Step)
}

// noteAdmission, notePreemption and noteStep write down the step that is being
// formed; stepNoted reports it at its end.
func (w *worker) noteAdmission(r *request, resumed bool) {
	if w.noted == nil {
		return
	}
	to := &w.noted.New
	if resumed {
		to = &w.noted.Resumed
	}
	*to = append(*to, r.id)
	w.noted.Computed[r.id] = r.prefilled
}

func (w *worker) notePreemption(r *request) {
	if w.noted != nil {
		w.noted.Preempted = append(w.noted.Preempted, r.id)
	}
}

func (w *worker) noteStep() {
	if w.noted == nil {
		return
	}
	for _, i := range w.batch {
		w.noted.Tokens[w.s.reqs[i].id] = 1
	}
	for _, c := range w.filling {
		w.noted.Tokens[w.s.reqs[c.req].id] = c.tokens
		w.noted.PromptTokens += int64(c.tokens)
	}
	w.noted.Prompts, w.noted.Before = len(w.filling), len(w.batch)
}

func (w *worker) stepNoted() {
	if w.noted == nil {
		return
	}
	w.noted.Running, w.noted.Waiting = len(w.batch)+len(w.partial), w.queue.n
	w.noted.FreePages, w.noted.KVTokens = w.kv.capacity-w.kv.used, w.kv.tokens
	w.s.stepper.Step(w.noted)
	w.noted = newStep()
}

func newStep() *Step { return &Step{Tokens: map[int64]int32{}, Computed: map[int64]int32{}} }
