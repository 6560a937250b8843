package sglang

import "lorasim/sim/engine"

// nextWaiting returns the waiting request that may be prefilled next; nil: none. It skips requests whose
// adapter finds no slot (can_schedule_lora_req).
func (s *Scheduler) nextWaiting() *engine.Request {
	if s.modes != nil && s.modes.row != unmerged {
		return s.modes.next()
	}
	if s.headOfLineBlock {
		return s.nextBlocking()
	}
	return s.e.Next(s.among, s.fcfsFirst)
}

// nextBlocking is nextWaiting under head_of_line block. The first request in the queue whose weights are in
// host memory decides: if it must wait, all requests wait.
func (s *Scheduler) nextBlocking() *engine.Request {
	e := s.e
	head := e.Queue.Oldest()
	if !e.LoRA.InHost(&head.Row.Adapter) {
		if head = e.Queue.OldestOf(e.Queue.Adapters(), func(a *engine.Adapter) *engine.Request {
			if !e.LoRA.InHost(&a.Adapter) {
				return nil
			}
			return a.Head()
		}); head == nil {
			return nil
		}
	}
	a := &head.Row.Adapter
	switch loading := a.Loading(); {
	case !e.LoRA.CanRun(a):
		if !loading {
			e.Gate.SetFull(e.LoRA.Idle()) // else the end of a load may make room
		}
		return nil
	case !loading && e.LoRA.MustLoad(a):
		e.LoRA.StartLoad(a)
		return nil
	}
	return head
}

// canScheduleLoRA returns the first waiting request of an adapter that may be prefilled; nil: none.
func (s *Scheduler) canScheduleLoRA(a *engine.Adapter) *engine.Request {
	if !s.e.LoRA.CanRun(&a.Adapter) {
		return nil
	}
	return s.drainer.canSchedule(a)
}
