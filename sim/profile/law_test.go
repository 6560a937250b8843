package profile

import (
	"testing"

	"lorasim/internal/testutil"
	"lorasim/sim/tick"
)

func lawProfile() Profile {
	p := Default()
	p.Name = "law"
	p.Latency.Law, p.Latency.LoRA.Backend = LawAdapters, BackendPunica
	p.Latency.Adapters = AdapterLaw{
		BaseMs: 10, PerRequestMs: 0.02, PerPromptMs: 0.7, PerTokenUs: 30, PerKVTokenUs: 0.05, PerSlotUs: 4,
		PerWaitingUs: 0.5,
		ByRank: []RankCost{
			{Rank: 16, PerAdapterMs: 0.4, PerAdapterTokenUs: 0.2, PerSlotTokenUs: 0.1},
			{Rank: 32, PerAdapterMs: 0.6, PerAdapterTokenUs: 0.4, PerSlotTokenUs: 0.3},
		},
	}
	p.Engine.Scheduler, p.Engine.MaxLorasPerBatch, p.Engine.MaxLoraRank = SchedulerVLLM, 8, 16
	p.Memory.KVTokens = 10_000
	return p
}

// Worked by hand, ms, 40 requests with 9000 KV tokens, 60 tokens of 3 prompts (M is
// 100), 5 adapters, 8 slots, 200 waiting.
func TestAdapterLaw(t *testing.T) {
	work := StepWork{
		Prompts: 3, Tokens: 60, LoRATokens: 60, Batch: 40, LoRAs: 40, MaxRank: 8, KV: 9000, Adapters: 5, Waiting: 200,
	}
	const plain = 10 + 40*0.02 + 3*0.7 + 60*0.030 + 9000*0.00005 + 200*0.0005
	for name, c := range map[string]struct {
		change func(*Profile)
		want   float64
	}{
		"rank 16": {func(*Profile) {}, plain + 5*(0.4+0.0002*100) + 8*(0.004+0.0001*100)},
		"rank 32": {func(p *Profile) { p.Engine.MaxLoraRank = 32 }, plain + 5*(0.6+0.0004*100) + 8*(0.004+0.0003*100)},
		"rank 20": {func(p *Profile) { p.Engine.MaxLoraRank = 20 }, plain + 5*(0.45+0.00025*100) +
			8*(0.004+0.00015*100)},
		"rank 64": {func(p *Profile) { p.Engine.MaxLoraRank = 64 }, plain + 5*(1+0.0008*100) + 8*(0.004+0.0007*100)},
		// rank 4: 0.25 ms, 0.05 us, and -0.05 us, which counts as none
		"rank 4":           {func(p *Profile) { p.Engine.MaxLoraRank = 4 }, plain + 5*(0.25+0.00005*100) + 8*0.004},
		"without adapters": {func(p *Profile) { p.Latency.LoRA.Backend = BackendNone }, plain},
	} {
		p := lawProfile()
		p.Engine.MaxRunningRequests = 64
		c.change(&p)
		if err := p.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		costs := p.Compile()
		if got := costs.Step(&work); got != tick.FromMilliseconds(c.want) {
			t.Errorf("%s: %v ms, expected %v", name, got.Milliseconds(), c.want)
		}
		more := work
		more.KV += 1000
		if got := costs.Step(&more) - costs.Step(&work); got != 1000*costs.PerKVToken ||
			got != tick.FromMilliseconds(0.05) {
			t.Errorf("%s: 1000 more KV tokens take %v ms, expected 0.05", name, got.Milliseconds())
		}
		if !costs.ScansQueue() {
			t.Errorf("%s: the law has a term for waiting requests", name)
		}
	}
}

func TestLawFaults(t *testing.T) {
	for want, change := range map[string]func(*Profile){
		"engine.max_lora_rank is 8, latency.adapters.by_rank has rank 32 alone": func(p *Profile) {
			p.Engine.MaxLoraRank, p.Latency.Adapters.ByRank = 8, p.Latency.Adapters.ByRank[1:]
		},
		"latency.lora.backend is csgmv, for which the profile has no coefficients; it has those of: none, punica": func(p *Profile) {
			p.Latency.LoRA.Backend = BackendCSGMV
		},
		"latency.lora.backend is punica, for which the profile has no coefficients; it has those of: none": func(p *Profile) {
			p.Latency.Law = LawPhases
		},
		"latency.law is \"other\"": func(p *Profile) {
			p.Latency.Law = "other"
		},
		"latency.adapters.base_ms is 0": func(p *Profile) {
			p.Latency.Adapters.BaseMs = 0
		},
		"latency.adapters.per_waiting_us is -1": func(p *Profile) {
			p.Latency.Adapters.PerWaitingUs = -1
		},
		"by_rank: rank 16 after 16": func(p *Profile) {
			p.Latency.Adapters.ByRank[1].Rank = 16
		},
		"by_rank: rank 32: -1": func(p *Profile) {
			p.Latency.Adapters.ByRank[1].PerSlotTokenUs = -1
		},
		"by_rank: expected at least one": func(p *Profile) {
			p.Latency.Adapters.ByRank = nil
		},
		"latency.front_end.first_use_ms is -1": func(p *Profile) {
			p.Latency.FrontEnd.FirstUseMs = -1
		},
		"memory: expected kv_tokens, or pool_gib and kv_bytes_per_token": func(p *Profile) {
			p.Memory = Memory{KVBytesPerToken: 1}
		},
		"expected kv_tokens, or pool_gib and kv_bytes_per_token": func(p *Profile) {
			p.Memory = Memory{PoolGiB: 1}
		},
		"memory.kv_table: rank 8 after 0 with 2 slots and 1 tokens": func(p *Profile) {
			p.Memory.KVTable = []KVCurve{{8, []int{1, 2}, []int64{9}}}
		},
		"memory.kv_table: rank 8: 0 tokens at 2 slots": func(p *Profile) {
			p.Memory.KVTable = []KVCurve{{8, []int{1, 2}, []int64{9, 0}}}
		},
		"memory.kv_table: rank 8: 9 tokens at 1 slots": func(p *Profile) {
			p.Memory.KVTable = []KVCurve{{8, []int{1, 1}, []int64{9, 9}}}
		},
		"memory.kv_table: rank 8 after 8": func(p *Profile) {
			c := KVCurve{8, []int{1}, []int64{9}}
			p.Memory.KVTable = []KVCurve{c, c}
		},
		"memory.kv_table does not cover 8 slots of rank 16: give the size of the KV cac": func(p *Profile) {
			p.Memory = Memory{KVTable: []KVCurve{{8, []int{1}, []int64{9}}}}
		},
	} {
		p := lawProfile()
		p.Engine.MaxRunningRequests = 64
		change(&p)
		testutil.ExpectError(t, p.Check(), want)
	}
}

func TestKVTable(t *testing.T) {
	p := lawProfile()
	p.Memory = Memory{KVTable: []KVCurve{
		{8, []int{0, 10, 100}, []int64{2000, 1000, 100}},
		{32, []int{10, 50}, []int64{900, 500}},
	}}
	for _, c := range []struct {
		slots, rank int
		want        int64 // 0: not covered
	}{
		{10, 8, 1000}, {100, 8, 100}, {55, 8, 550}, {5, 8, 1500}, {101, 8, 0},
		{10, 32, 900}, {20, 32, 800}, {9, 32, 0}, {51, 32, 0}, {10, 64, 0}, {10, 4, 0},
		// slots x rank is 400: 50 slots of rank 8 hold 600 tokens, 12.5 of rank 32
		// hold 875; rank 20 lies in the middle
		{20, 20, 738},
		// 128: 16 slots of rank 8 hold 940, rank 32 does not reach so far down
		{8, 16, 940},
	} {
		p.Engine.MaxLorasPerBatch, p.Engine.MaxLoraRank = c.slots, c.rank
		got, err := p.KVTokens()
		if got != c.want || (err == nil) != (c.want > 0) {
			t.Errorf("%d slots of rank %d: %d (%v), expected %d", c.slots, c.rank, got, err, c.want)
		}
	}
	p.Latency.LoRA.Backend = BackendNone
	if got, err := p.KVTokens(); got != 2000 || err != nil {
		t.Errorf("without adapters: %d (%v), expected 2000", got, err)
	}
}

// Runs of requests of one adapter, by hand: of 3 requests of one adapter and 1 of
// another the latter stands first or last in 2 of 4 orders, which makes 2 runs, else
// 3; two of each make 2 runs in 2 orders of 6, 3 in 2 and 4 in 2.
func TestAdapterLawCountsRuns(t *testing.T) {
	p := lawProfile()
	p.Latency.Adapters = AdapterLaw{BaseMs: 10, ByRank: []RankCost{{Rank: 16, PerAdapterMs: 2}}}
	p.Latency.LoRA.Backend = BackendNative
	for _, c := range []struct {
		name string
		work StepWork
		runs float64
	}{
		{"one adapter", StepWork{Batch: 5, LoRAs: 5, Adapters: 1, Squares: 25}, 1},
		{"all differ", StepWork{Batch: 5, LoRAs: 5, Adapters: 5, Squares: 5}, 5},
		{"3 and 1", StepWork{Batch: 4, LoRAs: 4, Adapters: 2, Squares: 10}, 2.5},
		{"2 and 2", StepWork{Batch: 4, LoRAs: 4, Adapters: 2, Squares: 8}, 3},
		{"none", StepWork{Batch: 4}, 0},
		{"prompts", StepWork{Prompts: 2, Tokens: 50, Adapters: 2}, 2},
	} {
		if got := p.Compile().Step(&c.work); got != tick.FromMilliseconds(10+2*c.runs) {
			t.Errorf("%s: %v ms, expected %v", c.name, got.Milliseconds(), 10+2*c.runs)
		}
	}
}

// A slower profile has slower exchanges between its GPUs, and does not change the profile that it was made from.
func TestSlowerExchanges(t *testing.T) {
	p, err := Load(t.Context(), "analytic:llama-3.1-8b,h100,tp=2")
	if err != nil {
		t.Fatal(err)
	}
	was := p.Latency.AllReduce.of(64)
	if got := p.Slower(2).Latency.AllReduce.of(64); got != 2*was || p.Latency.AllReduce.of(64) != was {
		t.Errorf("%v, expected twice %v, which stays %v", got, was, p.Latency.AllReduce.of(64))
	}
}

// The kernels of LoRA run in every step, only in steps with an adapter, or over the adapters of the step alone, by the
// version of the engine.
func TestLoRAKernels(t *testing.T) {
	const plain = 10 + 40*0.02
	law := lawProfile()
	law.Engine.MaxRunningRequests = 64
	for name, c := range map[string]struct {
		of               Profile
		kernels          string
		none, one, three float64 // ms in steps of 40 requests with so many adapters of rank 16
	}{
		"punica, as measured": {law, "", 8 * 0.008, 0.408 + 8*0.008, 3*0.408 + 8*0.008},
		"punica, every step":  {law, kernelsEveryStep, 8 * 0.008, 0.408 + 8*0.008, 3*0.408 + 8*0.008},
		"punica, LoRA steps":  {law, kernelsLoRASteps, 0, 0.408 + 8*0.008, 3*0.408 + 8*0.008},
		"punica, active":      {law, kernelsActive, 0, 0.408 + 0.008, 3*0.408 + 4*0.008},
	} {
		p := c.of
		p.Latency.LoRA.Kernels = c.kernels
		if err := p.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		costs := p.Compile()
		for adapters, want := range map[int64]float64{0: c.none, 1: c.one, 3: c.three} {
			w := StepWork{Batch: 40, LoRAs: min(adapters, 1) * 40, MaxRank: 16, Adapters: adapters,
				Ranks: 16 * adapters}
			testutil.Near(t, name, costs.Step(&w).Milliseconds(), plain+want, 1e-6)
		}
	}
	law.Latency.LoRA.Kernels = "sometimes"
	testutil.ExpectError(t, law.Check(), "latency.lora.kernels")
}

// vLLM's own key for the kernels of active adapters needs a version that has it.
func TestSpecializeActiveLoRA(t *testing.T) {
	p := lawProfile()
	p.Engine.VLLMVersion = "0.11"
	testutil.ExpectError(t, p.SpecializeActiveLoRA(), "needs vLLM 0.16 or later, and the engine is vLLM 0.11")
	p.Engine.VLLMVersion = "0.33"
	if err := p.SpecializeActiveLoRA(); err != nil || p.Latency.LoRA.Kernels != kernelsActive {
		t.Errorf("%v, %q", err, p.Latency.LoRA.Kernels)
	}
}
