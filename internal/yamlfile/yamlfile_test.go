package yamlfile

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
)

// settings is a value of the shapes that the program's files have.
type settings struct {
	Name    string            `yaml:"name"`
	Env     map[string]string `yaml:"env"`
	Servers []struct {
		Name string `yaml:"name"`
		Stop struct {
			Timeout time.Duration `yaml:"timeout"`
		} `yaml:"stop"`
	} `yaml:"servers"`
	Shares map[string]map[string]float64 `yaml:"shares"`
	Values []float64                     `yaml:"values"`
}

func TestGood(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "comment": "# nothing\n", "document": "---\nname: a\n...\n", "null": "servers:\n",
		"flow":     `{name: a, env: {b: "[[[[{{{{", c: '}}]]'}, values: [1, 2, 3]}`,
		"block":    "servers:\n- name: a\n  stop: {timeout: 1s}\n- name: b\n  stop:\n    timeout: 2s\n",
		"alias":    "env: &e {a: b}\nshares:\n  x: &x {y: 1}\n  z: *x\n",
		"merge":    "shares:\n  x: &x {y: 1}\n  z:\n    <<: *x\n    w: 2\n",
		"tags":     "name: !!str 12\nvalues: !!seq [1]\n",
		"brackets": "name: |\n" + strings.Repeat("  [[[[[[[[{{{{{{{{ - - - - - - : : : :\n", 50) + "env: {a: b}\n",
		"values":   "values: [" + strings.Repeat("1, ", 20_000) + "1]\n",
		"lines":    "values:\n" + strings.Repeat("- 1\n", 9_000),
	} {
		var s settings
		if err := Unmarshal([]byte(text), "f.yaml", &s); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestBad(t *testing.T) {
	laughs := "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := range 9 {
		laughs += fmt.Sprintf("a%d: &a%d [%s]\n", i+1, i+1,
			strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i), 10), ", "))
	}
	merges := "m0: &m0 {x: 1, y: 2}\n"
	for i := range 30 {
		merges += fmt.Sprintf("m%d: &m%d {<<: *m%d, a: *m%d, b: *m%d}\n", i+1, i+1, i, i, i)
	}
	for text, want := range map[string]string{
		"servers: !- ":                           `f.yaml:1: unknown tag "!-"`,
		"servers:\n- !foo {}\n":                  `f.yaml:2: unknown tag "!foo"`,
		"name: a\nservers: !!str x\n":            `f.yaml:2: tag !!str is not allowed here`,
		strings.Repeat("[", 100):                 `f.yaml:1: nested deeper than 64 levels`,
		strings.Repeat("[", 50_000):              `f.yaml:1: nested deeper than 64 levels`,
		strings.Repeat("{a: ", 100):              `f.yaml:1: nested deeper than 64 levels`,
		strings.Repeat("- ", 100):                `f.yaml:1: nested deeper than 64 levels`,
		"\n" + strings.Repeat("? ", 100):         `f.yaml:2: nested deeper than 64 levels`,
		strings.Repeat("a: ", 100):               `f.yaml:1: nested deeper than 64 levels`,
		strings.Repeat("!!map ", 100):            `f.yaml:1: nested deeper than 64 levels`,
		strings.Repeat("-\na:\n", 100):           `f.yaml:65: nested deeper than 64 levels`,
		"[" + strings.Repeat("a:\n", 100):        `f.yaml:64: nested deeper than 64 levels`,
		stairs(100):                              `f.yaml:65: nested deeper than 64 levels`,
		strings.Repeat("---\n", 100):             `f.yaml:9: more than one document`,
		"a: 1\n---\nb: 2\n":                      `f.yaml: 2 documents, expected one`,
		strings.Repeat("#\n", 30_000):            `f.yaml:10001: more than 10000 lines`,
		strings.Repeat("#\r", 30_000):            `f.yaml:10001: more than 10000 lines`,
		strings.Repeat("#\r\n", 30_000):          `f.yaml:10001: more than 10000 lines`,
		"name: |\n" + strings.Repeat(" \n", 200): `f.yaml:102: more than 100 empty lines in a row`,
		strings.Repeat("x", 2<<20):               `f.yaml: is larger than 512 KiB`,
		"{" + strings.Repeat("a,", 100_000):      `f.yaml:1: more than 50000 keys, values and marks`,
		"a: &a [*a]":                             `f.yaml:1: alias *a refers to a value that contains it`,
		"a: &a {<<: *a}":                         `f.yaml:1: alias *a refers to a value that contains it`,
		"name: *b":                               `f.yaml:1: unknown alias *b`,
		laughs:                                   `f.yaml:5: aliases expand to more than 100000 values`,
		merges:                                   `aliases expand to more than 100000 values`,
		"nme: a":                                 `f.yaml:1: unknown key "nme"`,
		"name: \"":                               `f.yaml:1: could not find end character of double-quoted text`,
		"name: {":                                `f.yaml:1: `,
	} {
		var s settings
		err := Unmarshal([]byte(text), "f.yaml", &s)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.60q: %v, expected %s", text, err, want)
		}
	}
}

// stairs is a mapping in a mapping, each on its own line.
func stairs(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}

// shapes repeat something that the library may spend more than linear time on.
var shapes = []struct{ head, body, tail string }{
	{"", "[", ""}, {"", "{", ""}, {"", "- ", ""}, {"", "? ", ""}, {"", "a: ", ""}, {"", "-\n", ""}, {"", "- a\n", ""},
	{"", "a:\n", ""},
	{"[", "1,", "]"}, {"{", "a,", "}"}, {"{", "\"a\",", "}"}, {"a: \"", "\\n", "\""}, {"a: \"", "\n", "\""},
	{"a: '", "x\n ", "'"}, {"a: '", "''", "'"},
	{"a: >\n", "\n", ""}, {"a: >\n", " x\n", ""}, {"a: >\n", " \n", ""}, {"a: |\n", "\n", ""}, {"a: |\n", " x\n", ""},
	{"a: |\n", "  " + strings.Repeat("x", 40) + "\n", ""},
	{"a: >\n", "  " + strings.Repeat("x ", 20) + "\n", ""}, {"a: >\n" + strings.Repeat(" ", 300_000) + "x\n", "\n", ""},
	{"a: >\n " + strings.Repeat("x", 450_000), "\n", ""},
	{"a: x\n", "  x\n", ""}, {"a: x", " ", ""}, {"a: x", " x", ""}, {"a: " + strings.Repeat("x", 450_000), "\n",
		"\n  x"}, {"- x\n", "\n x", ""}, {"a:", "\t", ""},
	{"", "#\n", ""}, {"a: 1 #", "#", ""}, {"", "&a ", ""}, {"", "&a\n", ""}, {"", "!!str ", ""}, {"", "!!map\n", ""},
	{"", "*a\n", ""}, {"a: &a x\nb: [", "*a,", "]"},
	{"a: &a {x: 1}\nb: [", "{<<: *a},", "]"}, {"", "%a\n", ""}, {"", "|\n", ""}, {"", ">\n", ""}, {"", "- |\n", ""},
	{"", "\"", ""}, {"", "'", ""}, {"", ":\n", ""}, {"", "é", ""},
	{"", "\x00", ""}, {"", "\xff", ""}, {strings.Repeat("k", 450_000) + ":\n", " a:\n", ""}, {"", "\r", ""},
	{"", "- - - - - - - -\n", ""}, {"", "...\n", ""}, {"[", "a: ,", "]"},
	{"a: \"" + strings.Repeat("x", 450_000), "\n", "\""}, {"a: '" + strings.Repeat("x", 450_000), "\n", "'"},
	{"a: |\n " + strings.Repeat("x", 450_000), "\n", ""},
	{"a: >\n " + strings.Repeat("x", 450_000) + "\n", strings.Repeat("\n", 90) + " x\n", ""},
	{"", "- |\n x" + strings.Repeat("\n", 99), ""},
	{"- |\n " + strings.Repeat("x", 450_000), "\n", "- |\n x"},
	{"", "-\na:\n", ""}, {"[", "[],", "]"}, {"[", "{a: },", "]"}, {"[", "a:\nb:\n,", "]"},
}

// Whatever is repeated up to the bounds takes seconds and some hundred megabytes, at most.
// The bounds here are wide: machines differ. The library alone takes minutes, 4 GB and more.
func TestCost(t *testing.T) {
	for _, s := range shapes {
		room := (MaxBytes - len(s.head) - len(s.tail)) / len(s.body)
		lines := maxLines - 2 - strings.Count(s.head+s.tail, "\n")
		for _, n := range []int{lines / max(1, strings.Count(s.body, "\n")+strings.Count(s.body, "\r")), maxTokens / 3,
			maxTokens/5 - 1} {
			if n > room || testing.Short() {
				continue
			}
			text := s.head + strings.Repeat(s.body, n) + s.tail
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			begun := time.Now()
			var v settings
			err := UnmarshalPart([]byte(text), "f.yaml", &v)
			took := time.Since(begun)
			runtime.ReadMemStats(&after)
			allocated := (after.TotalAlloc - before.TotalAlloc) >> 20
			if took > 10*time.Second || allocated > 4000 {
				t.Errorf("%.20q + %d x %.20q: %v and %d MB in all, %.80v", s.head, n, s.body, took, allocated, err)
			}
			if testing.Verbose() && (took > 500*time.Millisecond || allocated > 500) {
				t.Logf("%.20q + %d x %.20q: %v and %d MB in all, %.80v", s.head, n, s.body, took, allocated, err)
			}
		}
	}
}

// depth is the number of lists and mappings around the deepest value.
func depth(n ast.Node) (d int) {
	switch n := n.(type) {
	case *ast.MappingNode:
		for _, v := range n.Values {
			d = max(d, depth(v))
		}
	case *ast.MappingValueNode:
		return 1 + max(depth(n.Key), depth(n.Value))
	case *ast.SequenceNode:
		for _, v := range n.Values {
			d = max(d, depth(v))
		}
		d++
	case *ast.TagNode:
		return depth(n.Value)
	case *ast.AnchorNode:
		return depth(n.Value)
	}
	return d
}

// FuzzParse holds the estimate of the depth against the parser, and looks for panics.
func FuzzParse(f *testing.F) {
	for _, s := range shapes {
		if len(s.head) < 1000 {
			f.Add([]byte(s.head + strings.Repeat(s.body, 5) + s.tail))
		}
	}
	f.Add([]byte("servers: !- "))
	f.Add([]byte("servers: !!str x"))
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte("shares: {x: &x {y: 1}, z: {<<: *x}}\nenv: {a: b}\n"))
	f.Add([]byte("servers:\n- name: a\n  stop: {timeout: 1s}\n- name: b\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		root, err := Parse(data, "f.yaml")
		if err == nil && root != nil {
			if d := depth(root); d > 2*maxDepth {
				t.Errorf("%d levels deep", d)
			}
		}
		var s settings
		again := Unmarshal(data, "f.yaml", &s)
		for _, err := range []error{err, again} {
			if err != nil && (!strings.HasPrefix(err.Error(), "f.yaml:") ||
				strings.Contains(err.Error(), "this YAML cannot be read")) {
				t.Errorf("the error does not say where: %v", err)
			}
		}
		if err != nil && again == nil {
			t.Errorf("one function takes what the other refuses: %v", err)
		}
	})
}

// What counts as nested is what the parser nests: never less, for texts that it takes.
func TestNesting(t *testing.T) {
	for text, want := range map[string]int{
		"a: 1": 1, "a:\n- x\nb:\n- y\nc:\n- z\n": 2, "a:\n  b:\n    c: 1\nd: 1\n": 3, "- - - x\n- y\n": 3,
		"[a, b, {c: d}]": 3, "[[], [], []]": 2,
		"a:\n- b:\n  - c: 1\n    d: 2\n  e: 3\n": 5, "a:\nb:\nc:\n": 1, "-\n-\n-\n": 1, "{a: {b: c}, d: {e: f}}": 4,
		"a: [1,\n2,\n3]\nb: 1\n": 2,
	} {
		root, err := Parse([]byte(text), "f.yaml")
		if err != nil {
			t.Fatal(err)
		}
		var n nesting
		deepest := 0
		for _, tk := range lexer.Tokenize(text) {
			n.take(tk)
			deepest = max(deepest, len(n.open))
		}
		if deepest != want || depth(root) > 2*want {
			t.Errorf("%q: %d levels, expected %d; the parser has %d", text, deepest, want, depth(root))
		}
	}
}

// Editors on Windows put a byte order mark first.
func TestByteOrderMark(t *testing.T) {
	var v struct{ Seed int }
	if err := Unmarshal([]byte("\ufeffseed: 3\n"), "f.yaml", &v); err != nil || v.Seed != 3 {
		t.Errorf("%+v, %v", v, err)
	}
	if root, err := Parse([]byte("\ufeffseed: 3\n"), "f.yaml"); err != nil || root.String() != "seed: 3" {
		t.Errorf("%v, %v", root, err)
	}
}
