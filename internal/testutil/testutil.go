// Package testutil holds helpers for the tests of several packages: input files, golden files, comparisons of errors
// and numbers, and HTTP transports.
package testutil

import (
	"bytes"
	"compress/gzip"
	"flag"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Update is the flag -update: tests write their golden files anew.
var Update = flag.Bool("update", false, "write golden files anew")

// File writes a file in a new temporary folder and returns its path.
func File[Text string | []byte](tb testing.TB, name string, content Text) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), name)
	Write(tb, path, content)
	return path
}

// Write writes a file and creates its folders.
func Write[Text string | []byte](tb testing.TB, path string, content Text) {
	tb.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		tb.Fatal(err)
	}
}

// RoundTrip is a function that serves as an HTTP transport.
type RoundTrip func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f RoundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Gzip compresses content.
func Gzip[Text string | []byte](tb testing.TB, content Text) []byte {
	tb.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(content)); err != nil {
		tb.Fatal(err)
	}
	if err := z.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// Golden compares a text with a golden file. With -update it writes the file instead.
func Golden[Text string | []byte](tb testing.TB, path string, got Text) {
	tb.Helper()
	if *Update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			tb.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		tb.Errorf("%s is not what the test gives (-want +got); -update writes it anew:\n%s", path, d)
	}
}

// ExpectError fails the test unless err is an error whose text contains all the parts.
func ExpectError(tb testing.TB, err error, parts ...string) {
	tb.Helper()
	if err == nil {
		tb.Fatalf("no error, expected one with %q", parts)
		return // a tb of a test of this package goes on
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			tb.Errorf("error %q does not say %q", err, part)
		}
	}
}

// Near fails the test if got and want differ by more than tolerance, or if either is NaN.
func Near(tb testing.TB, what string, got, want, tolerance float64) {
	tb.Helper()
	if !(math.Abs(got-want) <= tolerance) {
		tb.Errorf("%s is %v, expected %v within %v", what, got, want, tolerance)
	}
}

// Set sets keys of a scenario to values, in pairs.
func Set(tb testing.TB, scenario interface{ Set(key, value string) error }, pairs ...string) {
	tb.Helper()
	for i := 0; i+1 < len(pairs); i += 2 {
		if err := scenario.Set(pairs[i], pairs[i+1]); err != nil {
			tb.Fatal(err)
		}
	}
}
