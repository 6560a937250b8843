package sim

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"lorasim/router"
	_ "lorasim/router/builtin"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/sim/tick"
	"lorasim/trace"
)

// ledger is an observer that keeps everything, token by token.
type ledger struct {
	recs   map[int64]record.Request
	twice  []int64
	gaps   map[tick.Ticks]int64
	tokens map[tick.Ticks]int64
}

func newLedger() *ledger {
	return &ledger{recs: map[int64]record.Request{}, gaps: map[tick.Ticks]int64{}, tokens: map[tick.Ticks]int64{}}
}

func (l *ledger) Done(r *record.Request) {
	if _, ok := l.recs[r.ID]; ok {
		l.twice = append(l.twice, r.ID)
	}
	l.recs[r.ID] = *r
}
func (l *ledger) Tokens(at tick.Ticks, n int64) { l.tokens[at] += n }
func (l *ledger) Gap(d tick.Ticks, n int64)     { l.gaps[d] += n }
func (l *ledger) Steps(s record.Steps) {
	for i := range s.Count {
		l.tokens[s.End(i+1)] += s.Batch
		if i > 0 {
			l.gaps[s.First+s.Incr*tick.Ticks(i)] += s.Batch
		}
	}
}

// byID routes a request to worker (id mod workers).
type byID struct {
	router.Base
	n int
}

func (p byID) Route(r router.Request, v *router.View) router.Decision { return router.To(p.pick(r, v)) }

func (p byID) pick(r router.Request, _ *router.View) int { return int(r.ID) % p.n }

// byUsable routes a request to one of the workers that take any, by its id.
type byUsable struct{ router.Base }

func (p byUsable) Route(r router.Request, v *router.View) router.Decision {
	return router.To(p.pick(r, v))
}

func (p byUsable) pick(r router.Request, v *router.View) int {
	var usable []int
	for i := range v.Workers {
		if v.Workers[i].Usable() {
			usable = append(usable, i)
		}
	}
	if len(usable) == 0 {
		return router.None
	}
	return usable[int(r.ID)%len(usable)]
}

// testProfile has round step times and no spare memory.
func testProfile() profile.Profile {
	p := profile.Default()
	p.Name = "test"
	p.Latency.Decode = profile.Decode{BaseMs: 10, PerRequestMs: 1, PerKVTokenUs: 3}
	p.Latency.Prefill = profile.Prefill{BaseMs: 5, PerTokenUs: 50, PerTokenCtxNs: 7, FirstWaveFactor: 2,
		FirstExtendMs: 3}
	p.Latency.LoRA = profile.LoRA{Backend: profile.BackendCSGMV, CSGMVUs: 20, PrefillFactor: 0.25}
	p.Latency.RequestOverheadMs = 1.5
	p.Memory.KVTokens = 1000
	return p
}

func genProfile(t *rapid.T) profile.Profile {
	p := testProfile()
	e := &p.Engine
	pick := func(name string, v ...int) int { return rapid.SampledFrom(v).Draw(t, name) }
	p.Memory.KVTokens = int64(pick("kv", 64, 150, 400, 5000))
	e.PageSize = pick("page", 1, 1, 4, 16)
	e.MaxRunningRequests = pick("max_running", 1, 2, 5, 64)
	e.ChunkedPrefillSize = pick("chunk", 0, 8, 32, 64)
	e.MaxPrefillTokens = pick("max_prefill", 20, 100, 16384)
	e.ContextLength = pick("context", 60, 4096)
	e.ContextOverflow = rapid.SampledFrom([]string{profile.OverflowReject, profile.OverflowPrompt,
		profile.OverflowIgnore}).Draw(t, "overflow")
	e.MaxLorasPerBatch = pick("slots", 1, 2, 4)
	if rapid.Bool().Draw(t, "host_limit") {
		e.MaxLoadedLoras = e.MaxLorasPerBatch + pick("host", 0, 1, 3)
	}
	e.HeadOfLine = rapid.SampledFrom([]string{profile.HeadOfLineBlock, profile.HeadOfLineSkip}).Draw(t, "hol")
	e.LoraDrainWait = rapid.SampledFrom([]float64{0, 0.05, 0.3, 3}).Draw(t, "drain")
	e.AdapterLoading = rapid.SampledFrom([]string{profile.LoadBlocking, profile.LoadOverlapped}).Draw(t, "loading")
	e.AdapterEviction = rapid.SampledFrom([]string{profile.EvictLRU, profile.EvictFIFO}).Draw(t, "eviction")
	switch rapid.SampledFrom([]string{profile.SchedulerSGLang, profile.SchedulerSGLang, profile.SchedulerVLLM,
		profile.SchedulerVLLM, profile.SchedulerSLoRA}).Draw(t, "scheduler") {
	case profile.SchedulerSLoRA:
		prefill, running := e.MaxPrefillTokens, e.MaxRunningRequests
		e.UseSLoRA()
		e.MaxPrefillTokens, e.MaxRunningRequests = max(prefill, 100), running
		e.AdapterCellsPerRank = pick("cells", 0, 1, 4)
		switch rapid.SampledFrom([]string{"", "", profile.OrderLIFO, "abort"}).Draw(t, "queue") {
		case profile.OrderLIFO:
			e.SchedulePolicy = profile.OrderLIFO
		case "abort":
			e.EnableAbort = true
		}
	case profile.SchedulerVLLM:
		e.Scheduler = profile.SchedulerVLLM
		e.MaxNumBatchedTokens = e.MaxRunningRequests + pick("batched", 0, 3, 20, 2048)
		e.LongPrefillTokenThreshold = pick("long_prefill", 0, 0, 1, 5, 20)
		e.NoReserveFullISL = rapid.Bool().Draw(t, "first_chunk")
		e.NoChunkedPrefill = e.MaxNumBatchedTokens >= e.ContextLength && rapid.Bool().Draw(t, "whole")
		e.AsyncScheduling = rapid.Bool().Draw(t, "async")
		e.VLLMVersion = rapid.SampledFrom([]string{"", "0.33"}).Draw(t, "version")
	}
	if l := &p.Latency.LoRA; e.Scheduler == profile.SchedulerSGLang && rapid.Bool().Draw(t, "modes") {
		l.Backend = rapid.SampledFrom([]string{profile.BackendMerged, profile.BackendDLoRA}).Draw(t, "backend")
		l.SwitchMs = rapid.SampledFrom([]float64{0.01, 20}).Draw(t, "switch")
		l.UnmergedMs = rapid.SampledFrom([]float64{0.01, 1, 12}).Draw(t, "unmerged")
		l.SwitchCredit = int64(pick("credit", 1, 7, 100))
		l.CreditScale = int64(pick("scale", 1, 2, 10000))
	}
	if rapid.Bool().Draw(t, "front_end") {
		p.Latency.FrontEnd = profile.FrontEnd{
			PerRequestMs: rapid.SampledFrom([]float64{0, 1, 30}).Draw(t, "per_request"),
			FirstUseMs:   rapid.SampledFrom([]float64{0, 10, 300}).Draw(t, "first_use"),
		}
	}
	if l := &p.Latency; l.LoRA.Backend == profile.BackendCSGMV && rapid.Bool().Draw(t, "law") {
		genAdapterLaw(t, &p)
	}
	if l := &p.Latency; l.Law != profile.LawAdapters && rapid.Bool().Draw(t, "experts") {
		l.Experts = profile.Experts{Count: pick("count", 1, 8, 128), TopK: 1,
			ReadMs: rapid.SampledFrom([]float64{0, 0.5, 40}).Draw(t, "read")}
	}
	if l := &p.Latency.LoRA; l.Backend == profile.BackendCSGMV && p.Latency.Law != profile.LawAdapters &&
		rapid.Bool().Draw(t, "kernels") {
		of, err := profile.Load(context.Background(), "analytic:llama-2-7b,h100,engine="+
			rapid.SampledFrom([]string{profile.SchedulerSGLang, profile.SchedulerVLLM}).Draw(t, "kernels of"))
		if err != nil {
			t.Fatal(err)
		}
		*l = of.Latency.LoRA
	}
	if l := &p.Latency.LoRA; l.Backend == profile.BackendCSGMV && rapid.Bool().Draw(t, "mbgmv") {
		*l = profile.LoRA{Backend: profile.BackendMBGMV, RankUs: 17, RequestRankUs: 2, TokenRankNs: 900}
	}
	if l := &p.Latency; l.Law == "" && rapid.Bool().Draw(t, "longer") {
		l.Law, l.Prefill.BaseMs, l.Prefill.FirstWaveFactor, l.Prefill.FirstExtendMs = profile.LawRoofline, 0, 0, 0
		l.Prefill.PerTokenUs = rapid.SampledFrom([]float64{50, 3000}).Draw(t, "compute")
		l.Prefill.MixedMs = rapid.SampledFrom([]float64{0, 1.5}).Draw(t, "beside")
		l.Prefill.MixedPerRequestMs = rapid.SampledFrom([]float64{0, 0.25}).Draw(t, "beside_request")
	}
	e.ClipNewTokens = pick("clip", 10, 4096)
	if b := p.Latency.LoRA.Backend; e.Scheduler == profile.SchedulerSGLang && b != profile.BackendMerged &&
		b != profile.BackendDLoRA && e.MaxPrefillTokens > e.MaxRunningRequests {
		e.MixedChunk = (e.ChunkedPrefillSize == 0 || e.ChunkedPrefillSize > e.MaxRunningRequests) &&
			rapid.Bool().Draw(t, "mixed")
	}
	e.IgnoreEOS = rapid.Bool().Draw(t, "ignore_eos")
	e.DisableRadixCache = rapid.Bool().Draw(t, "no_radix")
	// no matter where no prompt is like another
	e.PrefixCache = e.Scheduler != profile.SchedulerSLoRA && !e.DisableRadixCache &&
		rapid.Bool().Draw(t, "prefix_cache")
	e.NewTokenRatioSteps = int64(pick("ratio_steps", 5, 600))
	genOrder(t, &p)
	if b := p.Latency.LoRA.Backend; e.Scheduler == profile.SchedulerSGLang && e.SchedulePolicy != profile.OrderVTC &&
		b != profile.BackendMerged && b != profile.BackendDLoRA {
		e.OverlapSchedule = rapid.Bool().Draw(t, "overlap")
	}
	return p
}

// genOrder gives a profile an order of the queue, and limits.
func genOrder(t *rapid.T, p *profile.Profile) {
	e, limits := &p.Engine, rapid.SampledFrom([]int{0, 0, 0, 1, 3, 8})
	if e.Scheduler == profile.SchedulerSLoRA {
		return
	}
	if e.Scheduler == profile.SchedulerVLLM {
		e.MaxNumQueuedReqs, e.MaxNumQueuedTokens = limits.Draw(t, "limit"), 40*int64(limits.Draw(t, "token_limit"))
	} else {
		e.MaxQueuedRequests = limits.Draw(t, "limit")
	}
	if b := p.Latency.LoRA.Backend; b == profile.BackendMerged || b == profile.BackendDLoRA ||
		e.HeadOfLine == profile.HeadOfLineBlock {
		return
	}
	e.SchedulePolicy = rapid.SampledFrom([]string{"", profile.OrderFCFS, profile.OrderPriority,
		profile.OrderVTC}).Draw(t, "order")
	if e.AsyncScheduling && e.SchedulePolicy == profile.OrderVTC {
		e.SchedulePolicy = profile.OrderFCFS
	}
	e.LowPriorityFirst, e.NoPriorityPreemption = rapid.Bool().Draw(t, "low_first"),
		rapid.Bool().Draw(t, "no_preemption")
	e.PreemptionThreshold = rapid.SampledFrom([]int{0, 1, 10}).Draw(t, "threshold")
}

// genAdapterLaw gives a profile the law by distinct adapters, any term of which
// may be nothing.
func genAdapterLaw(t *rapid.T, p *profile.Profile) {
	or0 := func(name string, v float64) float64 { return rapid.SampledFrom([]float64{0, v}).Draw(t, name) }
	p.Latency.Law, p.Latency.LoRA.Backend = profile.LawAdapters, profile.BackendPunica
	p.Latency.Adapters = profile.AdapterLaw{
		BaseMs: 5, PerRequestMs: or0("b", 0.7), PerTokenUs: or0("p", 50), PerKVTokenUs: or0("kv", 3),
		PerSlotUs: or0("s", 90), PerWaitingUs: or0("w", 130),
		ByRank: []profile.RankCost{
			{Rank: 8, PerAdapterMs: or0("a", 1), PerAdapterTokenUs: or0("am", 20), PerSlotTokenUs: or0("sm", 10)},
			{Rank: 80, PerAdapterMs: 2, PerAdapterTokenUs: 30, PerSlotTokenUs: 11},
		},
	}
	p.Engine.MaxLoraRank = rapid.IntRange(64, 80).Draw(t, "max_rank")
}

func genWorkload(t *rapid.T) *trace.Workload {
	w := &trace.Workload{Adapters: trace.Names(rapid.IntRange(1, 6).Draw(t, "adapters"), []int{8, 64, 0, 16})}
	for a := range w.Adapters {
		w.Adapters[a].Priority = rapid.SampledFrom([]int{0, 0, 1, -1, 20}).Draw(t, "priority")
	}
	n := rapid.IntRange(1, 40).Draw(t, "requests")
	at := 0.0
	for i := range n {
		at += rapid.SampledFrom([]float64{0, 0, 0.001, 0.0137, 0.1, 0.5}).Draw(t, "gap")
		r := trace.Request{
			ID: int64(i), Arrival: at,
			Adapter: int32(rapid.IntRange(-1, len(w.Adapters)-1).Draw(t, "adapter")),
			Prompt:  int32(rapid.IntRange(1, 90).Draw(t, "prompt")),
			Output:  int32(rapid.IntRange(1, 60).Draw(t, "output")),
		}
		if rapid.Bool().Draw(t, "budget") {
			r.MaxNew = r.Output + int32(rapid.IntRange(1, 50).Draw(t, "spare"))
		}
		w.Requests = append(w.Requests, r)
	}
	return w
}

// Invariant 5 (leap = step), and with it most of the others: the simulator and
// an engine that shares no code with it and knows no shortcut agree on every
// time to the tick, and on the multiset of all token times and gaps.
func TestLeapsEqualSteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := genProfile(t)
		if err := p.Check(); err != nil {
			t.Fatal(err)
		}
		costs := p.Compile()
		wl := genWorkload(t)
		n := rapid.IntRange(1, 3).Draw(t, "workers")
		home := rapid.SampledFrom([]router.Tier{router.Disk, router.Remote}).Draw(t, "home")
		rt := &router.Router{Policy: byUsable{}, Prefetch: rapid.Bool().Draw(t, "prefetch")}
		if rapid.Bool().Draw(t, "placed") {
			rt.Placement = make([][]int32, n)
			for a := range wl.Adapters {
				rt.Placement[a%n] = append(rt.Placement[a%n], int32(a))
			}
		}

		got := newLedger()
		cfg := Config{Source: wl.Source(), Router: rt, Observer: got, Home: home, TokenTimes: true}
		for range n {
			cfg.Workers = append(cfg.Workers, costs)
		}
		if rapid.Bool().Draw(t, "elastic") {
			cfg.Elastic = genElastic(t, n)
		}
		s := checked(t, cfg)
		if err := s.run(context.Background()); err != nil {
			t.Fatal(err)
		}
		checkEmpty(t, s)
		st := s.stats()
		want := runReference(wl, costs, n, rt, home, cfg.Elastic)
		compareRuns(t, got, want)
		for i, w := range st.Workers {
			if on := want.timeOn(i); w.On != on {
				t.Fatalf("worker %d was on for %v s, the reference says %v", i, w.On.Seconds(), on.Seconds())
			}
		}
		checkInvariants(t, wl, got, st, p)
	})
}

func runReference(wl *trace.Workload, costs *profile.Costs, n int, rt *router.Router, home router.Tier,
	elastic *Elastic) *reference {
	p := costs.Profile()
	ref := &reference{
		gaps: map[tick.Ticks]int64{}, tokens: map[tick.Ticks]int64{}, home: home, prefix: rt.Prefetch,
	}
	ref.route = func(r *refRequest) int {
		var on []int
		for i, w := range ref.power {
			if w.state == record.On {
				on = append(on, i)
			}
		}
		return on[int(r.ID)%len(on)]
	}
	for _, a := range wl.Adapters {
		ref.ranks, ref.priorities = append(ref.ranks, a.Rank), append(ref.priorities, a.Priority)
	}
	ref.fresh = func() *refWorker {
		w := &refWorker{costs: costs, e: p.Engine, known: map[int32]bool{}, refOrder: refOrder{served: map[int]int64{},
			lastOut: -1}, ratioFrom: p.Engine.NewTokenRatio,
			capacity: p.Memory.KVTokens / int64(p.Engine.PageSize), ad: make([]refAdapter, len(wl.Adapters)+1)}
		if p.Engine.Scheduler == profile.SchedulerVLLM {
			w.initVLLM()
		}
		w.initModes()
		for a := range wl.Adapters {
			w.ad[a].tier = home
		}
		return w
	}
	ref.initPower(n, elastic)
	for i := range n {
		w, hosts := ref.fresh(), 0
		for a := range wl.Adapters {
			if ref.power[i].state == record.On && (rt.Placement == nil || a%n == i) &&
				(w.e.MaxLoadedLoras == 0 || hosts < w.e.MaxLoadedLoras) {
				w.ad[a].tier = router.Host
				hosts++
			}
		}
		ref.ws = append(ref.ws, w)
	}
	ref.run(wl.Requests)
	return ref
}

func compareRuns(t *rapid.T, got *ledger, want *reference) {
	if len(got.recs) != len(want.all) || len(got.twice) > 0 {
		t.Fatalf("%d requests ended, %v twice; expected %d", len(got.recs), got.twice, len(want.all))
	}
	for _, r := range want.all {
		g := got.recs[r.ID]
		if g.Status != r.status {
			t.Fatalf("request %d ended %v (%s), the reference says %v", r.ID, g.Status, g.Error, r.status)
		}
		if tick.FromSeconds(g.Finish) != r.end || tick.FromSeconds(g.ColdLoad) != r.cold {
			t.Fatalf("request %d: finish %v, cold load %v; the reference says %v, %v", r.ID, g.Finish, g.ColdLoad,
				r.end.Seconds(), r.cold.Seconds())
		}
		if g.Status == record.OK && tick.FromSeconds(g.FirstToken) != r.first {
			t.Fatalf("request %d: first token %v, the reference says %v", r.ID, g.FirstToken, r.first.Seconds())
		}
	}
	same := func(what string, a, b map[tick.Ticks]int64) {
		for k, v := range b {
			if a[k] != v {
				t.Fatalf("%s: %d at %v s, the reference has %d", what, a[k], k.Seconds(), v)
			}
		}
		if len(a) != len(b) {
			t.Fatalf("%s: %d different times, the reference has %d", what, len(a), len(b))
		}
	}
	same("tokens", got.tokens, want.tokens)
	same("gaps", got.gaps, want.gaps)
}

// Invariants 1 (conservation), 2 (causality) and 4 (capacity).
func checkInvariants(t interface{ Fatalf(string, ...any) }, wl *trace.Workload, got *ledger, st *Stats,
	p profile.Profile) {
	var tokens, seen int64
	for _, r := range wl.Requests {
		g, ok := got.recs[r.ID]
		if !ok {
			t.Fatalf("request %d never ended", r.ID)
		}
		if g.Arrival != r.Arrival || g.Sent < g.Arrival || g.Finish < g.Sent {
			t.Fatalf("request %d: arrival %v, sent %v, finish %v", r.ID, g.Arrival, g.Sent, g.Finish)
		}
		if g.Prompt != r.Prompt || g.Requested != r.Budget() {
			t.Fatalf("request %d: %d prompt tokens and a budget of %d became %d and %d", r.ID, r.Prompt, r.Budget(),
				g.Prompt, g.Requested)
		}
		if g.Status != record.OK {
			if g.Error == "" {
				t.Fatalf("request %d %v without a reason", r.ID, g.Status)
			}
			continue
		}
		at := g.FirstToken
		for _, d := range g.Gaps {
			at += d
		}
		if len(g.Gaps) != int(g.Output)-1 || math.Abs(at-g.Finish) > 1e-9 {
			t.Fatalf("request %d: %d gaps for %d tokens, which end at %v, not %v", r.ID, len(g.Gaps), g.Output, at,
				g.Finish)
		}
		if g.FirstToken < g.Sent || g.Finish < g.FirstToken || g.Output != expectedOutput(r, p) {
			t.Fatalf("request %d: sent %v, first token %v, finish %v, %d tokens of %d", r.ID, g.Sent, g.FirstToken,
				g.Finish, g.Output, r.Output)
		}
		tokens += int64(g.Output)
	}
	for _, n := range got.tokens {
		seen += n
	}
	if failed := len(wl.Requests) - int(sumRequests(st)); failed == 0 && seen != tokens {
		t.Fatalf("%d tokens seen, %d generated", seen, tokens)
	}
	kv, _ := p.KVTokens()
	for i, w := range st.Workers {
		if w.PeakKV > kv || w.PeakRunning > int64(p.Engine.MaxRunningRequests) {
			t.Fatalf("worker %d: peaks of %d KV tokens and %d running requests, limits %d and %d",
				i, w.PeakKV, w.PeakRunning, kv, p.Engine.MaxRunningRequests)
		}
	}
}

// expectedOutput is what a request generates that is not refused.
func expectedOutput(r trace.Request, p profile.Profile) int32 {
	kv, _ := p.KVTokens()
	page := int64(p.Engine.PageSize)
	switch {
	case p.Engine.Scheduler == profile.SchedulerVLLM:
		return min(r.Output, int32(min(int64(p.Engine.ContextLength), kv/page*page+1))-r.Prompt)
	case p.Engine.Scheduler == profile.SchedulerSLoRA:
		output := r.Output
		if p.Engine.IgnoreEOS {
			output = r.Budget()
		}
		if p.Engine.ContextOverflow == profile.OverflowPrompt {
			output = min(output, int32(p.Engine.ContextLength)-r.Prompt)
		}
		return output
	case p.Engine.ContextOverflow == profile.OverflowIgnore:
		return r.Output
	}
	budget := min(int64(r.Budget()), min(int64(p.Engine.ContextLength), kv/page*page)-2-int64(r.Prompt))
	if p.Engine.IgnoreEOS {
		return int32(budget)
	}
	return min(r.Output, int32(budget))
}

// checked has a run hold the invariants of every engine whenever time passes.
func checked(t *rapid.T, cfg Config) *sim {
	var s *sim
	places, seen := newWhereabouts(), &touches{}
	check := func(e *record.Event) {
		places.check(t, s, e.Until)
		seen.check(t, s)
		for i := range s.workers {
			if err := s.workers[i].engine.Check(); err != nil {
				t.Fatalf("worker %d: %v", i, err)
			}
		}
		if err := s.loop.Check(); err != nil {
			t.Fatal(err)
		}
	}
	cfg.Watchers = append(cfg.Watchers, places.watcher(), record.Watcher{Kinds: record.EventState, Note: check})
	var err error
	if s, err = newSim(cfg); err != nil {
		t.Fatal(err)
	}
	return s
}

// touches holds what routers see of workers against the workers that are said to have changed.
type touches struct {
	changes *router.Changes
	seen    []seenWorker
}

type seenWorker struct {
	counts   [12]int64
	usable   bool
	inFlight []router.AdapterRequests
	kv       int64
}

func (c *touches) check(t *rapid.T, s *sim) {
	if c.changes == nil {
		c.changes, c.seen = s.view.Index.Follow(len(s.workers)), make([]seenWorker, len(s.workers))
	}
	touched := slices.Clone(c.changes.Take())
	for j := range s.workers {
		w := s.workers[j].v
		now := seenWorker{usable: w.Usable(), inFlight: slices.Clone(w.InFlight()), kv: s.workers[j].engine.KVTokens()}
		for i, n := range []int{w.Running, w.Queued, w.MaxRunning, w.MaxRank, w.Slots, w.SlotsUsed, w.ActiveLoras,
			w.WaitingLoras, w.FlightLoras, w.SlotsIdle, int(w.Tokens), int(w.QueuedToks)} {
			now.counts[i] = int64(n)
		}
		was := &c.seen[j]
		if same := now.counts == was.counts && now.usable == was.usable && slices.Equal(now.inFlight, was.inFlight) &&
			now.kv >= was.kv; !same && !slices.Contains(touched, int32(j)) {
			t.Fatalf("worker %d has changed from %+v to %+v, and nobody was told", j, *was, now)
		}
		*was = now
	}
}

// checkEmpty: after a run nothing is left on any worker.
func checkEmpty(t *rapid.T, s *sim) {
	for i := range s.workers {
		w := &s.workers[i]
		v := *w.v
		for a, st := range v.Adapters {
			if st.Running != 0 || st.Queued != 0 || st.Loading {
				t.Fatalf("worker %d, adapter %d: left with %+v", i, a, st)
			}
		}
		if v.SlotsIdle != v.SlotsUsed || v.SlotsUsed > v.Slots {
			t.Fatalf("worker %d: %d of %d used slots idle, %d slots", i, v.SlotsIdle, v.SlotsUsed, v.Slots)
		}
		if v.Running != 0 || v.Queued != 0 || v.Tokens != 0 || v.QueuedToks != 0 || v.MaxRank != 0 || w.requests != 0 {
			t.Fatalf("worker %d: left with %d requests, view %+v", i, w.requests, v)
		}
		if err := w.engine.CheckEmpty(); err != nil {
			t.Fatalf("worker %d: %v", i, err)
		}
	}
	if len(s.free) != len(s.reqs) {
		t.Fatalf("%d of %d request places free", len(s.free), len(s.reqs))
	}
}

func sumRequests(st *Stats) (n int64) {
	for _, w := range st.Workers {
		n += w.Requests
	}
	return n
}

// Invariant 3: the same scenario gives the same records, to the bit.
func TestDeterminism(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := genProfile(t)
		wl := genWorkload(t)
		spec := rapid.SampledFrom([]string{"random", "least-loaded", "p2c", "affinity"}).Draw(t, "policy")
		once := func() string {
			l := newLedger()
			rt, err := router.New(spec, router.Env{Adapters: wl.Adapters, Seed: 7,
				Workers: router.Alike(2, router.Spec{Slots: p.Engine.MaxLorasPerBatch,
					MaxRunning: p.Engine.MaxRunningRequests})})
			if err != nil {
				t.Fatal(err)
			}
			c := p.Compile()
			if _, err := Run(context.Background(), Config{Source: wl.Source(), Workers: []*profile.Costs{c, c},
				Router: rt, Observer: l, Home: router.Disk}); err != nil {
				t.Fatal(err)
			}
			return fmt.Sprint(l.recs, l.gaps, l.tokens)
		}
		if a, b := once(), once(); a != b {
			t.Fatalf("two runs differ:\n%s\n%s", a, b)
		}
	})
}
