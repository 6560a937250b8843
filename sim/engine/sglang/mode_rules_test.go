package sglang

import (
	"testing"

	"lorasim/sim/engine"
	"lorasim/sim/profile"
	"lorasim/sim/tick"
)

// Requests of a mode are those in the queue, in the batch and parked, not those in the front end: the scheduler has not
// received them yet (recv_requests). The base model's, 7, are counted like those of an adapter.
func TestPending(t *testing.T) {
	s, _ := schedulerOf(t, func(p *profile.Profile) {
		p.Latency.LoRA.Backend, p.Latency.LoRA.SwitchCredit = profile.BackendMerged, 100
		p.Latency.FrontEnd.PerRequestMs = 10
	})
	for _, a := range []int32{0, 0, 7, 7, 7, 2} {
		s.e.Resume(request(a, 9)) // passes the front end
	}
	for _, a := range []int32{0, 7} {
		r := s.e.Rows.Of(a).Head()
		r.TransferredKV = 1
		s.e.Start(r)
		s.e.StartTransferred(r)
	}
	for _, a := range []int32{0, 1, 7} {
		s.e.Add(request(a, 9)) // is in the front end
	}
	for row, want := range []int64{2, 0, 1, 0, 0, 0, 0, 3} {
		if got := s.modes.pending(int32(row)); got != want {
			t.Errorf("adapter %d has %d requests, expected %d", row, got, want)
		}
	}
	s.modes.change(7)
	if got := s.modes.pending(0); got != 2 {
		t.Errorf("adapter 0 has %d requests, one of them parked, expected 2", got)
	}
}

// Backend merged stays in its mode until the mode has no requests or another adapter that has some reaches the credits.
// It does not change within a prompt, nor before the mode has taken a step, nor for requests in the front end.
func TestNextMode(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(m *modes)
		want   int32
	}{
		{"below the limit", func(m *modes) { m.credit[1] = 99 }, 0},
		{"at the limit", func(m *modes) { m.credit[1] = 100 }, 1},
		{"no requests", func(m *modes) { m.credit[3], m.credit[1] = 100, 50 }, 0},
		{"most credits", func(m *modes) { m.credit[1], m.credit[2] = 100, 101 }, 2},
		{"just begun", func(m *modes) { m.credit[1], m.fresh = 100, true }, 0},
		{"within a prompt", func(m *modes) { m.credit[1], m.s.chunkedReq = 100, request(0, 1) }, 0},
		{"mode without requests", func(m *modes) { m.row = 3 }, 0}, // of equal credits the first
		{"mode without requests, just begun", func(m *modes) { m.row, m.fresh = 3, true }, 0},
		{"unmerged", func(m *modes) { m.row = unmerged }, 0},
	} {
		s := merging(t, profile.BackendMerged)
		for _, a := range []int32{0, 1, 2} {
			run(s, 0, a, 0, 500)
		}
		s.modes.row = 0
		c.change(s.modes)
		if got := s.modes.nextMode(); got != c.want {
			t.Errorf("%s: mode %d is next, expected %d", c.name, got, c.want)
		}
	}
	s, _ := schedulerOf(t, func(p *profile.Profile) {
		p.Latency.LoRA.Backend, p.Latency.LoRA.SwitchCredit = profile.BackendMerged, 100
		p.Latency.FrontEnd.PerRequestMs = 10
	})
	s.e.Add(request(1, 9))
	if s.modes.row = 3; s.modes.nextMode() != 3 {
		t.Errorf("mode %d is next for a request in the front end, expected 3", s.modes.nextMode())
	}
	s.e.Resume(request(1, 9))
	if s.modes.nextMode() != 1 {
		t.Errorf("mode %d is next, expected 1, which has a waiting request", s.modes.nextMode())
	}
	s = merging(t, profile.BackendMerged)
	run(s, 0, 1, 0, 500) // as many run as wait
	s.e.Add(request(2, 9))
	if s.modes.row = 3; s.modes.nextMode() != 1 {
		t.Errorf("mode %d is next, expected 1", s.modes.nextMode())
	}
}

// In a merged mode only requests of its adapter are next, where its weights are there or can be loaded. Loads beside
// the steps are waited for.
func TestNextOfMode(t *testing.T) {
	for _, loading := range []string{profile.LoadBlocking, profile.LoadOverlapped} {
		s, l := schedulerOf(t, func(p *profile.Profile) {
			p.Latency.LoRA.Backend, p.Latency.LoRA.SwitchCredit = profile.BackendMerged, 100
			p.Engine.AdapterLoading = loading
		})
		s.e.Add(request(0, 10))
		s.modes.row = 1
		if r := s.nextWaiting(); r != nil || !s.e.LoRA.Idle() {
			t.Errorf("%s: %v is next, expected none of the mode", loading, r)
		}
		s.modes.row = 0
		if r := s.nextWaiting(); (r != nil) != (loading == profile.LoadBlocking) || s.e.LoRA.Idle() != (r != nil) {
			t.Errorf("%s: %v is next, no load under way %v", loading, r, s.e.LoRA.Idle())
		}
		if loading == profile.LoadOverlapped {
			l.MoveTo(l.Next())
			l.Run()
		}
		if r := s.nextWaiting(); r == nil || r.Adapter != 0 {
			t.Errorf("%s: nobody is next once the adapter is loaded", loading)
		}
	}
	s := merging(t, profile.BackendMerged)
	s.e.LoRA.Unload(&s.e.Rows.Of(3).Adapter)
	s.e.Add(request(3, 10)) // its weights are being fetched to host memory
	s.modes.row = 3
	if r := s.nextWaiting(); r != nil {
		t.Errorf("%v is next, expected none before its weights are in host memory", r)
	}
}

// A mode that cannot run anything gives way to one that runs the parked requests: under merged the first one's adapter,
// under dLoRA unmerged execution, which runs all.
func TestResume(t *testing.T) {
	for backend, want := range map[string]int32{profile.BackendMerged: 2, profile.BackendDLoRA: unmerged} {
		s := merging(t, backend)
		for _, a := range []int32{2, 1, 2} {
			run(s, 0, a, 0, 500)
		}
		s.modes.change(0)
		if s.e.Batch.Len() != 0 || len(s.modes.parked) != 3 {
			t.Fatalf("%s: %d decode, %d are parked, expected 0 and 3", backend, s.e.Batch.Len(), len(s.modes.parked))
		}
		takes := s.modes.resume()
		if parked := len(s.modes.parked); s.modes.row != want || takes != 20*tick.Millisecond ||
			parked != map[bool]int{true: 0, false: 1}[want == unmerged] || s.e.Batch.Len()+parked != 3 {
			t.Errorf("%s: mode %d after %d ticks, %d parked, expected mode %d", backend, s.modes.row, takes,
				parked, want)
		}
		if want != unmerged && (s.modes.passed[1] != 1 || s.modes.passed[2] != 0) {
			t.Errorf("%s: passes over %v, expected the request of 1", backend, s.modes.passed)
		}
	}
}

// Credits of an adapter at or above the limit end a mode with the next step: the scheduler may leap over no more. Where
// no other adapter has requests, the mode never ends.
func TestStepLimit(t *testing.T) {
	for _, c := range []struct {
		credit, passed, want int64
	}{{0, 2, 50}, {99, 2, 1}, {97, 2, 2}, {96, 2, 2}, {95, 2, 3}, {100, 2, 1}, {300, 2, 1}} {
		m := merging(t, profile.BackendMerged).modes
		m.credit[1], m.passed[1] = c.credit, c.passed
		if got := m.stepLimit(); got != c.want {
			t.Errorf("%d credits, %d more a step: %d steps, expected %d", c.credit, c.passed, got, c.want)
		}
	}
	s := merging(t, profile.BackendMerged)
	if got := s.leapLimit(); got != 1<<62 {
		t.Errorf("nobody is passed over: %d steps, expected no limit", got)
	}
	s.modes.passed[1], s.modes.fresh, s.modes.decided = 2, true, true
	if got := s.leapLimit(); got != 1 || s.modes.fresh || s.modes.decided { // after that step the mode is not new
		t.Errorf("a new mode: %d steps, then new %v, decided %v", got, s.modes.fresh, s.modes.decided)
	}
	if got := s.leapLimit(); got != 50 {
		t.Errorf("%d steps, expected 50", got)
	}
}

// dLoRA decides once a step. It decides again where its mode has no requests left, as nothing came of the decision.
func TestDecidesOnce(t *testing.T) {
	s := merging(t, profile.BackendDLoRA)
	m := s.modes
	if m.decided = true; m.choose() != 0 || m.decided {
		t.Error("without requests a decision is kept")
	}
	rs := []*engine.Request{run(s, 0, 0, 0, 500), run(s, 0, 1, 0, 500)}
	m.decided = true
	if m.choose(); !m.decided {
		t.Error("unmerged, with requests, it decides twice")
	}
	m.change(0)
	m.decided = true
	if m.choose(); !m.decided || m.row != 0 {
		t.Error("merged, with requests, it decides twice")
	}
	s.e.Remove(rs[0])
	s.e.Finish(rs[0], 0, "")
	if m.choose(); m.row == 0 {
		t.Error("it stays with an adapter without requests")
	}
}
