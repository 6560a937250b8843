package sglang

import (
	"testing"

	"lorasim/sim/event"
	"lorasim/sim/profile"
	"lorasim/sim/tick"
)

// draining returns a scheduler with a drain threshold of 2 s, two adapter slots, and one running request each of
// adapters 0 (100 tokens left) and 1 (60 tokens left), which hold the slots.
func draining(t *testing.T) (*Scheduler, *event.Loop) {
	t.Helper()
	s, l := schedulerWith(t, func(p *profile.Engine) { p.LoraDrainWait, p.MaxLorasPerBatch = 2, 2 })
	run(s, 0, 0, 0, 100)
	run(s, 0, 1, 0, 60)
	s.e.LoRA.PrepareBatch(nil, true)
	return s, l
}

// An adapter starves a tick after its oldest request has waited for the threshold (time > lora_drain_wait_threshold),
// if it is promised no slot, the batch is not full, all slots are in use, and a running adapter could drain for it.
func TestStarvesAt(t *testing.T) {
	const due = 5*tick.Second + 1 // the oldest waits since 3 s
	for name, c := range map[string]struct {
		change func(s *Scheduler)
		want   tick.Ticks
	}{
		"starves":        {func(*Scheduler) {}, due},
		"off":            {func(s *Scheduler) { s.drainer.on = false }, tick.Never},
		"batch is full":  {func(s *Scheduler) { s.e.Gate.NoRoom() }, tick.Never},
		"a slot is free": {func(s *Scheduler) { s.e.Remove(s.e.Batch.At(0)) }, tick.Never},
		"promised":       {func(s *Scheduler) { s.drainer.promised[2] = true }, due + tick.Second}, // 3 is next
		"both promised": {func(s *Scheduler) {
			s.drainer.promised[2], s.drainer.promised[3] = true, true
		}, tick.Never},
		"one drains": {func(s *Scheduler) { s.drainer.draining[0] = s.e.Rows.Of(4) }, due},
		"both drain already": {func(s *Scheduler) {
			s.drainer.draining[0], s.drainer.draining[1] = s.e.Rows.Of(4), s.e.Rows.Of(5)
		}, tick.Never},
		"nobody waits": {func(s *Scheduler) {
			for s.e.Queue.Len() > 0 {
				s.e.RejectWaiting(s.e.Queue.Oldest(), "")
			}
		}, tick.Never},
	} {
		s, l := draining(t)
		for k, a := range []int32{2, 3} {
			l.MoveTo(tick.Ticks(3+k) * tick.Second)
			s.e.Add(request(a, 10))
		}
		s.e.Gate.SetFull(false)
		c.change(s)
		if got := s.drainer.starvesAt(); got != c.want {
			t.Errorf("%s: starves at %d, expected %d", name, got, c.want)
		}
		if got := s.LeapUntil(); got != c.want { // decode steps are crossed in a leap until then
			t.Errorf("%s: leap until %d, expected %d", name, got, c.want)
		}
	}
}

// Only running adapters can drain. Idle ones are evicted without (validate_lora_batch), so that nothing starves where
// idle adapters hold the slots and the adapters of the step that is being formed are to replace them.
func TestStarvesBesideIdleSlots(t *testing.T) {
	s, l := draining(t)
	for s.e.Batch.Len() > 0 {
		s.e.Remove(s.e.Batch.At(0))
	}
	l.MoveTo(3 * tick.Second)
	for _, a := range []int32{2, 3} { // running, but their steps have not given them slots yet
		s.e.Add(request(a, 10))
		s.e.Start(s.e.Rows.Of(a).Head())
	}
	s.e.Add(request(4, 10))
	s.e.Gate.SetFull(false)
	if got := s.drainer.starvesAt(); got != tick.Never {
		t.Errorf("starves at %d, expected never: adapters 0 and 1 hold the slots and are idle", got)
	}
}

// Draining begins the tick after the threshold, and where as many adapters run as there are slots. The adapter whose
// requests are done first drains, until none of its requests runs (update_draining_state).
func TestUpdateDrainingState(t *testing.T) {
	s, l := draining(t)
	d := &s.drainer
	s.e.Add(request(2, 10))
	s.e.Gate.SetFull(false)
	for at, want := range []int{0, 1} {
		l.MoveTo(2*tick.Second + tick.Ticks(at))
		if d.updateDrainingState(); len(d.order) != want || len(d.draining) != want || len(d.promised) != want {
			t.Fatalf("%d ticks after the threshold %d adapters drain, expected %d", at, len(d.order), want)
		}
	}
	if d.draining[1] != s.e.Rows.Of(2) || !d.promised[2] || d.left[1] != 60 {
		t.Fatalf("draining %v, promised %v, left %v; expected 1 for 2", d.draining, d.promised, d.left)
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
	for k := range s.e.Batch.Len() {
		if r := s.e.Batch.At(k); r.Adapter == 1 {
			s.e.Remove(r)
			break
		}
	}
	if d.updateDrainingState(); len(d.order)+len(d.draining)+len(d.promised) > 0 {
		t.Errorf("adapter 1 has left: draining %v, promised %v, expected none", d.draining, d.promised)
	}

	s, l = schedulerWith(t, func(p *profile.Engine) { p.LoraDrainWait, p.MaxLorasPerBatch = 2, 2 })
	d = &s.drainer
	run(s, 0, 0, 0, 100)
	s.e.LoRA.PrepareBatch(nil, true)
	s.e.Add(request(1, 10)) // its prompt is not complete: its adapter has no request in the batch
	s.e.Start(s.e.Queue.Oldest())
	s.e.Add(request(2, 10))
	s.e.Gate.SetFull(false)
	l.MoveTo(9 * tick.Second)
	if d.updateDrainingState(); len(d.order) > 0 {
		t.Errorf("draining %v, expected none: one adapter of the batch has not two slots", d.draining)
	}
}

// Before a step the gate opens where an adapter starves, so that the drainer looks at the queue.
func TestStarvingOpensGate(t *testing.T) {
	for at, want := range []bool{false, true} {
		s, l := draining(t)
		s.e.Add(request(2, 10))
		s.e.Gate.SetFull(false)
		s.e.Gate.Exhausted()
		l.MoveTo(2*tick.Second + tick.Ticks(at))
		if s.updateGate(); s.e.Gate.Open() != want {
			t.Errorf("%d ticks after the threshold: open %v, expected %v", at, s.e.Gate.Open(), want)
		}
	}
	s, l := schedulerWith(t, func(*profile.Engine) {})
	if l.MoveTo(9 * tick.Second); s.drainer.on || s.LeapUntil() != tick.Never {
		t.Error("the drainer is on without a threshold")
	}
}

// A merged mode, like head_of_line block, decides itself which adapter is next: the drainer stays off.
func TestNoDrainerWithModes(t *testing.T) {
	for _, backend := range []string{profile.BackendMerged, profile.BackendDLoRA} {
		s, _ := schedulerOf(t, func(p *profile.Profile) {
			p.Engine.LoraDrainWait, p.Latency.LoRA.Backend, p.Latency.LoRA.CreditScale = 2, backend, 1
		})
		if s.drainer.on {
			t.Errorf("%s: the drainer is on", backend)
		}
	}
}

// A draining adapter's requests of at most 1.2 times the tokens left pass: 12 of 10 is allowed, 13 is not
// (DRAIN_SCHEDULE_TOLERANCE).
func TestCanScheduleLimit(t *testing.T) {
	s, _ := draining(t)
	s.drainer.left[0], s.drainer.draining[0] = 10, s.e.Rows.Of(3)
	for _, maxNew := range []int32{13, 12} {
		s.e.Add(request(0, maxNew))
	}
	if got := s.canScheduleLoRA(s.e.Rows.Of(0)); got == nil || got.MaxNew != 12 {
		t.Errorf("%v passes, expected the request of 12 tokens", got)
	}
	if got := s.canScheduleLoRA(s.e.Rows.Of(4)); got != nil { // no slot
		t.Errorf("%v passes, expected none of an adapter without a slot", got)
	}
}

// A request whose adapter cannot get a slot is passed over; those of running adapters are next. Where a slot may be
// free, all adapters with waiting requests are candidates.
func TestCandidates(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(s *Scheduler)
		want   int
	}{
		{"all slots in use", func(*Scheduler) {}, 2},
		{"a slot is free", func(s *Scheduler) { s.e.Remove(s.e.Batch.At(0)) }, 3},
		{"an adapter may be pinned", func(s *Scheduler) { s.e.LoRA.Pin(0, true) }, 3},
	} {
		s, _ := draining(t)
		for _, a := range []int32{2, 3, 4} {
			s.e.Add(request(a, 10))
		}
		c.change(s)
		if got := s.among(); len(got) != c.want {
			t.Errorf("%s: %d candidates, expected %d", c.name, len(got), c.want)
		}
		if s.e.Add(request(0, 7)); c.want == 2 {
			if r := s.nextWaiting(); r == nil || r.MaxNew != 7 {
				t.Errorf("%s: %v is next, expected the request of adapter 0", c.name, r)
			}
		}
	}
	s, _ := draining(t)
	s.e.Add(request(2, 10))
	if got := s.among(); len(got) != 1 || got[0] != s.e.Rows.Of(2) { // fewer than the adapters that run
		t.Errorf("%d candidates, expected the only adapter with waiting requests", len(got))
	}
}
