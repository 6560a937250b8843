package manifest

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lorasim/internal/shareddata"
)

const deployment = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: llama
spec:
  replicas: 3 # for now
  template:
    metadata:
      labels: {app: llama, model.aibrix.ai/name: llama, adapter.model.aibrix.ai/enabled: "true"}
    spec:
      nodeSelector:
        nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3
      containers:
      - name: engine
        image: vllm/vllm-openai:v0.32.0
        command: [vllm, serve, meta-llama/Llama-3.1-8B-Instruct]
        args:
        - --served-model-name=llama
        - --enable-lora
        - --max-loras
        - "4"
        - --max-lora-rank
        - "16"
        - --max_cpu_loras=12
        - --max-num-seq
        - "64"
        - --lora-modules
        - sql=/adapters/sql
        - '{"name": "chat", "path": "/adapters/chat"}'
        env:
        - {name: VLLM_ALLOW_RUNTIME_LORA_UPDATING, value: "True"}
        resources: {limits: {nvidia.com/gpu: "1"}}
`

const aibrix = `apiVersion: model.aibrix.ai/v1alpha1
kind: ModelAdapter
metadata:
  name: code
spec:
  baseModel: llama
  podSelector:
    matchLabels:
      model.aibrix.ai/name: llama
      adapter.model.aibrix.ai/enabled: "true"
  artifactURL: huggingface://x/code
  additionalConfig:
    rank: "16"
`

const kserve = `apiVersion: serving.kserve.io/v1alpha2
kind: LLMInferenceService
metadata:
  name: qwen
spec:
  model:
    uri: hf://Qwen/Qwen3-14B
    name: qwen3
    lora:
      adapters:
      - {name: a, uri: hf://x/a}
      - {name: b, uri: hf://x/b}
      maxAdapters: 1
      maxCpuAdapters: 2
  replicas: 2
  router: {route: {}}
`

const script = `kind: StatefulSet
metadata: {name: sg}
spec:
  replicas: 2
  template:
    spec:
      containers:
      - image: lmsysorg/sglang:v0.5.23-cu126
        command: [bash, -c]
        args:
        - |
          echo start; python3 -m sglang.launch_server --model-path Qwen/Qwen3-8B \
            --lora-paths l0=/a/l0 l1=/a/l1 --max-loras-per-batch 2 --max-loaded-loras 6 --tp 2
`

const helm = `servingEngineSpec:
  modelSpec:
  - name: llama3
    repository: vllm/vllm-openai
    tag: v0.31.1
    modelURL: meta-llama/Llama-3.1-8B-Instruct
    enableLoRA: true
    replicaCount: 2
    requestGPU: 1
    vllmConfig:
      maxModelLen: 4096
      extraArgs: ["--max-loras", "2", "--max-cpu-loras", "4"]
    env: [{name: VLLM_ALLOW_RUNTIME_LORA_UPDATING, value: "True"}]
loraAdapters:
- name: one
  baseModel: llama3
  adapterSource: {adapterName: topic, repository: x/topic}
`

const ray = `kind: RayService
metadata: {name: ray}
spec:
  serveConfigV2: |
    applications:
    - name: llms
      args:
        llm_configs:
        - model_loading_config: {model_id: qwen, model_source: Qwen/Qwen2.5-7B-Instruct}
          accelerator_type: L40S
          deployment_config: {autoscaling_config: {min_replicas: 1, max_replicas: 3}}
          engine_kwargs: {enable_lora: true, max_loras: 3, max_lora_rank: 32, tensor_parallel_size: 2}
          lora_config: {dynamic_lora_loading_path: s3://x, max_num_adapters_per_replica: 16}
`

const llmd = `modelArtifacts: {uri: "hf://Qwen/Qwen3-32B", name: qwen}
decode:
  replicas: 4
  parallelism: {tensor: 2}
  containers:
  - image: ghcr.io/llm-d/llm-d-cuda:v0.5.0
    modelCommand: vllmServe
    args: ["--enable-lora", "--max-loras=8", "--max-lora-rank=32"]
`

const syncer = `kind: Deployment
metadata: {name: pool}
spec:
  replicas: 2
  template:
    spec:
      containers:
      - image: vllm/vllm-openai:latest
        args: [--model, meta-llama/Llama-3.1-8B, --enable-lora, --max-loras, "2"]
        env: [{name: VLLM_ALLOW_RUNTIME_LORA_UPDATING, value: "1"}]
      volumes: [{name: c, configMap: {name: adapters}}]
---
kind: ConfigMap
metadata: {name: adapters}
data:
  configmap.yaml: |
    vLLMLoRAConfig:
      defaultBaseModel: meta-llama/Llama-3.1-8B
      ensureExist:
        models:
        - {id: food, source: x/food}
---
kind: Service
metadata: {name: pool}
`

func read(t *testing.T, texts ...string) *Fleet {
	t.Helper()
	var files []File
	for i, text := range texts {
		files = append(files, File{[]string{"a.yaml", "b.yaml"}[i], []byte(text)})
	}
	f, err := Read(files...)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *Fleet) text(t *testing.T) string {
	t.Helper()
	settings, err := f.Settings("")
	if err != nil && !errors.Is(err, ErrNoProfile) {
		t.Fatal(err)
	}
	parts := make([]string, len(settings))
	for i, s := range settings {
		parts[i] = s.Key + "=" + s.Value
	}
	return strings.Join(parts, " ")
}

// TestSettings: each kind of manifest gives the settings that its engine would have.
func TestSettings(t *testing.T) {
	for name, c := range map[string]struct {
		texts []string
		want  string
	}{
		"deployment": {[]string{deployment}, "scheduler=vllm num_workers=3 max_loras_per_batch=4 max_lora_rank=16 " +
			"max_loaded_loras=12 max_running_requests=64 num_adapters=2 lora_names=sql,chat profile=analytic:llama-3.1-8b,h100"},
		"aibrix": {[]string{strings.NewReplacer("- sql=/adapters/sql", "",
			`- '{"name": "chat", "path": "/adapters/chat"}'`, "",
			"- --lora-modules", "").Replace(deployment), aibrix},
			"scheduler=vllm num_workers=3 max_loras_per_batch=4 " +
				"max_lora_rank=16 max_loaded_loras=12 max_running_requests=64 num_adapters=1 lora_names=code lora_ranks=16 " +
				"profile=analytic:llama-3.1-8b,h100"},
		"kserve": {[]string{kserve},
			"scheduler=vllm num_workers=2 max_loras_per_batch=1 max_lora_rank=64 max_loaded_loras=2 " +
				"num_adapters=2 lora_names=a,b"},
		"script": {[]string{script},
			"scheduler=sglang num_workers=2 max_loras_per_batch=2 max_loaded_loras=6 num_adapters=2 " +
				"lora_names=l0,l1"},
		"script with loads beside the steps": {[]string{strings.Replace(script, "--max-loaded-loras 6 --tp 2",
			"--max-loaded-loras 4 --enable-lora-overlap-loading", 1)},
			"scheduler=sglang num_workers=2 max_loras_per_batch=2 max_loaded_loras=4 adapter_loading=overlapped " +
				"num_adapters=2 lora_names=l0,l1"},
		"helm, kernels by active adapters": {[]string{strings.Replace(helm, `"4"]`,
			`"4", "--specialize-active-lora"]`, 1)},
			"scheduler=vllm num_workers=2 max_loras_per_batch=2 max_lora_rank=16 max_loaded_loras=4 " +
				"specialize_active_lora=true context_length=4096 num_adapters=1 lora_names=topic"},
		"helm": {[]string{helm},
			"scheduler=vllm num_workers=2 max_loras_per_batch=2 max_lora_rank=16 max_loaded_loras=4 " +
				"context_length=4096 num_adapters=1 lora_names=topic"},
		"ray": {[]string{ray},
			"scheduler=vllm num_workers=3 max_loras_per_batch=3 max_lora_rank=32 max_loaded_loras=16 " +
				"profile=analytic:qwen2.5-7b,l40s,tp=2"},
		"llm-d": {[]string{llmd},
			"scheduler=vllm num_workers=4 max_loras_per_batch=8 max_lora_rank=32 max_loaded_loras=8"},
		"syncer": {[]string{syncer},
			"scheduler=vllm num_workers=2 max_loras_per_batch=2 max_lora_rank=16 max_loaded_loras=2 " +
				"num_adapters=1 lora_names=food"},
	} {
		f := read(t, c.texts...)
		if got := f.text(t); got != c.want {
			t.Errorf("%s: %s\nexpected %s", name, got, c.want)
		}
		for _, x := range f.Check() {
			if x.Fault {
				t.Errorf("%s: %v, expected no fault", name, x)
			}
		}
	}
	if f := read(t, syncer); len(f.Ignored) != 1 || f.Ignored[0] != "a.yaml:23: Service pool" {
		t.Errorf("ignored: %v", f.Ignored)
	}
}

// TestFaults plants one fault in a good manifest, and expects it alone, with its line.
func TestFaults(t *testing.T) {
	lines := func(text, from, to string) string {
		if !strings.Contains(text, from) {
			t.Fatalf("no %q", from)
		}
		return strings.Replace(text, from, to, 1)
	}
	seven := ""
	for _, name := range strings.Split("c d e f g h", " ") {
		seven += "      - {name: " + name + ", uri: hf://x/a}\n"
	}
	for _, c := range []struct{ name, a, b, want string }{
		{"no LoRA", lines(deployment, "        - --enable-lora\n", ""), "",
			"a.yaml:1: fault: llama has 2 adapters, but the engine starts without LoRA"},
		{"host memory", lines(deployment, "max_cpu_loras=12", "max_cpu_loras=3"), "",
			"a.yaml:24: fault: 3 adapters in host memory are fewer than 4 slots"},
		{"a rank that vLLM refuses", lines(deployment, `"16"`, `"24"`), "",
			"a.yaml:23: fault: max_lora_rank 24 is not one that vLLM takes"},
		{"slots that eat the KV cache", lines(lines(lines(deployment, `"4"`, `"24"`), `"16"`, `"256"`), "loras=12",
			"loras=24"), "",
			"a.yaml:21: fault: 24 slots of rank 256 take 30.0 of the "},
		{"GPUs", lines(deployment, "- --enable-lora", "- --enable-lora\n        - -tp=2"), "",
			"a.yaml:20: fault: llama uses 2 GPUs, but asks for 1"},
		{"no replica", lines(deployment, "replicas: 3", "replicas: 0"), "", "fault: llama has no replica"},
		{"twice", lines(deployment, "chat", "sql"), "",
			"a.yaml:29: fault: adapter sql is named twice, first in a.yaml:28"},
		{"the base model's name", lines(deployment, "- sql=", "- llama="), "",
			"a.yaml:28: fault: adapter llama has the name of its base model"},
		{"run time", lines(deployment, `value: "True"`, `value: "False"`), aibrix,
			"fault: adapter code is loaded at run time, but llama has no VLLM_ALLOW"},
		{"rank", deployment, lines(aibrix, `"16"`, `"32"`),
			"b.yaml:1: fault: adapter code has rank 32, but llama takes ranks up to 16"},
		{"selector", deployment, lines(aibrix, "      model.aibrix.ai/name: llama", "      model.aibrix.ai/name: lama"),
			"b.yaml:1: fault: adapter code matches no workers"},
		{"label", lines(deployment, `, adapter.model.aibrix.ai/enabled: "true"`, ""), aibrix,
			"b.yaml:1: fault: adapter code matches no workers"},
		{"copies", deployment, lines(aibrix, "spec:", "spec:\n  replicas: 2"),
			"fault: adapter code: replicas is neither 1 nor absent"},
		{"route", lines(kserve, "      - {name: b, uri: hf://x/b}\n", "      - {name: b, uri: hf://x/b}\n"+seven), "",
			"a.yaml:1: fault: qwen routes 8 adapters; KServe's route holds 7"},
		{"kserve's host memory", lines(kserve, "maxAdapters: 1", "maxAdapters: 3"), "",
			"fault: 2 adapters in host memory are fewer than 3 slots"},
		{"a colon", lines(script, "--tp 2", "--served-model-name qwen:8b"), "",
			"fault: sglang takes what follows the colon"},
		{"loads beside the steps", lines(script, "--tp 2", "--enable-lora-overlap-loading"), "",
			"fault: --enable-lora-overlap-loading needs --max-loaded-loras of at most twice --max-loras-per-batch (4)"},
		{"helm's base model", lines(helm, "baseModel: llama3", "baseModel: llama"), "",
			"fault: adapter topic matches no workers"},
		{"helm without LoRA", lines(helm, "enableLoRA: true", "enableLoRA: false"), "",
			"fault: llama3 has 1 adapters, but the engine starts without LoRA"},
	} {
		f := read(t, slices.DeleteFunc([]string{c.a, c.b}, func(s string) bool { return s == "" })...)
		var faults []string
		for _, x := range f.Check() {
			if x.Fault {
				faults = append(faults, x.String())
			}
		}
		if len(faults) != 1 || !strings.Contains(faults[0], c.want) {
			t.Errorf("%s: %q, expected %s", c.name, faults, c.want)
		}
	}
}

// TestNotes: what is no fault, but worth knowing.
func TestNotes(t *testing.T) {
	text := strings.Replace(helm, "adapterName: topic", "adapterName: topic", 1) +
		"  loraAdapterDeploymentConfig: {replicas: 1}\n- {name: b, baseModel: llama3}\n- {name: c, baseModel: llama3}\n"
	var notes []string
	for _, x := range read(t, text).Check() {
		if x.Fault {
			t.Error(x)
		}
		notes = append(notes, x.Text)
	}
	if len(notes) != 1 || !strings.HasPrefix(notes[0], "3 adapters share 2 slots") {
		t.Errorf("%q", notes)
	}
	one := helm + "  loraAdapterDeploymentConfig: {replicas: 1}\n"
	if found := read(t, one).Check(); len(found) != 1 || found[0].Text != "1 of 2 replicas of llama3 hold no adapter" {
		t.Errorf("%v", found)
	}
}

// TestPatch: the patched file says the new numbers, and all else is as it was.
func TestPatch(t *testing.T) {
	one := strings.Replace(aibrix, "spec:\n", "spec:\n  replicas: 1 # a single pod\n", 1)
	plain := strings.NewReplacer("        - --lora-modules\n", "", "        - sql=/adapters/sql\n", "",
		"        - '{\"name\": \"chat\", \"path\": \"/adapters/chat\"}'\n", "").Replace(deployment)
	flow := "kind: ModelAdapter\nmetadata: {name: code}\n" +
		"spec: {replicas: 1, podSelector: {matchLabels: {model.aibrix.ai/name: llama}}}\n"
	copies := helm + "  loraAdapterDeploymentConfig: {replicas: 1}\n"
	for name, c := range map[string]struct {
		text     string
		want     Want
		from, to []string
	}{
		"deployment": {deployment, Want{Workers: 5, Slots: 16},
			[]string{"replicas: 3 # for now", "- --max-loras\n        - \"4\"", "max_cpu_loras=12"},
			[]string{"replicas: 5 # for now", "- --max-loras\n        - \"16\"", "max_cpu_loras=16"}},
		"host places": {deployment, Want{Host: 32}, []string{"max_cpu_loras=12"}, []string{"max_cpu_loras=32"}},
		"the same":    {deployment, Want{Workers: 3, Slots: 4, Host: 12, Copies: AllWorkers}, nil, nil},
		"kserve": {kserve, Want{Workers: 1, Slots: 3},
			[]string{"replicas: 2", "maxAdapters: 1", "maxCpuAdapters: 2"},
			[]string{"replicas: 1", "maxAdapters: 3", "maxCpuAdapters: 3"}},
		"helm": {helm, Want{Workers: 7, Slots: 3},
			[]string{"replicaCount: 2", `"--max-loras", "2"`}, []string{"replicaCount: 7", `"--max-loras", "3"`}},
		"llm-d": {llmd, Want{Workers: 2, Slots: 9}, []string{"replicas: 4", "--max-loras=8"},
			[]string{"replicas: 2", "--max-loras=9"}},
		"one worker": {plain + "---\n" + aibrix, Want{Copies: OneWorker},
			[]string{"spec:\n  baseModel"}, []string{"spec:\n  replicas: 1\n  baseModel"}},
		"one worker, Windows": {strings.ReplaceAll(plain+"---\n"+aibrix, "\n", "\r\n"), Want{Copies: OneWorker},
			[]string{"spec:\r\n  baseModel"}, []string{"spec:\r\n  replicas: 1\r\n  baseModel"}},
		"all workers": {one + "---\n" + plain, Want{Workers: 4, Copies: AllWorkers},
			[]string{"  replicas: 1 # a single pod\n", "replicas: 3"}, []string{"", "replicas: 4"}},
		"helm, all workers": {copies, Want{Workers: 3, Copies: AllWorkers},
			[]string{"replicaCount: 2", "{replicas: 1}"}, []string{"replicaCount: 3", "{replicas: 3}"}},
	} {
		files := []File{{"a.yaml", []byte(c.text)}}
		changed, err := read(t, c.text).Patch(files, "", c.want)
		if err != nil || len(changed) > 1 {
			t.Errorf("%s: %d files, %v", name, len(changed), err)
			continue
		}
		got, want := c.text, c.text
		if len(changed) > 0 {
			got = string(changed[0].Data)
		}
		for i := range c.from {
			want = strings.Replace(want, c.from[i], c.to[i], 1)
		}
		if got != want || len(changed) != min(len(c.from), 1) {
			t.Errorf("%s: %d files\n%s", name, len(changed), got)
		}
		s := read(t, got).Servers[0]
		if c.want.Workers > 0 && s.Replicas != c.want.Workers || c.want.Slots > 0 && s.Slots != c.want.Slots {
			t.Errorf("%s: %d workers with %d slots, expected %+v", name, s.Replicas, s.Slots, c.want)
		}
	}
	for name, c := range map[string]struct {
		text string
		want Want
	}{
		"no replicas":   {strings.Replace(kserve, "  replicas: 2\n", "", 1), Want{Workers: 9}},
		"within a text": {ray, Want{Workers: 9}},
		"fewer slots, same host": {strings.Replace(deployment, "        - --max_cpu_loras=12\n", "", 1),
			Want{Slots: 2}},
		"copies in one line": {plain + "---\n" + flow, Want{Copies: AllWorkers}},
		"a line within a line": {plain + "---\n" + strings.Replace(flow, "replicas: 1, ", "", 1),
			Want{Copies: OneWorker}},
		"copies by default": {helm, Want{Copies: OneWorker}},
	} {
		if changed, err := read(t, c.text).Patch([]File{{"a.yaml", []byte(c.text)}}, "", c.want); err == nil {
			t.Errorf("%s: no error, %s", name, changed)
		}
	}
}

// TestPatchOfFiles: workers and adapters in files of their own; each is patched, and together they state the policy.
func TestPatchOfFiles(t *testing.T) {
	plain := strings.NewReplacer("        - --lora-modules\n", "", "        - sql=/adapters/sql\n", "",
		"        - '{\"name\": \"chat\", \"path\": \"/adapters/chat\"}'\n", "").Replace(deployment)
	files := []File{{"a.yaml", []byte(plain)}, {"b.yaml", []byte(aibrix)}}
	changed, err := read(t, plain, aibrix).Patch(files, "llama", Want{Workers: 2, Copies: OneWorker})
	if err != nil || len(changed) != 2 || changed[0].Name != "a.yaml" || changed[1].Name != "b.yaml" {
		t.Fatalf("%d files, %v", len(changed), err)
	}
	got := read(t, string(changed[0].Data), string(changed[1].Data)).text(t)
	if want := strings.Replace(read(t, plain, aibrix).text(t), "num_workers=3", "num_workers=2", 1); got !=
		strings.Replace(want, " profile=", " policy=static profile=", 1) {
		t.Errorf("%s", got)
	}
}

func TestErrors(t *testing.T) {
	for text, want := range map[string]string{
		"a: {{ .Values.x }}\n":             "a.yaml:1: this is a template",
		"kind: Service\n":                  "a.yaml: no worker and no adapter found",
		"kind: [\n":                        "a.yaml:1",
		"x: 1\n---\nkind: {a\n":            "a.yaml:3",
		aibrix + "---\n" + aibrix + "a: [": "a.yaml:28",
	} {
		if _, err := Read(File{"a.yaml", []byte(text)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, expected %s", text, err, want)
		}
	}
	two := deployment + "---\n" + script
	if _, err := read(t, two).Settings(""); err == nil || !strings.Contains(err.Error(),
		"#NAME to the file, with NAME llama or sg") {
		t.Errorf("two groups: %v", err)
	}
	if s, err := read(t, two).Settings("sg"); len(s) == 0 || !errors.Is(err, ErrNoProfile) {
		t.Errorf("one of two groups: %v, %v", s, err)
	}
	if _, err := read(t, two).Settings("x"); err == nil {
		t.Error("no group x: no error")
	}
}

func TestNames(t *testing.T) {
	for model, want := range map[string]string{
		"meta-llama/Llama-3.1-8B-Instruct":           "llama-3.1-8b",
		"meta-llama/Meta-Llama-3.1-70B-Instruct-FP8": "llama-3.1-70b",
		"Qwen/Qwen2.5-7B-Instruct-AWQ":               "qwen2.5-7b",
		"Qwen/Qwen2.5-Coder-7B":                      "", "Qwen/Qwen3-14B": "qwen3-14b",
		"meta-llama/Llama-2-7b-chat-hf": "llama-2-7b", "meta-llama/Llama-3.2-1B": "", "facebook/opt-125m": "", "": "",
	} {
		if got := modelName(model); got != want {
			t.Errorf("model %s: %q, expected %q", model, got, want)
		}
	}
	for gpu, want := range map[string]string{
		"NVIDIA-H100-80GB-HBM3": "h100", "NVIDIA-A100-SXM4-80GB": "a100-80gb", "nvidia-h200-141gb": "h200",
		"nvidia-l40s":             "l40s",
		"NVIDIA GeForce RTX 4090": "rtx-4090", "nvidia-tesla-t4": "", "NVIDIA-L4": "", "": "",
	} {
		if got := gpuName(gpu); got != want {
			t.Errorf("GPU %s: %q, expected %q", gpu, got, want)
		}
	}
	for image, want := range map[string]string{
		"vllm/vllm-openai:v0.19.0": "0.19.0", "lmsysorg/sglang:v0.5.23-cu126": "0.5.23", "host:5000/vllm-openai": "",
		"lmcache/vllm-openai:2025-05-05-v1": "", "vllm/vllm-openai:latest": "",
		"vllm/vllm-openai:v0.32.0@sha256:0": "0.32.0",
	} {
		if got := versionOf(image); got != want {
			t.Errorf("image %s: %q, expected %q", image, got, want)
		}
	}
}

// TestRealManifests reads real manifests of others: none has a fault.
func TestRealManifests(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(shareddata.Path(t, "manifests"), "*.yaml"))
	if err != nil || len(paths) == 0 {
		t.Fatal("no manifests", err)
	}
	for _, p := range paths {
		data, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		f, err := Read(File{p, data})
		if err != nil {
			t.Error(err)
			continue
		}
		for _, x := range f.Check() {
			if x.Fault {
				t.Error(x)
			}
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, text := range []string{deployment, aibrix, kserve, script, helm, ray, llmd, syncer, "a: &x [*x]",
		"---\n---\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		fleet, err := Read(File{"a.yaml", data})
		if err != nil {
			if !strings.HasPrefix(err.Error(), "a.yaml") {
				t.Errorf("%v does not name the file", err)
			}
			return
		}
		fleet.Check()
		for _, s := range fleet.Servers {
			_, _ = fleet.Settings(s.Name)
			want := Want{Workers: s.Replicas, Slots: s.Slots}
			if got, err := fleet.Patch([]File{{"a.yaml", data}}, s.Name, want); err == nil && len(got) > 0 {
				t.Errorf("a patch without a change: %q", got)
			}
			for want.Copies = OneWorker; want.Copies <= AllWorkers; want.Copies++ {
				_, _ = fleet.Patch([]File{{"a.yaml", data}}, s.Name, want)
			}
		}
	})
}
