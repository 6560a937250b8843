package scripts

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestLinks: each relative link of the documentation leads to a file, and its anchor to a heading there.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	checked := 0
	for _, page := range docPages(t) {
		for _, m := range link.FindAllStringSubmatch(withoutCode(t, page), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			file := page
			if target != "" {
				file = filepath.Join(filepath.Dir(page), target)
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s: link to %s: %v", page, m[1], err)
			} else if anchor != "" && !anchors(t, file)[anchor] {
				t.Errorf("%s: link to %s: no such heading", page, m[1])
			}
			checked++
		}
	}
	if checked < 100 {
		t.Errorf("%d links checked, expected hundreds", checked)
	}
}

// docPages are the pages of the documentation: README.md, CONTRIBUTING.md, docs and lab with their folders.
func docPages(t *testing.T) []string {
	t.Helper()
	pages := []string{"../README.md", "../CONTRIBUTING.md"}
	for _, pattern := range []string{"../docs/*.md", "../docs/*/*.md", "../lab/*.md", "../lab/*/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	return pages
}

// withoutCode is the text of a page without blocks of code.
func withoutCode(t *testing.T, page string) string {
	t.Helper()
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile("(?ms)^```.*?^```$").ReplaceAllString(string(data), "")
}

// anchors are those of the headings of a page, by GitHub's rule: lower case, blanks as hyphens, other punctuation left
// out.
func anchors(t *testing.T, page string) map[string]bool {
	found := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(withoutCode(t, page), -1) {
		title := strings.ToLower(strings.TrimSpace(m[1]))
		title = regexp.MustCompile(`[^\p{L}\p{N}_\- ]`).ReplaceAllString(title, "")
		found[strings.ReplaceAll(title, " ", "-")] = true
	}
	return found
}
