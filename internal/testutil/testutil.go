// Package testutil holds what the tests of several packages share: files to read, golden
// files, comparisons of errors and numbers, and HTTP transports.
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

// Update is set by -update: the test writes its golden files anew.
var Update = flag.Bool("update", false, "write golden files anew")

// File writes a file into a temporary folder of its own and returns its path.
func File[Text string | []byte](tb testing.TB, name string, content Text) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), name)
	Write(tb, path, content)
	return path
}

// Write writes a file, and the folders that it lies in.
func Write[Text string | []byte](tb testing.TB, path string, content Text) {
	tb.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		tb.Fatal(err)
	}
}

// RoundTrip is a transport of HTTP requests that is a function.
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

// Golden compares a text with a file, which -update writes anew.
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

// ExpectError makes sure that there is an error whose text has all the parts.
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

// Near compares two numbers. NaN is near nothing.
func Near(tb testing.TB, what string, got, want, tolerance float64) {
	tb.Helper()
	if !(math.Abs(got-want) <= tolerance) {
		tb.Errorf("%s is %v, expected %v within %v", what, got, want, tolerance)
	}
}
