package sglang

import "lorasim/sim/engine"

// nextWaiting is the waiting request that may be prefilled next, nil: none. Those whose adapter finds no slot are
// passed over, and the queue goes on (can_schedule_lora_req).
func (s *Scheduler) nextWaiting() *engine.Request {
	if s.modes != nil && s.modes.row != unmerged {
		return s.modes.next()
	}
	if s.headOfLineBlock {
		return s.nextBlocking()
	}
	return s.e.Next(s.among, s.fcfsFirst)
}

// nextBlocking is nextWaiting under head_of_line block: the queue's first request whose weights are there decides, and
// where it has to wait everybody waits.
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

// canScheduleLoRA is the first waiting request of an adapter that may be prefilled, nil if there is none.
func (s *Scheduler) canScheduleLoRA(a *engine.Adapter) *engine.Request {
	if !s.e.LoRA.CanRun(&a.Adapter) {
		return nil
	}
	return s.drainer.canSchedule(a)
}

// candidates lists the adapters among which those are found that can run and have requests waiting. Where no slot can
// be obtained, these are few: the adapters that are in use.
func (s *Scheduler) candidates() []*engine.Adapter {
	l, waiting := &s.e.LoRA, s.e.Queue.Adapters()
	active := l.ActiveAdapters()
	if l.Pins() || !l.Full() || len(active) > len(waiting) {
		return waiting
	}
	s.choices = s.choices[:0]
	for _, a := range active {
		s.choices = append(s.choices, s.e.Rows.Of(a.Index))
	}
	return s.choices
}
