package profile

import (
	"math"
	"strings"
	"testing"

	"lorasim/internal/testutil"
	"lorasim/sim/tick"
)

func soundProfile() Profile {
	p := Default()
	p.Name = "sound"
	p.Latency.Decode, p.Latency.Prefill.BaseMs = Decode{BaseMs: 15, PerRequestMs: 0.5, PerKVTokenUs: 2}, 10
	p.Latency.LoRA.SwitchMs, p.Latency.LoRA.UnmergedMs = 20, 3
	p.Memory.KVTokens = 10_000
	return p
}

// Both sides of bounds that TestRangesOfAProfile leaves out: want is part of the error, "" where the profile is
// sound.
func TestCheckBounds(t *testing.T) {
	backend := func(b string, change func(*LoRA)) func(*Profile) {
		return func(p *Profile) {
			p.Latency.LoRA.Backend = b
			change(&p.Latency.LoRA)
		}
	}
	engine := func(change func(*Engine)) func(*Profile) { return func(p *Profile) { change(&p.Engine) } }
	keep := func(*LoRA) {}
	mixed := func(change func(*Engine)) func(*Profile) {
		return engine(func(e *Engine) { e.MixedChunk, e.MaxRunningRequests = true, 100; change(e) })
	}
	for name, c := range map[string]struct {
		change func(*Profile)
		want   string
	}{
		"sound": {func(*Profile) {}, ""},
		"NaN":   {func(p *Profile) { p.Latency.Decode.BaseMs = math.NaN() }, "latency.decode.base_ms"},
		"infinite": {func(p *Profile) { p.Latency.RequestOverheadMs = math.Inf(1) },
			"latency.request_overhead_ms"},
		"no rank": {func(p *Profile) { p.Adapters.DefaultRank = 0 },
			"adapters.default_rank is 0, expected a number > 0"},
		"infinite bandwidth": {func(p *Profile) { p.Adapters.DiskToHost.GBPerS = math.Inf(1) },
			"adapters.disk_to_host.gb_per_s"},
		"no slots":             {engine(func(e *Engine) { e.MaxLorasPerBatch = 0 }), "engine.max_loras_per_batch"},
		"decode base alone":    {func(p *Profile) { p.Latency.Decode.PerRequestMs = 0 }, ""},
		"decode request alone": {func(p *Profile) { p.Latency.Decode.BaseMs = 0 }, ""},
		"prefill token alone":  {func(p *Profile) { p.Latency.Prefill = Prefill{PerTokenUs: 1} }, ""},
		"prefill free": {func(p *Profile) { p.Latency.Prefill.BaseMs = 0 },
			"a prefill step would take no time"},

		"merged":           {backend(BackendMerged, func(l *LoRA) { l.UnmergedMs = 0 }), ""},
		"merged unknown":   {backend(BackendMerged, func(l *LoRA) { l.SwitchMs = 0 }), "no coefficients"},
		"dlora":            {backend(BackendDLoRA, keep), ""},
		"dlora, no switch": {backend(BackendDLoRA, func(l *LoRA) { l.SwitchMs = 0 }), "no coefficients"},
		"dlora, unmerged":  {backend(BackendDLoRA, func(l *LoRA) { l.UnmergedMs = 0 }), "no coefficients"},

		"vtc": {engine(func(e *Engine) { e.SchedulePolicy = OrderVTC }), ""},
		"vtc, block": {engine(func(e *Engine) { e.SchedulePolicy, e.HeadOfLine = OrderVTC, HeadOfLineBlock }),
			"schedule_policy vtc needs head_of_line skip"},
		"priority, merged": {func(p *Profile) {
			p.Latency.LoRA.Backend, p.Engine.SchedulePolicy = BackendMerged,
				OrderPriority
		}, "schedule_policy priority needs"},
		"sglang's limit": {func(p *Profile) { p.Engine.UseVLLM(); p.Engine.MaxQueuedRequests = 1 },
			"max_queued_requests is of scheduler sglang"},
		"vLLM's limit": {engine(func(e *Engine) { e.MaxNumQueuedTokens = 1 }),
			"max_num_queued_tokens are of scheduler vllm"},
		"credit not used": {backend(BackendNone, func(l *LoRA) { l.SwitchCredit = 0 }), ""},
		"scale 1":         {backend(BackendDLoRA, func(l *LoRA) { l.CreditScale = 1 }), ""},
		"scale 10^6":      {backend(BackendDLoRA, func(l *LoRA) { l.CreditScale = 1e6 }), ""},
		"merged under vllm": {func(p *Profile) { p.Engine.UseVLLM(); p.Latency.LoRA.Backend = BackendMerged },
			"merged needs engine.scheduler sglang"},
		"dlora under vllm": {func(p *Profile) { p.Engine.UseVLLM(); p.Latency.LoRA.Backend = BackendDLoRA },
			"dlora needs engine.scheduler sglang"},
		"least ratio 1": {engine(func(e *Engine) { e.NewTokenRatioMin = 1 }), ""},
		"least ratio above": {engine(func(e *Engine) { e.NewTokenRatioMin = 1.01 }),
			"engine.new_token_ratio_min is 1.01"},
		"least ratio below 0": {engine(func(e *Engine) { e.NewTokenRatioMin = -0.01 }),
			"engine.new_token_ratio_min is -0.01"},

		"budget of the running": {engine(func(e *Engine) { e.UseVLLM(); e.MaxNumBatchedTokens = 256 }), ""},
		"budget below": {engine(func(e *Engine) { e.UseVLLM(); e.MaxNumBatchedTokens = 255 }),
			"at least max_running_requests (256)"},
		"budget of sglang": {engine(func(e *Engine) { e.MaxNumBatchedTokens = 1 }), ""},
		"whole prompts": {engine(func(e *Engine) {
			e.UseVLLM()
			e.NoChunkedPrefill,
				e.MaxNumBatchedTokens = true, 4096
		}), ""},
		"whole prompts, too big": {engine(func(e *Engine) {
			e.UseVLLM()
			e.NoChunkedPrefill,
				e.MaxNumBatchedTokens = true, 4095
		}), "at least context_length (4096)"},

		"mixed, any chunk":   {mixed(func(e *Engine) { e.ChunkedPrefillSize = 0 }), ""},
		"mixed, chunk":       {mixed(func(e *Engine) { e.ChunkedPrefillSize = 101 }), ""},
		"mixed, small chunk": {mixed(func(e *Engine) { e.ChunkedPrefillSize = 100 }), "chunked_prefill_size (100)"},
		"mixed, prefill":     {mixed(func(e *Engine) { e.MaxPrefillTokens = 101 }), ""},
		"mixed, small":       {mixed(func(e *Engine) { e.MaxPrefillTokens = 100 }), "max_prefill_tokens (100)"},
		"table from no slots": {func(p *Profile) {
			p.Memory = Memory{KVTable: []KVCurve{{64, []int{0, 8},
				[]int64{2000, 1}}}}
		}, ""},
		"table below": {func(p *Profile) {
			p.Memory = Memory{KVTable: []KVCurve{{64, []int{-1, 8},
				[]int64{2000, 1}}}}
		}, "tokens at -1 slots"},
		"one page": {func(p *Profile) { p.Memory.KVTokens, p.Engine.PageSize = 16, 16 }, ""},
		"less than one page": {func(p *Profile) { p.Memory.KVTokens, p.Engine.PageSize = 15, 16 },
			"at least one page of 16 (--engine-args page_size)"},
		"pool without tokens": {func(p *Profile) { p.Memory = Memory{PoolGiB: 1} },
			"expected kv_tokens, or pool_gib and kv_bytes_per_token"},
	} {
		p := soundProfile()
		c.change(&p)
		switch err := p.Check(); {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v, expected none", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: got %v, expected an error with %q", name, err, c.want)
		}
	}
}

func TestAdapterLawBounds(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*AdapterLaw)
		sound  bool
	}{
		"zero":          {func(l *AdapterLaw) { l.PerSlotUs = 0 }, true},
		"just below":    {func(l *AdapterLaw) { l.PerTokenUs = 999_999 }, true},
		"10^6":          {func(l *AdapterLaw) { l.PerTokenUs = 1e6 }, false},
		"rank 1":        {func(l *AdapterLaw) { l.ByRank[0].Rank = 1 }, true},
		"rank 0":        {func(l *AdapterLaw) { l.ByRank[0].Rank = 0 }, false},
		"adapter 0":     {func(l *AdapterLaw) { l.ByRank[0].PerAdapterMs = 0 }, true},
		"adapter 10^6":  {func(l *AdapterLaw) { l.ByRank[0].PerAdapterMs = 1e6 }, false},
		"adapter token": {func(l *AdapterLaw) { l.ByRank[1].PerAdapterTokenUs = -1 }, false},
	} {
		p := lawProfile()
		c.change(&p.Latency.Adapters)
		if err := p.Check(); (err == nil) != c.sound {
			t.Errorf("%s: %v, sound should be %v", name, err, c.sound)
		}
	}
}

// 1 GiB of 1 KiB per token; 8 slots of rank 64 at 1 MiB per rank take half.
func TestKVTokensOfAPool(t *testing.T) {
	p := soundProfile()
	p.Memory = Memory{PoolGiB: 1, KVBytesPerToken: 1024}
	p.Adapters.BytesPerRank = 1 << 20
	if n, err := p.KVTokens(); n != 1<<20 || err != nil {
		t.Errorf("without adapters: %d tokens (%v), expected %d", n, err, 1<<20)
	}
	p.Latency.LoRA.Backend, p.Latency.LoRA.CSGMVUs = BackendCSGMV, 1
	if n, err := p.KVTokens(); n != 1<<19 || err != nil {
		t.Errorf("with 512 MiB of slots: %d tokens (%v), expected %d", n, err, 1<<19)
	}
	p.Engine.MaxLorasPerBatch = 16 // the whole pool
	if n, err := p.KVTokens(); err == nil ||
		!strings.Contains(err.Error(), "16 adapter slots of rank 64 take 1.0 GiB") {
		t.Errorf("slots as big as the pool: %d tokens, %v", n, err)
	}
}

// The costs that routers ask for, ms, worked out by hand.
func TestModel(t *testing.T) {
	near := func(name string, seconds, ms float64) {
		testutil.Near(t, name+", ms", 1000*seconds, ms, 1e-6)
	}
	p := soundProfile()
	p.Latency.LoRA.Backend, p.Latency.LoRA.CSGMVUs = BackendCSGMV, 50
	p.Latency.Prefill.PerTokenUs = 100
	m := Model{p.Compile()}
	near("copy of 25 MB", m.Copy(25e6), 1+2)
	if m.Costs.CountsAdapters() || m.Costs.ScansQueue() {
		t.Error("law phases has no term for adapters or waiting requests")
	}
	p.Engine.ChunkedPrefillSize, p.Engine.MaxPrefillTokens = 0, 1000
	m = Model{p.Compile()}
	near("prefill in steps of max_prefill_tokens", m.Prefill(2000), 2*(10+100))
	p.Engine.ChunkedPrefillSize = 500
	m = Model{p.Compile()}
	near("prefill in chunks", m.Prefill(2000), 4*(10+50))

	// prompts and running requests in one step: one base
	var w StepWork
	w.Add(100, 0, false)
	w.Batch, w.KV, w.LoRAs, w.MaxRank = 4, 1000, 2, 16
	got := m.Costs.Step(&w)
	if want := tick.FromMilliseconds(10 + 10 + 4*0.5 + 2 + 0.05*16); got != want {
		t.Errorf("mixed step: %v ms, expected %v", got.Milliseconds(), want.Milliseconds())
	}
	p.Latency.LoRA.Backend = BackendDLoRA
	near("unmerged decode", m.DecodeStep(4, 4, 1000, 64), 15+4*0.5+2+3)

	law := lawProfile() // 8 slots, so at most 8 distinct adapters
	m = Model{law.Compile()}
	slots := 8 * (0.004 + 0.0001*20)
	near("law adapters", m.DecodeStep(20, 20, 9000, 16), 10+20*0.02+0.45+8*(0.4+0.0002*20)+slots)
	near("of three adapters", m.DecodeStep(20, 3, 9000, 16), 10+20*0.02+0.45+3*(0.4+0.0002*20)+slots)
	if !m.Costs.CountsAdapters() {
		t.Error("law adapters counts adapters")
	}
	// 20 requests of 8 adapters, evenly: 1 + 20 - 20/8 runs of one adapter
	law.Latency.LoRA.Backend = BackendNative
	near("law adapters, native", Model{law.Compile()}.DecodeStep(20, 20, 9000, 16),
		10+20*0.02+0.45+18.5*(0.4+0.0002*20)+slots)
	law.Latency.Adapters.PerWaitingUs = 0
	if law.Compile().ScansQueue() {
		t.Error("a law whose waiting requests cost nothing scans the queue")
	}
}

func TestParseAnalytic(t *testing.T) {
	a, err := parseAnalytic("llama-2-7b, h100,tp=2, bits=8")
	if err != nil || a.Model != "llama-2-7b" || a.GPU != "h100" || a.TP != 2 || a.Bits != 8 {
		t.Errorf("got %+v (%v)", a, err)
	}
	if a, err = parseAnalytic("llama-2-7b,h100,tp=1"); err != nil || a.TP != 1 || a.Bits != 0 {
		t.Errorf("one GPU: %+v (%v)", a, err)
	}
	if a, err = parseAnalytic("llama-2-7b,h100"); err != nil || a.TP != 0 || a.Bits != 0 {
		t.Errorf("no options: %+v (%v)", a, err)
	}
	for spec, want := range map[string]string{
		"llama-2-7b":             "expected analytic:MODEL,GPU",
		"llama-2-7b,h100,tp=0":   `tp is "0", expected a whole number >= 1`,
		"llama-2-7b,h100,bits=x": `bits is "x"`,
		"llama-2-7b,h100,pp=2":   "pp",
	} {
		_, err := Load(t.Context(), AnalyticPrefix+spec)
		testutil.ExpectError(t, err, want)
	}
}

// Worked out from data sheets and config.json, to the 4 digits a profile states.
func TestAnalyticCosts(t *testing.T) {
	near := func(name string, got, want float64) {
		if math.Abs(got/want-1) > 0.001 {
			t.Errorf("%s: %v, expected %v", name, got, want)
		}
	}
	profile := func(model, gpu string, tp, bits int) *Profile {
		p, err := analytic(model, gpu, tp, bits).Profile()
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	const weights = 6.607e9 // Llama-2-7B without the input embedding
	one := profile("llama-2-7b", "h100", 0, 0)
	if one.GPU != "1 x h100" {
		t.Errorf("Llama-2-7B on %s, expected one H100", one.GPU)
	}
	if want := "(989 TFLOP/s, 3350 GB/s, 80 GiB each) at 85 % of its bandwidth for weights and 90 % for the KV " +
		"cache, and 62 % of its FLOP/s"; !strings.Contains(one.Source, want) {
		t.Errorf("source %q, expected %q in it", one.Source, want)
	}
	near("request", one.Latency.Decode.PerRequestMs, 155*32*4096*2/3350e9*1e3)
	near("host", one.Latency.HostMs, 0.7)
	const body = weights - 32000*4096 // without the output layer
	near("prompt token", one.Latency.Prefill.PerTokenUs, 2*body/(0.77*792.1e12)*1e6)
	near("context", one.Latency.Prefill.PerTokenCtxNs, 4*32*4096/(0.6*989e12)*1e9)
	near("base", one.Latency.Decode.BaseMs, 32*0.04+2*weights/(0.85*3350e9)*1e3)
	near("step with a prompt", one.Latency.Prefill.MixedMs, 32*0.04)

	two := profile("llama-2-7b", "h100", 2, 8) // an all-reduce of 20 us twice in each of 32 layers
	near("KV token of two", two.Latency.Decode.PerKVTokenUs, 524288/(2*0.9*3350e9)*1e6)
	near("prompt token of two in 8 bits", two.Latency.Prefill.PerTokenUs, 2*body/(2*0.77*792.1/989*2/3*1979e12)*1e6)
	near("base of two in 8 bits", two.Latency.Decode.BaseMs, 32*0.04+0.02*64+weights/(2*0.85*3350e9)*1e3)
	near("request of two", two.Latency.Decode.PerRequestMs, one.Latency.Decode.PerRequestMs)
	near("8 bits on a GPU without", profile("llama-2-7b", "a100-80gb", 1, 8).Latency.Prefill.PerTokenUs,
		2*body/(0.77*267.9e12)*1e6)
	near("no measured matrix product", profile("llama-2-7b", "rtx-4090", 1, 0).Latency.Prefill.PerTokenUs,
		2*body/(0.77*0.8*165.2e12)*1e6)

	// every GPU reads the latent cache of 61 x 576 values
	v3 := profile("deepseek-v3", "h200", 8, 0)
	// experts in 8 bits: 0.45 x 2/3 of the share in 16 bits
	near("prompt token of experts in 8 bits", v3.Latency.Prefill.PerTokenUs,
		2*(architectureOf("deepseek-v3").Active()-129280*7168)/(8*0.45*2/3*0.77*794.5/989*1979e12)*1e6)
	near("latent KV token", v3.Latency.Decode.PerKVTokenUs, 61*576*2/(0.9*4800e9)*1e6)
}
