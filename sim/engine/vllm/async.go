package vllm

// scheduleAhead forms the step after the one under way (AsyncScheduler in v1/core/sched/async_scheduler.py).
// If the engine is idle, the step begins at once.
func (s *Scheduler) scheduleAhead() {
	e := s.e
	switch b, p := s.form(), e.Pipeline; {
	case len(e.Step.Prompts) > 0 || e.Batch.Len() > 0:
		p.Plan(true)
	case !p.Idle(): // it is formed when the step under way has ended
	case e.Step.Stall > 0: // the load is all there is
		p.Plan(true)
	case b.preempted:
		p.Again()
	case e.Queue.Len() > 0 && e.LoRA.Idle() && e.KV.Reserved() == 0:
		e.FailHead() // nothing runs or loads, so nothing would ever change
		p.Again()
	}
}
