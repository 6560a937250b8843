package cli

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// workflow is what a test needs of a workflow of GitHub Actions.
type workflow struct {
	On   map[string]any `yaml:"on"`
	Jobs map[string]struct {
		Steps []struct {
			Name, Uses, Run string
			Env             map[string]string
		}
	}
}

// gateStep is the script of the step that judges, from examples/gate/workflow.yaml.
func gateStep(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../examples/gate/workflow.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var w workflow
	if err := yaml.Unmarshal(text, &w); err != nil {
		t.Fatal(err)
	}
	steps := w.Jobs["gate"].Steps
	if w.On["pull_request"] == nil || len(steps) != 4 || !strings.HasPrefix(steps[0].Uses, "actions/checkout@") ||
		!strings.HasPrefix(steps[1].Uses, "actions/cache@") || steps[3].Name != "Gate" ||
		steps[3].Env["BASE"] != "${{ github.event.pull_request.base.sha }}" {
		t.Fatalf("%+v", w)
	}
	page, err := os.ReadFile("../../docs/evaluate.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(strings.TrimSpace(steps[3].Run), "\n") {
		if !strings.Contains(string(page), strings.TrimSpace(line)) {
			t.Errorf("docs/evaluate.md lacks the line %q of the workflow", line)
		}
	}
	return steps[3].Run
}

// TestGateWorkflow: the step of the documented workflow, in a repository with a base commit and pull requests.
func TestGateWorkflow(t *testing.T) {
	if testing.Short() {
		t.Skip("some 3 CPU s")
	}
	for _, tool := range []string{"git", "bash"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(tool + " is not installed")
		}
	}
	script := gateStep(t)
	home := t.TempDir()
	bin := filepath.Join(home, "lorasim", "lorasim")
	command(t, ".", nil, "go", "build", "-o", bin, "../lorasim")
	serving := "../../examples/gate/serving"
	for _, c := range []struct {
		name     string
		code     int
		file     string
		from, to string
	}{
		{"a comment and the order of keys", 0, "scenario.yaml", "num_prompts: 1000, request_rate: 9,",
			"request_rate: 9, num_prompts: 1000, # as before\n "},
		{"a name", 0, "picker.yaml", "name: default", "name: renamed"},
		{"a picker without affinity", 1, "picker.yaml", "weight: 4", "weight: 0"},
		{"a worker fewer", 1, "scenario.yaml", "num_workers: 4", "num_workers: 3"},
		{"an unknown key", 2, "scenario.yaml", "num_workers", "num_worker"},
		{"fewer requests", 2, "scenario.yaml", "num_prompts: 1000", "num_prompts: 900"},
	} {
		t.Run(c.name, func(t *testing.T) {
			repo := filepath.Join(t.TempDir(), "checkout")
			if err := os.CopyFS(filepath.Join(repo, "serving"), os.DirFS(serving)); err != nil {
				t.Fatal(err)
			}
			env := append(os.Environ(), "HOME="+home, "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
				"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
			git := func(args ...string) string { return command(t, repo, env, "git", args...) }
			git("init", "--quiet")
			git("add", ".")
			git("commit", "--quiet", "-m", "base")
			base := strings.TrimSpace(git("rev-parse", "HEAD"))
			path := filepath.Join(repo, "serving", c.file)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			changed := strings.Replace(string(text), c.from, c.to, 1)
			if changed == string(text) {
				t.Fatalf("%s has no %q", c.file, c.from)
			}
			if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
				t.Fatal(err)
			}
			git("commit", "--quiet", "-am", "pull request")

			summary := filepath.Join(repo, "summary.md")
			step := exec.Command("bash", "-e", "-c", script)
			step.Dir, step.Env = repo, append(env, "BASE="+base, "GITHUB_STEP_SUMMARY="+summary)
			out, err := step.CombinedOutput()
			code := 0
			if exit, ok := errors.AsType[*exec.ExitError](err); ok {
				code = exit.ExitCode()
			}
			table, _ := os.ReadFile(summary)
			if code != c.code {
				t.Fatalf("exit code %d, expected %d\n%s%s", code, c.code, out, table)
			}
			if code == 2 {
				return
			}
			want := map[int]string{0: "**lorasim: not worse.**", 1: "**lorasim: worse.**"}[code]
			if !strings.HasPrefix(string(table), want) || strings.Count(string(table), "\n| ") != 4 {
				t.Errorf("expected %s and three limits:\n%s", want, table)
			}
			junit, err := os.ReadFile(filepath.Join(repo, "lorasim.xml"))
			var suite struct {
				Tests    int `xml:"tests,attr"`
				Failures int `xml:"failures,attr"`
			}
			if err != nil || xml.Unmarshal(junit, &suite) != nil || suite.Tests != 3 ||
				(suite.Failures > 0) != (code == 1) {
				t.Errorf("%v, %+v\n%s", err, suite, junit)
			}
		})
	}
}

// command runs a program and returns what it prints.
func command(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// gateCase writes files into a folder and runs compare there.
func gateCase(t *testing.T, dir string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	for i, a := range args {
		if strings.HasSuffix(a, ".yaml") || strings.HasSuffix(a, ".star") || strings.HasSuffix(a, ".csv") ||
			strings.HasSuffix(a, "/") {
			args[i] = filepath.Join(dir, a)
		}
	}
	var out, errs strings.Builder
	code = run(t.Context(), append([]string{"compare"}, args...), strings.NewReader(""), &out, &errs)
	return code, out.String(), errs.String()
}

// TestGateSides: what can be compared with what, and which exit code follows.
func TestGateSides(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"base.yaml":  "workload: {num_prompts: 150, request_rate: 8, num_adapters: 24}\ncluster: {num_workers: 3}\n",
		"loss.yaml":  "workload: {num_prompts: 150, request_rate: 8, num_adapters: 24}\ncluster: {num_workers: 2}\n",
		"most.star":  "def route(request, workers):\n    return [float(w.requests) for w in workers]\n",
		"least.star": "def route(request, workers):\n    return [-float(w.requests) for w in workers]\n",
		"picker.yaml": "apiVersion: inference.networking.x-k8s.io/v1alpha1\nkind: EndpointPickerConfig\n" +
			"plugins:\n- type: queue-scorer\n",
		"fleet.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec:\n  replicas: 3\n" +
			"  template:\n    spec:\n      containers:\n      - name: vllm\n        image: vllm/vllm-openai:v0.8.5\n" +
			"        args: [--model, meta-llama/Llama-2-7b-hf, --enable-lora, --max-loras, '8']\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fewer, err := os.ReadFile(filepath.Join(dir, "fleet.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(fewer), "replicas: 3", "replicas: 1", 1)
	if err := os.WriteFile(filepath.Join(dir, "fewer.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for side, scenario := range map[string]string{"b": "base.yaml", "l": "loss.yaml"} {
		if err := os.Mkdir(filepath.Join(dir, side), 0o700); err != nil {
			t.Fatal(err)
		}
		for _, seed := range []string{"1", "2", "3", "4", "5", "6"} {
			out := lorasim(t, "sim", filepath.Join(dir, scenario), "--seed", seed, "--json")
			if err := os.WriteFile(filepath.Join(dir, side, seed+".json"), []byte(out), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	lorasim(t, "trace", "generate", "--num-prompts", "2000", "--num-adapters", "24",
		"--request-rate", "8", "-o", filepath.Join(dir, "w.csv"))
	const e2e = "mean_e2e_latency_ms>2%"
	for _, c := range []struct {
		args         string
		code         int
		says, errors string
	}{
		{"base.yaml loss.yaml", 1, "paired by seed", "NEW is worse than BASE: mean_e2e_latency_ms +"},
		{"base.yaml base.yaml", 0, "NEW is not worse than BASE by more than the limits", ""},
		{"least.star most.star -f base.yaml", 1, "script:file=", "worse"},
		{"picker.yaml picker.yaml -f base.yaml", 0, "epp:file=", ""},
		{"fleet.yaml fewer.yaml -f base.yaml --profile llama-2-7b-rtx-4090-sglang-0.5", 1, "1 workers", "worse"},
		{"b/ l/", 1, "6 runs of each side, paired by seed", "worse"},
		{"b/ b/", 0, "6 runs", ""},
		{"base.yaml loss.yaml --workload w.csv --num-prompts 2000", 1, "each run draws its requests from one workload",
			"each seed draws from it by --resample block:"},
		{"base.yaml loss.yaml --seeds 2", 3, "Next: lorasim compare ", "Not sure whether NEW is worse than BASE"},
		// wrong command lines
		{"base.yaml b/", 2, "", "base.yaml is a scenario and"},
		{"base.yaml", 2, "", "1 argument, expected two: BASE and NEW"},
		{"b/ l/ --request-rate 5", 2, "", "--request-rate has no effect on results"},
		{"b/ l/ --seeds 5", 2, "", "--seeds has no effect on results"},
		{"b/ l/ --baseline B", 2, "", "BASE is the first argument"},
		{"b/ l/ --format markdown,text", 2, "", "one format can be printed"},
		{"b/ l/ --format markdwn", 2, "", `did you mean "markdown"?`},
		{"least.star most.star --policy p2c", 2, "", "--policy has no effect"},
		{"absent.yaml base.yaml", 2, "", "absent.yaml: no such file"},
	} {
		args := append(strings.Fields(c.args), "--fail-on", e2e)
		code, out, errs := gateCase(t, dir, args...)
		if code != c.code || !strings.Contains(out, c.says) || !strings.Contains(errs, c.errors) ||
			code == 2 && out != "" {
			t.Errorf("%s: exit code %d, expected %d\n%s%s", c.args, code, c.code, out, errs)
		}
	}
	for args, want := range map[string]string{
		"base.yaml loss.yaml":    "is a scenario, not a result: compare simulates BASE and NEW with --fail-on",
		"b/ l/ --format junit":   "--format has no effect without --fail-on",
		"b/ l/ --num-prompts 50": "--num-prompts has no effect without --fail-on",
	} {
		code, _, errs := gateCase(t, dir, strings.Fields(args)...)
		if code != exitUsage || !strings.Contains(errs, want) {
			t.Errorf("%s: %d, %s; expected %q", args, code, errs, want)
		}
	}
}

// TestGateNext: the command that a gate asks for is one that decides it.
func TestGateNext(t *testing.T) {
	dir := t.TempDir()
	for name, workers := range map[string]string{"a.yaml": "3", "b.yaml": "2"} {
		text := "workload: {num_prompts: 150, request_rate: 8, num_adapters: 24}\n" +
			"cluster: {num_workers: " + workers + "}\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	code, out, _ := gateCase(t, dir, "a.yaml", "b.yaml", "--fail-on=mean_e2e_latency_ms>2%", "--seeds", "2", "--json")
	var table struct {
		Gate struct {
			Outcome, Next string
			Needed        int `json:"runs_needed"`
			Limits        []struct {
				Metric  string
				Outcome string
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &table); err != nil || code != exitUnsure ||
		table.Gate.Outcome != "not sure" || len(table.Gate.Limits) != 1 || table.Gate.Needed < 3 {
		t.Fatalf("exit code %d, %v, %+v", code, err, table)
	}
	m := regexp.MustCompile(`^lorasim (compare \S+ \S+) '--fail-on=(\S+)' --json --seeds (\d+)$`).
		FindStringSubmatch(table.Gate.Next)
	if m == nil {
		t.Fatalf("next: %s", table.Gate.Next)
	}
	args := append(strings.Fields(m[1])[1:], "--fail-on", m[2], "--seeds", m[3])
	if code, out, errs := gateCase(t, "", args...); code != exitFailed {
		t.Errorf("%q: exit code %d\n%s%s", args, code, out, errs)
	}
}
