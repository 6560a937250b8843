package testutil_test

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lorasim/internal/testutil"
)

// recorder is a test whose failures are kept.
type recorder struct {
	testing.TB
	said []string
}

func (r *recorder) Helper()                    {}
func (r *recorder) Fatalf(f string, vs ...any) { r.Errorf(f, vs...) }
func (r *recorder) Errorf(f string, vs ...any) { r.said = append(r.said, fmt.Sprintf(f, vs...)) }

func TestComparisons(t *testing.T) {
	golden := testutil.File(t, "golden.txt", "one\ntwo\n")
	broken := errors.New("a.csv:2: no column x")
	for name, c := range map[string]struct {
		try  func(tb testing.TB)
		want string // in what it says; "": nothing
	}{
		"the golden text":     {func(tb testing.TB) { testutil.Golden(tb, golden, "one\ntwo\n") }, ""},
		"another text":        {func(tb testing.TB) { testutil.Golden(tb, golden, []byte("one\n")) }, "-update"},
		"the error":           {func(tb testing.TB) { testutil.ExpectError(tb, broken, "a.csv:2", "column x") }, ""},
		"no error":            {func(tb testing.TB) { testutil.ExpectError(tb, nil, "column") }, "no error"},
		"another error":       {func(tb testing.TB) { testutil.ExpectError(tb, broken, "a.csv", "y") }, `not say "y"`},
		"numbers alike":       {func(tb testing.TB) { testutil.Near(tb, "x", 1, 1.5, 0.5) }, ""},
		"numbers unlike":      {func(tb testing.TB) { testutil.Near(tb, "x", 1, 1.6, 0.5) }, "x is 1, expected 1.6"},
		"not a number":        {func(tb testing.TB) { testutil.Near(tb, "x", math.NaN(), 1, 9) }, "NaN"},
		"nothing to compare":  {func(tb testing.TB) { testutil.Near(tb, "x", math.NaN(), math.NaN(), 9) }, "NaN"},
		"the other way round": {func(tb testing.TB) { testutil.Near(tb, "x", 1.6, 1, 0.5) }, "x is 1.6, expected 1"},
	} {
		r := &recorder{TB: t}
		c.try(r)
		if said := strings.Join(r.said, "\n"); (said == "") != (c.want == "") || !strings.Contains(said, c.want) {
			t.Errorf("%s: %q, expected %q", name, said, c.want)
		}
	}
}

// With -update the file becomes what the test gives.
func TestGoldenUpdate(t *testing.T) {
	path := testutil.File(t, "golden.txt", "old")
	*testutil.Update = true
	defer func() { *testutil.Update = false }()
	testutil.Golden(t, path, "new")
	if text, err := os.ReadFile(path); err != nil || string(text) != "new" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestFiles(t *testing.T) {
	a, b := testutil.File(t, "x.csv", "a"), testutil.File(t, "x.csv", []byte("b"))
	if a == b || filepath.Base(a) != "x.csv" {
		t.Error(a, b)
	}
	if text, err := os.ReadFile(a); err != nil || string(text) != "a" {
		t.Errorf("%q, %v", text, err)
	}
	z, err := gzip.NewReader(strings.NewReader(string(testutil.Gzip(t, "packed"))))
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(z); err != nil || string(text) != "packed" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b", "c.txt")
	testutil.Write(t, path, "text")
	if got, err := os.ReadFile(path); err != nil || string(got) != "text" {
		t.Errorf("%q, %v", got, err)
	}
}
