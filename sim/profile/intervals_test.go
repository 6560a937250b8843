package profile

import (
	"reflect"
	"strings"
	"testing"
)

// validated are the intervals of runs with 1 to 2 workers, 8 to 32 slots, two
// ways of loading, and loads of their own.
func validated(base *Profile) *Intervals {
	var runs []ValidatedRun
	for i, slots := range []int{16, 8, 32, 16} {
		p := *base
		p.Engine.MaxLorasPerBatch = slots
		p.Adapters.DiskToHost.LatencyMs++
		if i == 2 {
			p.Engine.AdapterLoading = LoadOverlapped
		}
		runs = append(runs, ValidatedRun{1 + i%2, []string{"static", "least-loaded:ties=first"}[i%2], &p})
	}
	return NewIntervals(base, runs)
}

func TestNewIntervals(t *testing.T) {
	base, err := Load("llama2-7b-24gb") // 8 slots
	if err != nil {
		t.Fatal(err)
	}
	in := validated(base)
	want := map[string][]string{"engine.max_loras_per_batch": {"8", "32"}, "engine.adapter_loading": {LoadBlocking, LoadOverlapped}}
	if in.Workers != 2 || !reflect.DeepEqual(in.Policies, []string{"least-loaded", "static"}) || !reflect.DeepEqual(in.Settings, want) {
		t.Errorf("%+v", in)
	}
}

func TestIntervalsBeyond(t *testing.T) {
	base, err := Load("llama2-7b-24gb")
	if err != nil {
		t.Fatal(err)
	}
	in := validated(base)
	for name, c := range map[string]struct {
		workers int
		policy  string
		change  func(p *Profile)
		want    string // "": nothing
	}{
		"as validated":  {2, "static", func(p *Profile) { p.Engine.MaxLorasPerBatch = 20 }, ""},
		"fewest slots":  {1, "", func(p *Profile) { p.Engine.MaxLorasPerBatch = 8 }, ""},
		"most slots":    {1, "", func(p *Profile) { p.Engine.MaxLorasPerBatch = 32 }, ""},
		"one worker":    {1, "any", func(*Profile) {}, ""},
		"workers":       {3, "least-loaded", func(*Profile) {}, "3 workers, validated with at most 2"},
		"policy":        {2, "p2c:x=1", func(*Profile) {}, "policy p2c, validated with least-loaded, static"},
		"a number":      {1, "", func(p *Profile) { p.Engine.MaxLorasPerBatch = 64 }, "engine.max_loras_per_batch 64, validated with 8 to 32"},
		"a choice":      {1, "", func(p *Profile) { p.Engine.AdapterLoading = "other" }, "engine.adapter_loading other, validated with blocking, overlapped"},
		"another key":   {1, "", func(p *Profile) { p.Engine.PageSize = 64 }, "engine.page_size 64, validated with 1"},
		"the scheduler": {1, "", func(p *Profile) { p.Engine.UseVLLM() }, "engine.scheduler vllm, validated with sglang"},
		"the backend":   {1, "", func(p *Profile) { p.Latency.LoRA.Backend = BackendTriton }, "latency.lora.backend triton, validated with csgmv"},
	} {
		p := *base
		c.change(&p)
		if got := strings.Join(in.Beyond(c.workers, c.policy, base, &p), "; "); got != c.want {
			t.Errorf("%s: %q, expected %q", name, got, c.want)
		}
	}
	edited := *base
	edited.Latency.Decode.BaseMs++
	if got := in.Beyond(1, "", &edited, &edited); len(got) != 1 || !strings.Contains(got[0], "was changed") {
		t.Errorf("of a profile that was edited: %q", got)
	}
}

// Embedded intervals belong to the profile that they stand in, are checked, and
// tell the classes of load apart.
func TestEmbeddedIntervals(t *testing.T) {
	with := 0
	for _, name := range Names() {
		p, err := Load(name)
		if err != nil {
			t.Fatal(err)
		}
		in := p.Intervals
		if in == nil {
			continue
		}
		with++
		if why := in.Beyond(1, "", p, p); why != nil {
			t.Errorf("%s: %q", name, why)
		}
		n := 0
		for _, w := range []float64{0, 0.5, 0.99, 1} {
			n += len(in.At(w))
		}
		if last := len(in.At(0.99)); last == 0 || n != len(in.Bands)+last {
			t.Errorf("%s: of %d bands %d are found", name, len(in.Bands), n)
		}
	}
	if with == 0 {
		t.Error("no profile has intervals")
	}
}

func TestIntervalsChecked(t *testing.T) {
	for text, want := range map[string]string{
		"{metric: duration, waiting: [0, 0.1], runs: 0}":                        "entry 1: expected a metric",
		"{waiting: [0, 0.1], runs: 3}":                                          "expected a metric",
		"{metric: duration, waiting: [0.1, 0.1], runs: 3}":                      "[FROM, BELOW]",
		"{metric: duration, waiting: [0, 1], runs: 30, most: [1.1, 0.9]}":       "entry 1: [1.1 0.9], expected [LOW, HIGH]",
		"{metric: duration, waiting: [0, 1], runs: 30, half: [.nan, 0.9]}":      "[LOW, HIGH]",
		"{metric: duration, waiting: [0, 1], runs: 30, most: [0.9, 1.1], x: 1}": "x",
	} {
		_, err := Parse([]byte("name: m\nlatency: {decode: {base_ms: 1}, prefill: {base_ms: 1}}\nmemory: {kv_tokens: 9999}\nintervals: {bands: ["+text+"]}\n"), "m.yaml")
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "m.yaml") {
			t.Errorf("%s: %v, expected %q", text, err, want)
		}
	}
}
