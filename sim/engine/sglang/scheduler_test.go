package sglang

import (
	"fmt"
	"testing"

	"lorasim/sim/engine"
	"lorasim/sim/event"
	"lorasim/sim/kvcache"
	"lorasim/sim/profile"
	"lorasim/sim/tick"
)

// A request has at most context_length tokens, and a prompt stays 5 below the longest that memory allows. The budget is
// cut to what is left.
func TestRefuse(t *testing.T) {
	const budget, prompt, margin = engine.BudgetTooLarge, engine.PromptTooLarge, ", less 6 tokens"
	type limits struct {
		kv       int64
		overflow string
		eos      bool // ignore_eos
	}
	plain := limits{1000, profile.OverflowPrompt, false}
	for _, c := range []struct {
		limits
		prompt, maxNew int32
		want           string
		left, output   int32
	}{
		{plain, 50, 20, "", 20, 5},
		{plain, 93, 20, "", 5, 5}, // 99 less the prompt and a token
		{plain, 94, 20, fmt.Sprintf(prompt+margin, 100), 0, 0},
		{plain, 100, 20, fmt.Sprintf(prompt, 100), 0, 0},
		{limits{1000, profile.OverflowReject, false}, 50, 51, fmt.Sprintf(budget, 100), 0, 0},
		{limits{1000, profile.OverflowReject, false}, 50, 50, "", 48, 5},
		{limits{1000, profile.OverflowPrompt, true}, 50, 20, "", 20, 20},
		{limits{60, profile.OverflowPrompt, false}, 53, 20, "", 5, 5},
		{limits{60, profile.OverflowPrompt, false}, 54, 20, fmt.Sprintf(engine.KVTooSmall, 60), 0, 0},
		{limits{60, profile.OverflowIgnore, false}, 40, 19, "", 19, 5},
		{limits{60, profile.OverflowIgnore, false}, 40, 20, fmt.Sprintf(engine.KVTooSmall, 60), 0, 0},
	} {
		s, _ := schedulerOf(t, func(p *profile.Profile) {
			p.Memory.KVTokens = c.kv
			p.Engine.ContextLength, p.Engine.ContextOverflow, p.Engine.IgnoreEOS = 100, c.overflow, c.eos
		})
		r := request(0, c.maxNew)
		r.Prompt, r.Output = c.prompt, 5
		got := s.Refuse(r)
		if got != c.want || got == "" && (r.MaxNew != c.left || r.Output != c.output) {
			t.Errorf("%+v, %d + %d tokens: %q, budget %d, output %d; expected %q, %d and %d", c.limits, c.prompt,
				c.maxNew, got, r.MaxNew, r.Output, c.want, c.left, c.output)
		}
	}
}

// A request that finds max_queued_requests waiting is refused, or, where its priority is better than that of one of
// them, the last of these.
func TestMayWait(t *testing.T) {
	for _, c := range []struct {
		limit  int
		order  string
		values []int // priorities of adapters 0, 1 and 2
		wait   bool
		left   int // requests that wait
	}{
		{0, profile.OrderFCFS, nil, true, 2}, {3, profile.OrderFCFS, nil, true, 2},
		{2, profile.OrderFCFS, nil, false, 2},
		{2, profile.OrderPriority, []int{1, 1, 1}, false, 2}, {2, profile.OrderPriority, []int{1, 0, 2}, true, 1},
	} {
		s, _ := schedulerOf(t, func(p *profile.Profile) {
			p.Engine.SchedulePolicy, p.Engine.MaxQueuedRequests = c.order, c.limit
		}, c.values...)
		s.e.Add(request(0, 1))
		s.e.Add(request(1, 1))
		r := request(2, 1)
		r.Row = s.e.Rows.Of(2)
		if got := s.MayWait(r); got != c.wait || s.e.Queue.Len() != c.left {
			t.Errorf("limit %d, %s %v: may wait %v, %d wait; expected %v and %d", c.limit, c.order, c.values, got,
				s.e.Queue.Len(), c.wait, c.left)
		}
	}
}

// Under head_of_line block the first request whose weights are in host memory decides; where it finds no slot, or waits
// for its load, everybody waits.
func TestNextBlocking(t *testing.T) {
	blocking := func(loading string) (*Scheduler, *event.Loop) {
		return schedulerWith(t, func(p *profile.Engine) {
			p.HeadOfLine, p.MaxLorasPerBatch, p.AdapterLoading = profile.HeadOfLineBlock, 1, loading
		})
	}
	s, _ := blocking(profile.LoadBlocking)
	s.e.Add(request(0, 5))
	if r := s.nextWaiting(); r == nil || r.Adapter != 0 {
		t.Fatal("the only request is not next")
	}
	s.e.LoRA.Unload(&s.e.Rows.Of(3).Adapter) // it leaves host memory
	s.e.Add(request(3, 5))                   // fetched again: not to be seen yet
	s.e.RejectWaiting(s.e.Queue.Oldest(), "")
	s.e.Add(request(1, 5))
	if r := s.nextWaiting(); r == nil || r.Adapter != 1 {
		t.Errorf("%v is next, expected the request of adapter 1, whose weights are there", r)
	}
	run(s, 0, 2, 0, 10)
	if r := s.nextWaiting(); r != nil || s.e.Gate.Full() { // the end of a fetch may change that
		t.Errorf("%v is next beside adapter 2, full %v", r, s.e.Gate.Full())
	}
	s, l := blocking(profile.LoadOverlapped)
	s.e.Add(request(0, 5))
	for k := range 2 { // the load begins; it is under way
		if r := s.nextWaiting(); r != nil || s.e.LoRA.Idle() || s.e.Gate.Full() {
			t.Errorf("look %d: %v is next, loader idle %v, full %v", k, r, s.e.LoRA.Idle(), s.e.Gate.Full())
		}
	}
	l.MoveTo(l.Next())
	l.Run()
	if r := s.nextWaiting(); r == nil {
		t.Error("nobody is next after the load")
	}
	s, _ = blocking(profile.LoadBlocking)
	run(s, 0, 2, 0, 10)
	s.e.Add(request(0, 5))
	if r := s.nextWaiting(); r != nil || !s.e.Gate.Full() { // nothing loads: a request has to leave
		t.Errorf("%v is next beside adapter 2, full %v", r, s.e.Gate.Full())
	}
}

// The kinds of prefix caches.
func TestPrefixRules(t *testing.T) {
	for _, c := range []struct {
		cache    bool
		eviction string
		want     kvcache.Prefixes
	}{
		{false, profile.EvictNodes, kvcache.NoPrefixes}, {true, profile.EvictNodes, kvcache.RadixNodes},
		{true, profile.EvictPages, kvcache.RadixPages},
	} {
		p := profile.Default()
		p.Engine.PrefixCache, p.Engine.PrefixEviction = c.cache, c.eviction
		if got := rules(&p).Prefixes; got != c.want {
			t.Errorf("cache %v, eviction %s: kind %d, expected %d", c.cache, c.eviction, got, c.want)
		}
	}
}

// A full gate opens where nobody runs, and before each step with priority preemption; a leap is a step then.
func TestUpdateGate(t *testing.T) {
	s, _ := schedulerWith(t, func(*profile.Engine) {})
	s.e.Gate.NoRoom()
	if s.updateGate(); s.e.Gate.Full() {
		t.Error("full with nobody who could make room")
	}
	run(s, 0, 0, 0, 10)
	s.e.Gate.NoRoom()
	if s.updateGate(); !s.e.Gate.Full() {
		t.Error("not full any more while a request runs")
	}
	s, _ = schedulerWith(t, func(p *profile.Engine) { p.SchedulePolicy = profile.OrderPriority })
	run(s, 0, 0, 0, 10)
	s.e.Gate.NoRoom()
	if s.updateGate(); !s.e.Gate.Open() {
		t.Error("closed with priority preemption")
	}
	if got := s.leapLimit(); got == 1 {
		t.Error("one step at a time, though nobody waits")
	}
	s.e.Add(request(1, 10))
	if got := s.leapLimit(); got != 1 {
		t.Errorf("%d steps without a look at who waits, expected 1", got)
	}
}

// step starts the next step, and lets it end.
func step(s *Scheduler, l *event.Loop) {
	s.Schedule()
	if at := l.Next(); at != tick.Never {
		l.MoveTo(at)
		l.Run()
	}
}

// The end of a prefill step opens a full gate where it leaves a chunk, or began with nobody running.
func TestPrefillReopens(t *testing.T) {
	for _, c := range []struct {
		name   string
		runs   bool
		prompt int32
		open   bool
	}{{"began alone", false, 10, true}, {"beside others", true, 10, false}, {"leaves a chunk", true, 40, true}} {
		s, l := schedulerWith(t, func(p *profile.Engine) { p.ChunkedPrefillSize = 32 })
		if c.runs {
			run(s, 0, 0, 0, 50)
		}
		r := request(0, 10)
		r.Prompt = c.prompt
		s.e.Add(r)
		s.e.Gate.Look()
		s.Schedule()
		s.e.Gate.NoRoom()
		l.MoveTo(l.Next())
		l.Run()
		if s.e.Gate.Full() == c.open || (s.chunkedReq == r) != (c.prompt > 32) {
			t.Errorf("%s: full %v, chunk left %v", c.name, s.e.Gate.Full(), s.chunkedReq != nil)
		}
		want := 1
		if c.runs {
			want = 2
		}
		if s.e.Books.Running != want { // a request whose prompt is split runs, too
			t.Errorf("%s: routers see %d running requests, expected %d", c.name, s.e.Books.Running, want)
		}
	}
}

// A prefill step takes no more than max_running_requests; prompts that are done decode together.
func TestMaxRunningRequests(t *testing.T) {
	s, l := schedulerWith(t, func(p *profile.Engine) { p.MaxRunningRequests = 2 })
	for range 3 {
		s.e.Add(request(0, 3))
	}
	s.e.Gate.Look()
	step(s, l)
	if s.Running() != 2 || s.e.Queue.Len() != 1 {
		t.Errorf("%d requests run, %d wait, expected 2 and 1", s.Running(), s.e.Queue.Len())
	}
	step(s, l) // decodes to the end of both
	if s.Running() != 0 || s.e.Queue.Len() != 1 {
		t.Errorf("%d requests run, %d wait, expected 0 and 1", s.Running(), s.e.Queue.Len())
	}
}

// Each broken invariant is an error.
func TestCheck(t *testing.T) {
	draining := func(s *Scheduler) { // adapter 0 drains for 3, 1 for 4
		d := &s.drainer
		d.order = []*engine.Adapter{s.e.Rows.Of(0), s.e.Rows.Of(1)}
		d.draining = map[int32]*engine.Adapter{0: s.e.Rows.Of(3), 1: s.e.Rows.Of(4)}
		d.promised = map[int32]bool{3: true, 4: true}
	}
	for name, spoil := range map[string]func(s *Scheduler){
		"preempted, not in the queue": func(s *Scheduler) { s.preemptList = []*engine.Request{request(0, 1)} },
		"split prompt that decodes":   func(s *Scheduler) { s.chunkedReq = run(s, 0, 0, 0, 9) },
		"ratio below 0":               func(s *Scheduler) { s.ratio.value = -0.1 },
		"ratio above 1":               func(s *Scheduler) { s.ratio.value = 1.1 },
		"drains for none":             func(s *Scheduler) { s.drainer.draining[0] = nil },
		"drain for the same":          func(s *Scheduler) { s.drainer.draining[0] = s.e.Rows.Of(4) },
		"drains without a promise":    func(s *Scheduler) { delete(s.drainer.promised, 3) },
		"promised by none":            func(s *Scheduler) { s.drainer.promised[5] = true },
		"drains, not listed":          func(s *Scheduler) { s.drainer.draining[2] = s.e.Rows.Of(5) },
	} {
		s, _ := schedulerWith(t, func(p *profile.Engine) { p.LoraDrainWait = 2 })
		draining(s)
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		if spoil(s); s.Check() == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for name, spoil := range map[string]func(m *modes, other *engine.Request){
		"decodes in another mode": func(m *modes, o *engine.Request) { m.s.e.ResumeDecoding(o); m.parked = nil },
		"parked in its mode":      func(m *modes, o *engine.Request) { m.row = o.Adapter },
		"parked unmerged":         func(m *modes, _ *engine.Request) { m.row = unmerged },
		"parked, and waiting": func(m *modes, o *engine.Request) {
			m.parked = append(m.parked, request(o.Adapter, 1))
		},
	} {
		s := merging(t, profile.BackendMerged)
		run(s, 0, 0, 0, 9)
		other := run(s, 0, 1, 0, 9)
		s.modes.change(0)
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		if spoil(s.modes, other); s.Check() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
