package profile

import (
	"slices"
	"strings"
	"testing"
)

func TestKindsOfEmbeddedProfiles(t *testing.T) {
	want := map[string]Kind{
		"deepseek-v3-8xh200-sglang-flashinfer": Calibrated, "deepseek-v3-8xh200-sglang-triton": Calibrated,
		"llama-3.1-8b-h100-64gb-vllm-0.8.5": Measured,
		"llama-7b-a10g-s-lora":              Calibrated, "llama-2-7b-rtx-4090-sglang-0.5": Measured,
		"llama-2-7b-a100-80gb-dlora": Computed, "qwen2.5-7b-h100-64gb-vllm-0.8.5": Measured,
		"qwen3-14b-h100-vllm-0.23":    Measured,
		"llama-3.1-8b-h100-vllm-0.33": Computed,
	}
	for _, name := range Names() {
		p, err := Load(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		v := p.Provenance()
		if v.Kind != want[name] {
			t.Errorf("%s is %s, expected %s", name, v, want[name])
		}
		if p.Hardware == "" || p.EngineVersion == "" || (v.ValidatedOn == "") != (v.Kind == Computed) {
			t.Errorf("%s: hardware %q, engine %q, validated on %q", name, p.Hardware, p.EngineVersion, v.ValidatedOn)
		}
		if note := v.Note(name); (note != "") != (v.Kind == Computed) {
			t.Errorf("%s: note %q", name, note)
		}
	}
	p, err := Load(t.Context(), "analytic:llama-3.1-8b,h100")
	if err != nil {
		t.Fatal(err)
	}
	if v := p.Provenance(); v.Kind != Computed || v.Hardware == "" || v.ValidatedOn != "" {
		t.Errorf("an analytic profile: %+v", v)
	}
}

// What was validated is a profile with its coefficients: with others, and under
// another scheduler, it is calibrated at best. Sizes and limits leave the kind.
func TestChangesEndAValidation(t *testing.T) {
	load := func() *Profile {
		p, err := Load(t.Context(), "llama-2-7b-rtx-4090-sglang-0.5")
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := load()
	p.Engine.MaxLorasPerBatch, p.Memory.KVTokens, p.Engine.MaxRunningRequests = 2, 5000, 64
	if v := p.Provenance(); v.Kind != Measured || v.Changed != nil {
		t.Errorf("with other sizes: %+v", v)
	}
	p.Latency.LoRA.Backend = BackendTriton
	p.Engine.UseVLLM()
	v := p.Provenance()
	if v.Kind != Calibrated || !slices.Equal(v.Changed, []string{"engine.scheduler", "latency.lora.backend"}) ||
		v.ValidatedOn != "" {
		t.Errorf("with another scheduler and other kernels: %+v", v)
	}
	if got := v.String(); got != "calibrated (changed after its validation: engine.scheduler, latency.lora.backend)" {
		t.Error(got)
	}
	if note := v.Note("x"); !strings.Contains(note, "profile x differs from the validated one") {
		t.Error(note)
	}

	out, err := load().YAML()
	if err != nil {
		t.Fatal(err)
	}
	if p, err = Parse(out, "a copy"); err != nil || p.Provenance().Kind != Measured {
		t.Errorf("a copy: %+v (%v)", p.Provenance(), err)
	}
	p.Latency.Decode.BaseMs /= 2
	if out, err = p.YAML(); err != nil {
		t.Fatal(err)
	}
	if p, err = Parse(out, "an edited copy"); err != nil ||
		p.Provenance().String() != "calibrated (changed after its validation: the profile file)" {
		t.Errorf("an edited copy: %v (%v)", p.Provenance(), err)
	}
}

// Files from before there were kinds say hardware, engine and validation in the
// keys that they have.
func TestProvenanceOfOldFiles(t *testing.T) {
	const rest = "gpu: L4\nlatency: {decode: {base_ms: 1}, prefill: {base_ms: 1}}\nmemory: {kv_tokens: 5000}\n"
	for text, want := range map[string]Provenance{
		"":                     {Kind: Calibrated, Hardware: "L4", Engine: "sglang, version unknown"},
		"uncalibrated: true\n": {Kind: Computed, Hardware: "L4", Engine: "rules of sglang"},
		"validation: [{runs: 9 hours, metric: m, median_abs_error: 0.1}]\n": {Kind: Calibrated, Hardware: "L4",
			Engine: "sglang, version unknown", ValidatedOn: "9 hours"},
	} {
		p, err := Parse([]byte("name: old\n"+rest+text), "old")
		if err != nil {
			t.Fatal(err)
		}
		got := p.Provenance()
		if got.Kind != want.Kind || got.Hardware != want.Hardware || got.Engine != want.Engine ||
			got.ValidatedOn != want.ValidatedOn || got.Changed != nil {
			t.Errorf("%q: %+v, expected %+v", text, got, want)
		}
	}
}

// Two held-out runs validate no profile.
func TestMeasuredNeedsHeldOutRuns(t *testing.T) {
	p, err := Load(t.Context(), "llama-2-7b-rtx-4090-sglang-0.5")
	if err != nil {
		t.Fatal(err)
	}
	in := *p.Intervals
	in.Bands = []Band{{Metric: "m", Waiting: [2]float64{0, 0.05}, Runs: 1}, {Metric: "m", Waiting: [2]float64{0.05, 1},
		Runs: 1}}
	p.Intervals = &in
	if v := p.Provenance(); v.Kind != Calibrated {
		t.Errorf("two held-out runs: %s, expected calibrated", v)
	}
	in.Bands[0].Runs = 2
	if v := p.Provenance(); v.Kind != Measured {
		t.Errorf("three held-out runs: %s, expected measured", v)
	}
}
