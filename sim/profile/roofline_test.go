package profile

import (
	"testing"

	"pgregory.net/rapid"

	"lorasim/internal/testutil"
	"lorasim/sim/tick"
)

// rooflineProfile has the coefficients of law roofline.
func rooflineProfile() Profile {
	p := Default()
	p.Name = "roofline"
	p.Latency.Law = LawRoofline
	p.Latency.Decode = Decode{BaseMs: 11, PerRequestMs: 0.03, PerKVTokenUs: 0.04}
	p.Latency.Prefill = Prefill{PerTokenUs: 43, PerTokenCtxNs: 0.8, MixedMs: 1.2, MixedPerRequestMs: 0.05}
	p.Memory.KVTokens = 300_000
	return p
}

// Worked by hand, ms.
func TestRooflineLaw(t *testing.T) {
	prompts := func(w StepWork, tokens ...int64) StepWork {
		for _, n := range tokens {
			w.Add(n, 0, false)
		}
		return w
	}
	experts := func(p *Profile) { p.Latency.Experts = Experts{Count: 4, TopK: 2, ReadMs: 8} }
	punica := func(p *Profile) {
		p.Latency.LoRA.Backend = BackendPunica
		p.Engine.MaxLorasPerBatch, p.Engine.MaxLoraRank = 8, 16
		p.Latency.Adapters = AdapterLaw{PerSlotUs: 4, PerWaitingUs: 2,
			ByRank: []RankCost{{Rank: 16, PerAdapterMs: 0.4, PerAdapterTokenUs: 0.2, PerSlotTokenUs: 0.1}}}
	}
	for name, c := range map[string]struct {
		change func(*Profile)
		work   StepWork
		want   float64
	}{
		"decode": {nil, StepWork{Batch: 10, KV: 5000}, 11 + 10*0.03 + 5000*0.00004},
		"one prompt, computing takes longer": {nil, prompts(StepWork{}, 1000),
			1000*0.043 + 1000*500*0.8e-6 + 1.2},
		"a short prompt, reading takes longer": {nil, prompts(StepWork{Batch: 20}, 100),
			11 + 20*0.03 + 100*50*0.8e-6 + 1.2 + 20*0.05},
		"two prompts beside 20 requests": {nil, prompts(StepWork{Batch: 20, KV: 9000}, 1000, 1000),
			2020*0.043 + 2*1000*500*0.8e-6 + 1.2 + 20*0.05 + 9000*0.00004},
		"with the host": {func(p *Profile) { p.Latency.HostMs = 0.7 }, StepWork{Batch: 10}, 0.7 + 11 + 10*0.03},
		"with the host, asynchronously": {
			func(p *Profile) {
				p.Latency.HostMs = 0.7
				p.Engine.UseVLLM()
				p.Engine.AsyncScheduling = true
			}, StepWork{Batch: 10}, 11 + 10*0.03},
		"with the host for each request": {
			func(p *Profile) { p.Latency.HostMs, p.Latency.HostPerRequestMs = 0.7, 0.04 }, StepWork{Batch: 10},
			0.7 + 10*0.04 + 11 + 10*0.03},
		"with the times of a step": {
			func(p *Profile) { p.Latency.StepMs, p.Latency.StepPerRequestMs = 2, 0.05 },
			prompts(StepWork{Batch: 20, KV: 9000}, 1000, 1000),
			2 + 20*0.05 + 2020*0.043 + 2*1000*500*0.8e-6 + 1.2 + 20*0.05 + 9000*0.00004},
		"with exchanges of running requests and prompts": {
			func(p *Profile) { p.Latency.AllReduce = AllReduce{[]int64{8, 1000}, []float64{1, 32}} },
			prompts(StepWork{Batch: 4}, 500), 504*0.043 + 500*250*0.8e-6 + 1.2 + 4*0.05 + 16.5},
		"many requests compute longer than reading": {
			func(p *Profile) { p.Latency.Prefill.PerTokenUs = 100 }, StepWork{Batch: 200}, 200 * 0.1},
		// of 4 experts, 2 a token, 2 tokens use 3
		"experts are read":   {experts, StepWork{Batch: 2}, 11 + 2*0.03 + 6},
		"or computed longer": {experts, prompts(StepWork{}, 1000), 1000*0.043 + 1000*500*0.8e-6 + 1.2},
		"csgmv, mixed": {
			func(p *Profile) { p.Latency.LoRA = LoRA{Backend: BackendCSGMV, CSGMVUs: 20, PrefillFactor: 0.5} },
			StepWork{Batch: 2, LoRAs: 2, MaxRank: 16, Tokens: 1000, LoRATokens: 400},
			1002*0.043 + 0.5*400*0.043 + 16*0.02 + 1.2 + 2*0.05},
		"measured kernels": {
			func(p *Profile) { p.Latency.LoRA = LoRA{Backend: BackendCSGMV, KernelTimes: byHand(BackendCSGMV)} },
			StepWork{Batch: 2, LoRAs: 2, Adapters: 2, RankTokens: 32, Tiles: Tiles{2, 2}},
			11 + 2*0.03 + 0.1 + 2*0.01 + 2*0.004 + 2*0.001 + 256*0.0005},
		"punica": {punica, StepWork{Batch: 10, Adapters: 5, Waiting: 7},
			11 + 10*0.03 + 5*(0.4+0.0002*10) + 8*(0.004+0.0001*10) + 7*0.002},
	} {
		p := rooflineProfile()
		if c.change != nil {
			c.change(&p)
		}
		if err := p.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		got, want := p.Compile().Step(&c.work), tick.FromMilliseconds(c.want)
		if max(got-want, want-got) > 2 {
			t.Errorf("%s: %v ms, expected %v", name, got.Milliseconds(), c.want)
		}
	}
}

// Steps that differ in KV tokens alone differ by the same time for each, and a step is
// never shorter for having more to do.
func TestRooflineLawGrows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := rooflineProfile()
		p.Latency.Prefill.PerTokenUs = rapid.Float64Range(0, 5000).Draw(t, "per_token")
		c := p.Compile()
		w := StepWork{Batch: rapid.Int64Range(0, 300).Draw(t, "batch"), KV: rapid.Int64Range(0, 1e6).Draw(t, "kv")}
		if n := rapid.Int64Range(0, 9000).Draw(t, "tokens"); n > 0 {
			w.Add(n, rapid.Int64Range(0, 9000).Draw(t, "context"), false)
		}
		more := w
		more.KV += 1000
		if got := c.Step(&more) - c.Step(&w); got != 1000*c.PerKVToken {
			t.Fatalf("1000 KV tokens take %v, expected %v", got, 1000*c.PerKVToken)
		}
		more = w
		more.Batch++
		if c.Step(&more) < c.Step(&w) {
			t.Fatalf("a step is shorter with one more request: %+v", w)
		}
		more = w
		more.Add(10, 0, false)
		if c.Step(&more) < c.Step(&w) {
			t.Fatalf("a step is shorter with 10 more prompt tokens: %+v", w)
		}
	})
}

func TestRooflineLawFaults(t *testing.T) {
	for want, change := range map[string]func(*Latency){
		"latency.decode.base_ms is 0":                  func(l *Latency) { l.Decode.BaseMs = 0 },
		"belong to law phases":                         func(l *Latency) { l.Prefill.BaseMs = 1 },
		"first_extend_ms and first_wave_factor belong": func(l *Latency) { l.Prefill.FirstWaveFactor = 2 },
		"base_ms, first_extend_ms":                     func(l *Latency) { l.Prefill.FirstExtendMs = 2 },
		"step_ms, step_per_request_ms and all_reduce need latency.law": func(l *Latency) {
			l.Law, l.StepMs, l.HostMs, l.Prefill = LawPhases, 1, 0, Prefill{PerTokenUs: 1}
		},
		"latency.all_reduce: 2 tokens and 1 ms": func(l *Latency) {
			l.AllReduce = AllReduce{[]int64{1, 2}, []float64{1}}
		},
		"tokens [2 2], expected numbers >= 1 in ascending": func(l *Latency) {
			l.AllReduce = AllReduce{[]int64{2, 2}, []float64{1, 2}}
		},
		"ms [2 1], expected numbers in (0, 10^6) that": func(l *Latency) {
			l.AllReduce = AllReduce{[]int64{1, 2}, []float64{2, 1}}
		},
		"latency.prefill.mixed_ms is -1":                         func(l *Latency) { l.Prefill.MixedMs = -1 },
		"prefill.mixed_per_request_ms need latency.law roofline": func(l *Latency) { l.Law = LawPhases },
		"backend is punica, for which the profile has no coeffi": func(l *Latency) { l.LoRA.Backend = BackendPunica },
		"engine.max_lora_rank is 64, latency.adapters.by_rank has rank 16 alone": func(l *Latency) {
			l.LoRA.Backend, l.Adapters.ByRank = BackendPunica, []RankCost{{Rank: 16}}
		},
	} {
		p := rooflineProfile()
		change(&p.Latency)
		testutil.ExpectError(t, p.Check(), want)
	}
}
