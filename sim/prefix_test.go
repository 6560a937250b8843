package sim

import (
	"context"
	"testing"

	"lorasim/router"
	"lorasim/sim/engine"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/sim/tick"
	"lorasim/trace"

	"pgregory.net/rapid"
)

// inputMargin is how many tokens a prompt stays below the longest request under sglang.
const inputMargin = 5

// The expectations of the worked tests are of plainProfile: a prefill step takes
// 5 + 0.1 ms a token, and 2 ms pass outside the engine.

func cachingProfile() profile.Profile {
	p := plainProfile()
	p.Engine.PrefixCache = true
	return p
}

// expectTTFT compares the times to the first token, ms, and the tokens found.
func expectReuse(t *testing.T, l *ledger, ttft []float64, found []int32) {
	t.Helper()
	for i := range ttft {
		r := l.recs[int64(i)]
		if r.Status != record.OK || tick.FromSeconds(r.TTFT()) != tick.FromMilliseconds(ttft[i]) ||
			r.Cached != found[i] {
			t.Errorf("request %d: %v, TTFT %v ms, %d tokens found, expected %v ms and %d", i, r.Status, 1000*r.TTFT(),
				r.Cached, ttft[i], found[i])
		}
	}
}

// A turn of a conversation computes what is new and the last token of the reply
// before, which has no KV cache; a full hit one token; another adapter all.
func TestPrefixWorked(t *testing.T) {
	talk := &trace.Text{}
	at := func(ms float64, adapter, prompt, output int32) trace.Request {
		return trace.Request{Arrival: ms, Adapter: adapter, Prompt: prompt, Output: output, Text: talk, Reply: talk}
	}
	reqs := func() []trace.Request {
		return []trace.Request{
			at(0, 0, 100, 20),   // 5 + 10
			at(5000, 0, 160, 1), // 119 of 160 are there: 5 + 4.1
			at(6000, 0, 160, 1), // all but one: 5 + 0.1
			at(7000, 1, 160, 1), // nothing: 5 + 16
			{Arrival: 8000, Adapter: 0, Prompt: 160, Output: 1}, // like no other
		}
	}
	l, st := simulate(t, cachingProfile(), Config{}, 2, reqs())
	load := l.recs[0].ColdLoad * 1000
	expectReuse(t, l, []float64{17 + load, 11.1, 7.1, 23 + load, 23}, []int32{0, 119, 159, 0, 0})
	if n := st.Workers[0].CachedTokens; n != 119+159 {
		t.Errorf("%d tokens found in all", n)
	}

	vllm := cachingProfile()
	vllm.Engine.UseVLLM() // pages of 16: 112 of 119, then 144 of 159
	l, _ = simulate(t, vllm, Config{}, 2, reqs())
	for i, want := range []int32{0, 112, 144, 0, 0} {
		if got := l.recs[int64(i)].Cached; got != want {
			t.Errorf("vllm: request %d: %d tokens found, expected %d", i, got, want)
		}
	}
}

// An adapter that is loaded again is another one to sglang, the same to vLLM.
func TestPrefixOfAnAdapterThatWasAway(t *testing.T) {
	for _, c := range []struct {
		scheduler string
		found     int32
	}{{profile.SchedulerSGLang, 0}, {profile.SchedulerVLLM, 64}} {
		p := cachingProfile()
		p.Engine.Scheduler, p.Engine.PageSize = c.scheduler, 16
		p.Engine.MaxLorasPerBatch, p.Engine.MaxLoadedLoras = 1, 1
		text := &trace.Text{}
		l, _ := simulate(t, p, Config{}, 2, []trace.Request{
			{Arrival: 0, Adapter: 0, Prompt: 70, Output: 1, Text: text},
			{Arrival: 1000, Adapter: 1, Prompt: 70, Output: 1, Text: text},
			{Arrival: 2000, Adapter: 0, Prompt: 70, Output: 1, Text: text},
		})
		for i, want := range []int32{0, 0, c.found} {
			if got := l.recs[int64(i)].Cached; got != want {
				t.Errorf("%s: request %d: %d tokens found, expected %d", c.scheduler, i, got, want)
			}
		}
	}
}

// What a worker kept is gone when it fails.
func TestPrefixAfterAnOutage(t *testing.T) {
	text := &trace.Text{}
	l, _ := simulate(t, cachingProfile(), Config{Outages: []Outage{{0, 1, 2}}}, 0, []trace.Request{
		{Arrival: 0, Adapter: -1, Prompt: 50, Output: 1, Text: text},
		{Arrival: 500, Adapter: -1, Prompt: 50, Output: 1, Text: text},
		{Arrival: 3000, Adapter: -1, Prompt: 50, Output: 1, Text: text},
	})
	expectReuse(t, l, []float64{12, 7.1, 12}, []int32{0, 49, 0})
}

// Two requests that run at the same time hold the prefix they share once: in
// 100 tokens of memory, one of 60 and one of 61 with 59 in common find room.
func TestPrefixIsHeldOnce(t *testing.T) {
	p := cachingProfile()
	p.Memory.KVTokens = 100
	text := &trace.Text{}
	reqs := func(shared *trace.Text) []trace.Request {
		return []trace.Request{
			{Arrival: 0, Adapter: -1, Prompt: 60, Output: 10, Text: shared},
			{Arrival: 30, Adapter: -1, Prompt: 61, Output: 10, Text: shared},
		}
	}
	l, _ := simulate(t, p, Config{}, 0, reqs(text))
	if first, second := l.recs[0], l.recs[1]; !(second.FirstToken < first.Finish) || second.Cached != 60 {
		t.Errorf("the second began at %v, the first ended at %v; %d tokens found", second.FirstToken, first.Finish,
			second.Cached)
	}
	if l, _ := simulate(t, p, Config{}, 0, reqs(nil)); l.recs[1].FirstToken < l.recs[0].Finish {
		t.Error("two requests without a prefix in common found room")
	}
}

// sglang keeps the prompt of a request that it retracts, not what it has generated, and evicts until 20 tokens are free
// for the other request: request 0 of TestRetraction computes 21 tokens again when it returns, not 56.
func TestPrefixOfARetractedRequest(t *testing.T) {
	p := cachingProfile()
	p.Memory.KVTokens, p.Engine.NewTokenRatio, p.Engine.ClipNewTokens = 100, 0.1, 5
	talk := &trace.Text{}
	l, st := simulate(t, p, Config{}, 0, []trace.Request{
		{Arrival: 0, Adapter: -1, Prompt: 40, Output: 20, Text: talk, Reply: talk},
		{Arrival: 1, Adapter: -1, Prompt: 30, Output: 30},
	})
	l.expect(t, []want{{first: 11, finish: 351 + 5 + 2.1 + 3*11 + 2}, {first: 19, finish: 351 + 2}})
	if n := st.Workers[0].CachedTokens; n != 35 || l.recs[0].Cached != 0 {
		t.Errorf("%d tokens found, %d of them at first, expected 35 and none", n, l.recs[0].Cached)
	}
}

// vLLM's running requests take their blocks before a waiting one looks for its
// prefix: of the four blocks that the first two leave, the oldest, which is the
// second of the first prompt, is gone then.
func TestPrefixAfterTheRunning(t *testing.T) {
	with := func(r trace.Request, text *trace.Text) trace.Request { r.Text = text; return r }
	x, y := &trace.Text{}, &trace.Text{}
	l := stepsOf(t, func(p *profile.Profile) {
		p.Engine.PrefixCache, p.Memory.KVTokens, p.Engine.MaxNumBatchedTokens = true, 7*16, 200
	},
		with(base(32, 1), x), with(base(32, 1), y), base(48, 20), with(base(33, 2), x))
	expectTokens(t, l, tokens{0: 32, 1: 32, 2: 48}, tokens{2: 1, 3: 17})
	if got := l.steps[1].Computed[3]; got != 16 {
		t.Errorf("%d tokens found, expected 16", got)
	}
}

// genTexts gives the requests of a workload prompts of a random tree of texts.
func genTexts(t *rapid.T, w *trace.Workload) {
	var texts []*trace.Text
	for range rapid.IntRange(1, 6).Draw(t, "texts") {
		x := new(trace.Text)
		if len(texts) > 0 && rapid.Bool().Draw(t, "branches") {
			x.Parent = rapid.SampledFrom(texts).Draw(t, "parent")
			x.Start = x.Parent.Start + int32(rapid.IntRange(0, 40).Draw(t, "start"))
		}
		texts = append(texts, x)
	}
	for i := range w.Requests {
		r := &w.Requests[i]
		if rapid.IntRange(0, 3).Draw(t, "own") == 0 {
			continue
		}
		if r.Text = rapid.SampledFrom(texts).Draw(t, "text"); rapid.Bool().Draw(t, "reply") {
			r.Reply = r.Text
		}
	}
}

// steps sums up what the steps of a server computed.
type steps struct {
	fates
	prompt, found int64
	again         bool // some request lost its KV cache
}

func (s *steps) Step(k *engine.Report) {
	s.prompt += k.PromptTokens
	s.found += k.CachedTokens
	s.again = s.again || len(k.Preempted) > 0
}

// With prefix caches, too, a run in leaps has the times of a server that hears of
// every token; nothing is left in use at the end; and what was computed and what
// was found are all tokens of the prompts.
func TestPrefixLeapsEqualSteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := genProfile(t)
		p.Engine.PrefixCache, p.Engine.DisableRadixCache = true, false
		p.Engine.PrefixEviction = rapid.SampledFrom([]string{profile.EvictPages, profile.EvictNodes}).Draw(t, "evicts")
		wl := genWorkload(t)
		genTexts(t, wl)
		want := newLedger()
		s := checked(t, Config{Source: wl.Source(), Workers: []*profile.Costs{p.Compile()},
			Router: &router.Router{Policy: byID{n: 1}}, Observer: want, Home: router.Disk, TokenTimes: true})
		if err := s.run(context.Background()); err != nil {
			t.Fatal(err)
		}
		checkEmpty(t, s)
		if kv := &s.workers[0].engine.KV; kv.Kept() > kv.Free() || kv.FreeTokens() != kv.CapacityTokens() {
			t.Fatalf("%d pages cached, %d free, %d tokens in all", kv.Kept(), kv.Free(), kv.CapacityTokens())
		}

		heard := &steps{fates: fates{}}
		srv, err := NewServer(ServerConfig{Costs: p.Compile(), Hooks: ServerHooks{Token: heard.Token,
			Ended: heard.Ended, Step: heard.Step}, MaxAdapters: len(wl.Adapters), Home: router.Disk})
		if err != nil {
			t.Fatal(err)
		}
		for i, a := range wl.Adapters {
			srv.Define(int32(i), a)
			if n := p.Engine.HostLoras(); n == 0 || i < n {
				srv.Preload(int32(i))
			}
		}
		for i, r := range wl.Requests {
			if err := srv.Submit(r); err != nil {
				t.Fatal(err)
			}
			if i+1 == len(wl.Requests) || wl.Requests[i+1].Arrival > r.Arrival {
				srv.Advance(tick.FromSeconds(r.Arrival))
			}
		}
		for at := srv.Next(); at != tick.Never; at = srv.Next() {
			srv.Advance(at)
		}
		all, prompts, found := true, int64(0), int64(0)
		for _, r := range wl.Requests {
			got := want.recs[r.ID]
			compareFates(t, r.ID, heard.of(r.ID), got)
			if got.Cached < 0 || got.Cached >= r.Prompt || got.Cached%int32(p.Engine.PageSize) != 0 || r.Text == nil &&
				got.Cached > 0 {
				t.Fatalf("request %d: %d of %d tokens found", r.ID, got.Cached, r.Prompt)
			}
			all = all && got.Status == record.OK
			prompts += int64(r.Prompt)
			found += int64(got.Cached)
		}
		if all && !heard.again && (heard.prompt+heard.found != prompts || heard.found != found) {
			t.Fatalf("%d tokens computed and %d found (%d by the records) of %d", heard.prompt, heard.found, found,
				prompts)
		}
	})
}
