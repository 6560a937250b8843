package sim

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"lorasim/internal/testutil"
	"lorasim/router"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/sim/tick"
	"lorasim/trace"
)

// The expectations of this file are worked out by hand, in ms.

// plainProfile: a decode step takes 10 + B ms, a prefill step 5 + 0.1 per
// token, 2 ms pass outside the engine; adapters of rank 10 load in 7 ms from
// host memory and cost nothing else.
func plainProfile() profile.Profile {
	p := profile.Default()
	p.Name = "plain"
	p.Latency.Decode = profile.Decode{BaseMs: 10, PerRequestMs: 1}
	p.Latency.Prefill = profile.Prefill{BaseMs: 5, PerTokenUs: 100}
	p.Latency.RequestOverheadMs = 2
	p.Memory.KVTokens = 1000
	p.Adapters.BytesPerRank = 1e7 // rank 10: 100 MB, 5 ms at 20 GB/s
	p.Adapters.DefaultRank = 10
	return p
}

type want struct {
	first, finish, cold float64
	status              record.Status
}

func simulate(t *testing.T, p profile.Profile, cfg Config, adapters int, reqs []trace.Request) (*ledger, *Stats) {
	t.Helper()
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	for i := range reqs {
		reqs[i].ID = int64(i)
		reqs[i].Arrival /= 1000 // the tables are in ms
	}
	l := newLedger()
	cfg.Source = (&trace.Workload{Adapters: trace.Names(adapters, nil), Requests: reqs}).Source()
	cfg.Workers = []*profile.Costs{p.Compile()}
	cfg.Observer = l
	if cfg.Router == nil {
		cfg.Router = &router.Router{Policy: byID{n: 1}}
	}
	st, err := Run(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return l, st
}

func (l *ledger) expect(t *testing.T, wants []want) {
	t.Helper()
	for i, w := range wants {
		r := l.recs[int64(i)]
		near := func(what string, got, want float64) {
			if math.Abs(got*1000-want) > 1e-8 {
				t.Errorf("request %d: %s at %v ms, expected %v", i, what, got*1000, want)
			}
		}
		if r.Status != w.status {
			t.Errorf("request %d ended %v (%s), expected %v", i, r.Status, r.Error, w.status)
		}
		near("finish", r.Finish, w.finish)
		near("cold load", r.ColdLoad, w.cold)
		if w.status == record.OK {
			near("first token", r.FirstToken, w.first)
		}
	}
}

func (l *ledger) expectGaps(t *testing.T, gaps ...float64) {
	t.Helper()
	want := map[tick.Ticks]int64{}
	for _, g := range gaps {
		want[tick.FromMilliseconds(g)]++
	}
	for k, n := range want {
		if l.gaps[k] != n {
			t.Errorf("%d gaps of %v ms, expected %d", l.gaps[k], k.Milliseconds(), n)
		}
	}
	if len(l.gaps) != len(want) {
		t.Errorf("gaps %v, expected %v", l.gaps, want)
	}
}

func TestArrivalCutsALeap(t *testing.T) {
	l, _ := simulate(t, plainProfile(), Config{}, 0, []trace.Request{
		{Arrival: 0, Adapter: -1, Prompt: 50, Output: 3},  // prefill 0-10, decode 10-21
		{Arrival: 12, Adapter: -1, Prompt: 10, Output: 2}, // prefill 21-27, both decode 27-39
	})
	l.expect(t, []want{{first: 12, finish: 41}, {first: 29, finish: 41}})
	l.expectGaps(t, 11, 18, 12)
}

func TestChunkedPrefillHoldsDecodeBack(t *testing.T) {
	p := plainProfile()
	p.Engine.ChunkedPrefillSize = 100
	l, st := simulate(t, p, Config{}, 0, []trace.Request{
		{Arrival: 0, Adapter: -1, Prompt: 10, Output: 2}, // prefill 0-15 with 90 tokens of the other
		{Arrival: 0, Adapter: -1, Prompt: 250, Output: 1},
		// chunks of 90, 100, 60: 0-15, 15-30, 30-41; then decode 41-52
	})
	l.expect(t, []want{{first: 17, finish: 54}, {first: 43, finish: 43}})
	if st.Workers[0].PrefillSteps != 3 {
		t.Errorf("%d prefill steps, expected 3", st.Workers[0].PrefillSteps)
	}
}

func TestRetraction(t *testing.T) {
	p := plainProfile()
	p.Memory.KVTokens = 100
	p.Engine.NewTokenRatio = 0.1 // admits too much on purpose
	reqs := func() []trace.Request {
		return []trace.Request{{Arrival: 0, Adapter: -1, Prompt: 40, Output: 20}, {Arrival: 1, Adapter: -1, Prompt: 30,
			Output: 30}}
	}
	// Request 0 prefills 0-9. Request 1 wants 30 + 30 tokens, but of the other
	// 60 tokens 0.1 * 19 are spoken for: it waits until 0 is done at 218.
	l, st := simulate(t, p, Config{}, 0, reqs())
	l.expect(t, []want{{first: 11, finish: 9 + 19*11 + 2}, {first: 218 + 8 + 2, finish: 218 + 8 + 29*11 + 2}})
	if st.Workers[0].Preemptions != 0 {
		t.Errorf("%d retractions, expected none", st.Workers[0].Preemptions)
	}

	// With 5 tokens reserved it prefills 9-17. 30 tokens are free: 15 steps of
	// 12 ms, until 197. Both have 16 tokens then; the longer prompt, 0, is
	// retracted. It wants 56 + 4 tokens and gets them when 1 is done, after 14
	// more steps of 11 ms, at 351. It prefills until 361.6 and has 3 steps left.
	p.Engine.ClipNewTokens = 5
	l, st = simulate(t, p, Config{}, 0, reqs())
	l.expect(t, []want{{first: 11, finish: 361.6 + 3*11 + 2}, {first: 19, finish: 351 + 2}})
	if w := st.Workers[0]; w.Preemptions != 1 || w.RepeatedTokens != 40+15 { // all but the latest token
		t.Errorf("%d retractions, %d tokens computed again, expected 1 and 55", w.Preemptions, w.RepeatedTokens)
	}
	if l.gaps[tick.FromMilliseconds(361.6-197)] != 1 {
		t.Errorf("no gap over the retraction: %v", l.gaps)
	}
}

// max_new_tokens is cut so that prompt + output stay 2 below the context and 1
// below the cache less one (Scheduler.init_req_max_new_tokens with max_req_len
// of TpModelWorker.get_worker_info, sglang's managers/scheduler.py and
// tp_worker.py).
func TestBudgetsAreCut(t *testing.T) {
	p := plainProfile()
	p.Memory.KVTokens = 50
	reqs := func() []trace.Request {
		// 50 - 1 - 40 - 1 = 8 tokens: prefill 0-9, 7 steps of 11 ms
		return []trace.Request{{Arrival: 0, Adapter: -1, Prompt: 40, Output: 30}}
	}
	l, _ := simulate(t, p, Config{}, 0, reqs())
	l.expect(t, []want{{first: 11, finish: 9 + 77 + 2}})
	if r := l.recs[0]; r.Output != 8 || r.Requested != 30 {
		t.Errorf("%d tokens of %d requested, expected 8 of 30", r.Output, r.Requested)
	}
	p.Memory.KVTokens, p.Engine.ContextLength, p.Engine.ContextOverflow = 1000, 48, profile.OverflowPrompt
	l, _ = simulate(t, p, Config{}, 0, reqs()) // 48 - 1 - 40 - 1 = 6 tokens
	l.expect(t, []want{{first: 11, finish: 9 + 55 + 2}})
}

// A request sent with ignore_eos runs to its budget.
func TestIgnoreEOSRunsToTheBudget(t *testing.T) {
	p := plainProfile()
	p.Engine.IgnoreEOS = true
	l, _ := simulate(t, p, Config{}, 0, []trace.Request{{Arrival: 0, Adapter: -1, Prompt: 50, Output: 2, MaxNew: 5}})
	l.expect(t, []want{{first: 12, finish: 10 + 44 + 2}})
}

func TestAdapterLoads(t *testing.T) {
	p := plainProfile()
	p.Engine.MaxLorasPerBatch = 1
	reqs := func() []trace.Request {
		return []trace.Request{
			{Arrival: 0, Adapter: 0, Prompt: 50, Output: 3}, // load 0-7, prefill 7-17
			{Arrival: 1, Adapter: 1, Prompt: 50, Output: 1}, // no slot until 0 is done
			{Arrival: 2, Adapter: 0, Prompt: 50, Output: 1},
		}
	}
	t.Run("block", func(t *testing.T) {
		p := p
		p.Engine.HeadOfLine = profile.HeadOfLineBlock
		l, st := simulate(t, p, Config{}, 2, reqs())
		// 0 decodes 17-28-39; load of 1 39-46, prefill 46-56; load of 0 56-63, prefill 63-73
		l.expect(t, []want{{first: 19, finish: 41, cold: 7}, {first: 58, finish: 58, cold: 7},
			{first: 75, finish: 75, cold: 7}})
		if w := st.Workers[0]; w.ColdLoads != 3 || w.Evictions != 2 || w.Stalled != tick.FromMilliseconds(21) {
			t.Errorf("loads %d, evictions %d, stalled %v ms; expected 3, 2, 21", w.ColdLoads, w.Evictions,
				w.Stalled.Milliseconds())
		}
	})
	t.Run("skip", func(t *testing.T) {
		l, _ := simulate(t, p, Config{}, 2, reqs())
		// request 2 runs with 0's adapter: prefill 17-27, 0 decodes 27-49; load 49-56, prefill 56-66
		l.expect(t, []want{{first: 19, finish: 51, cold: 7}, {first: 68, finish: 68, cold: 7}, {first: 29, finish: 29}})
	})
	t.Run("overlapped", func(t *testing.T) {
		p := p
		p.Engine.AdapterLoading = profile.LoadOverlapped
		p.Engine.MaxLorasPerBatch = 2
		l, _ := simulate(t, p, Config{}, 2, reqs())
		// load of 0 0-7, of 1 7-14; at 7 the requests of 0 prefill until 22, then 1
		// until 32; 0 decodes 32-54
		l.expect(t, []want{{first: 24, finish: 56, cold: 7}, {first: 34, finish: 34, cold: 7},
			{first: 24, finish: 24, cold: 5}})
	})
	t.Run("warm-up", func(t *testing.T) {
		l, _ := simulate(t, p, Config{WarmUp: true}, 2, reqs()[:1])
		l.expect(t, []want{{first: 12, finish: 34}})
	})
	t.Run("from disk", func(t *testing.T) {
		cfg := Config{Router: &router.Router{Policy: byID{n: 1}, Placement: [][]int32{{}}}, Home: router.Disk}
		l, _ := simulate(t, p, cfg, 2, reqs()[:1])
		cold := 50 + 100/1.5 + 7
		l.expect(t, []want{{first: cold + 12, finish: cold + 34, cold: cold}})
	})
}

func TestClosedLoop(t *testing.T) {
	l, _ := simulate(t, plainProfile(), Config{MaxConcurrency: 1}, 0, []trace.Request{
		{Arrival: 0, Adapter: -1, Prompt: 50, Output: 2}, // 0-10-21, seen at 23
		{Arrival: 0, Adapter: -1, Prompt: 50, Output: 2}, // sent at 23
		{Arrival: 100, Adapter: -1, Prompt: 50, Output: 1},
	})
	l.expect(t, []want{{first: 12, finish: 23}, {first: 35, finish: 46}, {first: 112, finish: 112}})
	if r := l.recs[1]; math.Abs(r.ClientQueue()-0.023) > 1e-12 {
		t.Errorf("request 1 queued %v s in the client, expected 0.023", r.ClientQueue())
	}
}

func TestNoStreamSeesAllTokensAtTheEnd(t *testing.T) {
	l, _ := simulate(t, plainProfile(), Config{NoStream: true}, 0,
		[]trace.Request{{Adapter: -1, Prompt: 50, Output: 2}})
	l.expect(t, []want{{first: 23, finish: 23}})
}

func TestRefusals(t *testing.T) {
	p := plainProfile()
	p.Engine.ContextLength = 100
	p.Memory.KVTokens = 90
	for _, c := range []struct {
		overflow       string
		prompt, output int32
		reason         string
	}{
		{profile.OverflowReject, 60, 41, "over the context length 100"},
		{profile.OverflowReject, 60, 20, ""},
		{profile.OverflowPrompt, 60, 50, ""},
		{profile.OverflowPrompt, 83, 1, ""},
		{profile.OverflowPrompt, 84, 1, "needs more than the worker's 90 KV tokens"},
		{profile.OverflowPrompt, 100, 1, "over the context length 100"},
	} {
		p.Engine.ContextOverflow = c.overflow
		l, _ := simulate(t, p, Config{}, 0, []trace.Request{{Adapter: -1, Prompt: c.prompt, Output: c.output}})
		r := l.recs[0]
		if (c.reason == "") != (r.Status == record.OK) || !strings.Contains(r.Error, c.reason) {
			t.Errorf("%s, %d + %d tokens: %v (%s), expected %q", c.overflow, c.prompt, c.output, r.Status, r.Error,
				c.reason)
		}
	}
}

func TestNoUsableWorker(t *testing.T) {
	cfg := Config{Router: &router.Router{Policy: nowhere{}}}
	l, _ := simulate(t, plainProfile(), cfg, 0, []trace.Request{{Adapter: -1, Prompt: 5, Output: 5}})
	if r := l.recs[0]; r.Status != record.Rejected || r.WorkerFirst != -1 || r.Error != "no worker available" {
		t.Errorf("got %+v, expected a rejection", r)
	}
}

type nowhere struct{ router.Base }

func (p nowhere) Route(r router.Request, v *router.View) router.Decision {
	return router.To(p.pick(r, v))
}

func (p nowhere) pick(router.Request, *router.View) int { return router.None }

type broken struct {
	trace.Source
	err error
}

func (b broken) Next() (trace.Request, error) { return trace.Request{}, b.err }

func TestBadInputIsAnError(t *testing.T) {
	costs := func() []*profile.Costs {
		p := plainProfile()
		return []*profile.Costs{p.Compile()}
	}()
	src := func(rs ...trace.Request) trace.Source {
		return (&trace.Workload{Requests: rs}).Source()
	}
	ok := trace.Request{Adapter: -1, Prompt: 1, Output: 1}
	boom := errors.New("boom")
	rt := &router.Router{Policy: byID{n: 1}}
	small := plainProfile()
	small.Engine.MaxLoadedLoras = 2
	for _, c := range map[string]struct {
		cfg  Config
		want string
	}{
		"no workers": {Config{Source: src(ok), Router: rt}, "no workers"},
		"no router":  {Config{Source: src(ok), Workers: costs}, "no router"},
		"bad limit": {Config{Source: src(ok), Workers: costs, Router: rt, MaxConcurrency: -1},
			"max concurrency is -1"},
		"few host slots": {Config{Source: src(ok), Workers: []*profile.Costs{small.Compile()}, Router: rt},
			"max_loaded_loras (2)"},
		"bad request": {Config{Source: src(trace.Request{ID: 5, Adapter: -1, Prompt: 0, Output: 1}), Workers: costs,
			Router: rt}, "request 5: prompt_tokens is 0"},
		"unsorted": {Config{Source: src(trace.Request{Arrival: 2, Adapter: -1, Prompt: 1, Output: 1}, ok),
			Workers: costs, Router: rt}, "before its predecessor"},
		"too late": {Config{Source: src(trace.Request{Arrival: 1e9, Adapter: -1, Prompt: 1, Output: 1}),
			Workers: costs, Router: rt}, "compress the workload's times"},
		"no such worker": {Config{Source: src(ok), Workers: costs, Router: rt, Outages: []Outage{{Worker: 1}}},
			"outage of worker 1, expected 0 to 0"},
		"backwards": {Config{Source: src(ok), Workers: costs, Router: rt, Outages: []Outage{{From: 2, To: 2}}},
			"from 2 to 2 s, expected 0 <= from < to"},
		"no window": {Config{Source: src(ok), Workers: costs, Router: rt, Window: math.NaN()},
			"window is NaN s, expected 0 (none) to"},
		"large window": {Config{Source: src(ok), Workers: costs, Router: rt, Window: 1e12}, "window is 1e+12 s"},
		"no end": {Config{Source: src(ok), Workers: costs, Router: rt, Window: math.Inf(1)},
			"window is +Inf s"},
		"source fails": {Config{Source: broken{src(ok), boom}, Workers: costs, Router: rt}, "boom"},
	} {
		c.cfg.Observer = newLedger()
		_, err := Run(context.Background(), c.cfg)
		testutil.ExpectError(t, err, c.want)
	}
}

func TestRunStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	p := plainProfile()
	wl := &trace.Workload{}
	for i := range 10_000 {
		wl.Requests = append(wl.Requests, trace.Request{ID: int64(i), Arrival: float64(i), Adapter: -1, Prompt: 5,
			Output: 5})
	}
	cfg := Config{Source: wl.Source(), Workers: []*profile.Costs{p.Compile()},
		Router:   &router.Router{Policy: byID{n: 1}},
		Observer: newLedger(),
		Progress: func(int64, float64) { cancel() }}
	if _, err := Run(ctx, cfg); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, expected %v", err, context.Canceled)
	}
}

// endless has no last request; all arrive at time 0.
type endless struct {
	trace.Source
	served int
	stop   func()
}

func (e *endless) Next() (trace.Request, error) {
	if e.served++; e.served == 10_000 {
		e.stop()
	}
	return trace.Request{ID: int64(e.served), Adapter: -1, Prompt: 1, Output: 1}, nil
}

// A run ends with its context also while requests arrive that are all due at one time.
func TestCancelAmongArrivals(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	src := &endless{Source: (&trace.Workload{}).Source(), stop: cancel}
	p := plainProfile()
	cfg := Config{Source: src, Workers: []*profile.Costs{p.Compile()}, Router: &router.Router{Policy: byID{n: 1}}}
	if _, err := Run(ctx, cfg); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, expected %v", err, context.Canceled)
	}
	if src.served > 20_000 {
		t.Errorf("%d requests after the end, expected a few thousand", src.served-10_000)
	}
}
