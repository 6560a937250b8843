package sim

import (
	"context"
	"math"
	"slices"
	"testing"

	"lorasim/internal/tick"
	"lorasim/router"
	"lorasim/sim/profile"
	"lorasim/trace"
)

// The reference of merged execution: it counts requests and credits afresh
// before every single step. TestLeapsEqualSteps holds the simulator against it.

type refExecution struct {
	modes  bool
	only   bool
	fresh  bool
	row    int // merged; -1: unmerged
	credit []int64
	passed []int64
	before int64 // decode steps when passed was counted
	parked []*refRequest
}

func (w *refWorker) initModes() {
	l := &w.costs.Profile().Latency.LoRA
	w.row = -1
	w.only = l.Backend == profile.BackendMerged
	if w.modes = w.only || l.Backend == profile.BackendDLoRA; w.modes {
		w.e.StarvationS = 0
		w.credit, w.passed = make([]int64, len(w.ad)), make([]int64, len(w.ad))
	}
}

func (w *refWorker) merged() bool { return w.modes && w.row >= 0 }

// counts is the number of requests of each row on the worker.
func (s *reference) counts(w *refWorker) []int64 {
	n := make([]int64, len(w.ad))
	for _, rs := range [][]*refRequest{w.waiting, w.running, w.parked} {
		for _, r := range rs {
			n[s.row(r)]++
		}
	}
	if w.chunked != nil {
		n[s.row(w.chunked)]++
	}
	return n
}

func (s *reference) chooseMode(w *refWorker) (takes tick.Ticks) {
	for row := range w.credit {
		w.credit[row] += (w.steps - w.before) * w.passed[row]
	}
	n := s.counts(w)
	all := int64(0)
	for _, k := range n {
		all += k
	}
	to := w.row
	switch {
	case w.chunked != nil || all == 0:
	case w.row >= 0 && n[w.row] == 0, w.row < 0 && !w.fresh:
		to = s.best(w, n)
	case w.row >= 0 && !w.fresh:
		for row, c := range w.credit {
			if c >= w.costs.Profile().Latency.LoRA.SwitchCredit && n[row] > 0 {
				if to = -1; w.only {
					to = s.best(w, n)
				}
			}
		}
	}
	if to != w.row {
		takes = s.change(w, to)
	}
	s.countPassed(w)
	return takes
}

func (s *reference) countPassed(w *refWorker) {
	w.before = w.steps
	for row, k := range s.counts(w) {
		w.passed[row] = 0
		if w.row >= 0 && row != w.row {
			w.passed[row] = k
		}
	}
}

// best is the row to merge, or -1.
func (s *reference) best(w *refWorker, n []int64) int {
	rows := make([]int, 0, len(n))
	all, loras := int64(0), int64(0)
	for row, k := range n {
		if k > 0 {
			rows = append(rows, row)
		}
		all += k
		if row < len(s.ranks) {
			loras += k
		}
	}
	slices.SortStableFunc(rows, func(a, b int) int {
		if w.only && w.credit[a] != w.credit[b] {
			return int(w.credit[b] - w.credit[a])
		}
		return int(n[b] - n[a])
	})
	if w.only {
		return rows[0]
	}
	seats := int64(w.e.MaxRunningRequests)
	a, b := min(n[rows[0]], seats), min(all, seats)
	// a per step alone against b per step together, in whole numbers
	if a*int64(w.costs.DecodeFixed(b, min(loras, seats), 1)) > b*int64(w.costs.DecodeFixed(a, 0, 0)) {
		return rows[0]
	}
	return -1
}

func (s *reference) change(w *refWorker, to int) tick.Ticks {
	base := len(s.ranks)
	plain := (w.row < 0 || w.row == base) && (to < 0 || to == base)
	w.row, w.fresh, w.full = to, true, false
	if to < 0 {
		clear(w.credit)
	} else {
		w.credit[to] = 0
	}
	var running []*refRequest
	for _, r := range append(w.running, w.parked...) {
		if to < 0 || s.row(r) == to {
			running = append(running, r)
		}
	}
	parked := slices.DeleteFunc(append(slices.Clone(w.running), w.parked...), func(r *refRequest) bool { return slices.Contains(running, r) })
	slices.SortFunc(parked, func(a, b *refRequest) int { return a.order - b.order })
	w.running, w.parked = running, parked
	if plain {
		return 0
	}
	return w.costs.Switch
}

func (s *reference) resume(w *refWorker) tick.Ticks {
	to := -1
	if w.only {
		to = s.row(w.parked[0])
	}
	t := s.change(w, to)
	s.countPassed(w)
	return t
}

func (s *reference) pause(w *refWorker, t tick.Ticks) bool {
	if t == 0 {
		return false
	}
	w.filling = nil
	w.busy, w.prefilling, w.until = true, true, s.now+t
	return true
}

func (s *reference) chooseMerged(w *refWorker) int {
	k := slices.IndexFunc(w.waiting, func(r *refRequest) bool { return s.row(r) == w.row })
	a := &w.ad[w.row]
	blocking := w.e.AdapterLoading == profile.LoadBlocking
	switch {
	case k < 0 || a.loading && !blocking:
		return -1
	case a.slot:
		return k
	case !s.slotFree(w):
		return -1
	case blocking || w.row == len(s.ranks):
		return k
	}
	s.load(w, w.row)
	return -1
}

// modesProfile has dLoRA's times for a 7B model: 15 ms merged, 27 ms unmerged,
// 20 ms for a change.
func modesProfile(backend string, credit int64) profile.Profile {
	p := testProfile()
	p.Latency = profile.Latency{
		Decode:  profile.Decode{BaseMs: 15},
		Prefill: profile.Prefill{BaseMs: 10, FirstWaveFactor: 1},
		LoRA:    profile.LoRA{Backend: backend, SwitchMs: 20, UnmergedMs: 12, SwitchCredit: credit},
	}
	p.Adapters.HostToGPU = profile.Stage{LatencyMs: 0, GBPerS: 1e9}
	return p
}

func runModes(t *testing.T, p profile.Profile, reqs []trace.Request) (*ledger, *Stats) {
	t.Helper()
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	got := newLedger()
	w := trace.Workload{Adapters: trace.Names(2, []int{8}), Requests: reqs}
	st, err := Run(context.Background(), Config{Source: w.Source(), Workers: []*profile.Costs{p.Compile()},
		Router: &router.Router{Policy: byID{1}}, Observer: got, Home: router.Disk})
	if err != nil {
		t.Fatal(err)
	}
	return got, st
}

// Worked by hand. Two requests of adapter 0 and one of adapter 1 come at once.
// Merged, two requests in 15 ms are 133 tokens/s; unmerged, three in 27 ms are
// 111: adapter 0 is merged (20 ms), its prompts are prefilled (10 ms, first
// tokens at 30 ms), and each decode step gives adapter 1 one credit. At 4
// credits, 30 + 4*15 = 90 ms, the worker goes unmerged (110 ms) and prefills
// adapter 1's prompt by 120 ms; with three requests left in the batch of which
// two are adapter 0's it merges again before the next step (140 ms), and so on.
func TestDLoRAWorked(t *testing.T) {
	got, _ := runModes(t, modesProfile(profile.BackendDLoRA, 4), []trace.Request{
		{ID: 0, Adapter: 0, Prompt: 1, Output: 100},
		{ID: 1, Adapter: 0, Prompt: 1, Output: 100},
		{ID: 2, Adapter: 1, Prompt: 1, Output: 2},
	})
	if r := got.recs[0]; math.Abs(r.FirstToken-0.030) > 1e-6 {
		t.Errorf("adapter 0 has its first token at %v s, expected 0.030", r.FirstToken)
	}
	if r := got.recs[2]; math.Abs(r.FirstToken-0.120) > 1e-6 {
		t.Errorf("adapter 1 has its first token at %v s, expected 0.120", r.FirstToken)
	}
}

// One adapter alone runs at the speed of the base model, many run at that of
// unmerged execution: never slower than both.
func TestDLoRAFollowsTheMix(t *testing.T) {
	run := func(backend string, adapters int32) float64 {
		p := modesProfile(backend, 64)
		var reqs []trace.Request
		for i := range int64(40) {
			reqs = append(reqs, trace.Request{ID: i, Adapter: int32(i) % adapters, Prompt: 1, Output: 20})
		}
		_, st := runModes(t, p, reqs)
		return st.End.Seconds()
	}
	base := run(profile.BackendNone, 1)
	if alone := run(profile.BackendDLoRA, 1); math.Abs(alone-base-0.020) > 1e-4 {
		t.Errorf("one adapter takes %v s, expected the base model's %v s and one change", alone, base)
	}
	mixed := run(profile.BackendDLoRA, 2)
	if mixed < base || mixed > base*27/15+0.1 {
		t.Errorf("two adapters take %v s, expected between %v and %v s", mixed, base, base*27/15+0.1)
	}
	if alternate := run(profile.BackendMerged, 2); alternate < mixed {
		t.Errorf("backend merged takes %v s for an even mix, dlora %v s: expected dlora not to be slower", alternate, mixed)
	}
}
