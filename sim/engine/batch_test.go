package engine

import (
	"fmt"
	"testing"

	"lorasim/internal/testutil"
	"lorasim/sim/profile"
	"lorasim/sim/tick"
)

// What a step has to do with adapters, by hand: adapter 0 is of rank 8, adapter 1 of rank 16, adapter 2 of rank 8.
func TestLoraWork(t *testing.T) {
	b := newBench(t, func(p *profile.Profile, _ *Config) {
		p.Latency.LoRA = profile.LoRA{Backend: profile.BackendCSGMV, CSGMVUs: 1}
	})
	b.e.Batch.loras.heights = [2]int64{2, 8}
	for k, a := range []int32{0, 0, 1, 3} {
		b.send(0, request(int64(k), a, 10, 50))
	}
	b.until(200 * ms)
	c := &b.e.Batch.loras
	if c.loras != 3 || c.distinct != 2 || c.rankSum != 24 || c.tokens != 32 || c.squares != 5 || c.ranks.Max != 16 ||
		c.tiles != (profile.Tiles{2, 2}) {
		t.Fatalf("%+v, expected 3 requests of 2 adapters of ranks 8, 8, 16", *c)
	}
	prompts := []Chunk{{&Request{Row: b.adapter(1)}, 7}, {&Request{Row: b.adapter(2)}, 5},
		{&Request{Row: b.adapter(2)}, 1}, {&Request{Row: b.adapter(3)}, 3}}
	for _, s := range []struct {
		decodes bool
		want    profile.StepWork
	}{
		{true, profile.StepWork{Tokens: 16, LoRAs: 3, MaxRank: 16, Adapters: 3, Squares: 5, Ranks: 32,
			RankTokens: 32 + 16*7 + 8*6, RequestRanks: 32, Tiles: profile.Tiles{1 + 4 + 3, 1 + 1 + 1}}},
		{false, profile.StepWork{Tokens: 16, Adapters: 2, Ranks: 24, RankTokens: 16*7 + 8*6,
			Tiles: profile.Tiles{4 + 3, 1 + 1}}},
	} {
		got := profile.StepWork{Tokens: 16}
		if c.work(&got, prompts, s.decodes, true); got != s.want {
			t.Errorf("decodes %v: %+v, expected %+v", s.decodes, got, s.want)
		}
		got = profile.StepWork{Tokens: 16}
		if c.work(&got, prompts, s.decodes, false); s.decodes && got.Adapters != 2 || !s.decodes && got.Adapters != 0 {
			t.Errorf("decodes %v: %d adapters where none of prompts count", s.decodes, got.Adapters)
		}
	}
}

// Requests that join in front of others come before them in the order of the batch.
func TestFront(t *testing.T) {
	b := newBench(t, nil)
	for id := range int64(4) {
		b.send(0, request(id, 0, 10, 50))
		b.until(tick.Ticks(id+1) * 100 * ms)
		if id == 0 || id == 2 {
			end := b.e.Batch.Front(1)
			b.send(b.l.Now(), request(10+id, 0, 10, 50))
			b.until(b.l.Now() + 50*ms)
			end()
		}
	}
	order := map[int64]int64{}
	for _, r := range b.e.Batch.Requests() {
		order[r.ID] = r.Order()
	}
	for _, pair := range [][2]int64{{12, 10}, {10, 0}, {0, 1}, {1, 2}, {2, 3}} {
		if order[pair[0]] >= order[pair[1]] {
			t.Errorf("request %d has place %d, request %d place %d", pair[0], order[pair[0]], pair[1], order[pair[1]])
		}
	}
}

// What a request may still generate is reserved, clipped.
func TestBatchReserved(t *testing.T) {
	for clip, want := range map[int]int64{100: 47 + 17, 30: 30 + 17} {
		b := newBench(t, func(p *profile.Profile, _ *Config) { p.Engine.ClipNewTokens = clip })
		b.send(0, request(1, 0, 10, 50), request(2, 0, 10, 20))
		b.until(40 * ms) // prompts until 25 ms, a step until 35
		b.e.Interrupt()
		b.until(45 * ms)
		if got := b.e.Batch.Reserved(); got != want {
			t.Errorf("%d tokens reserved, each at most %d, expected %d", got, clip, want)
		}
	}
}

// Within a decode run, tokens and KV cache are as of the instant that is asked for.
func TestWithinARun(t *testing.T) {
	for at, steps := range map[tick.Ticks]int64{15: 0, 24: 0, 25: 1, 26: 1, 35: 2} { // the prompt ends at 15 ms
		b := newBench(t, nil)
		r := request(1, 0, 10, 50)
		b.send(0, r)
		b.until(at * ms)
		if got := b.e.KVTokens(); got != 10+steps || b.e.KVTokensOf(r) != got {
			t.Errorf("%d KV tokens after %d ms, of the request %d, expected %d", got, at, b.e.KVTokensOf(r), 10+steps)
		}
		for o, n := range b.e.Decoding() {
			if o != r || n != steps {
				t.Errorf("request %d has %d tokens since it joined after %d ms, expected %d", o.ID, n, at, steps)
			}
		}
		if !b.e.Step.Decodes() {
			t.Errorf("after %d ms no step decodes", at)
		}
	}
}

// Request.Gaps are the times between a request's tokens.
func TestTokenTimes(t *testing.T) {
	b := newBench(t, func(_ *profile.Profile, c *Config) { c.TokenTimes = true })
	r, o := request(1, 0, 10, 5), request(2, 0, 5, 3)
	b.send(0, r)
	b.send(30*ms, o) // its prompt takes from 35 to 45 ms
	b.until(tick.Never)
	for _, c := range []struct {
		r    *Request
		gaps []float64
	}{{r, []float64{.01, .01, .02, .01}}, {o, []float64{.01, .01}}} {
		if len(c.r.Gaps) != len(c.gaps) {
			t.Fatalf("request %d: gaps %v, expected %v", c.r.ID, c.r.Gaps, c.gaps)
		}
		for k, want := range c.gaps {
			testutil.Near(t, fmt.Sprintf("gap %d of request %d", k, c.r.ID), c.r.Gaps[k], want, 1e-9)
		}
	}
}

// A run of decode steps ends with the step in which the scheduler has to decide again.
func TestLeapUntil(t *testing.T) {
	for until, want := range map[tick.Ticks]int64{tick.Never: 49, 0: 1, 15 * ms: 1, 37 * ms: 3, 35 * ms: 2} {
		b := newBench(t, nil)
		b.send(0, request(1, 0, 10, 50))
		b.s.until = until
		if b.until(15 * ms); b.e.Step.run.Count != want { // steps end at 25, 35 and 45 ms
			t.Errorf("until %d: a run of %d steps, expected %d", until, b.e.Step.run.Count, want)
		}
	}
}
