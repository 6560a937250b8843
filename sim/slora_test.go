package sim

import (
	"math"
	"testing"

	"lorasim/router"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/trace"
)

// sloraProfile has round step times under S-LoRA's scheduler: a prefill step of 8 ms + 0.1 ms for each token, a decode
// step of 10 ms and 1 ms for each request, and a load of 4 ms for an adapter of rank 8.
func sloraProfile() profile.Profile {
	p := testProfile()
	p.Latency = profile.Latency{
		Decode:  profile.Decode{BaseMs: 10, PerRequestMs: 1},
		Prefill: profile.Prefill{BaseMs: 8, PerTokenUs: 100, FirstWaveFactor: 1},
		LoRA:    profile.LoRA{Backend: profile.BackendNone},
	}
	p.Engine.UseSLoRA()
	p.Adapters.BytesPerRank, p.Adapters.HostToGPU = 1e6, profile.Stage{LatencyMs: 2, GBPerS: 4}
	return p
}

// timesAre holds first tokens and ends of requests against those expected, s.
func timesAre(t *testing.T, got *ledger, want map[int64][2]float64) {
	t.Helper()
	for id, w := range want {
		if r := got.recs[id]; math.Abs(r.FirstToken-w[0]) > 1e-9 || math.Abs(r.Finish-w[1]) > 1e-9 {
			t.Errorf("request %d: first token at %v, end at %v, expected %v", id, r.FirstToken, r.Finish, w)
		}
	}
}

// Worked by hand: request 0 has its first token at 10 ms, then 10 decode steps of 11 ms pass before request 1 is looked
// at, which came at 15 ms: 120 ms, and 10 ms for its prefill step. Two decode steps of 12 ms give it its third token,
// and request 0 its 13th.
func TestSLoRALooksAfterTenSteps(t *testing.T) {
	got, _ := runVLLM(t, sloraProfile(), []trace.Request{
		{ID: 0, Adapter: trace.BaseModel, Prompt: 20, Output: 13},
		{ID: 1, Adapter: trace.BaseModel, Arrival: 0.015, Prompt: 20, Output: 3},
	}, 0)
	timesAre(t, got, map[int64][2]float64{0: {0.010, 0.154}, 1: {0.130, 0.154}})
}

// When the last request ends, the queue is looked at without a wait.
func TestSLoRALooksWhenNothingRuns(t *testing.T) {
	got, _ := runVLLM(t, sloraProfile(), []trace.Request{
		{ID: 0, Adapter: trace.BaseModel, Prompt: 20, Output: 3},
		{ID: 1, Adapter: trace.BaseModel, Arrival: 0.015, Prompt: 20, Output: 1},
	}, 0)
	timesAre(t, got, map[int64][2]float64{0: {0.010, 0.032}, 1: {0.042, 0.042}})
}

// Last come, first served: request 0 takes all the memory until 32 ms. Then request 2, which came last, fits alone, and
// request 1 has its prefill step after it.
func TestSLoRALIFO(t *testing.T) {
	p := sloraProfile()
	p.Engine.SchedulePolicy, p.Memory.KVTokens = profile.OrderLIFO, 30
	got, _ := runVLLM(t, p, []trace.Request{
		{ID: 0, Adapter: trace.BaseModel, Prompt: 20, Output: 3},
		{ID: 1, Adapter: trace.BaseModel, Arrival: 0.001, Prompt: 20, Output: 1},
		{ID: 2, Adapter: trace.BaseModel, Arrival: 0.002, Prompt: 20, Output: 1},
	}, 0)
	timesAre(t, got, map[int64][2]float64{0: {0.010, 0.032}, 2: {0.042, 0.042}, 1: {0.052, 0.052}})
}

// Early abort: request 0 has the memory until 6.005 s, after 545 decode steps of 11 ms. Request 1 is given up at the
// first look at which it is 5.5 s old, at 5.510 s. At 6.005 s requests 2 and 3 are younger. The queue has grown faster
// than by the one request of the batch before, so that the latest is served first: 66 ms for its prompt. Then request
// 2 is too old.
func TestSLoRAAborts(t *testing.T) {
	p := sloraProfile()
	p.Engine.EnableAbort, p.Memory.KVTokens = true, 600
	got, _ := runVLLM(t, p, []trace.Request{
		{ID: 0, Adapter: trace.BaseModel, Prompt: 20, Output: 546},
		{ID: 1, Adapter: trace.BaseModel, Arrival: 0.005, Prompt: 580, Output: 1},
		{ID: 2, Adapter: trace.BaseModel, Arrival: 0.507, Prompt: 580, Output: 1},
		{ID: 3, Adapter: trace.BaseModel, Arrival: 0.508, Prompt: 580, Output: 1},
	}, 0)
	timesAre(t, got, map[int64][2]float64{0: {0.010, 6.005}, 3: {6.071, 6.071}})
	for id, at := range map[int64]float64{1: 5.510, 2: 6.071} {
		if r := got.recs[id]; r.Status != record.Rejected || math.Abs(r.Finish-at) > 1e-9 {
			t.Errorf("request %d: %v at %v s (%s), expected early abort at %v", id, r.Status, r.Finish, r.Error, at)
		}
	}
}

// An adapter is dropped when no request uses it, and loaded anew for the next one, though nobody else needed its place.
// Two prompts of one adapter in one step wait for one load.
func TestSLoRADropsAdapters(t *testing.T) {
	got, st := runVLLM(t, sloraProfile(), []trace.Request{
		{ID: 0, Adapter: 0, Prompt: 10, Output: 1},
		{ID: 1, Adapter: 0, Prompt: 10, Output: 1},
		{ID: 2, Adapter: 0, Arrival: 0.5, Prompt: 20, Output: 1},
	}, 2)
	timesAre(t, got, map[int64][2]float64{0: {0.014, 0.014}, 1: {0.014, 0.014}, 2: {0.514, 0.514}})
	if w := st.Workers[0]; w.ColdLoads != 2 || w.Evictions != 2 {
		t.Errorf("%d loads, %d adapters dropped, expected 2 and 2", w.ColdLoads, w.Evictions)
	}
}

// Memory is shared: of 100 tokens two adapters of rank 8 take 64, so that of two requests of 15 tokens each the second
// runs beside the first if both are of one adapter, and waits if each has its own. The first that does not fit holds up
// the queue, though the third would fit.
func TestSLoRASharesMemory(t *testing.T) {
	run := func(second int32) *ledger {
		p := sloraProfile()
		p.Memory.KVTokens = 100
		got, _ := runVLLM(t, p, []trace.Request{
			{ID: 0, Adapter: 0, Prompt: 12, Output: 8},
			{ID: 1, Adapter: second, Prompt: 12, Output: 8},
			{ID: 2, Adapter: 0, Prompt: 1, Output: 1},
		}, 2)
		return got
	}
	if one := run(0); one.recs[1].FirstToken != one.recs[0].FirstToken {
		t.Errorf("first tokens at %v and %v, expected one step for both", one.recs[0].FirstToken,
			one.recs[1].FirstToken)
	}
	two := run(1)
	if end := two.recs[0].Finish; two.recs[1].FirstToken <= end || two.recs[2].FirstToken <= end {
		t.Errorf("first tokens at %v and %v, expected both after %v", two.recs[1].FirstToken, two.recs[2].FirstToken,
			end)
	}
}

// What does not fit even alone is refused: the adapter of rank 8 takes 32 of 100 tokens.
func TestSLoRARefuses(t *testing.T) {
	p := sloraProfile()
	p.Memory.KVTokens = 100
	got, _ := runVLLM(t, p, []trace.Request{
		{ID: 0, Adapter: 0, Prompt: 60, Output: 8},
		{ID: 1, Adapter: 0, Prompt: 60, Output: 7},
		{ID: 2, Adapter: trace.BaseModel, Prompt: 60, Output: 8},
	}, 1)
	for id, want := range []record.Status{record.Rejected, record.OK, record.OK} {
		if r := got.recs[int64(id)]; r.Status != want {
			t.Errorf("request %d: %v (%s), expected %v", id, r.Status, r.Error, want)
		}
	}
}

// The law by ranks: 10 ms and 1 ms for a request; 0.5 ms for each of the 8 ranks of the one adapter in the step, 0.1 ms
// for each rank of each request. A prompt token takes 0.01 ms for each rank.
func TestSLoRACostsByRank(t *testing.T) {
	p := sloraProfile()
	p.Latency.LoRA = profile.LoRA{Backend: profile.BackendMBGMV, RankUs: 500, RequestRankUs: 100, TokenRankNs: 1e4}
	got, _ := runVLLM(t, p, []trace.Request{
		{ID: 0, Adapter: 0, Prompt: 10, Output: 2},
		{ID: 1, Adapter: 0, Prompt: 10, Output: 2},
	}, 1)
	prefill := 0.004 + 0.010 + 20*8*1e-5
	timesAre(t, got, map[int64][2]float64{0: {prefill, prefill + 0.012 + 0.004 + 2*0.0008}})
}

// Plans find no slots and no adapter to unload; what they ask for changes nothing.
func TestSLoRAIgnoresWarmUps(t *testing.T) {
	p := sloraProfile()
	costs := p.Compile()
	w := trace.Workload{Adapters: trace.Names(2, []int{8})}
	s, err := newSim(Config{Source: w.Source(), Workers: []*profile.Costs{costs},
		Router: &router.Router{Policy: byID{n: 1}}, Observer: newLedger(), Home: router.Disk})
	if err != nil {
		t.Fatal(err)
	}
	e := s.workers[0].engine
	a := &e.Rows.Of(1).Adapter
	e.LoRA.WarmUp(a)
	e.LoRA.Load(a)
	e.LoRA.Unload(a)
	e.LoRA.Prefetch(a)
	free := e.KV.Free()
	if st := e.Books.Adapters[1]; st.Tier != router.Host || e.LoRA.Hosts() != 2 || free != e.KV.CapacityTokens() {
		t.Errorf("adapter %+v, %d in host memory, %d KV tokens free, expected host memory, 2, all", st,
			e.LoRA.Hosts(), free)
	}
	if err := e.Check(); err != nil {
		t.Error(err)
	}
}
