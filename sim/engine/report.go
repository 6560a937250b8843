package engine

// Report is what one step of an engine did, with requests by ID.
type Report struct {
	Tokens    map[int64]int32 // scheduled
	New       []int64         // running for the first time, in the order of their admission
	Resumed   []int64         // running again after a preemption
	Preempted []int64         // or retracted, before the step
	Retracted int             // of Preempted, under sglang: for lack of memory
	Computed  map[int64]int32 // of New and Resumed: tokens found in the KV cache

	Prompts      int   // requests of which it took prompt tokens
	PromptTokens int64 // of all prompts
	Before       int   // requests that were running, whether it took them along or not; of a decode step only these

	CachedTokens int64 // prompt tokens of those admitted that were found in the prefix cache
	// After the step: requests that run and wait, free KV pages, tokens stored.
	Running, Waiting int
	FreePages        int64
	KVTokens         int64
}

// The engine writes a report of the step that is being formed, where somebody wants it; a nil report writes nothing.

func newReport() *Report { return &Report{Tokens: map[int64]int32{}, Computed: map[int64]int32{}} }

// Admitted notes a request that the step admits, for the first time or again.
func (p *Report) Admitted(r *Request, resumed bool) {
	if p == nil {
		return
	}
	to := &p.New
	if resumed {
		to = &p.Resumed
	}
	*to = append(*to, r.ID)
	p.Computed[r.ID] = r.Computed
}

// RetractedOne notes that a request of Preempted was retracted.
func (p *Report) RetractedOne() {
	if p != nil {
		p.Retracted++
	}
}

func (p *Report) preempted(r *Request) {
	if p != nil {
		p.Preempted = append(p.Preempted, r.ID)
	}
}

// scheduled notes what the step takes.
func (p *Report) scheduled(e *Engine, k kind) {
	if p == nil {
		return
	}
	for i := range e.Batch.heap {
		if k != prefill {
			p.Tokens[e.Batch.heap[i].Value.ID] = 1
		}
	}
	for _, c := range e.Step.Prompts {
		p.Tokens[c.Request.ID] = c.Tokens
		p.PromptTokens += int64(c.Tokens)
	}
	p.Prompts, p.Before = len(e.Step.Prompts), e.Batch.Len()
	if k != decode {
		p.Before += e.Pipeline.Len()
	}
}

// done reports the step at its end.
func (p *Report) done(e *Engine) {
	if p == nil {
		return
	}
	e.Report = newReport()
	p.tell(e)
}

// tell reports a step with what the engine is like now.
func (p *Report) tell(e *Engine) {
	if p == nil {
		return
	}
	p.Running, p.Waiting = e.sched.Running(), e.Queue.n
	p.FreePages, p.KVTokens = e.KV.Free(), e.KV.Stored()
	e.cfg.Hooks.Step(p)
}
