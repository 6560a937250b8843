package main

import (
	"bytes"
	"strings"
	"testing"
)

// TestEngineNames: what the engines call a setting sets it, in sim and worker.
func TestEngineNames(t *testing.T) {
	for flag, want := range map[string]string{
		"--max-loras=5":                    "max_loras_per_batch: 5",
		"--max-cpu-loras=6":                "max_loaded_loras: 6",
		"--max-num-seqs=7":                 "max_running_requests: 7",
		"--max-model-len=800":              "context_length: 800",
		"--block-size=9":                   "page_size: 9",
		"--max-total-tokens=1000":          "kv_tokens: 1000",
		"--lora-eviction-policy=fifo":      "adapter_eviction: fifo",
		"--random-seed=11":                 "seed: 11",
		"--max-num-batched-tokens=1200":    "max_num_batched_tokens: 1200", // the same everywhere
		"--lora-drain-wait-threshold=13.5": "lora_drain_wait_threshold: 13.5",
	} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), []string{"sim", flag, "--print-config"}, strings.NewReader(""), &stdout, &stderr); code != exitOK || !strings.Contains(stdout.String(), want+"\n") {
			t.Errorf("sim %s: exit code %d, %q, expected %s", flag, code, stderr.String(), want)
		}
		worker, _, err := newRoot().Find([]string{"worker"})
		if err != nil {
			t.Fatal(err)
		}
		if err := worker.ParseFlags([]string{flag}); err != nil {
			t.Errorf("worker %s: %v", flag, err)
		}
		_, value, _ := strings.Cut(flag, "=")
		key, _, _ := strings.Cut(want, ":")
		if f := worker.Flags().Lookup(strings.ReplaceAll(key, "_", "-")); f == nil || f.Value.String() != value {
			t.Errorf("worker %s does not set %s", flag, key)
		}
	}
	for _, n := range engineNames {
		if n.theirs == n.ours {
			t.Errorf("--%s is no other name", n.theirs)
		}
		for _, c := range []string{"sim", "worker"} {
			var stdout bytes.Buffer
			if run(t.Context(), []string{c, "--help"}, strings.NewReader(""), &stdout, &stdout); !strings.Contains(stdout.String(), "--"+n.theirs) {
				t.Errorf("%s --help does not tell of --%s", c, n.theirs)
			}
		}
	}
}
