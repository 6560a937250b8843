package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestFormatsPage: docs/formats.md names each column and key that a run writes, and the columns of workloads.
func TestFormatsPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/formats.md")
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for _, m := range regexp.MustCompile("`([a-z_0-9]+)`").FindAllStringSubmatch(string(page), -1) {
		named[m[1]] = true
	}
	check := func(what string, names []string) {
		for _, name := range names {
			if !named[name] && !latencies.MatchString(name) {
				t.Errorf("docs/formats.md does not name %s of %s", name, what)
			}
		}
		if len(names) < 3 {
			t.Errorf("%s: %q, expected more names", what, names)
		}
	}

	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	out := lorasim(t, "sim", "--num-prompts", "300", "--conversations", "chat", "--engine-args=prefix_cache",
		"--token-times", "--records", file("r.jsonl"), "--plans", file("p.jsonl"), "--json")
	check("--json", keysOf(t, out))
	check("--records", keysOf(t, firstLine(t, file("r.jsonl"))))
	check("--plans", keysOf(t, firstLine(t, file("p.jsonl"))))
	var plan struct{ Plan json.RawMessage }
	if err := json.Unmarshal([]byte(firstLine(t, file("p.jsonl"))), &plan); err != nil {
		t.Fatal(err)
	}
	check("a plan", keysOf(t, string(plan.Plan)))
	lorasim(t, "trace", "generate", "--num-prompts", "10", "--conversations", "chat", "-o", file("w.csv"))
	check("a workload", strings.Split(strings.TrimSpace(firstLine(t, file("w.csv"))), ","))
}

// latencies are the keys that the page writes with an ellipsis.
var latencies = regexp.MustCompile(`^(mean|median|std|p90|p95|p99|max)_(e2e_latency|ttft|tpot|itl)_ms$`)

// keysOf lists the keys of a JSON object.
func keysOf(t *testing.T, text string) (keys []string) {
	t.Helper()
	var object map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		t.Fatalf("%v: %.200s", err, text)
	}
	for k := range object {
		keys = append(keys, k)
	}
	return keys
}

func firstLine(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return line
}
