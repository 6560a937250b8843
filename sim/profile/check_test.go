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
	if a, err = parseAnalytic("llama-2-7b,h100,kv=8,engine=trtllm"); err != nil || a.KVBits != 8 || a.Engine != trtllm {
		t.Errorf("KV cache and engine: %+v (%v)", a, err)
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

		"llama-2-7b,h100,engine=tgi": `unknown engine "tgi"`,
		"llama-2-7b,h100,kv=4":       "values of the KV cache of 4 bits, expected 16 or 8",
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
	// of a layer of Llama-2-7B: weights, and values that products read and write for a token
	const weights, inOut = 3*4096*4096 + 4096*4096 + 3*4096*11008, (4096 + 12288) + (4096 + 4096) +
		(4096 + 22016) + (11008 + 4096)
	const between = 8*4096 + 2*(32+2*32)*128 + 3*11008 // values of the kernels between the products
	one := profile("llama-2-7b", "h100", 0, 0)
	if one.GPU != "1 x h100" {
		t.Errorf("Llama-2-7B on %s, expected one H100", one.GPU)
	}
	if want := "(989 TFLOP/s, 3350 GB/s, 80 GiB each); products of matrices at 86 % of its bandwidth and 80 % of its " +
		"FLOP/s; KV cache of 16 bits; times of the engine from sglang 0.5.1"; !strings.Contains(one.Source, want) {
		t.Errorf("source %q, expected %q in it", one.Source, want)
	}
	l := &one.Latency
	near("base", l.Decode.BaseMs, 32*2*weights/(0.86*3350e9)*1e3)
	near("request", l.Decode.PerRequestMs, 32*2*(inOut+between)/(0.86*3350e9)*1e3)
	near("prompt token", l.Prefill.PerTokenUs,
		32*(2*weights/(0.8*989e12)+2*between/(0.86*3350e9)+2*2400*4096/989e12)/0.9*1e6)
	near("context", l.Prefill.PerTokenCtxNs, 1.35*4*32*4096/989e12*1e9)
	head := 0.0036 + 2*32000*4096/(0.86*3350e9)*1e3
	near("step", l.StepMs, 1.35+32*(4*0.0036+0.011)+head)
	near("host", l.HostMs, 0.7)
	near("step with a prompt", l.Prefill.MixedMs, 8)
	if l.AllReduce.Tokens != nil {
		t.Errorf("one GPU exchanges %+v", l.AllReduce)
	}

	two := profile("llama-2-7b", "h100", 2, 8).Latency
	near("KV token of two", two.Decode.PerKVTokenUs, 524288/(2*0.9*3350e9)*1e6)
	near("base of two in 8 bits", two.Decode.BaseMs, 32*weights/2/(0.78*3350e9)*1e3)
	near("step of two in 8 bits", two.StepMs,
		1.35+32*(4*0.0057+0.011)+0.0036+2*32000*4096/2/(0.86*3350e9)*1e3)
	// exchanges of 16 tokens are 65536 values, of 24 half as many more; the table has 65536 and 131072
	near("exchanges of 16 tokens", two.AllReduce.of(16), 64*4.75/1000)
	near("exchanges of 24 tokens", two.AllReduce.of(24), 64*(4.75+5.18)/2/1000)
	near("exchanges of a token", two.AllReduce.of(1), 64*4.38/1000)
	near("exchanges of 65536 tokens", two.AllReduce.of(65536), 2*two.AllReduce.of(32768))
	near("8 bits on a GPU without", profile("llama-2-7b", "a100-80gb", 1, 8).Latency.Prefill.PerTokenUs,
		32*(2*weights/(0.86*312e12)+2*between/(0.73*2039e9)+2*2400*4096/312e12)/0.9*1e6)
	near("no NVLink", profile("llama-2-7b", "l40s", 2, 0).Latency.AllReduce.of(1), 64*(20+4096*2/20e3)/1000)

	// every GPU reads the latent cache of 61 x 576 values
	v3 := profile("deepseek-v3", "h200", 8, 0)
	near("latent KV token", v3.Latency.Decode.PerKVTokenUs, 61*576*2/(0.9*4800e9)*1e6)
}

// dLoRA merges an adapter that is alone into the weights: its steps take as long as those without adapters. Adapters
// that run together pay for unmerged execution.
func TestModelOfMergedAdapter(t *testing.T) {
	p, err := Embedded("llama-2-7b-a100-80gb-dlora")
	if err != nil {
		t.Fatal(err)
	}
	m := Model{Costs: p.Compile()}
	base, alone, two := m.DecodeStep(8, 0, 1000, 0), m.DecodeStep(8, 1, 1000, 16), m.DecodeStep(8, 2, 1000, 16)
	if alone != base {
		t.Errorf("a step of one adapter takes %g s, without adapters %g s", alone, base)
	}
	if want := p.Latency.LoRA.UnmergedMs / 1000; two-base < want-1e-9 || two-base > want+1e-9 {
		t.Errorf("two adapters add %g s, expected %g s", two-base, want)
	}
}
