package profile

import (
	"strings"
	"testing"

	"lorasim/internal/testutil"
	"lorasim/router"
	"lorasim/sim/tick"
)

func TestEmbeddedProfilesAreSound(t *testing.T) {
	names := Names()
	if len(names) < 3 {
		t.Fatalf("embedded profiles: %v, expected at least 3", names)
	}
	for _, n := range names {
		p, err := Load(t.Context(), n)
		if err != nil {
			t.Errorf("%s: %v", n, err)
			continue
		}
		if p.Name != n || p.Source == "" || p.Model == "" {
			t.Errorf("%s: name %q, model %q: expected the file's name, a model and a source", n, p.Name, p.Model)
		}
		out, err := p.YAML()
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(out, n)
		if err != nil {
			t.Errorf("%s does not read back: %v", n, err)
			continue
		}
		out2, err := again.YAML()
		if err != nil || string(out) != string(out2) {
			t.Errorf("%s changes when written and read again (%v)", n, err)
		}
	}
}

func TestParseNamesTheFault(t *testing.T) {
	base := "name: x\nlatency: {decode: {base_ms: 10}, prefill: {base_ms: 5}}\nmemory: {kv_tokens: 100}\n"
	if _, err := Parse([]byte(base), "x"); err != nil {
		t.Fatalf("the base is good, got %v", err)
	}
	for name, c := range map[string]struct{ yaml, want string }{
		"unknown key": {base + "engine: {max_runing_requests: 3}\n", "max_runing_requests"},
		"bad choice":  {base + "engine: {head_of_line: jump}\n", "engine.head_of_line"},
		"negative":    {strings.Replace(base, "base_ms: 10", "base_ms: -1", 1), "latency.decode.base_ms"},
		"no memory":   {strings.Replace(base, "kv_tokens: 100", "kv_tokens: 0", 1), "memory"},
		"zero step":   {strings.Replace(base, "base_ms: 10", "base_ms: 0", 1), "decode step would take no time"},
		"no name":     {strings.Replace(base, "name: x", "model: y", 1), "name is missing"},
		"not yaml":    {"name: [", "profile f"},
		"slots too big": {"name: x\nlatency: {decode: {base_ms: 10}, prefill: {base_ms: 5}, lora: {backend: csgmv, csgmv_us: 1}}\n" +
			"memory: {pool_gib: 1, kv_bytes_per_token: 1000}\n", "adapter slots"},
	} {
		_, err := Parse([]byte(c.yaml), "f")
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, expected an error with %q", name, err, c.want)
		}
	}
	_, err := Load(t.Context(), "llama9")
	testutil.ExpectError(t, err, "llama-2-7b-rtx-4090-sglang-0.5")
	if _, err := Load(t.Context(), "llama-3.1-8b"); err == nil ||
		!strings.HasSuffix(err.Error(), `nor analytic:MODEL,GPU, did you mean "llama-3.1-8b-h100-64gb-vllm-0.8.5"?`) {
		t.Errorf("a part of a name: %v", err)
	}
	_, err = Load(t.Context(), "llama-3.1-8b.yaml")
	testutil.ExpectError(t, err, "no such file")
}

// The expected numbers are worked out by hand from the formulas.
func TestStepCosts(t *testing.T) {
	p := Default()
	p.Latency.Decode = Decode{BaseMs: 15, PerRequestMs: 0.5, PerKVTokenUs: 2}
	p.Latency.Prefill = Prefill{BaseMs: 10, PerTokenUs: 100, PerTokenCtxNs: 10, FirstWaveFactor: 2}
	p.Latency.LoRA = LoRA{Backend: BackendCSGMV, CSGMVUs: 50, TritonUs: 50, PrefillFactor: 0.5}
	c := p.Compile()
	ms := tick.FromMilliseconds

	if got, want := c.Step(&StepWork{Batch: 4}), ms(17); got != want {
		t.Errorf("decode without adapters: %v, expected %v", got, want)
	}
	if got, want := c.Step(&StepWork{Batch: 4, LoRAs: 4, MaxRank: 64}), ms(17+0.050*64); got != want {
		t.Errorf("decode csgmv: %v, expected %v", got, want)
	}
	if got, want := c.PerKVToken, 2*tick.Microsecond; got != want {
		t.Errorf("per KV token: %v, expected %v", got, want)
	}
	p.Latency.LoRA.Backend = BackendTriton
	if got, want := c.Step(&StepWork{Batch: 4, LoRAs: 2, MaxRank: 64}), ms(17+0.050*128); got != want {
		t.Errorf("decode triton: %v, expected %v", got, want)
	}

	var w StepWork
	w.Add(100, 1000, false) // sees 1000 + 50 tokens on average
	if got, want := c.Step(&w), ms(10+10+10e-6*100*1050); got != want {
		t.Errorf("prefill: %v, expected %v", got, want)
	}
	w = StepWork{FirstWave: true}
	w.Add(100, 0, true)
	w.Add(100, 0, false)
	if got, want := c.Step(&w), ms((10+20+10e-6*2*100*50)*2*1.25); got != want {
		t.Errorf("first wave with adapters: %v, expected %v", got, want)
	}

	p.Latency.Prefill.FirstExtendMs = 30
	w = StepWork{FirstExtend: true}
	w.Add(100, 50, false)
	if got, want := c.Step(&w), ms(10+10+10e-6*100*100+30); got != want || !w.Extends {
		t.Errorf("first step of a chunked prompt that goes on: %v, expected %v", got, want)
	}

	// rank 16 x 5 MB = 80 MB: 2 + 4 ms to the GPU, 50 + 53.33 ms from disk,
	// 200 + 400 ms from the store
	for tier, want := range map[router.Tier]float64{
		router.GPU: 0, router.Host: 6, router.Disk: 6 + 50 + 80/1.5, router.Remote: 606,
	} {
		if got := c.Load(0, tier); got != ms(want) {
			t.Errorf("load from tier %d: %v ms, expected %v", tier, got.Milliseconds(), want)
		}
	}
	m := Model{c}
	if got, want := m.Prefill(8192+8), (c.Step(&StepWork{Tokens: 8192, LoRATokens: 8192, TokenCtx: 8192 * 4096}) +
		c.Step(&StepWork{Tokens: 8, LoRATokens: 8, TokenCtx: 8 * 4})).Seconds(); got != want {
		t.Errorf("chunked prefill: %v, expected %v", got, want)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("name: x\nlatency: {decode: {base_ms: 10}, prefill: {base_ms: 5}}\nmemory: {kv_tokens: 100}\n")
	f.Add("name: x\nengine: {page_size: 0}\n")
	f.Add("a: [1, {b: c}]\n- x")
	f.Fuzz(func(t *testing.T, s string) {
		p, err := Parse([]byte(s), "fuzz")
		if err == nil && p.Check() != nil {
			t.Error("Parse accepted a profile that Check refuses")
		}
	})
}

// A profile of scheduler vllm starts from vLLM's defaults, host memory
// following the slots (config/lora.py, config/scheduler.py).
func TestVLLMDefaults(t *testing.T) {
	const rest = "latency: {decode: {base_ms: 1}, prefill: {base_ms: 1}}\nmemory: {kv_tokens: 5000}\n"
	p, err := Parse([]byte("name: v\nengine: {scheduler: vllm}\n"+rest), "v")
	if err != nil {
		t.Fatal(err)
	}
	e := p.Engine
	if e.MaxRunningRequests != 256 || e.MaxNumBatchedTokens != 2048 || e.PageSize != 16 || e.MaxLorasPerBatch != 1 ||
		e.MaxLoraRank != 16 || e.HostLoras() != 1 {
		t.Errorf("defaults %+v", e)
	}
	if p, err = Parse([]byte("name: v\nengine: {scheduler: vllm, max_loras_per_batch: 4, page_size: 32}\n"+rest),
		"v"); err != nil {
		t.Fatal(err)
	}
	if e = p.Engine; e.HostLoras() != 4 || e.PageSize != 32 {
		t.Errorf("host memory for %d adapters and pages of %d, expected 4 and 32", e.HostLoras(), e.PageSize)
	}
	e.MaxLoadedLoras = 9
	if e.HostLoras() != 9 {
		t.Errorf("host memory for %d adapters, expected the 9 set", e.HostLoras())
	}
	d := Default().Engine
	if d.HostLoras() != 0 {
		t.Errorf("sglang: host memory for %d adapters, expected no limit", d.HostLoras())
	}
	if _, err := Parse([]byte("name: v\nengine: {scheduler: vllm, no_chunked_prefill: true}\n"+rest), "v"); err == nil {
		t.Error("prompts in whole that may be longer than a step's budget: no error")
	}
}

func TestGPUs(t *testing.T) {
	for gpu, want := range map[string]int{"": 1, "H100 64 GB": 1, "RTX 4090 24 GB": 1, "8 GPUs of one server": 8,
		"2 x h100": 2, "2": 1, "x x y": 1} {
		if got := (&Profile{GPU: gpu}).GPUs(); got != want {
			t.Errorf("%q: %d, expected %d", gpu, got, want)
		}
	}
}
