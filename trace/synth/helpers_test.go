package synth

import (
	"errors"
	"io"
	"math"
	"testing"

	"lorasim/trace"
)

var inf = math.Inf(1)

// generate returns all requests of a bounded configuration.
func generate(t testing.TB, c Config) []trace.Request {
	t.Helper()
	src, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	var rs []trace.Request
	for {
		r, err := src.Next()
		if errors.Is(err, io.EOF) {
			return rs
		}
		if err != nil {
			t.Fatal(err)
		}
		rs = append(rs, r)
	}
}

// count returns the requests that satisfy keep.
func count(rs []trace.Request, keep func(trace.Request) bool) float64 {
	n := 0.0
	for _, r := range rs {
		if keep(r) {
			n++
		}
	}
	return n
}
