package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// outside builds a program of the folder examples as a module of its own, outside the repository, as users do, and
// returns the path of the executable.
func outside(t *testing.T, example string) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	read := func(path string) string {
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	mod := strings.Replace(read("go.mod"), "module lorasim\n", "module example.com/own\n", 1)
	mod, _, _ = strings.Cut(mod, "\ntool (")
	mod = strings.ReplaceAll(mod, "=> ./", "=> "+root+"/")
	mod += "\nrequire lorasim v0.0.0\nreplace lorasim => " + root + "\n"
	for name, text := range map[string]string{"go.mod": mod, "go.sum": read("go.sum"),
		"main.go": read("examples/" + example + "/main.go")} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "build", "-mod=mod", "-o", "own", ".")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOPROXY=off", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return filepath.Join(dir, "own")
}

// The program of docs/own-policy.md has all commands, and they know its policy.
func TestOwnPolicy(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program")
	}
	own := outside(t, "ownpolicy")
	run := func(want string, args ...string) string {
		t.Helper()
		out, err := exec.Command(own, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
		if !strings.Contains(string(out), want) {
			t.Fatalf("%q: expected %q in\n%s", args, want, out)
		}
		return string(out)
	}
	dir := t.TempDir()
	yaml := filepath.Join(dir, "s.yaml")
	if err := os.WriteFile(yaml, []byte("workload: {num_prompts: 50}\nrouting: {policy: {name: sticky, queue: 2}}\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	run("one worker per adapter until its queue is long", "policies")
	run(":queue=4", "policies", "--options")
	run("waiting requests from which an adapter moves on", "help", "keys")
	run(`"const": "sticky"`, "help", "keys", "--schema")
	run("sticky", "__complete", "sim", "--policy", "sti")
	run("sticky:queue=", "__complete", "sim", "--policy", "sticky:")
	run("policy: sticky:queue=2", "sim", "--scenario", yaml, "--print-config")
	run("Policy    sticky (queue=2)", "sim", "--scenario", yaml)
	sticky := run(`"policy":"sticky"`, "sim", "--num-prompts", "200", "--policy", "sticky", "--json")
	if again := run("", "sim", "--num-prompts", "200", "--policy", "sticky", "--json"); again != sticky {
		t.Error("the same run with another result")
	}
	run("sticky", "sweep", "--num-prompts", "50", "--policies", "static,sticky", "--seeds", "1", "--output",
		filepath.Join(dir, "sweep"))

	out, err := exec.Command(own, "sim", "--policy", "sticky:queue=0").CombinedOutput()
	if err == nil || !strings.Contains(string(out), `policy sticky: queue: "0" is not a whole number >= 1`) {
		t.Errorf("queue=0: %v, %s", err, out)
	}
	lines := strings.Split(run("", "policies"), "\n")
	if !slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "plan-and-route ") }) {
		t.Error("the built-in policies are missing")
	}
}

// Pages show the programs that tests build.
func TestPagesShowPrograms(t *testing.T) {
	for page, example := range map[string]string{"own-policy.md": "ownpolicy", "library.md": "simulation"} {
		text, err := os.ReadFile("../../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		program, err := os.ReadFile("../../examples/" + example + "/main.go")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "```go\n"+string(program)+"```\n") {
			t.Errorf("docs/%s does not show examples/%s/main.go as it is", page, example)
		}
	}
}

// The program of docs/library.md prints what the page shows.
func TestLibraryPage(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program")
	}
	out, err := exec.Command(outside(t, "simulation")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	page, err := os.ReadFile("../../docs/library.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "$ go run ./examples/simulation\n"+string(out)+"```\n") {
		t.Errorf("docs/library.md does not show this output:\n%s", out)
	}
}
