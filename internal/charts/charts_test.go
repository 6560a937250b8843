package charts

import (
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestScript: all modules are in the script, in an order in which imports come first, and neither imports nor
// exports are left.
func TestScript(t *testing.T) {
	found, err := fs.Glob(Files, "*.js")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(found)
	if want := slices.Sorted(slices.Values(modules)); !slices.Equal(found, want) {
		t.Errorf("the modules are %v, the script has %v", found, want)
	}
	script := Script()
	if m := regexp.MustCompile(`(?m)^\s*(import|export)\b.*`).FindString(script); m != "" {
		t.Errorf("the script has %q", m)
	}
	for i, name := range modules {
		text := read(name)
		for _, m := range regexp.MustCompile(`(?m)^import .* from '\./([^']+)'`).FindAllStringSubmatch(text, -1) {
			if k := slices.Index(modules, m[1]); k < 0 || k >= i {
				t.Errorf("%s imports %s, which does not come before it", name, m[1])
			}
		}
		exports := regexp.MustCompile(`(?m)^export \{ (.*) \};$`).FindAllStringSubmatch(text, -1)
		if len(exports) != 1 {
			t.Fatalf("%s has %d lines of exports, expected one", name, len(exports))
		}
		for export := range strings.SplitSeq(exports[0][1], ", ") {
			if !regexp.MustCompile(`(?m)^(async )?(function|const) ` + export + `\b`).MatchString(script) {
				t.Errorf("%s exports %s, which the script does not declare", name, export)
			}
		}
	}
}

// TestStyle: the style sheet loads nothing, and both themes set the same colours.
func TestStyle(t *testing.T) {
	style := Style()
	for _, bad := range []string{"url(", "@import", "http"} {
		if strings.Contains(style, bad) {
			t.Errorf("the style sheet has %q", bad)
		}
	}
	blocks := regexp.MustCompile(`(?s):root[^{]*\{(.*?)\}`).FindAllStringSubmatch(style, -1)
	if len(blocks) != 3 {
		t.Fatalf("%d sets of colours, expected light, dark by preference and dark by choice", len(blocks))
	}
	name := regexp.MustCompile(`--[\w-]+`)
	for _, b := range blocks[1:] {
		if got, want := name.FindAllString(b[1], -1), name.FindAllString(blocks[0][1], -1); !slices.Equal(got, want) {
			t.Errorf("a theme sets %v, the light one %v", got, want)
		}
	}
	if strings.Join(strings.Fields(blocks[1][1]), " ") != strings.Join(strings.Fields(blocks[2][1]), " ") {
		t.Error("the dark theme by preference and that by choice differ")
	}
}
