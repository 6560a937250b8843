package sglang

import (
	"reflect"
	"slices"
	"testing"

	"lorasim/sim/engine"
	"lorasim/sim/profile"
)

// merging is a scheduler whose backend merges adapters into the weights: an adapter's mode ends once another has 100
// credits.
func merging(t *testing.T, backend string) *Scheduler {
	t.Helper()
	s, _ := schedulerOf(t, func(p *profile.Profile) {
		l := &p.Latency.LoRA
		l.Backend, l.SwitchCredit, l.CreditScale, l.SwitchMs = backend, 100, 1000, 20
	})
	return s
}

// A prefill step takes slots of running requests where loads wait for the step; with merged adapters it does not.
func TestRules(t *testing.T) {
	for _, c := range []struct {
		backend, loading string
		displaces        bool
	}{
		{profile.BackendCSGMV, profile.LoadBlocking, true}, {profile.BackendCSGMV, profile.LoadOverlapped, false},
		{profile.BackendMerged, profile.LoadBlocking, false}, {profile.BackendDLoRA, profile.LoadBlocking, false},
	} {
		p := profile.Default()
		p.Latency.LoRA.Backend, p.Engine.AdapterLoading = c.backend, c.loading
		if got := rules(&p).LoRA.Displaces; got != c.displaces {
			t.Errorf("%s, %s: displaces %v, expected %v", c.backend, c.loading, got, c.displaces)
		}
	}
	for _, change := range []func(p *profile.Engine){
		func(*profile.Engine) {}, func(p *profile.Engine) { p.HeadOfLine = profile.HeadOfLineBlock },
	} {
		s, _ := schedulerWith(t, func(p *profile.Engine) {
			p.LoraDrainWait = 2
			change(p)
		})
		if s.drainer.on == s.headOfLineBlock {
			t.Errorf("head of line blocks %v, drainer on %v", s.headOfLineBlock, s.drainer.on)
		}
	}
}

// Each decode step of a merged adapter gives the others a credit for every request that it passes over. The mode ends
// when one has enough.
func TestMergedCredits(t *testing.T) {
	s := merging(t, profile.BackendMerged)
	m := s.modes
	for _, a := range []int32{0, 0, 1, 1, 1, 2, 7} { // 7 is the base model
		run(s, 0, a, 0, 500)
	}
	if takes := m.choose(); m.row != 1 || takes == 0 || len(m.parked) != 4 || s.e.Batch.Len() != 3 || !s.e.Merged {
		t.Fatalf("row %d, %d parked, expected the adapter with most requests", m.row, len(m.parked))
	}
	if err := s.e.Check(); err != nil {
		t.Error(err)
	}
	if want := []int64{2, 0, 1, 0, 0, 0, 0, 1}; !slices.Equal(m.passed, want) {
		t.Fatalf("passed over: %v, expected %v", m.passed, want)
	}
	if got := m.stepLimit(); got != 1 {
		t.Errorf("a mode that has just begun may change after %d steps, expected 1", got)
	}
	m.fresh = false
	if got := m.stepLimit(); got != 50 { // 100 credits, two a step
		t.Errorf("the mode may change after %d steps, expected 50", got)
	}
	m.credit[0] = 9
	if got := m.stepLimit(); got != 46 { // 91 of two a step
		t.Errorf("the mode may change after %d steps, expected 46", got)
	}
	s.e.Batch.Steps += 45
	if m.choose(); m.row != 1 || m.credit[0] != 99 || m.credit[2] != 45 {
		t.Errorf("row %d, credits %v, expected row 1 and 99, 0, 45", m.row, m.credit)
	}
	s.e.Batch.Steps++
	if m.choose(); m.row != 0 || m.credit[0] != 0 || m.credit[2] != 46 || s.e.Batch.Len() != 2 || len(m.parked) != 5 {
		t.Errorf("row %d, credits %v, %d run, %d parked; expected row 0 for its credits", m.row, m.credit,
			s.e.Batch.Len(), len(m.parked))
	}
}

// Of equal credits the adapter with most requests is next, of these the first.
func TestMostCredits(t *testing.T) {
	for _, c := range []struct {
		credit []int64
		want   int32
	}{
		{[]int64{0, 0, 0}, 1}, {[]int64{5, 5, 5}, 1}, {[]int64{6, 5, 5}, 0}, {[]int64{5, 5, 6}, 2},
		{[]int64{5, 4, 5}, 2},
	} {
		s := merging(t, profile.BackendMerged)
		for _, a := range []int32{0, 1, 1, 2, 2} {
			run(s, 0, a, 0, 500)
		}
		copy(s.modes.credit, c.credit)
		s.modes.credit[4] = 1000 // of an adapter without requests
		if got := s.modes.mostCredits(); got != c.want {
			t.Errorf("credits %v: adapter %d, expected %d", c.credit, got, c.want)
		}
	}
}

// What the new mode runs keeps its place in the batch; what it does not is parked in the order in which it came, and
// retracted from the latest.
func TestChange(t *testing.T) {
	s := merging(t, profile.BackendMerged)
	var rs []*engine.Request
	for id, a := range []int32{0, 1, 0, 1, 2} {
		r := run(s, 0, a, 0, 500)
		r.ID = int64(id)
		rs = append(rs, r)
	}
	orders := [2]int64{rs[0].Order(), rs[2].Order()}
	m := s.modes
	if takes := m.change(0); takes != s.e.Costs.Switch || rs[0].Order() != orders[0] || rs[2].Order() != orders[1] {
		t.Errorf("the change takes %d, the requests that go on have places %d and %d, expected %v", takes, rs[0].Order(),
			rs[2].Order(), orders)
	}
	if !slices.Equal(m.parked, []*engine.Request{rs[1], rs[3], rs[4]}) || s.Running() != 5 {
		t.Fatalf("%d requests are parked, %d run, expected 1, 3 and 4 of 5", len(m.parked), s.Running())
	}
	if m.retract(); !slices.Equal(m.parked, []*engine.Request{rs[1], rs[3]}) || rs[4].State() != engine.Waiting ||
		rs[4].Computed != 0 || s.e.Queue.Len() != 1 {
		t.Errorf("%d requests are parked, request 4 in state %d", len(m.parked), rs[4].State())
	}
	for _, r := range []*engine.Request{rs[0], rs[2]} {
		s.e.Remove(r)
		s.e.Finish(r, 0, "")
	}
	if m.resume(); m.row != 1 || len(m.parked) != 0 || s.e.Batch.Len() != 2 {
		t.Errorf("row %d runs %d requests, %d are parked; expected row 1 to go on", m.row, s.e.Batch.Len(),
			len(m.parked))
	}
	// the base model's weights are those of unmerged execution
	m.row = unmerged
	if takes := m.change(7); takes != 0 || !s.e.Merged {
		t.Errorf("a change to the base model alone takes %d", takes)
	}
}

// Under dLoRA a run of decode steps is as many iterations, the one that is being decided included.
func TestIterations(t *testing.T) {
	s := merging(t, profile.BackendDLoRA)
	iterations := func() int64 { return reflect.ValueOf(s.modes.credits).Elem().FieldByName("iters").Int() }
	for _, a := range []int32{0, 1, 1} {
		run(s, 0, a, 0, 500)
	}
	s.modes.choose()
	if got := iterations(); got != 1 || s.modes.row != unmerged || !s.modes.decided {
		t.Fatalf("%d iterations of row %d, expected 1 unmerged", got, s.modes.row)
	}
	if s.modes.choose(); iterations() != 1 {
		t.Error("an iteration is decided twice")
	}
	s.e.Batch.Steps += 5
	s.modes.decided = false
	if s.modes.choose(); iterations() != 6 {
		t.Errorf("%d iterations after 5 steps, expected 6", iterations())
	}
	s.chunkedReq = request(0, 1) // nothing changes before its prompt is complete
	s.modes.decided = false
	if s.modes.choose(); s.modes.decided {
		t.Error("a mode was decided within a prompt")
	}
}

// Requests are retracted until the next step has memory, and none where it has: those with the fewest tokens first, of
// these the longest prompt, of these the last in the batch.
func TestRetractDecode(t *testing.T) {
	for free, want := range map[int64][]int64{4: nil, 3: {3}, 2: {3}} {
		s, _ := schedulerWith(t, func(*profile.Engine) {})
		var retracted []int64
		for id, r := range []*engine.Request{run(s, 0, 0, 9, 500), run(s, 0, 0, 3, 500), run(s, 0, 1, 3, 500),
			run(s, 0, 1, 2, 500)} {
			r.ID = int64(id)
		}
		s.e.KV.Reserve(s.e.KV.Free() - free)
		s.retractDecode()
		for r := range s.e.Queue.All() {
			retracted = append(retracted, r.ID)
		}
		if !slices.Equal(retracted, want) {
			t.Errorf("%d pages free for 4 requests: %v retracted, expected %v", free, retracted, want)
		}
		if changed := s.ratio.since == 1; changed != (want != nil) {
			t.Errorf("%d pages free: the ratio is estimated anew %v", free, changed)
		}
	}
	for _, c := range []struct {
		prompts [3]int32
		want    int64
	}{{[3]int32{1, 1, 1}, 2}, {[3]int32{1, 5, 4}, 1}, {[3]int32{5, 5, 4}, 1}} {
		s, _ := schedulerWith(t, func(*profile.Engine) {})
		for id := range 3 {
			r := run(s, 0, 0, 3, 500)
			r.ID, r.Prompt = int64(id), c.prompts[id]
		}
		if got := s.retractVictim(); got.ID != c.want {
			t.Errorf("prompts of %v: request %d is retracted, expected %d", c.prompts, got.ID, c.want)
		}
	}
}
