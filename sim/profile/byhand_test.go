package profile

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lorasim/internal/testutil"
)

const sound = "name: x\nlatency: {decode: {base_ms: 10}, prefill: {base_ms: 5}}\nmemory: {kv_tokens: 100}\n"

// Values at the ends of what a profile may say; an empty fault: it is sound.
func TestRangesOfAProfile(t *testing.T) {
	latency := func(lora string) string {
		return strings.Replace(sound, "base_ms: 5}}", "base_ms: 5}, lora: "+lora+"}", 1)
	}
	for _, c := range []struct{ yaml, want string }{
		{sound + "adapters: {network: {gb_per_s: 0}}\n", "adapters.network.gb_per_s is 0, expected a number > 0"},
		{sound + "engine: {new_token_ratio: 0}\n", "engine.new_token_ratio is 0"},
		{sound + "engine: {new_token_ratio: 1.01}\n", "engine.new_token_ratio is 1.01"},
		{sound + "engine: {new_token_ratio: 1}\n", ""},
		{sound + "engine: {new_token_ratio_min: 0}\n", ""},
		{sound + "engine: {enable_mixed_chunk: true}\n", ""},
		{sound + "engine: {enable_mixed_chunk: true, scheduler: vllm}\n", "enable_mixed_chunk needs engine.scheduler"},
		{latency("{backend: merged, switch_ms: 1, switch_credit: 9}") + "engine: {enable_mixed_chunk: true}\n",
			"enable_mixed_chunk needs engine.scheduler"},
		{latency("{backend: dlora, switch_ms: 1, unmerged_ms: 1, switch_credit: 9, credit_scale: 1}") +
			"engine: {enable_mixed_chunk: true}\n", "enable_mixed_chunk needs engine.scheduler"},
		{latency("{backend: merged, switch_ms: 1, switch_credit: 0}"), "switch_credit is 0"},
		{latency("{backend: merged, switch_ms: 1, switch_credit: 1}"), ""},
		{latency("{backend: merged, switch_ms: 1, switch_credit: 1000000000000}"), ""},
		{latency("{backend: merged, switch_ms: 1, switch_credit: 1000000000001}"), "switch_credit is 1000000000001"},
		{latency("{backend: dlora, switch_ms: 1, unmerged_ms: 1, switch_credit: 9, credit_scale: 0}"),
			"credit_scale is 0"},
		{latency("{backend: merged, switch_ms: 1, switch_credit: 9, credit_scale: 0}"), ""},
		{latency("{backend: dlora, switch_ms: 1, unmerged_ms: 1, switch_credit: 9, credit_scale: 1000001}"),
			"credit_scale is 1000001"},
	} {
		_, err := Parse([]byte(c.yaml), "x")
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, expected %q", c.yaml, err, c.want)
		}
	}
}

// A file is read whatever its name; one that is not there is an error of its own.
func TestLoadFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mine.yaml")
	if _, err := Load(t.Context(), file); !os.IsNotExist(unwrapped(err)) {
		t.Errorf("no file: %v", err)
	}
	if err := os.WriteFile(file, []byte(sound), 0o666); err != nil {
		t.Fatal(err)
	}
	if p, err := Load(t.Context(), file); err != nil || p.Memory.KVTokens != 100 {
		t.Errorf("%+v, %v", p, err)
	}
}

func unwrapped(err error) error {
	if u, ok := err.(interface{ Unwrap() error }); ok {
		return u.Unwrap()
	}
	return err
}

// Coefficients of a backend are known where its law has them.
func TestKnows(t *testing.T) {
	for _, c := range []struct {
		law, backend string
		us           float64
		want         bool
	}{
		{LawPhases, BackendNone, 0, true}, {LawAdapters, BackendNone, 0, true},
		{LawPhases, BackendCSGMV, 1, true}, {LawPhases, BackendCSGMV, 0, false}, {LawAdapters, BackendCSGMV, 1, false},
		{LawPhases, BackendTriton, 1, true}, {LawPhases, BackendTriton, 0, false},
		{LawAdapters, BackendTriton, 1, false},
	} {
		l := Latency{Law: c.law}
		l.LoRA.CSGMVUs, l.LoRA.TritonUs = c.us, c.us
		if got := l.knows(c.backend); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// What a router is told: 4 requests of 250 tokens take 15 + 4*0.5 + 1000*0.002 =
// 19 ms, and with adapters up to rank 64 at 50 us each rank 3.2 ms more.
func TestModelDecodeStep(t *testing.T) {
	p := Default()
	p.Latency.Decode = Decode{BaseMs: 15, PerRequestMs: 0.5, PerKVTokenUs: 2}
	p.Latency.LoRA = LoRA{Backend: BackendCSGMV, CSGMVUs: 50}
	m := Model{p.Compile()}
	for rank, want := range map[int]float64{-1: 0.019, 0: 0.019, 64: 0.0222} {
		testutil.Near(t, fmt.Sprintf("step of rank %d", rank), m.DecodeStep(4, 4, 1000, rank), want, 1e-9)
	}
}

// An adapter of rank 1 on 2 layers of width 10, with 3 heads of 4 and 1 of KV:
// queries (10 + 12), keys and values 2*(10 + 4), output (12 + 10), and the
// feed-forward network 3*(10 + 20), 2 bytes each. A latent cache has no keys and
// values apart.
func TestLoRABytesByHand(t *testing.T) {
	a := Architecture{Layers: 2, Hidden: 10, Heads: 3, HeadDim: 4, KVHeads: 1, FFN: 20}
	if got := a.LoRABytesPerRank(); got != 2*2*(72+90) {
		t.Errorf("%v bytes, expected 648", got)
	}
	a.Latent = 1
	if got := a.LoRABytesPerRank(); got != 2*2*(44+90) {
		t.Errorf("latent: %v bytes, expected 536", got)
	}
}

// Reading the 524288 bytes of a token's KV cache at 0.85 of 1008 GB/s takes
// 0.6119 us, on two GPUs half of that.
func TestAnalyticKVCost(t *testing.T) {
	for tp, want := range map[int]float64{1: 0.6119, 2: 0.306} {
		p, err := analytic("llama-2-7b", "rtx-4090", tp, 0).Profile()
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Latency.Decode.PerKVTokenUs; math.Abs(got-want) > 1.01e-4 {
			t.Errorf("%d GPUs: %v us, expected %v", tp, got, want)
		}
	}
	if _, err := analytic("llama-2-70b", "h100", 64, 0).Profile(); err != nil {
		t.Errorf("64 GPUs: %v", err)
	}
}

// Differences are relative to the second profile.
func TestCompareByHand(t *testing.T) {
	a, b := Default(), Default()
	a.Memory.KVTokens, b.Memory.KVTokens = 300, 200
	a.Latency.Decode.BaseMs, b.Latency.Decode.BaseMs = 6, 8
	a.Latency.Prefill.PerTokenUs, b.Latency.Prefill.PerTokenUs = 1, 0
	want := map[string]float64{"KV capacity": 0.5, "decode.base_ms": -0.25}
	for _, d := range Compare(&a, &b) {
		if w, ok := want[d.Name]; ok && math.Abs(d.Relative-w) > 1e-12 {
			t.Errorf("%s: %v, expected %v", d.Name, d.Relative, w)
		}
		if d.Name == "prefill.per_token_us" && !math.IsNaN(d.Relative) {
			t.Errorf("%s: %v relative to nothing", d.Name, d.Relative)
		}
	}
}
