package scripts

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDocGoCommands: the packages of the "go test" and "go run" commands on the pages exist, in this module or in lab,
// and have tests or benchmarks with the names that the commands select.
func TestDocGoCommands(t *testing.T) {
	command := regexp.MustCompile("\\bgo (?:test|run) ([^`\n]*)")
	selects := regexp.MustCompile(`-(?:run|bench) '?([^'\s]+)`)
	checked := 0
	for _, page := range docPages(t) {
		text := strings.ReplaceAll(pageOf(t, strings.TrimPrefix(page, "../")), "\\\n", " ")
		for _, m := range command.FindAllStringSubmatch(text, -1) {
			names := map[string]bool{}
			for _, pkg := range regexp.MustCompile(`(?:^|\s)(\./[\w/.-]+)`).FindAllStringSubmatch(m[1], -1) {
				if checked++; !testsBelow(t, pkg[1], names) {
					t.Errorf("%s: %s: no folder %s", page, m[0], pkg[1])
				}
			}
			if len(names) == 0 {
				continue // no package with tests: an outline, or a program
			}
			for _, s := range selects.FindAllStringSubmatch(m[1], -1) {
				for part := range strings.SplitSeq(s[1], "|") {
					part, _, _ = strings.Cut(strings.TrimSuffix(part, `\`), "/")
					if part == "^$" || part == "." {
						continue
					}
					if !matches(names, part) {
						t.Errorf("%s: %s: no test or benchmark matches %s", page, m[0], part)
					}
				}
			}
		}
	}
	if checked < 40 {
		t.Errorf("%d packages checked, expected dozens", checked)
	}
}

// testsBelow adds the names of the tests in a folder and those below it, of this module or of lab. It says whether
// there is such a folder.
func testsBelow(t *testing.T, folder string, names map[string]bool) (found bool) {
	t.Helper()
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)\w+)\(`)
	for _, root := range []string{"..", "../lab"} {
		dir := filepath.Join(root, strings.TrimSuffix(folder, "..."))
		if _, err := os.Stat(dir); err != nil {
			continue
		}
		found = true
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			data, err := os.ReadFile(path)
			for _, m := range declared.FindAllStringSubmatch(string(data), -1) {
				names[m[1]] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// matches says whether a pattern of -run or -bench selects one of the names.
func matches(names map[string]bool, pattern string) bool {
	r, err := regexp.Compile(pattern)
	if err != nil {
		return false
	}
	for name := range names {
		if r.MatchString(name) {
			return true
		}
	}
	return false
}
