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
		if code := run(t.Context(), []string{"sim", flag, "--print-config"}, strings.NewReader(""), &stdout,
			&stderr); code != exitOK || !strings.Contains(stdout.String(), want+"\n") {
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
			if run(t.Context(), []string{c, "--help-all"}, strings.NewReader(""), &stdout,
				&stdout); !strings.Contains(stdout.String(), "--"+n.theirs) {
				t.Errorf("%s --help-all does not tell of --%s", c, n.theirs)
			}
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
