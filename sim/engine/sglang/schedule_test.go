package sglang

import (
	"slices"
	"testing"

	"lorasim/sim/engine"
	"lorasim/sim/profile"
	"lorasim/sim/tick"
)

// What opens a full gate: a new request where it may preempt, the end of a load where the queue's first request may
// wait for it. A merged mode ends at any change of the queue.
func TestGateOpens(t *testing.T) {
	for name, c := range map[string]struct {
		change                func(p *profile.Profile)
		arrival, load, always bool
	}{
		"default":  {func(*profile.Profile) {}, false, false, false},
		"blocking": {func(p *profile.Profile) { p.Engine.HeadOfLine = profile.HeadOfLineBlock }, false, true, false},
		"priority": {func(p *profile.Profile) { p.Engine.SchedulePolicy = profile.OrderPriority }, true, false, false},
		"priority without preemption": {func(p *profile.Profile) {
			p.Engine.SchedulePolicy, p.Engine.NoPriorityPreemption = profile.OrderPriority, true
		}, false, false, false},
		"merged": {func(p *profile.Profile) { p.Latency.LoRA.Backend = profile.BackendMerged }, false, false, true},
	} {
		s, _ := schedulerOf(t, c.change)
		if g := &s.e.Gate; g.ArrivalOpens != c.arrival || g.LoadOpens != c.load || g.Always != c.always {
			t.Errorf("%s: a full gate opens at arrivals %v, at loads %v, always %v", name, g.ArrivalOpens, g.LoadOpens,
				g.Always)
		}
	}
}

// An idle scheduler starts no step and resets the new-token ratio (on_idle).
func TestIdle(t *testing.T) {
	for _, backend := range []string{profile.BackendCSGMV, profile.BackendMerged, profile.BackendDLoRA} {
		s := merging(t, backend)
		s.ratio, s.e.Batch.Steps = newTokenRatio{value: 0.3}, 7
		if s.Schedule(); s.e.Step.Decodes() || s.ratio != (newTokenRatio{value: 0.7, since: 7}) {
			t.Errorf("%s: ratio %+v, expected 0.7 from step 7 on", backend, s.ratio)
		}
	}
}

// A request that does not fit fails once nothing runs, is loaded or holds memory for a transfer: nothing that happens
// could let it in. Those behind it run.
func TestFailsHead(t *testing.T) {
	for name, c := range map[string]struct {
		change func(s *Scheduler)
		left   int // waiting requests
		fill   int
	}{
		"alone":             {func(*Scheduler) {}, 0, 1},
		"beside a load":     {func(s *Scheduler) { s.e.LoRA.StartLoad(&s.e.Rows.Of(5).Adapter) }, 2, 0},
		"beside a transfer": {func(s *Scheduler) { s.e.KV.Reserve(9) }, 2, 0},
		"beside a request":  {func(s *Scheduler) { run(s, 0, 3, 0, 9) }, 2, 0},
	} {
		s, _ := schedulerWith(t, func(*profile.Engine) {})
		r := request(0, 10)
		r.Prompt = 2000 // of 1000 that there are
		s.e.Add(r)
		s.e.Add(request(1, 10))
		c.change(s)
		s.Schedule()
		if s.e.Queue.Len() != c.left || len(s.e.Step.Prompts) != c.fill {
			t.Errorf("%s: %d wait, %d prompts, expected %d and %d", name, s.e.Queue.Len(), len(s.e.Step.Prompts),
				c.left, c.fill)
		}
	}
}

// With the gate closed the batch decodes without a look at the queue, which stays to be looked at: sglang returns early
// where batch_is_full.
func TestClosedGate(t *testing.T) {
	for full, prompts := range map[bool]int{true: 0, false: 1} {
		s, _ := schedulerWith(t, func(*profile.Engine) {})
		run(s, 0, 0, 0, 10)
		s.e.Add(request(1, 10))
		s.e.Gate.SetFull(full)
		if s.Schedule(); len(s.e.Step.Prompts) != prompts || s.e.Step.Decodes() != full {
			t.Errorf("full %v: %d prompts, decodes %v", full, len(s.e.Step.Prompts), s.e.Step.Decodes())
		}
		s.e.Gate.SetFull(false)
		if full && !s.e.Gate.Open() {
			t.Error("the queue counts as looked at")
		}
	}
}

// The mode goes to the parked requests where that of the present one does not fit beside them.
func TestModeThatFindsNoMemory(t *testing.T) {
	s := merging(t, profile.BackendMerged)
	run(s, 0, 1, 0, 500)
	r := request(0, 10)
	r.Prompt = 2000
	s.e.Add(r)
	s.modes.change(0)
	if s.Schedule(); s.modes.row != 1 || len(s.modes.parked) != 0 || s.e.Queue.Len() != 1 {
		t.Errorf("mode %d, %d are parked, %d wait; expected mode 1 to run its request", s.modes.row,
			len(s.modes.parked), s.e.Queue.Len())
	}
}

// Where memory runs out, parked requests give theirs first; running ones where none is parked.
func TestRetractParkedFirst(t *testing.T) {
	for _, parks := range []bool{true, false} {
		s := merging(t, profile.BackendMerged)
		rs := []*engine.Request{run(s, 0, 0, 0, 500), run(s, 0, 0, 0, 500), run(s, 0, 1, 0, 500)}
		if parks {
			s.modes.change(0)
		}
		s.e.KV.Reserve(s.e.KV.Free() - 1)
		s.retractDecode()
		if !parks {
			if s.e.Queue.Len() != 1 || s.e.Batch.Len() != 2 {
				t.Errorf("none parked: %d wait, %d run, expected 1 and 2", s.e.Queue.Len(), s.e.Batch.Len())
			}
			continue
		}
		if rs[2].State() != engine.Waiting || s.e.Batch.Len() != 2 || len(s.modes.parked) != 0 {
			t.Errorf("the parked request is in state %d, %d run, expected it to wait", rs[2].State(), s.e.Batch.Len())
		}
	}
}

// An engine that loses its memory lists each request once that neither waits nor decodes.
func TestOrphans(t *testing.T) {
	s := merging(t, profile.BackendMerged)
	entering, filling, chunked := request(0, 1), request(0, 2), request(0, 3)
	parked := run(s, 0, 1, 0, 9)
	s.modes.change(0)
	s.e.Step.Prompts = []engine.Chunk{{Request: chunked}, {Request: filling}}
	s.chunkedReq = chunked
	got := s.Orphans([]*engine.Request{entering})
	if want := []*engine.Request{entering, filling, chunked, parked}; !slices.Equal(got, want) {
		t.Errorf("%d requests, expected one each in the front end, in the step, between chunks and parked", len(got))
	}
	s.chunkedReq, s.modes = nil, nil
	if got := s.Orphans(nil); !slices.Equal(got, []*engine.Request{chunked, filling}) {
		t.Errorf("%d requests, expected the two of the step", len(got))
	}
}

// Requests use at least none and at most all of their budgets, or, as set, more: the bounds are allowed.
func TestCheckRatio(t *testing.T) {
	for _, c := range []struct {
		set, value float64
		ok         bool
	}{{0.7, 0, true}, {0.7, 1, true}, {1.2, 1.2, true}, {1.2, 1.3, false}} {
		s, _ := schedulerWith(t, func(p *profile.Engine) { p.NewTokenRatio = c.set })
		if s.ratio.value = c.value; (s.Check() == nil) != c.ok {
			t.Errorf("ratio %v, set to %v: %v", c.value, c.set, s.Check())
		}
	}
}

// A change takes time where weights are added or subtracted: those of the base model are those of unmerged execution.
func TestChangeTakes(t *testing.T) {
	const base, takes = 7, 20 * tick.Millisecond
	for _, c := range []struct {
		from, to int32
		want     tick.Ticks
	}{
		{unmerged, base, 0}, {base, unmerged, 0}, {unmerged, 1, takes}, {1, unmerged, takes}, {base, 1, takes},
		{1, base, takes}, {0, 1, takes},
	} {
		m := merging(t, profile.BackendDLoRA).modes
		m.row = c.from
		if got := m.change(c.to); got != c.want || m.s.e.Merged != (c.to != unmerged) || !m.fresh {
			t.Errorf("from %d to %d: takes %d, expected %d; merged %v", c.from, c.to, got, c.want, m.s.e.Merged)
		}
	}
}
