package sim

import (
	"context"
	"slices"
	"strings"
	"testing"

	"lorasim/router"
	"lorasim/router/admission"
	"lorasim/sim/engine"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/trace"

	"pgregory.net/rapid"
)

// bounded holds every state of the counters against the bounds of the VTC paper.
type bounded struct {
	*ledger
	s    *sim
	u    int64
	from map[[2]int32][2]int64 // of rows that have had requests waiting since: their counters then
	seen int64                 // largest difference of counters
	off  string                // what is wrong
}

func (b *bounded) note(*record.Event) {
	w := &b.s.workers[0]
	if w.engine.Step.Decodes() {
		return // counters move on within a run of decode steps
	}
	p := &w.engine.Policy
	rows := int32(len(b.s.adapters))
	for f := range rows {
		for g := range f {
			key := [2]int32{f, g}
			if w.adapter(f).Waiting == 0 || w.adapter(g).Waiting == 0 {
				delete(b.from, key)
				continue
			}
			cf, cg := p.Service(w.adapter(f), 0), p.Service(w.adapter(g), 0)
			if _, ok := b.from[key]; !ok {
				b.from[key] = [2]int64{cf, cg}
			}
			apart := max(cf-cg, cg-cf)
			b.seen = max(b.seen, apart)
			if apart > b.u {
				b.off = "counters of waiting adapters are further apart than U"
			}
			// what they were served since both have been waiting: nothing is lifted then
			service := (cf - b.from[key][0]) - (cg - b.from[key][1])
			if max(service, -service) > 2*b.u {
				b.off = "what two backlogged adapters were served differs by more than 2U"
			}
		}
	}
}

// overload is many requests at once of few adapters, whose lengths differ.
func overload(t *rapid.T) *trace.Workload {
	w := &trace.Workload{Adapters: trace.Names(rapid.IntRange(2, 4).Draw(t, "adapters"), []int{8})}
	prompts, outputs := make([]int, len(w.Adapters)), make([]int, len(w.Adapters))
	for a := range w.Adapters {
		prompts[a], outputs[a] = rapid.IntRange(1, 120).Draw(t, "prompt"), rapid.IntRange(1, 120).Draw(t, "output")
	}
	at := 0.0
	for i := range rapid.IntRange(20, 80).Draw(t, "requests") {
		at += rapid.SampledFrom([]float64{0, 0, 0, 0.03}).Draw(t, "gap")
		a := rapid.IntRange(0, len(w.Adapters)-1).Draw(t, "adapter")
		w.Requests = append(w.Requests, trace.Request{ID: int64(i), Arrival: at, Adapter: int32(a),
			Prompt: int32(rapid.IntRange(1, prompts[a]).Draw(t, "p")), Output: int32(rapid.IntRange(1,
				outputs[a]).Draw(t, "o"))})
	}
	return w
}

// With U = max(w_p L_input, w_q M), L_input the longest prompt and M the tokens that
// the running requests hold at most: the counters of adapters with waiting requests
// are at most U apart (Lemma 4.3 of the VTC paper), and what two of them are served
// while both wait differs by at most 2 U (Theorem 4.4). It supposes that running
// requests have memory to their ends, and that slots keep nobody back.
func TestVTCBound(t *testing.T) {
	apart := 0.0
	rapid.Check(t, func(t *rapid.T) {
		p := testProfile()
		e := &p.Engine
		p.Memory.KVTokens = rapid.Int64Range(260, 1000).Draw(t, "kv")
		e.SchedulePolicy, e.IgnoreEOS = profile.OrderVTC, true
		e.MaxRunningRequests = rapid.SampledFrom([]int{2, 8, 64}).Draw(t, "max_running")
		e.ChunkedPrefillSize = rapid.SampledFrom([]int{0, 64}).Draw(t, "chunk")
		wl := overload(t)
		b := &bounded{ledger: newLedger(), from: map[[2]int32][2]int64{}, u: engine.OutputWeight * p.Memory.KVTokens}
		s := checked(t, Config{Source: wl.Source(), Router: &router.Router{Policy: byID{n: 1}}, Observer: b.ledger,
			Watchers: []record.Watcher{{Kinds: record.EventState, Note: b.note}},
			Workers:  []*profile.Costs{p.Compile()}, Home: router.Disk})
		b.s = s
		if err := s.run(context.Background()); err != nil {
			t.Fatal(err)
		}
		if b.off != "" {
			t.Fatalf("%s (%d; apart by %d)", b.off, b.u, b.seen)
		}
		for _, r := range b.recs {
			if r.Status != record.OK {
				t.Fatalf("request %d: %v %s", r.ID, r.Status, r.Error)
			}
		}
		apart = max(apart, float64(b.seen)/float64(b.u))
	})
	if apart < 0.2 {
		t.Errorf("counters were never further apart than %.2f U: the runs test nothing", apart)
	}
}

// orderOf runs requests on one worker and gives the order of their first tokens.
func orderOf(t *testing.T, change func(*profile.Engine), priorities []int, reqs ...trace.Request) (order []int64,
	l *ledger) {
	t.Helper()
	p := testProfile()
	p.Engine.MaxRunningRequests = 1
	change(&p.Engine)
	w := trace.Workload{Adapters: trace.Names(4, []int{8})}
	for a := range priorities {
		w.Adapters[a].Priority = priorities[a]
	}
	for i, r := range reqs {
		r.ID = int64(i)
		w.Requests = append(w.Requests, r)
		order = append(order, r.ID)
	}
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	l = newLedger()
	if _, err := Run(context.Background(), Config{Source: w.Source(), Router: &router.Router{Policy: byID{n: 1}},
		Observer: l,
		Workers:  []*profile.Costs{p.Compile()}, Home: router.Disk}); err != nil {
		t.Fatal(err)
	}
	order = slices.DeleteFunc(order, func(id int64) bool { return l.recs[id].Status != record.OK })
	slices.SortFunc(order, func(a, b int64) int {
		if l.recs[a].FirstToken < l.recs[b].FirstToken {
			return -1
		}
		return 1
	})
	return order, l
}

func TestOrdersWorked(t *testing.T) {
	priority := func(e *profile.Engine) { e.SchedulePolicy = profile.OrderPriority }
	for name, c := range map[string]struct {
		change     func(*profile.Engine)
		priorities []int
		requests   []trace.Request
		want       []int64
	}{
		"fcfs": {func(*profile.Engine) {}, []int{0, 5}, []trace.Request{adapted(0, 5, 5), adapted(0, 5, 5),
			adapted(1, 5, 5)}, []int64{0, 1, 2}},
		// the difference does not exceed the threshold 5: nobody makes way
		"sglang, large first": {func(e *profile.Engine) { priority(e); e.PreemptionThreshold = 5 }, []int{0, 5},
			[]trace.Request{adapted(0, 5, 5), adapted(0, 5, 5), after(0.01, adapted(1, 5, 5))}, []int64{0, 2, 1}},
		"sglang, small first": {func(e *profile.Engine) { priority(e); e.LowPriorityFirst = true }, []int{5, 0, 9},
			[]trace.Request{adapted(2, 5, 5), adapted(0, 5, 5), adapted(1, 5, 5)}, []int64{2, 1, 0}},
		"vLLM, small first": {func(e *profile.Engine) {
			priority(e)
			e.Scheduler = profile.SchedulerVLLM
			e.MaxNumBatchedTokens = 64
		}, []int{5, 0, 9},
			[]trace.Request{adapted(2, 5, 5), adapted(0, 5, 5), adapted(1, 5, 5)}, []int64{2, 1, 0}},
		// 0 is served 10 + 2 x 5 tokens, 1 comes with as many and then falls behind
		"vtc": {func(e *profile.Engine) { e.SchedulePolicy = profile.OrderVTC }, nil,
			[]trace.Request{adapted(0, 10, 5), adapted(0, 10, 5), adapted(0, 10, 5), adapted(1, 10, 50),
				adapted(1, 10, 5), adapted(0, 10, 5)}, []int64{0, 3, 1, 2, 5, 4}},
	} {
		if got, _ := orderOf(t, c.change, c.priorities, c.requests...); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, expected %v", name, got, c.want)
		}
	}
}

func after(s float64, r trace.Request) trace.Request {
	r.Arrival = s
	return r
}

// A request of better priority takes the seat of a running one, which begins anew
// and ends later; not where preemption is off.
func TestPriorityPreempts(t *testing.T) {
	reqs := []trace.Request{adapted(0, 20, 40), after(0.1, adapted(1, 20, 3))}
	run := func(off bool) (first, second record.Request) {
		_, l := orderOf(t, func(e *profile.Engine) {
			e.SchedulePolicy, e.NoPriorityPreemption, e.PreemptionThreshold = profile.OrderPriority, off, 0
		}, []int{0, 1}, reqs...)
		return l.recs[0], l.recs[1]
	}
	waits, without := run(true)
	if without.FirstToken < waits.Finish {
		t.Fatalf("without preemption: first token at %v, before the end of the other at %v", without.FirstToken,
			waits.Finish)
	}
	ousted, with := run(false)
	if with.Finish > ousted.Finish || with.FirstToken > 0.2 || ousted.Finish <= waits.Finish || ousted.Output != 40 {
		t.Errorf("with preemption: first token at %v, the other ends at %v with %d tokens", with.FirstToken,
			ousted.Finish, ousted.Output)
	}
}

// Three run or wait, the fourth is refused; one of better priority takes the place
// of the last of those that wait.
func TestQueueLimits(t *testing.T) {
	reqs := []trace.Request{adapted(0, 10, 5), after(0.001, adapted(0, 10, 5)), after(0.002, adapted(0, 10, 5)),
		after(0.003, adapted(0, 10, 5)), after(0.004, adapted(1, 10, 5))}
	for name, c := range map[string]struct {
		change   func(*profile.Engine)
		rejected []int64
		reason   string
	}{
		"sglang": {func(e *profile.Engine) { e.MaxQueuedRequests = 2 }, []int64{3, 4}, "queue is full"},
		"sglang, priority": {func(e *profile.Engine) {
			e.MaxQueuedRequests, e.SchedulePolicy, e.PreemptionThreshold = 2, profile.OrderPriority, 10
		}, []int64{2, 3}, ""},
		"vLLM, requests": {func(e *profile.Engine) {
			e.Scheduler, e.MaxNumBatchedTokens, e.MaxNumQueuedReqs = profile.SchedulerVLLM, 64, 3
		}, []int64{3, 4}, "max_num_queued_reqs"},
		"vLLM, tokens": {func(e *profile.Engine) {
			e.Scheduler, e.MaxNumBatchedTokens, e.MaxNumQueuedTokens = profile.SchedulerVLLM, 64, 30
		}, []int64{3, 4}, "max_num_queued_tokens"},
	} {
		done, l := orderOf(t, c.change, []int{0, 1}, reqs...)
		for id := range int64(len(reqs)) {
			r := l.recs[id]
			if want := slices.Contains(c.rejected, id); (r.Status == record.Rejected) != want || !want &&
				!slices.Contains(done, id) {
				t.Errorf("%s: request %d ended %v (%s)", name, id, r.Status, r.Error)
			} else if want && !strings.Contains(r.Error, c.reason) {
				t.Errorf("%s: request %d: %q, expected %q", name, id, r.Error, c.reason)
			}
		}
	}
}

// What the router refuses ends at once, rejected with its reason, and reaches no
// worker; requests that go elsewhere after a failure are not asked again.
func TestAdmission(t *testing.T) {
	w := trace.Workload{Adapters: trace.Names(2, []int{8})}
	for i, r := range []trace.Request{adapted(0, 10, 50), adapted(0, 10, 50), adapted(1, 10, 50),
		after(3, adapted(0, 10, 5))} {
		r.ID = int64(i)
		w.Requests = append(w.Requests, r)
	}
	p := testProfile()
	rt, err := router.New("least-loaded:ties=first", router.Env{Workers: router.Alike(2, router.Spec{}),
		Adapters: w.Adapters})
	if err == nil {
		limit := admission.RateLimit{Rate: 0.5, Burst: 1}
		err = admission.Add(rt, admission.Shedding{}, limit, router.Env{Adapters: w.Adapters}, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	l, c := newLedger(), p.Compile()
	if _, err := Run(context.Background(), Config{Source: w.Source(), Router: rt, Observer: l,
		Workers: []*profile.Costs{c, c},
		Home:    router.Disk, Outages: []Outage{{Worker: 0, From: 0.3}}}); err != nil {
		t.Fatal(err)
	}
	for id, want := range []record.Status{record.OK, record.Rejected, record.OK, record.OK} {
		r := l.recs[int64(id)]
		if r.Status != want || want == record.Rejected && (!strings.Contains(r.Error, "rate limit") ||
			r.WorkerFirst >= 0 || r.Finish != r.Sent) {
			t.Errorf("request %d: %+v", id, r)
		}
	}
	if l.recs[0].WorkerLast != 1 {
		t.Errorf("the first request did not go elsewhere: %+v", l.recs[0])
	}
}
