package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lorasim/internal/testutil"
)

// example is a command of a docs page and what the page shows of its output, stdout and stderr together.
type example struct {
	line, end       int // of the command, from 1; after its output
	command, output string
}

// examplesOf are the commands in the console blocks of a page. A command that ends in a backslash goes on in the next
// line.
func examplesOf(lines []string) (list []example) {
	inside := false
	for i, line := range lines {
		switch command, isCommand := strings.CutPrefix(line, "$ "); {
		case strings.HasPrefix(line, "```"):
			inside = line == "```console"
			continue
		case !inside:
			continue
		case isCommand:
			list = append(list, example{line: i + 1, command: command})
		default:
			last := &list[len(list)-1]
			if last.output == "" && strings.HasSuffix(last.command, "\\") {
				last.command += "\n" + line
				last.line++
				break
			}
			last.output += line + "\n"
		}
		list[len(list)-1].end = i + 1
	}
	return list
}

// TestPages runs every command of some pages, in one folder for each page, and compares the outputs; -update writes
// them anew. A file that a page shows by "cat FILE" before any command made it is written as shown.
func TestPages(t *testing.T) {
	for _, page := range []string{"start.md", "logs.md", "steady.md", "elastic.md", "scenarios.md", "profiles.md",
		"inputs.md"} {
		t.Run(page, func(t *testing.T) {
			path := "../../docs/" + page
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(string(text), "\n")
			list := examplesOf(lines)
			if len(list) == 0 {
				t.Fatalf("%d commands", len(list))
			}
			dir := t.TempDir()
			for i := range list {
				list[i].run(t, dir, page)
			}
			if !*testutil.Update {
				return
			}
			for _, e := range slices.Backward(list) {
				output := strings.Split(strings.TrimSuffix(e.output, "\n"), "\n")
				if e.output == "" {
					output = nil
				}
				lines = slices.Replace(lines, e.line, e.end, output...)
			}
			if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// run compares the output of a command with that of the page, or takes it.
func (e *example) run(t *testing.T, dir, page string) {
	t.Helper()
	if name, ok := strings.CutPrefix(e.command, "cat "); ok && !strings.ContainsAny(name, " |>") {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err != nil {
			if err := os.WriteFile(path, []byte(e.output), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	sh := exec.Command("sh", "-c", e.command)
	sh.Dir = dir
	output, _ := sh.CombinedOutput()
	var b strings.Builder
	for line := range strings.Lines(string(output)) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n") // as editors leave it
	}
	got := strings.TrimLeft(b.String(), "\n")
	if *testutil.Update {
		e.output = got
	} else if got != e.output {
		t.Errorf("docs/%s:%d: $ %s\n%s\nthe page has (-update writes it anew):\n%s", page, e.line, e.command, got,
			e.output)
	}
}

// TestReadme: the README shows the lines of "lorasim sim" that docs/start.md has, which TestPages holds; -update writes
// them anew.
func TestReadme(t *testing.T) {
	const path, command = "../../README.md", "lorasim sim | head -" // with a number of lines
	page, err := os.ReadFile("../../docs/start.md")
	if err != nil {
		t.Fatal(err)
	}
	list := examplesOf(strings.Split(string(page), "\n"))
	at := slices.IndexFunc(list, func(e example) bool { return strings.HasPrefix(e.command, command) })
	if at < 0 {
		t.Fatalf("docs/start.md has no command %sN", command)
	}
	readme, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "```\nPolicy ", "\n============ Serving Benchmark Result"
	i := strings.Index(string(readme), begin) + len("```\n")
	n := strings.Index(string(readme[i:]), end)
	if n < 0 {
		t.Fatal("README.md: no output of lorasim sim")
	}
	switch shown, want := string(readme[i:i+n]), list[at].output; {
	case shown == want:
	case *testutil.Update:
		if err := os.WriteFile(path, slices.Concat(readme[:i], []byte(want), readme[i+n:]), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("README.md shows\n%s\ndocs/start.md has (-update writes it anew):\n%s", shown, want)
	}
}
