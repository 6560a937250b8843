package engine

import (
	"testing"

	"lorasim/router"
	"lorasim/sim/kvcache"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/sim/tick"
	"lorasim/trace"
)

// The end of a load is a change of the queue where requests wait. It opens a full gate only where the scheduler says
// that loads make room.
func TestLoadEndedAndGate(t *testing.T) {
	for _, c := range []struct {
		name        string
		opens       bool // Gate.LoadOpens
		waits       bool
		full, looks bool
	}{
		{"loads open it", true, true, false, true}, {"loads do not open it", false, true, true, true},
		{"nobody waits", true, false, true, false},
	} {
		b := newBench(t, nil)
		b.view.Up = false
		if c.waits {
			wait(b, request(1, 0, 10, 1))
		}
		g := &b.e.Gate
		g.LoadOpens = c.opens
		g.NoRoom()
		g.Exhausted()
		if (adapterEvents{b.e}).LoadEnded(); g.Full() != c.full || g.changed != c.looks {
			t.Errorf("%s: full %v, to be looked at %v; expected %v, %v", c.name, g.Full(), g.changed, c.full, c.looks)
		}
	}
}

// A request whose adapter is loaded early may open a full gate, as vLLM's scheduler wants it.
func TestPrefetchOpensGate(t *testing.T) {
	for _, c := range []struct{ prefetch, opens, full bool }{
		{true, true, false}, {true, false, true}, {false, true, true},
	} {
		b := newBench(t, func(_ *profile.Profile, f *Config) { f.Prefetch = c.prefetch })
		b.view.Up = false
		b.e.Gate.PrefetchOpens = c.opens
		b.e.Gate.NoRoom()
		if wait(b, request(1, 0, 10, 1)); b.e.Gate.Full() != c.full {
			t.Errorf("prefetch %v, opens %v: full %v, expected %v", c.prefetch, c.opens, b.e.Gate.Full(), c.full)
		}
	}
}

// Host memory holds at least the adapters of the slots (max_loaded_loras >= max_loras_per_batch); 0 is no limit. Steps
// are mixed only where prompts are split.
func TestLimitsOfAnEngine(t *testing.T) {
	for hosts, ok := range map[int]bool{0: true, 3: false, 4: true, 5: true} {
		b := newBench(t, nil)
		c := b.e.cfg
		p := profile.Default()
		p.Memory.KVTokens = 1000
		p.Engine.MaxLorasPerBatch, p.Engine.MaxLoadedLoras = 4, hosts
		c.Costs = p.Compile()
		if _, err := New(c, b, &b.l); (err == nil) != ok {
			t.Errorf("%d adapters in host memory for 4 slots: %v", hosts, err)
		}
	}
	for chunk, want := range map[int]bool{0: false, 1: true} {
		b := newBench(t, func(p *profile.Profile, _ *Config) {
			p.Engine.MixedChunk, p.Engine.ChunkedPrefillSize = true, chunk
		})
		if b.e.Profile.MixedChunk != want {
			t.Errorf("chunks of %d: mixed steps %v, expected %v", chunk, b.e.Profile.MixedChunk, want)
		}
	}
}

// A pause is a step in which nothing runs; one of no time is none.
func TestPause(t *testing.T) {
	b := newBench(t, nil)
	if b.e.Pause(0) || b.e.Step.kind != idle || b.e.Stats.Stalled != 0 {
		t.Error("a pause of no time is a step")
	}
	if !b.e.Pause(5*ms) || b.e.Step.kind != prefill || b.e.Stats.Stalled != 5*ms || b.l.Next() != 5*ms {
		t.Errorf("kind %d, stalled for %d, ends at %d", b.e.Step.kind, b.e.Stats.Stalled, b.l.Next())
	}
}

// A request that may not wait is rejected, unless its client has seen a token of it: then it fails.
func TestReject(t *testing.T) {
	for seen, want := range map[bool]record.Status{false: record.Rejected, true: record.Failed} {
		b := newBench(t, nil)
		b.view.Up = false
		r := request(1, 0, 10, 5)
		wait(b, r)
		if seen {
			b.e.Books.PendingPromptTokens -= int64(r.Prompt)
			r.FirstTokenAt = 0
		}
		b.e.RejectWaiting(r, "")
		if got := b.ends[1].status; got != want || b.e.Queue.Len() != 0 || b.view.Queued != 0 {
			t.Errorf("tokens seen %v: ended %v, expected %v; %d wait", seen, got, want, b.e.Queue.Len())
		}
	}
}

// With an adapter merged into the weights a step costs what one of the base model does.
func TestMergedWork(t *testing.T) {
	for _, merged := range []bool{false, true} {
		b := newBench(t, func(p *profile.Profile, _ *Config) {
			p.Latency.LoRA = profile.LoRA{Backend: profile.BackendCSGMV, CSGMVUs: 1}
		})
		b.e.Merged = merged
		b.send(0, request(1, 0, 10, 5))
		b.until(1 * ms)
		if w := b.e.Step.Work; w.Tokens != 10 || (w.LoRATokens == 0) != merged {
			t.Errorf("merged %v: %d tokens with an adapter", merged, w.LoRATokens)
		}
	}
}

// A request that was to leave, and left the batch otherwise since, stays where it is.
func TestEjectedInTheQueue(t *testing.T) {
	b := newBench(t, nil)
	r := request(1, 0, 10, 20)
	b.send(0, r)
	b.until(20 * ms)
	b.e.Eject(r)
	b.until(24 * ms)
	r.Leaving = Staying // as after a preemption
	leaving := b.e.leaving
	if b.e.sendLeaving(); len(b.ejected) > 0 || r.State() != Running {
		t.Errorf("ejected %v though its migration is off, state %d", b.ejected, r.State())
	}
	r.Leaving, b.e.leaving = Ejecting, leaving
	b.e.Remove(r)
	b.e.toWaiting(r, true)
	if b.e.sendLeaving(); len(b.ejected) > 0 || r.State() != Waiting || b.e.Queue.Len() != 1 {
		t.Errorf("ejected %v, state %d, %d wait", b.ejected, r.State(), b.e.Queue.Len())
	}
}

// A report counts the requests that wait, and those that were preempted.
func TestReportOfPreemption(t *testing.T) {
	var got []*Report
	b := newBench(t, func(p *profile.Profile, c *Config) {
		p.Memory.KVTokens = 22
		c.Hooks.Step = func(p *Report) { got = append(got, p) }
	})
	b.send(0, request(1, 0, 10, 9), request(2, 1, 10, 9))
	b.until(46 * ms) // two prompts of 10 until 25 ms, a step of both until 35; the next one has no memory
	if len(got) != 3 || len(got[0].Preempted) > 0 || got[2].Before != 1 || got[2].Waiting != 1 ||
		len(got[2].Preempted) != 1 || got[2].Preempted[0] != 2 || b.e.Stats.Preemptions != 1 {
		t.Errorf("%d steps, the latest %+v; expected request 2 to wait, preempted", len(got), got[len(got)-1])
	}
}

// Priorities decide over the order in which requests came; in that order a head that cannot run is passed over.
func TestNext(t *testing.T) {
	heads := func(a *Adapter) *Request { return a.Head() }
	b := prioritized(t, false)
	wait(b, request(1, 1, 9, 1), request(2, 0, 9, 1)) // the second is of the better priority
	if got := b.e.Next(b.e.Queue.Adapters, heads); got.ID != 2 {
		t.Errorf("request %d is next, expected 2", got.ID)
	}
	for _, among := range [][]*Adapter{{b.adapter(0), b.adapter(1)}, {b.adapter(1), b.adapter(0)}} {
		if got := b.e.Policy.First(among, heads); got.ID != 2 { // an older request of worse priority does not count
			t.Errorf("request %d is first, expected 2", got.ID)
		}
	}
	b = newBench(t, nil)
	b.view.Up = false
	wait(b, request(1, 1, 9, 1), request(2, 0, 9, 1))
	if got := b.e.Next(b.e.Queue.Adapters, heads); got.ID != 1 {
		t.Errorf("request %d is next, expected 1", got.ID)
	}
	if got := b.e.Next(b.e.Queue.Adapters, func(a *Adapter) *Request {
		if a.Index == 1 {
			return nil
		}
		return a.Head()
	}); got.ID != 2 {
		t.Errorf("request %d is next, expected 2", got.ID)
	}
}

// A request's tokens since it joined the batch count from the step in which it joined.
func TestDecodingOfALaterRequest(t *testing.T) {
	b := newBench(t, nil)
	b.send(0, request(1, 0, 10, 50))    // prompt until 15 ms, steps end at 25 and 35
	b.send(30*ms, request(2, 1, 10, 9)) // prompt until 50 ms, a step until 60
	b.until(62 * ms)
	got := map[int64]int64{}
	for r, n := range b.e.Decoding() {
		got[r.ID] = n
	}
	if got[1] != 3 || got[2] != 1 {
		t.Errorf("tokens since they joined: %v, expected 3 and 1", got)
	}
}

// StartedAt is when a request entered a prefill step for the first time, not after a preemption.
func TestStartedAt(t *testing.T) {
	b := newBench(t, nil)
	r := request(1, 0, 10, 50)
	b.send(5*ms, r)
	b.until(22 * ms) // its prompt ends at 20 ms
	if r.StartedAt != 5*ms {
		t.Errorf("started at %d, expected 5 ms", r.StartedAt)
	}
	b.until(29 * ms)
	b.e.Remove(r)
	b.e.toWaiting(r, true)
	if b.e.Start(r); r.StartedAt != 5*ms {
		t.Errorf("started again: at %d, expected 5 ms", r.StartedAt)
	}
}

// An adapter that leaves host memory loses its cached prefixes; one that only loses its slot keeps them.
func TestPrefixesOfUnloadedAdapter(t *testing.T) {
	b := newBench(t, func(_ *profile.Profile, c *Config) {
		c.Kind.Rules = func(*profile.Profile) Rules { return Rules{Prefixes: kvcache.RadixPages} }
	})
	text := trace.Texts{}.Of(nil, 0, 1)
	b.e.KV.Seed(text, 0, 20)
	for _, c := range []struct {
		tier router.Tier
		kept bool
	}{{router.GPU, true}, {router.Host, true}, {router.Disk, false}} {
		(adapterEvents{b.e}).TierChanged(&b.adapter(0).Adapter, c.tier)
		if got := b.e.CachedPrefix(text, 0, 20) > 0; got != c.kept {
			t.Errorf("tier %d: prefixes kept %v, expected %v", c.tier, got, c.kept)
		}
	}
}

// A run of decode steps ends after the step under way where the queue grows and steps scan it.
func TestQueueLengthCutsRun(t *testing.T) {
	for perWaiting, cuts := range map[float64]bool{0: false, 100: true} {
		b := newBench(t, func(p *profile.Profile, _ *Config) {
			p.Latency.Law = profile.LawAdapters
			p.Latency.Adapters = profile.AdapterLaw{BaseMs: 10, PerWaitingUs: perWaiting}
		})
		b.send(0, request(1, 0, 10, 50))
		b.until(30 * ms)
		b.e.Gate.NoRoom() // the request that comes changes nothing else
		run := b.e.Step.run.Count
		if wait(b, request(2, 0, 10, 1)); b.e.Step.kind != decode || (b.e.Step.run.Count < run) != cuts {
			t.Errorf("%v us for a waiting request: kind %d, a run of %d steps, then of %d", perWaiting, b.e.Step.kind,
				run, b.e.Step.run.Count)
		}
	}
}

// A prompt is found in the prefix cache once its step has ended, if the scheduler enters prompts then.
func TestPromptIsCached(t *testing.T) {
	b := newBench(t, func(_ *profile.Profile, c *Config) {
		c.Kind.Rules = func(*profile.Profile) Rules { return Rules{Prefixes: kvcache.RadixPages} }
	})
	r := request(1, 0, 10, 50)
	r.Text = trace.Texts{}.Of(nil, 0, 1)
	b.send(0, r)
	b.until(14 * ms)
	if got := b.e.CachedPrefix(r.Text, 0, 10); got != 0 {
		t.Errorf("%d tokens are cached within the step, which ends at 15 ms; expected none", got)
	}
	b.until(16 * ms)
	if got := b.e.CachedPrefix(r.Text, 0, 10); got != 10 {
		t.Errorf("%d tokens are cached, expected 10", got)
	}
}

// A mixed step decodes, as a run of one step; a prefill step does not.
func TestRunMixed(t *testing.T) {
	for _, mixes := range []bool{false, true} {
		e := newBench(t, nil).e
		e.Step.Open(false)
		e.Run(mixes)
		if e.Step.Decodes() != mixes || (e.Step.run.Count == 1) != mixes || e.Stats.PrefillSteps != 1 {
			t.Errorf("mixed %v: decodes %v, a run of %d steps", mixes, e.Step.Decodes(), e.Step.run.Count)
		}
	}
}

// Clients see a request's first token, and its end, after the time that is spent outside the engine.
func TestOverhead(t *testing.T) {
	b := newBench(t, func(p *profile.Profile, _ *Config) { p.Latency.RequestOverheadMs = 3 })
	r := request(1, 0, 10, 2)
	b.send(0, r)
	b.until(tick.Never)
	if r.FirstTokenAt != 18*ms || b.ends[1].at != 28*ms { // the prompt ends at 15 ms, the step at 25
		t.Errorf("first token at %d, end at %d, expected 18 and 28 ms", r.FirstTokenAt, b.ends[1].at)
	}
}

// A report counts retractions; where nobody wants a report nothing is counted.
func TestRetractedOne(t *testing.T) {
	p := newReport()
	p.RetractedOne()
	if (*Report)(nil).RetractedOne(); p.Retracted != 1 {
		t.Errorf("%d retractions, expected 1", p.Retracted)
	}
}
