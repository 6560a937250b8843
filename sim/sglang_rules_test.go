package sim

import (
	"strings"
	"testing"

	"lorasim/router"
	"lorasim/sim/record"
	"lorasim/sim/tick"
	"lorasim/trace"
)

// Rules of sglang that the recorded batches do not show, one by one. The
// profile is plainProfile: adapters load in 7 ms.

// Both adapters are loaded by 14 ms and prefilled by 29; steps of 12 ms follow.
// Adapter 2 waits since 1 ms, more than 50 at the step that ends at 53: adapter
// 1 drains, whose longest request is shorter than that of 0. At 101 ms it has 33
// tokens left: a request of 60 does not get in, one of 20 does.
func TestDrainer(t *testing.T) {
	p := plainProfile()
	p.Engine.MaxLorasPerBatch = 2
	reqs := func() []trace.Request {
		return []trace.Request{
			{Arrival: 0, Adapter: 0, Prompt: 50, Output: 200},
			{Arrival: 0, Adapter: 1, Prompt: 50, Output: 40},
			{Arrival: 1, Adapter: 2, Prompt: 10, Output: 1},
			{Arrival: 100, Adapter: 1, Prompt: 10, Output: 60},
			{Arrival: 101, Adapter: 1, Prompt: 10, Output: 20},
		}
	}
	off, _ := simulate(t, p, Config{}, 3, reqs())
	if !(off.recs[2].FirstToken > off.recs[3].Finish) {
		t.Errorf("adapter 2 begins at %v s without drainer, before adapter 1 is done at %v", off.recs[2].FirstToken,
			off.recs[3].Finish)
	}
	p.Engine.LoraDrainWait = 0.05
	on, _ := simulate(t, p, Config{}, 3, reqs())
	if r := on.recs[4]; tick.FromSeconds(r.FirstToken) != tick.FromMilliseconds(101+6+2) {
		t.Errorf("the short request begins at %v s, expected 0.109", r.FirstToken)
	}
	if a, b, c := on.recs[1].Finish, on.recs[2].FirstToken, on.recs[3].FirstToken; !(a < b && b < c) {
		t.Errorf("adapter 1 is done at %v s, adapter 2 begins at %v, the long request at %v: expected this order", a, b,
			c)
	}
}

// Every batch stamps its adapters, so that the one that ran last stays, not the
// one admitted last (LRUEvictionPolicy.mark_used, lora/eviction_policy.py).
func TestEveryBatchCountsAsUse(t *testing.T) {
	p := plainProfile()
	p.Engine.MaxLorasPerBatch = 2
	l, _ := simulate(t, p, Config{}, 3, []trace.Request{
		{Arrival: 0, Adapter: 0, Prompt: 50, Output: 30},
		{Arrival: 60, Adapter: 1, Prompt: 50, Output: 2}, // later in, earlier out
		{Arrival: 900, Adapter: 2, Prompt: 50, Output: 1},
		{Arrival: 1000, Adapter: 0, Prompt: 50, Output: 1},
		{Arrival: 1100, Adapter: 1, Prompt: 50, Output: 1},
	})
	for id, cold := range []float64{0.007, 0.007, 0.007, 0, 0.007} {
		if got := l.recs[int64(id)].ColdLoad; tick.FromSeconds(got) != tick.FromSeconds(cold) {
			t.Errorf("request %d waits %v s for its adapter, expected %v", id, got, cold)
		}
	}
}

// Adapters are evicted before the base model, however long that was not used,
// even one of running requests that is not in the batch to be prefilled; it
// comes back for the next decode step, in the base model's place
// (LoRAMemoryPool.prepare_lora_batch, lora/mem_pool.py).
func TestTheBaseModelIsEvictedLast(t *testing.T) {
	p := plainProfile()
	p.Engine.MaxLorasPerBatch = 2
	l, st := simulate(t, p, Config{}, 2, []trace.Request{
		{Arrival: 0, Adapter: -1, Prompt: 50, Output: 1},
		{Arrival: 100, Adapter: 0, Prompt: 50, Output: 1},
		{Arrival: 200, Adapter: 1, Prompt: 50, Output: 1}, // in 0's place
		{Arrival: 300, Adapter: 0, Prompt: 50, Output: 4}, // load 300-307, prefill 307-317, decode 317-328
		// load 328-335, prefill 335-345, load of 0 345-352, decode 352-364
		{Arrival: 320, Adapter: 1, Prompt: 50, Output: 2},
	})
	l.expect(t, []want{
		{first: 12, finish: 12}, {first: 119, finish: 119, cold: 7}, {first: 219, finish: 219, cold: 7},
		{first: 319, finish: 364 + 11 + 2, cold: 7}, {first: 347, finish: 366, cold: 7},
	})
	if w := st.Workers[0]; w.ColdLoads != 5 || w.Evictions != 3 {
		t.Errorf("%d loads, %d evictions, expected 5 and 3", w.ColdLoads, w.Evictions)
	}
}

// An adapter of a larger rank than max_lora_rank does not load
// (LoRAMemoryPool.can_support).
func TestRankOverTheLargest(t *testing.T) {
	p := plainProfile()
	for _, c := range []struct {
		largest int
		want    record.Status
	}{{10, record.OK}, {9, record.Rejected}} {
		p.Engine.MaxLoraRank = c.largest
		l, st := simulate(t, p, Config{}, 1, []trace.Request{{Adapter: 0, Prompt: 5, Output: 1}})
		r := l.recs[0]
		if r.Status != c.want || (r.Status != record.OK) != strings.Contains(r.Error, "rank 10 over max_lora_rank 9") {
			t.Errorf("max_lora_rank %d: %v (%s), expected %v", c.largest, r.Status, r.Error, c.want)
		}
		if loads := st.Workers[0].ColdLoads; (loads > 0) != (c.want == record.OK) {
			t.Errorf("max_lora_rank %d: %d loads", c.largest, loads)
		}
	}
}

// Weights are fetched from disk beside the steps; only the copy to the GPU
// stops them.
func TestAFetchStopsNobody(t *testing.T) {
	cfg := Config{Router: &router.Router{Policy: byID{n: 1}, Placement: [][]int32{{}}}, Home: router.Disk}
	l, st := simulate(t, plainProfile(), cfg, 1, []trace.Request{
		{Arrival: 0, Adapter: -1, Prompt: 50, Output: 20}, // prefill 0-10, 19 steps of 11 ms but for the other's 7 + 10
		// fetched 5-121.7; step ends at 131; load until 138, prefill until 148
		{Arrival: 5, Adapter: 0, Prompt: 50, Output: 1},
	})
	l.expect(t, []want{{first: 12, finish: 10 + 19*11 + 17 + 2}, {first: 150, finish: 150, cold: 50 + 100/1.5 + 7}})
	if got := st.Workers[0].Stalled; got != tick.FromMilliseconds(7) {
		t.Errorf("the steps waited %v ms, expected 7", got.Milliseconds())
	}
}
