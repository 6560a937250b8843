package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const source = `package p

// a comment with a < b is left alone
func f(a, b int) int {
	if a < b && a != 0 {
		return min(a, b) + 1
	}
	return "s < t"[0:1] == "" || a*b > 2
}
`

func TestMutants(t *testing.T) {
	ms, err := mutants("p.go", []byte(source))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range ms {
		got = append(got, m.String())
		changed := string(m.apply([]byte(source)))
		if len(changed) != len(source)-len(m.from)+len(m.to) || !strings.Contains(changed, m.to) {
			t.Errorf("%s: gives\n%s", m, changed)
		}
	}
	slices.Sort(got)
	want := []string{
		"p.go:5: !(a < b && a != 0) for a < b && a != 0", "p.go:5: <= for <", "p.go:5: == for !=", "p.go:5: || for &&",
		"p.go:6: - for +", "p.go:6: max for min",
		"p.go:8: != for ==", "p.go:8: && for ||", "p.go:8: / for *", "p.go:8: >= for >",
	}
	if !slices.Equal(got, want) {
		t.Errorf("mutants are\n%s\nexpected\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestRun holds the whole tool against a module of which it is known what its
// tests notice: those of m that Both is wrong, those of u that Less is.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module m\n\ngo 1.25\n",
		"m.go": "package m\n\nfunc Less(a, b int) bool { return a < b }\n\n" +
			"func Both(a, b bool) bool { return a && b }\n",
		"m_test.go": "package m\n\nimport \"testing\"\n\nfunc TestBoth(t *testing.T) {\n" +
			"\tif Both(true, false) || !Less(1, 2) {\n\t\tt.Fatal()\n\t}\n}\n",
		"other.go": "package m\n\nfunc Endless(n int) {\n\tfor n < 0 {\n\t}\n}\n",
		"u/u_test.go": "package u\n\nimport (\n\t\"testing\"\n\n\t\"m\"\n)\n\nfunc TestLess(t *testing.T) {\n" +
			"\tm.Endless(0)\n\tif m.Less(1, 1) {\n\t\tt.Fatal()\n\t}\n}\n",
		"broken/broken_test.go": "package broken\n\nimport \"testing\"\n\n" +
			"func TestNever(t *testing.T) { t.Fatal() }\n",
	} {
		path := filepath.Join(dir, name)
		err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600))
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	for _, c := range []struct{ tests, pattern, want string }{
		{"", "./m.go", "m 1 of 2 killed (50 %) survived m.go:3: <= for <"},
		{"./u", "m.go", "m 2 of 2 killed (100 %), 1 by its own tests"},
		{"./u,.", ".", "m 3 of 3 killed (100 %), 1 by its own tests"}, // Endless(0) hangs with <=
	} {
		var out bytes.Buffer
		o := options{n: 10, seed: 1, timeout: 3 * time.Second, tests: c.tests}
		if err := run(context.Background(), o, []string{c.pattern}, &out); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(strings.Fields(out.String()), " "); got != c.want {
			t.Errorf("%q, tests %q: got %q, expected %q", c.pattern, c.tests, got, c.want)
		}
	}
	for _, c := range [][2]string{{"./broken", "fail without a mutant"}, {"./none", "none"}} {
		o := options{n: 1, timeout: 3 * time.Second, tests: c[0]}
		err := run(context.Background(), o, []string{"."}, io.Discard)
		if err == nil || !strings.Contains(err.Error(), c[1]) {
			t.Errorf("tests %s: error %v, expected one with %q", c[0], err, c[1])
		}
	}
}
