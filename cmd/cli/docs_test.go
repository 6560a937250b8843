package cli

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// example is a command of a docs page and what the page shows of its output, stdout and stderr together.
type example struct {
	line            int
	command, output string
}

// examplesOf are the commands in the console blocks of a page. A line that ends in a backslash goes on.
func examplesOf(page string) (list []example) {
	inside := false
	for i, line := range strings.Split(page, "\n") {
		switch command, isCommand := strings.CutPrefix(line, "$ "); {
		case strings.HasPrefix(line, "```"):
			inside = line == "```console"
		case !inside:
		case isCommand:
			list = append(list, example{line: i + 1, command: command})
		default:
			last := &list[len(list)-1]
			if last.output == "" && strings.HasSuffix(last.command, "\\") {
				last.command += "\n" + line
				continue
			}
			last.output += line + "\n"
		}
	}
	return list
}

// matches says whether an output is what a page shows. A line "..." stands for any lines, "~" before a number for any
// number: of times, which differ.
func (e *example) matches(output string) bool {
	var b strings.Builder
	for line := range strings.Lines(e.output) {
		if strings.TrimSpace(line) == "..." {
			b.WriteString(`(?s:.*)`)
			continue
		}
		parts := regexp.MustCompile(`~[0-9.]+`).Split(strings.TrimRight(line, " \n"), -1)
		for i, p := range parts {
			parts[i] = regexp.QuoteMeta(p)
		}
		b.WriteString(strings.Join(parts, `\s*[0-9.]+`) + " *\n")
	}
	return regexp.MustCompile(`\A` + b.String() + `\z`).MatchString(output)
}

// TestPages runs every command of the pages that begin with commands, in one folder for each page, and compares the
// outputs. A file that a page shows by "cat FILE" before any command made it is written as shown.
func TestPages(t *testing.T) {
	for _, page := range []string{"logs.md"} {
		t.Run(page, func(t *testing.T) {
			text, err := os.ReadFile("../../docs/" + page)
			if err != nil {
				t.Fatal(err)
			}
			list := examplesOf(string(text))
			if len(list) < 2 {
				t.Fatalf("%d commands", len(list))
			}
			dir := t.TempDir()
			for _, e := range list {
				runExample(t, dir, page, e)
			}
		})
	}
}

func runExample(t *testing.T, dir, page string, e example) {
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
	sh.Env = append(slices.Clone(os.Environ()), "HOME="+dir)
	output, _ := sh.CombinedOutput()
	if got := string(bytes.TrimLeft(output, "\n")); !e.matches(got) {
		t.Errorf("docs/%s:%d: $ %s\n%s\nthe page has:\n%s", page, e.line, e.command, got, e.output)
	}
}
