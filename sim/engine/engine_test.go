package engine

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"lorasim/router"
	"lorasim/sim/kvcache"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/sim/tick"
	"lorasim/trace"
)

const ms = tick.Millisecond

// By hand: prompts of 10 and 20 tokens take a step of 35 ms. Two decode steps end the first request, the prompt of a
// third comes between, and the second goes on alone.
func TestStepsByHand(t *testing.T) {
	b := newBench(t, nil)
	b.send(0, request(1, 0, 10, 3), request(2, 3, 20, 5))
	b.send(50*ms, request(3, 0, 5, 1))
	b.until(tick.Never)
	over := b.e.Costs.Overhead
	// 35 ms: both have a token; decode steps end at 45 and 55; the prompt that came at 50 takes until 65
	for id, want := range map[int64]tick.Ticks{1: 55 * ms, 3: 65 * ms, 2: 85 * ms} {
		if got := b.ends[id]; got.at != want+over || got.status != record.OK {
			t.Errorf("request %d ended at %v, %v, expected %v", id, got.at, got.status, want+over)
		}
	}
	// 10 ms between tokens, but for the prefill step: 20 ms
	if want := map[tick.Ticks]int64{10 * ms: 5, 20 * ms: 1}; b.first != 3 || !maps.Equal(b.gaps, want) {
		t.Errorf("%d first tokens, gaps %v, expected 3 and %v", b.first, b.gaps, want)
	}
	s := &b.e.Stats
	if s.PrefillSteps != 2 || s.DecodeSteps != 4 || s.Busy != 85*ms || s.PeakRunning != 2 || b.steps != 4 {
		t.Errorf("%+v, %d steps observed", s, b.steps)
	}
}

// A request is refused where its adapter's rank is too large, or by the scheduler.
func TestRefuse(t *testing.T) {
	b := newBench(t, func(p *profile.Profile, _ *Config) { p.Engine.MaxLoraRank = 8 })
	for _, c := range []struct {
		r    *Request
		want string
	}{
		{request(1, 0, 10, 1), ""}, {request(1, 1, 10, 1), fmt.Sprintf(RankTooLarge, 16, 8)},
		{request(1, 3, 10, 1), ""}, {request(1, 0, 1000, 1), "too long"},
	} {
		if got := b.e.Refuse(c.r); got != c.want {
			t.Errorf("adapter %d, %d tokens: %q, expected %q", c.r.Adapter, c.r.Prompt, got, c.want)
		}
	}
}

// The front end hands requests over one after the other; the first of an adapter takes longer, the base model's does
// not.
func TestFrontEnd(t *testing.T) {
	b := newBench(t, func(p *profile.Profile, _ *Config) {
		p.Latency.FrontEnd = profile.FrontEnd{PerRequestMs: 2, FirstUseMs: 100}
	})
	rs := []*Request{request(1, 3, 10, 1), request(2, 0, 10, 1), request(3, 0, 10, 1), request(4, 1, 10, 1)}
	b.send(0, rs...)
	b.until(0)
	for k, want := range []tick.Ticks{2 * ms, 104 * ms, 106 * ms, 208 * ms} {
		if rs[k].QueuedAt != want || rs[k].State() != Entering {
			t.Errorf("request %d enters the queue at %v, expected %v", k+1, rs[k].QueuedAt, want)
		}
	}
	f := &b.e.FrontEnd
	if f.Len() != 4 || f.Of(b.adapter(0)) != 2 || f.Of(b.adapter(1)) != 1 || b.view.Queued != 4 {
		t.Errorf("%d requests in the front end, %d of adapter 0, routers see %d", f.Len(), f.Of(b.adapter(0)),
			b.view.Queued)
	}
	b.at(105*ms, func() { b.e.Abort(rs[2]) })
	b.until(110 * ms)
	if f.Len() != 1 || b.ends[3].status != record.Aborted || b.ends[3].at != 105*ms+b.e.Costs.Overhead {
		t.Errorf("%d requests in the front end, the aborted one: %+v", f.Len(), b.ends[3])
	}
	b.until(tick.Never)
	if len(b.ends) != 4 || b.ends[4].at != 223*ms+b.e.Costs.Overhead {
		t.Errorf("%+v", b.ends)
	}
}

// Aborts: a waiting request ends at once, a running one after the step under way, one in a prefill step once it
// decodes.
func TestAbort(t *testing.T) {
	b := newBench(t, func(p *profile.Profile, _ *Config) { p.Memory.KVTokens = 40 })
	long, waits, late := request(1, 0, 10, 20), request(2, 1, 31, 5), request(3, 2, 8, 9)
	b.send(0, long, waits)
	b.at(20*ms, func() { b.e.Abort(waits) })
	b.send(20*ms, late)
	b.at(30*ms, func() { b.e.Abort(late) }) // its prefill step is under way
	b.at(72*ms, func() {
		b.e.Abort(long)
		b.e.Abort(long) // no effect
	})
	b.until(tick.Never, func() {
		if err := b.e.Check(); err != nil {
			t.Fatal(err)
		}
	})
	over := b.e.Costs.Overhead
	// long: prompt until 15, a step until 25, the prompt of late until 38; steps end at 48, 58, 68 and 78
	for id, want := range map[int64]end{
		1: {record.Aborted, 78*ms + over, 6},
		2: {record.Aborted, 20*ms + over, 0},
		3: {record.Aborted, 38*ms + over, 1},
	} {
		if got := b.ends[id]; got != want {
			t.Errorf("request %d: %+v, expected %+v", id, got, want)
		}
	}
	if err := b.e.CheckEmpty(); err != nil {
		t.Error(err)
	}
}

// A request that is to leave does so after the step under way, with its KV tokens; a waiting one at once. Where it
// brings its KV cache it decodes without a prompt.
func TestEjectAndTransfer(t *testing.T) {
	b := newBench(t, func(p *profile.Profile, _ *Config) { p.Engine.MaxRunningRequests = 256 })
	r := request(1, 0, 10, 20)
	b.send(0, r)
	b.at(31*ms, func() { b.e.Eject(r) })
	b.until(60 * ms)
	if b.ejected[1] != 12 || r.Generated != 3 || b.view.Tokens != 0 || r.State() == Running { // steps end at 25 and 35
		t.Fatalf("ejected with %d KV tokens and %d generated, expected 12 and 3", b.ejected[1], r.Generated)
	}
	r.TransferredKV = 12
	b.send(60*ms, r)
	b.until(tick.Never)
	if want := (end{record.OK, 60*ms + 17*10*ms + b.e.Costs.Overhead, 20}); b.ends[1] != want {
		t.Errorf("%+v, expected %+v", b.ends[1], want)
	}
	if b.gaps[35*ms] != 1 { // from its token at 35 ms to 70 ms
		t.Errorf("gaps %v, expected one of 35 ms", b.gaps)
	}
	waits := request(2, 0, 10, 1)
	b.s.only = nil
	b.view.Up = false // it does not begin
	b.e.Add(waits)
	if b.e.Withdraw(waits); b.view.Queued != 0 || b.view.Tokens != 0 || b.e.Queue.Len() != 0 {
		t.Errorf("routers see %d waiting requests of %d tokens", b.view.Queued, b.view.Tokens)
	}
}

// An engine that is reset has nothing, and gives back what it had with the tokens that are out.
func TestReset(t *testing.T) {
	var tiers []string
	b := newBench(t, func(_ *profile.Profile, c *Config) {
		c.Hooks.Tier = func(a int32, t router.Tier) { tiers = append(tiers, fmt.Sprint(a, t)) }
	})
	r, w := request(1, 0, 10, 20), request(2, 1, 20, 5)
	b.send(0, r)
	b.send(38*ms, w)
	b.until(41 * ms)
	tiers = nil
	orphans := b.e.Reset(false, []int32{1})
	if len(orphans) != 2 || orphans[0] != w || orphans[1] != r || r.Generated != 3 || r.Computed != 0 {
		t.Fatalf("%d orphans, request 1 has %d tokens; expected 2, and 3", len(orphans), r.Generated)
	}
	if b.e.Batch.Steps != 2 || b.e.Stats.Busy != 41*ms || !slices.Equal(tiers, []string{"0 1", "2 1"}) { // both to disk
		t.Errorf("%d steps, busy for %v, tiers %v", b.e.Batch.Steps, b.e.Stats.Busy, tiers)
	}
	if err := b.e.CheckEmpty(); err != nil {
		t.Error(err)
	}
	if b.e.Reset(true, nil); b.e.Batch.Steps != 0 {
		t.Errorf("another process begins with %d steps", b.e.Batch.Steps)
	}
	b.until(tick.Never)
	if len(b.ends) != 0 {
		t.Errorf("%+v ended after the reset", b.ends)
	}
}

// A report says what each step took.
func TestReport(t *testing.T) {
	var got []*Report
	b := newBench(t, func(_ *profile.Profile, c *Config) { c.Hooks.Step = func(p *Report) { got = append(got, p) } })
	b.send(0, request(1, 0, 10, 3), request(2, 1, 7, 2))
	b.until(tick.Never)
	if len(got) != 3 {
		t.Fatalf("%d steps, expected 3", len(got))
	}
	for k, want := range []struct {
		tokens            map[int64]int32
		prompts, running  int
		before            int
		prompt, kv, pages int64
	}{
		{map[int64]int32{1: 10, 2: 7}, 2, 2, 0, 17, 17, 983},
		{map[int64]int32{1: 1, 2: 1}, 0, 1, 2, 0, 11, 989},
		{map[int64]int32{1: 1}, 0, 0, 1, 0, 0, 1000},
	} {
		g := got[k]
		if !maps.Equal(g.Tokens, want.tokens) || g.Prompts != want.prompts || g.Running != want.running ||
			g.Before != want.before || g.PromptTokens != want.prompt || g.KVTokens != want.kv ||
			g.FreePages != want.pages {
			t.Errorf("step %d: %+v, expected %+v", k, *g, want)
		}
	}
}

// TestEngine has random requests come, be aborted, moved away and lost under all orders and kinds of prefix caches.
// The invariants hold at every instant, every request ends once with the tokens that it wanted, and an engine that
// takes its decode steps one by one does the same at the same times.
func TestEngine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		order := rapid.SampledFrom([]string{profile.OrderFCFS, profile.OrderPriority,
			profile.OrderVTC}).Draw(t, "order")
		rules := Rules{Prefixes: kvcache.Prefixes(rapid.IntRange(0, int(kvcache.BlockPool)).Draw(t, "prefixes")),
			LowFirst: rapid.Bool().Draw(t, "low first"), KeepsPlace: rapid.Bool().Draw(t, "keeps place")}
		overlapped, page := rapid.Bool().Draw(t, "overlapped"), rapid.SampledFrom([]int{1, 4}).Draw(t, "page")
		memory, reset := rapid.Int64Range(60, 300).Draw(t, "memory"), rapid.Bool().Draw(t, "reset")
		frontEnd := rapid.SampledFrom([]float64{0, 7}).Draw(t, "front end")
		go1 := func(single bool) *bench {
			rng := rand.New(rand.NewPCG(seed, 1))
			var b *bench
			b = newBench(t, func(p *profile.Profile, c *Config) {
				p.Engine.SchedulePolicy, p.Engine.PageSize, p.Memory.KVTokens = order, page, memory
				p.Engine.MaxLorasPerBatch = 2
				p.Latency.FrontEnd.PerRequestMs = frontEnd
				if overlapped {
					p.Engine.AdapterLoading = profile.LoadOverlapped
				}
				c.Kind.Rules = func(*profile.Profile) Rules { return rules }
				for k := range c.Adapters {
					c.Adapters[k].Priority = k % 2
				}
				if single {
					c.Hooks.Token = func(id int64, _ tick.Ticks) { b.tokens[id]++ }
				}
			})
			texts := trace.Texts{}
			for id := range int64(1 + rng.IntN(25)) {
				r := request(id, rng.Int32N(4), 1+rng.Int32N(40), 1+rng.Int32N(40))
				r.Text = texts.Of(nil, 0, rng.Int64N(3))
				r.Reply = r.Text
				at := tick.Ticks(rng.Int64N(2000)) * ms / 2
				b.send(at, r)
				if later := at + tick.Ticks(rng.Int64N(400))*ms; rng.IntN(4) == 0 {
					b.at(later, func() {
						if _, over := b.ends[r.ID]; !over && r.engine == b.e {
							b.e.Abort(r)
						}
					})
				}
			}
			if reset {
				b.at(tick.Ticks(rng.Int64N(1000))*ms, func() {
					for _, r := range b.e.Reset(rng.IntN(2) == 0, []int32{0}) {
						b.ends[r.ID] = end{record.Failed, b.l.Now(), r.Generated}
					}
					b.view.Up = true
				})
			}
			b.until(tick.Never, func() {
				if err := errors.Join(b.e.Check(), b.l.Check()); err != nil {
					t.Fatalf("at %v: %v", b.l.Now(), err)
				}
			})
			if err := b.e.CheckEmpty(); err != nil {
				t.Fatal(err)
			}
			return b
		}
		leaps, single := go1(false), go1(true)
		if !maps.Equal(leaps.ends, single.ends) || !maps.Equal(leaps.gaps, single.gaps) {
			t.Fatalf("with leaps: %v\n%v\nstep by step: %v\n%v", leaps.ends, leaps.gaps, single.ends, single.gaps)
		}
		for id, e := range single.ends {
			if n := single.tokens[id]; n != e.tokens {
				t.Fatalf("request %d ended with %d tokens, %d were told", id, e.tokens, n)
			}
		}
	})
}
