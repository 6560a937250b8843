package cli

import (
	"bytes"
	"errors"
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
