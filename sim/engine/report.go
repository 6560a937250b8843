package engine

// A Report describes one step of an engine, with requests by ID.
type Report struct {
	Tokens    map[int64]int32 // scheduled tokens
	New       []int64         // requests that run for the first time, in the order of their admission
	Resumed   []int64         // requests that run again after a preemption
	Preempted []int64         // requests preempted or retracted before the step
	Retracted int             // under sglang, number of requests in Preempted that were retracted for lack of memory
	Computed  map[int64]int32 // for New and Resumed, tokens found in the KV cache

	Prompts      int   // requests with prompt tokens in the step
	PromptTokens int64 // prompt tokens in the step
	// Before is the number of running requests before the step. A decode step does not count requests whose last
	// token is in flight.
	Before int

	CachedTokens int64 // prompt tokens of admitted requests found in the prefix cache
	// State after the step: running and waiting requests, free KV pages, stored tokens.
	Running, Waiting int
	FreePages        int64
	KVTokens         int64
}

// newReport returns the report of the step being formed. The methods of a nil report do nothing.
func newReport() *Report { return &Report{Tokens: map[int64]int32{}, Computed: map[int64]int32{}} }

// Admitted adds a request that the step admits. resumed: it runs again after a preemption.
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

// RetractedOne notes that a request of Preempted was retracted for lack of memory.
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

// scheduled notes the tokens of the step.
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

// tell adds the engine's present state to the report and passes it to the hook.
func (p *Report) tell(e *Engine) {
	if p == nil {
		return
	}
	p.Running, p.Waiting = e.sched.Running(), e.Queue.n
	p.FreePages, p.KVTokens = e.KV.Free(), e.KV.Stored()
	e.cfg.Hooks.Step(p)
}
