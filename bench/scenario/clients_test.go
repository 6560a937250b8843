package scenario

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"lorasim/internal/testutil"
	"lorasim/trace"
)

// requests of a scenario with some settings.
func requestsOf(t *testing.T, settings ...string) ([]trace.Request, error) {
	t.Helper()
	sc := Default()
	for _, s := range settings {
		key, value, _ := strings.Cut(s, "=")
		if err := sc.Set(key, value); err != nil {
			return nil, err
		}
	}
	in, err := sc.OpenWorkload(context.Background(), nil)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	var rs []trace.Request
	for {
		r, err := in.Next()
		if errors.Is(err, io.EOF) {
			return rs, nil
		}
		if err != nil {
			t.Fatal(err)
		}
		rs = append(rs, r)
	}
}

const mooncakeRows = `{"timestamp": 1000, "input_length": 30, "output_length": 4, "hash_ids": []}
{"timestamp": 3000, "input_length": 31, "output_length": 5, "hash_ids": []}
{"timestamp": 7000, "input_length": 32, "output_length": 6, "hash_ids": []}
`

// Benchmark clients' settings reach the requests, of the generator and of traces.
func TestClientSettings(t *testing.T) {
	rs, err := requestsOf(t, "num_prompts=100", "request_rate=5", "arrivals=vllm:0.5",
		"lora_request_distribution=distinct", "num_adapters=3")
	if err != nil || len(rs) != 100 || rs[99].Arrival < 20-1e-9 || rs[99].Arrival > 20+1e-9 {
		t.Fatalf("%d requests, %v", len(rs), err)
	}
	for i, r := range rs {
		if int(r.Adapter) != i%3 || r.Prompt < 1 {
			t.Fatalf("request %d: %+v", i, r)
		}
	}
	if rs, err = requestsOf(t, "num_prompts=9", "lora_names=b, a",
		"lora_request_distribution=round-robin"); err != nil || rs[8].Adapter != 0 || rs[7].Adapter != 1 {
		t.Errorf("vLLM's assignment: %+v, %v", rs, err)
	}
	rs, err = requestsOf(t, "num_prompts=5", "arrivals=vllm:inf", "ramp_up_strategy=linear", "ramp_up_start_rps=1",
		"ramp_up_end_rps=2")
	if err != nil || len(rs) != 5 || rs[0].Arrival != 1 || rs[1].Arrival != 1.8 {
		t.Errorf("ramp-up: %+v, %v", rs, err)
	}
	trace := testutil.File(t, "mooncake.jsonl", mooncakeRows)
	own := []string{"trace_path=" + trace, "trace_name=mooncake", "num_adapters=4"}
	if rs, err = requestsOf(t, own...); err != nil || len(rs) != 3 || rs[2].Arrival-rs[0].Arrival != 6 ||
		rs[2].Prompt != 32 {
		t.Errorf("the trace's own times: %+v, %v", rs, err)
	}
	rs, err = requestsOf(t,
		append(own, "use_trace_timestamps=false", "request_rate=inf", "lora_request_distribution=skewed")...)
	if err != nil || len(rs) != 3 || rs[2].Arrival != 0 || rs[2].Prompt != 32 {
		t.Errorf("times replaced: %+v, %v", rs, err)
	}
	rs, err = requestsOf(t,
		append(own, "use_trace_timestamps=false", "arrivals=vllm:inf", "num_prompts=2", "request_rate=4")...)
	if err != nil || len(rs) != 2 || rs[1].Arrival != 0.5 {
		t.Errorf("vLLM's times: %+v, %v", rs, err)
	}
}

func TestClientSettingsContradict(t *testing.T) {
	path := testutil.File(t, "mooncake.jsonl", mooncakeRows)
	for want, settings := range map[string]string{
		"need ramp_up_strategy":           "ramp_up_end_rps=3",
		"ramp_up_start_rps above 0":       "ramp_up_strategy=linear ramp_up_end_rps=3",
		"a ramp_up_end_rps that is no":    "ramp_up_strategy=linear ramp_up_start_rps=4 ramp_up_end_rps=3",
		"exponential or vllm:SHAPE":       "ramp_up_strategy=linear ramp_up_start_rps=1 ramp_up_end_rps=3 arrivals=gamma:2",
		"they exclude pattern, drift":     "arrivals=vllm drift=3",
		"it excludes sessions":            "lora_request_distribution=uniform sessions=zipf:m=3",
		"for generated requests and for":  "arrivals=vllm:2 compat=slora popularity=powerlaw",
		"give use_trace_timestamps=false": "arrivals=vllm:2 trace_name=mooncake trace_path=" + path,
		"needs more than one adapter":     "lora_request_distribution=skewed num_adapters=1",
		"distinct needs more than one":    "lora_request_distribution=distinct lora_names=a",
		"need num_prompts":                "arrivals=vllm:2 window=10",
		"not a number > 1":                "lora_request_distribution=skewed lora_zipf_alpha=1",
		"known: uniform, distinct":        "lora_request_distribution=zipf",
		`name 2 is "a", expected`:         "lora_names=a,a",
		`name 1 is "", expected`:          "lora_names=,a",
		"lora_names has 2 names":          "lora_names=a,b num_adapters=3",
		"names its adapters itself":       "lora_names=a,b workload=" + path,
	} {
		if _, err := requestsOf(t, strings.Fields(settings)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, expected %q", settings, err, want)
		}
	}
}
