package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const patchWorkers = `kind: Deployment
metadata: {name: llama}
spec:
  replicas: 3 # for now
  template:
    metadata:
      labels: {model.aibrix.ai/name: llama}
    spec:
      nodeSelector: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}
      containers:
      - image: vllm/vllm-openai:v0.32.0
        command: [vllm, serve, meta-llama/Llama-3.1-8B-Instruct]
        args: [--served-model-name=llama, --enable-lora, --max-loras=4, --max-cpu-loras=8]
`

const patchAdapter = `kind: ModelAdapter
metadata: {name: a%d}
spec:
  podSelector:
    matchLabels: {model.aibrix.ai/name: llama}
  additionalConfig: {rank: "16"}
`

// TestAdvisePatch: --cluster with the patched manifests gives the scenario that was advised, and a policy that no
// manifest can state is named.
func TestAdvisePatch(t *testing.T) {
	folder := t.TempDir()
	file := func(name string) string { return filepath.Join(folder, name) }
	adapters := ""
	for i := range 8 {
		adapters += "---\n"[:4*min(i, 1)] + fmt.Sprintf(patchAdapter, i)
	}
	for name, text := range map[string]string{"workers.yaml": patchWorkers, "adapters.yaml": adapters} {
		if err := os.WriteFile(file(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	load := []string{"--request-rate", "4", "--num-prompts", "200"}
	both := file("workers.yaml") + "," + file("adapters.yaml")
	advised := []string{"--cluster", both, "--num-workers", "2", "--engine-args", "max_loras=6"}
	advise := func(to, policies string, args ...string) (messages string) {
		t.Helper()
		var out, errs bytes.Buffer
		args = append(append([]string{"advise", "--policies", policies, "--no-search", "--no-worst", "--seeds", "2",
			"--patch", to}, args...), load...)
		if code := run(t.Context(), args, strings.NewReader(""), &out, &errs); code != exitOK {
			t.Fatalf("%q: exit code %d: %s", args, code, errs.String())
		}
		return errs.String()
	}
	sim := func(args ...string) string {
		t.Helper()
		return lorasim(t, append(append([]string{"sim", "--details"}, args...), load...)...)
	}
	// What sim prints, without the command line that it suggests.
	results := func(text string) string {
		_, after, ok := strings.Cut(text, "Serving Benchmark Result")
		if !ok {
			t.Fatalf("no results: %s", text)
		}
		return after
	}

	said := advise(file("static.yaml"), "static", advised...)
	if strings.Contains(said, "cannot state") {
		t.Errorf("static is in the manifests, but: %s", said)
	}
	want := results(sim(append([]string{"--policy", "static"}, advised...)...))
	if got := results(sim("--cluster", file("static.yaml"))); got != want {
		t.Errorf("the patched manifests give other results than the advised scenario:\n%s\n%s", got, want)
	}
	if results(sim("--cluster", both)) == want {
		t.Error("the manifests give the advised scenario without a patch")
	}

	said = advise(file("spread.yaml"), "round-robin", "--cluster", file("static.yaml"))
	if !strings.Contains(said, "start lorasim gateway with --policy round-robin\n") {
		t.Errorf("no word about round-robin: %s", said)
	}
	args := []string{"--policy", "round-robin", "--cluster"}
	spread := results(sim(append(args, file("spread.yaml"))...))
	if spread != results(sim(append(args, file("static.yaml"))...)) {
		t.Error("the patched manifests give other workers")
	}
	text, err := os.ReadFile(file("spread.yaml"))
	if old := strings.Replace(patchWorkers, "replicas: 3", "replicas: 2", 1); err != nil || string(text) !=
		strings.Replace(old, "max-loras=4", "max-loras=6", 1)+"---\n"+adapters {
		t.Errorf("adapters on all workers: %v\n%s", err, text)
	}

	said = advise(file("none.yaml"), "round-robin", "--cluster", file("spread.yaml"))
	if _, err := os.Stat(file("none.yaml")); err == nil || !strings.Contains(said, "none.yaml is not written") {
		t.Errorf("nothing changes, but a file is written: %s", said)
	}
}
