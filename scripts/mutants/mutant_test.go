package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
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
// test notices.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module m\n\ngo 1.25\n",
		"m.go":   "package m\n\nfunc Less(a, b int) bool { return a < b }\n\nfunc Both(a, b bool) bool { return a && b }\n",
		"m_test.go": "package m\n\nimport \"testing\"\n\nfunc TestBoth(t *testing.T) {\n" +
			"\tif Both(true, false) || !Less(1, 2) {\n\t\tt.Fatal()\n\t}\n}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	var out bytes.Buffer
	if err := run(context.Background(), options{n: 10, seed: 1, timeout: 1e11}, []string{"./..."}, &out); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(strings.Fields(out.String()), " ")
	if got != "m 1 of 2 killed (50 %) survived m.go:3: <= for <" {
		t.Errorf("got %q", got)
	}
}
