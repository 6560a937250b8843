package sim

import (
	"context"
	"math"
	"slices"
	"testing"

	"lorasim/router"
	"lorasim/sim/profile"
	"lorasim/sim/tick"
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
	dlora  *refCredits

	decided bool // by credits, and no step has begun since
}

// refCredits is dLoRA's _credit_schedule, _adjust_credit and
// _adjust_merge_threshold, one iteration after the other, on the requests
// themselves.
type refCredits struct {
	B                             int
	have                          []int64
	right, left, cost, batchCost  int64
	mergeTime, unmergeTime, swtch float64
	mergeLeft, mergeRight         float64
	merged                        bool
	active, maxModel              int
	previous                      []int
	iters, virtual                int
	mergeCnt, unmergeCnt          int
}

func (c *refCredits) adjustCredit(row func(*refRequest) int, fcfs, scheduled []*refRequest, cost int64) {
	var in, out []*refRequest
	for _, r := range scheduled {
		if slices.Contains(fcfs, r) {
			in = append(in, r)
		} else {
			out = append(out, r)
		}
	}
	sorted := append(in, out...)
	if len(fcfs) == len(sorted) {
		for k, r := range sorted {
			if !slices.Contains(fcfs, r) {
				c.have[row(r)] -= cost
				c.have[row(fcfs[k])] += cost
			}
		}
		return
	}
	for _, r := range fcfs {
		if !slices.Contains(scheduled, r) {
			c.have[row(sorted[0])] -= cost / 2
			c.have[row(r)] += cost / 2
		}
	}
}

func (c *refCredits) adjustThreshold() {
	if c.iters == 0 {
		return
	}
	tm, tu := c.mergeTime*float64(c.iters), c.unmergeTime*float64(c.iters)
	if c.merged {
		tm += c.swtch
	} else {
		tu += c.swtch
		tm += float64(c.swtch * float64(c.virtual))
	}
	m, u := float64(c.mergeCnt)/tm, float64(c.unmergeCnt)/tu
	if c.merged {
		if m > u && c.mergeRight-0.05 > c.mergeLeft {
			c.mergeRight -= 0.05
		} else if m < u {
			c.mergeRight *= 1.1
		}
	} else {
		if u > m && c.mergeLeft+0.05 < c.mergeRight {
			c.mergeLeft += 0.05
		} else if u < m {
			c.mergeLeft /= 1.1
		}
	}
	c.mergeCnt, c.unmergeCnt, c.virtual, c.maxModel = 0, 0, 0, -1
}

func (c *refCredits) schedule(row func(*refRequest) int, queued []*refRequest) int {
	fcfs := queued[:min(len(queued), c.B)]
	of := make([][]*refRequest, len(c.have))
	for _, r := range queued {
		of[row(r)] = append(of[row(r)], r)
	}
	var order, models []int
	for m := range c.have {
		order = append(order, m)
	}
	slices.SortStableFunc(order, func(a, b int) int {
		if c.have[a] == c.have[b] {
			return 0
		} else if c.have[a] > c.have[b] {
			return -1
		}
		return 1
	})
	left := c.B
	var scheduled []*refRequest
	for _, m := range order {
		if c.have[m] < c.left {
			break
		}
		if c.have[m] >= c.right || slices.Contains(c.previous, m) {
			k := min(left, len(of[m]))
			scheduled = append(scheduled, of[m][:k]...)
			models = append(models, m)
			if left -= k; left == 0 {
				break
			}
		}
	}
	c.previous = models
	toMerge := false
	if left == c.B {
		maxModel := -1
		for m := range c.have {
			if c.have[m] >= 0 && (maxModel < 0 || len(of[m]) > len(of[maxModel])) {
				maxModel = m
			}
		}
		var byBatch []*refRequest
		switch {
		case c.merged && c.have[c.active] >= 0 && float64(len(of[c.active])) >= c.mergeLeft*float64(len(fcfs)):
			toMerge = true
			c.iters++
			byBatch = of[c.active]
			c.adjustCredit(row, fcfs, byBatch, c.batchCost)
		case maxModel >= 0 && float64(len(of[maxModel])) >= c.mergeRight*float64(len(fcfs)):
			c.adjustThreshold()
			toMerge, c.merged, c.iters, c.active = true, true, 1, maxModel
			byBatch = of[maxModel][:min(len(of[maxModel]), c.B)]
			c.adjustCredit(row, fcfs, byBatch, c.batchCost)
		default:
			if c.maxModel != maxModel {
				c.virtual++
				c.maxModel = maxModel
			}
			if maxModel >= 0 {
				byBatch = of[maxModel]
			}
		}
		c.mergeCnt += min(len(byBatch), c.B)
		c.unmergeCnt += len(fcfs)
	} else {
		for _, r := range fcfs {
			if left > 0 && !slices.Contains(scheduled, r) {
				scheduled = append(scheduled, r)
				left--
			}
		}
		c.adjustCredit(row, fcfs, scheduled, c.cost)
	}
	if toMerge {
		return c.active
	}
	if c.merged {
		c.adjustThreshold()
		c.merged, c.iters = false, 1
	} else {
		c.iters++
	}
	return -1
}

func (w *refWorker) initModes() {
	l := &w.costs.Profile().Latency.LoRA
	w.row = -1
	w.only = l.Backend == profile.BackendMerged
	if w.modes = w.only || l.Backend == profile.BackendDLoRA; w.modes {
		w.e.LoraDrainWait = 0
		w.credit, w.passed = make([]int64, len(w.ad)), make([]int64, len(w.ad))
		if !w.only {
			n, seats, scale := int64(len(w.ad)), int64(w.e.MaxRunningRequests), l.CreditScale
			merge := w.costs.Step(&profile.StepWork{Batch: seats}).Seconds()
			unmerge := w.costs.Step(&profile.StepWork{Batch: seats, LoRAs: seats}).Seconds()
			w.dlora = &refCredits{B: int(seats), right: scale * n << 20, left: scale*n<<20 - scale<<20/2,
				cost:      1 << 20 / seats,
				batchCost: 2 * int64(math.Round(1<<19/(float64(merge/unmerge)*float64(seats)))),
				mergeTime: merge, unmergeTime: unmerge, swtch: w.costs.Switch.Seconds(),
				mergeLeft: merge / unmerge, mergeRight: 1, maxModel: -1}
			for range n {
				w.dlora.have = append(w.dlora.have, scale*(n-1)<<20)
			}
		}
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
	if w.dlora != nil {
		queued := append(append(slices.Clone(w.running), w.parked...), w.waiting...)
		if len(queued) == 0 || w.row >= 0 && s.counts(w)[w.row] == 0 {
			w.decided = false
		}
		if w.decided || w.chunked != nil || len(queued) == 0 {
			return 0
		}
		w.decided = true
		slices.SortFunc(queued, func(a, b *refRequest) int { return a.order - b.order })
		if w.dlora.merged = w.row >= 0; w.row >= 0 {
			w.dlora.active = w.row
		}
		if to := w.dlora.schedule(s.row, queued); to != w.row {
			return s.change(w, to)
		}
		return 0
	}
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
	case w.row < 0 || n[w.row] == 0:
		to = s.best(w, n)
	case !w.fresh:
		for row, c := range w.credit {
			if c >= w.costs.Profile().Latency.LoRA.SwitchCredit && n[row] > 0 {
				to = s.best(w, n)
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

// best is the row with most credits, of equals the one with most requests.
func (s *reference) best(w *refWorker, n []int64) int {
	var rows []int
	for row, k := range n {
		if k > 0 {
			rows = append(rows, row)
		}
	}
	slices.SortStableFunc(rows, func(a, b int) int {
		if w.credit[a] != w.credit[b] {
			return int(w.credit[b] - w.credit[a])
		}
		return int(n[b] - n[a])
	})
	return rows[0]
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
	parked := slices.DeleteFunc(append(slices.Clone(w.running), w.parked...),
		func(r *refRequest) bool { return slices.Contains(running, r) })
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
	case k < 0 || a.loading && !blocking || !s.inHost(w, w.row):
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
		LoRA:    profile.LoRA{Backend: backend, SwitchMs: 20, UnmergedMs: 12, SwitchCredit: credit, CreditScale: 10000},
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
		Router: &router.Router{Policy: byID{n: 1}}, Observer: got, Home: router.Disk})
	if err != nil {
		t.Fatal(err)
	}
	return got, st
}

// Worked by hand. Two requests of adapter 0 and one of adapter 1 come at once;
// an adapter is merged at first once it has all of the requests that are there,
// so that they run unmerged: prefill until 10 ms, then steps of 27 ms. Adapter
// 1's second token comes at 37 ms. Adapter 0 alone is merged then, in 20 ms, and
// goes on in steps of 15.
func TestDLoRAWorked(t *testing.T) {
	got, _ := runModes(t, modesProfile(profile.BackendDLoRA, 4), []trace.Request{
		{ID: 0, Adapter: 0, Prompt: 1, Output: 100},
		{ID: 1, Adapter: 0, Prompt: 1, Output: 100},
		{ID: 2, Adapter: 1, Prompt: 1, Output: 2},
	})
	for id, want := range map[int64]float64{0: 0.037 + 0.020 + 98*0.015, 2: 0.037} {
		if r := got.recs[id]; math.Abs(r.Finish-want) > 1e-6 {
			t.Errorf("request %d ends at %v s, expected %v", id, r.Finish, want)
		}
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
		t.Errorf("backend merged takes %v s for an even mix, dlora %v s: expected dlora not to be slower", alternate,
			mixed)
	}
}
