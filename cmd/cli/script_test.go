package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const scripts = "../../scenarios/policies/"

// A simulation by an example is that of the built-in policy that it equals, in every figure.
func TestScriptEqualsBuiltin(t *testing.T) {
	for script, builtin := range map[string]string{
		"least-loaded.star,ties=first": "least-loaded:ties=first", "least-loaded.star": "least-loaded",
		"affinity-spill.star,ties=first":                  "affinity-spill:ties=first",
		"affinity-spill.star,args=threshold=2,ties=first": "affinity-spill:threshold=2,ties=first",
		"weighted-score.star,ties=first":                  "affinity:ties=first",
		"weighted-score.star,args=lora=2;kv=0,ties=first": "affinity:lora=2,kv=0,ties=first",
	} {
		run := func(policy string) map[string]any {
			out := lorasim(t, "sim", "--num-prompts", "800", "--request-rate", "25", "--outages", "1@5-9",
				"--view-staleness", "0.3", "--policy", policy, "--json")
			var result map[string]any
			if err := json.Unmarshal([]byte(out), &result); err != nil {
				t.Fatal(err)
			}
			return result
		}
		own, other := run("script:file="+scripts+script), run(builtin)
		same := 0
		for key, value := range other {
			a, _ := json.Marshal(value)
			b, _ := json.Marshal(own[key])
			if string(a) != string(b) && key != "policy" && key != "config" && key != "scenario" {
				t.Errorf("%s, %s: %.80s, expected %.80s", script, key, b, a)
			}
			same++
		}
		if same < 50 {
			t.Errorf("%s: %d figures compared", script, same)
		}
	}
}

// The policy is known everywhere: a scenario file names the program relative to itself.
func TestScriptEverywhere(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("my.star", "def route(request, workers):\n    return [-w.requests for w in workers]\n")
	yaml := write("s.yaml", "workload: {num_prompts: 300}\nrouting:\n  policy: {name: script, file: my.star, args: {a: 1}}\n")
	expect := func(want string, args ...string) {
		t.Helper()
		if out := lorasim(t, args...); !strings.Contains(out, want) {
			t.Errorf("%q: expected %q in\n%s", args, want, out)
		}
	}
	expect("a program in Starlark", "policies")
	expect("script:file="+dir+"/my.star,args=a=1", "sim", "--scenario", yaml, "--print-config")
	expect("script (", "sim", "--scenario", yaml)
	expect("script:", "__completeNoDesc", "sim", "--policy", "scr")
	expect("script:file=", "__completeNoDesc", "sim", "--policy", "script:fi")
	expect(`"const": "script"`, "help", "keys", "--schema")
	expect("my.star", "sweep", "--num-prompts", "50", "--seeds", "1",
		"--policies", "static,script:file="+dir+"/my.star", "--output", filepath.Join(dir, "sweep"))
}

// A run ends with the line at which the program failed.
func TestScriptFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bad.star")
	program := "n = []\ndef route(request, workers):\n    n.append(1)\n    return 0 if len(n) < 50 else workers[99]\n"
	if err := os.WriteFile(path, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	args := []string{"sim", "--num-prompts", "300", "--policy", "script:file=" + path}
	code := run(t.Context(), args, strings.NewReader(""), &out, &errs)
	text := errs.String()
	if code != exitFailed || !strings.Contains(text, path+":4:") || !strings.Contains(text, "out of range") {
		t.Errorf("exit code %d, %s", code, text)
	}
}
