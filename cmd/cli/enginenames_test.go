package cli

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lorasim/trace"
	"lorasim/trace/columnar"
	"lorasim/trace/store"
)

// TestEngineNames: --engine-args takes the keys of the engine by lorasim's names and by the engine's own, and refuses
// those of another engine.
func TestEngineNames(t *testing.T) {
	for args, want := range map[string]string{
		"--engine-args=max_loras=5 --scheduler=vllm":       "max_loras_per_batch: 5",
		"--engine-args=max_cpu_loras=6 --scheduler=vllm":   "max_loaded_loras: 6",
		"--engine-args=max_num_seqs=7 --scheduler=vllm":    "max_running_requests: 7",
		"--engine-args=max_model_len=800 --scheduler=vllm": "context_length: 800",
		"--engine-args=block_size=9,enable_prefix_caching": "page_size: 9",
		"--engine-args=max_total_tokens=1000":              "kv_tokens: 1000",
		"--engine-args=lora_eviction_policy=fifo":          "adapter_eviction: fifo",
		"--random-seed=11": "seed: 11",
		"--engine-args=page_size=8 --engine-args=kv-tokens=12":       "kv_tokens: 12",
		"--engine-args=max_num_batched_tokens=1200 --scheduler=vllm": "max_num_batched_tokens: 1200",
		"--engine-args=lora_drain_wait_threshold=13.5":               "lora_drain_wait_threshold: 13.5",
	} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), append([]string{"sim", "--print-config"}, strings.Fields(args)...),
			strings.NewReader(""), &stdout, &stderr); code != exitOK || !strings.Contains(stdout.String(), want+"\n") {
			t.Errorf("sim %s: exit code %d, %q, expected %s", args, code, stderr.String(), want)
		}
	}
	for args, want := range map[string]string{
		"--engine-args=max_loras=5": "max_loras is a key of vllm, but the simulated engine is sglang: did you mean " +
			"max_loras_per_batch?",
		"--engine-args=max_num_batched_tokens=5": "max_num_batched_tokens is a key of vllm, but the simulated engine " +
			"is sglang",
		"--engine-args=enable_mixed_chunk --scheduler=vllm": "enable_mixed_chunk is a key of sglang, but the " +
			"simulated engine is vllm",
		"--engine-args=max_lorsa=5":                    "key \"max_lorsa\", did you mean \"max_loras\"?",
		"--engine-args=max_loras":                      "max_loras has no value: expected max_loras=VALUE",
		"--engine-args=page_size=x":                    "--engine-args: page_size: \"x\"",
		"--engine-args=max_loras=5,max_total_tokens=9": "max_total_tokens is a key of sglang, but another key is one",
		"--kv-tokens=5":                                "it is a key of the engine, --engine-args kv_tokens=VALUE",
	} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), append([]string{"sim", "--num-prompts=20"}, strings.Fields(args)...),
			strings.NewReader(""), &stdout, &stderr); code == exitOK || !strings.Contains(stderr.String(), want) {
			t.Errorf("sim %s: exit code %d, %q, expected %s", args, code, stderr.String(), want)
		}
	}
}

// TestClientNames: what the engines' clients call a setting sets it in what
// generates workloads, and names reach the files.
func TestClientNames(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w.parquet")
	for _, c := range []string{"generate", "workload"} {
		args := []string{"trace", c, "-o", path, "--num-prompts", "7", "--lora-assignment", "round-robin",
			"--lora-modules", "sql,chat,code"}
		var out bytes.Buffer
		if code := run(t.Context(), args, strings.NewReader(""), &out, &out); code != exitOK {
			t.Fatalf("%v: exit code %d, %s", args, code, out.String())
		}
		r, err := store.Open(t.Context(), path, store.ReadOptions{Files: columnar.Files()})
		if err != nil {
			t.Fatal(err)
		}
		w, err := trace.Collect(r)
		if err := errors.Join(err, r.Close()); err != nil {
			t.Fatal(err)
		}
		if len(w.Requests) != 7 || len(w.Adapters) != 3 || w.Adapters[1].Name != "chat" || w.Adapters[1].Rank != 16 {
			t.Errorf("%s: %d requests of %+v", c, len(w.Requests), w.Adapters)
		}
		for i, r := range w.Requests {
			if int(r.Adapter) != i%3 {
				t.Errorf("%s: request %d has adapter %d, expected them in turn", c, i, r.Adapter)
			}
		}
	}
	var help bytes.Buffer
	run(t.Context(), []string{"sim", "--help-all"}, strings.NewReader(""), &help, &help)
	for _, n := range clientNames {
		if !strings.Contains(help.String(), "--"+n.theirs+" ") {
			t.Errorf("sim --help-all does not tell of --%s", n.theirs)
		}
	}
}

// TestAliases: the clients' flags set the settings exactly, and contradictions are errors that name both spellings.
func TestAliases(t *testing.T) {
	config := func(args string) (string, string) {
		var stdout, stderr bytes.Buffer
		run(t.Context(), append([]string{"sim", "--print-config"}, strings.Fields(args)...), strings.NewReader(""),
			&stdout, &stderr)
		return stdout.String(), stderr.String()
	}
	for args, want := range map[string]string{
		"--burstiness 0.25":                       "arrivals: vllm:0.25",
		"--burstiness=inf --arrivals vllm:inf":    "arrivals: vllm:inf",
		"--mooncake-slowdown-factor 4":            "rate_scale: 0.25",
		"--trace-histogram 5,6 --trace-cv 2,1":    "arrivals: gamma:2,1",
		"--use-trace --trace-path x --trace-cv 3": "arrivals: gamma:3",
		"--lora-modules a,b --lora-names a,b":     "lora_names: a,b",
		"--disable-stream":                        "no_stream: true",
		"--disable-stream=false":                  "no_stream: false",
		"--random-seed 4 --random-seed 5":         "seed: 5",

		"--trace-histogram 5 --trace-arrival-distribution pareto":                   "arrivals: pareto",
		"--trace-histogram 5 --trace-arrival-distribution exponential --trace-cv 1": "arrivals: exponential",
		"--trace-histogram 5 --trace-cv 2 --trace-arrival-distribution weibull":     "arrivals: weibull:2",
		"--trace-histogram 5 --trace-cv 2 --arrivals gamma:2":                       "arrivals: gamma:2",
	} {
		if got, stderr := config(args); !strings.Contains(got, want+"\n") {
			t.Errorf("%s: %q, expected %s", args, stderr, want)
		}
	}
	for args, want := range map[string]string{
		"--burstiness x":                              `--burstiness: arrivals vllm: burstiness: "x" is not a number`,
		"--mooncake-slowdown-factor 0":                `--mooncake-slowdown-factor: "0" is not a number > 0`,
		"--burstiness 2 --arrivals gamma:2":           "--burstiness 2 is --arrivals vllm:2, but --arrivals gamma:2 is given, too: give one of the two",
		"--arrivals gamma:2 --burstiness 2":           "--burstiness 2 is --arrivals vllm:2, but --arrivals gamma:2 is given, too: give one of the two",
		"--lora-name a,b --lora-modules c,d":          "--lora-modules c,d is --lora-names c,d, but --lora-name a,b",
		"--rate-scale 2 --mooncake-slowdown-factor 2": "--mooncake-slowdown-factor 2 is --rate-scale 0.5, but --rate-scale 2 is given, too",
		"--trace-cv 2":                                "--trace-cv is for traces, and no trace is replayed (see --trace-path): give --arrivals gamma:2 for generated requests",
		"--trace-cv 0 --trace-histogram 5":            `--trace-cv: arrivals gamma: cv: "0" is not a list of numbers`,
		"--time-scale 2":                              `unknown flag "--time-scale": rate_scale 2 is what time_scale`,
		"--burstines 2":                               `did you mean "--burstiness"?`,
	} {
		if _, stderr := config(args); !strings.Contains(stderr, want) {
			t.Errorf("%s: %q, expected %s", args, stderr, want)
		}
	}
}

// TestIgnoredSpelling: a note names what the user wrote: an alias, a flag, or a key with its place in the file.
func TestIgnoredSpelling(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	text := "workload:\n  drift: 5\n  popularity: zipf\n  trace_histogram: \"50,60\"\n  num_prompts: 5\n  sessions: zipf:m=3\n"
	if err := os.WriteFile("s.yaml", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	run(t.Context(), strings.Fields("sim s.yaml --json --request-rate 5 --compat dlora --mooncake-slowdown-factor 2"),
		strings.NewReader(""), &stdout, &stderr)
	for _, want := range []string{
		"note: --request-rate has no effect: the trace's own rate governs (see --trace-total-rate and --rate-scale)\n",
		"note: s.yaml:2: workload.drift has no effect: compat dlora repeats the published generator\n",
		"note: s.yaml:6: workload.sessions has no effect: the trace governs the arrivals\n",
		"note: --mooncake-slowdown-factor has no effect: compat dlora",
	} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("%q, expected %q", stderr.String(), want)
		}
	}
	if n := strings.Count(stderr.String(), "note: "); n != 4 {
		t.Errorf("%d notes in %q, expected 4", n, stderr.String())
	}
}
