// Package routertest has workers, views and checks for the tests of policies.
package routertest

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"lorasim/router"
)

// Close checks a number but for rounding.
func Close(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-9*math.Max(1, math.Abs(want)) {
		t.Errorf("%s is %v, expected %v", what, got, want)
	}
}

// New returns the router of a spec.
func New(tb rapid.TB, spec string, env router.Env) *router.Router {
	tb.Helper()
	rt, err := router.New(spec, env)
	if err != nil {
		tb.Fatal(err)
	}
	return rt
}

// Route sends requests of one adapter and returns the workers they went to.
func Route(p router.Policy, v *router.View, adapter int32, n int) []int {
	workers := make([]int, n)
	for i := range workers {
		workers[i] = p.Route(router.Request{ID: int64(i), Adapter: adapter, Prompt: 100, MaxNew: 100}, v).Worker
	}
	return workers
}

// Count counts the requests of each worker.
func Count(workers []int, n int) []int {
	counts := make([]int, n)
	for _, w := range workers {
		counts[w]++
	}
	return counts
}

// Uniform is a chi-squared test that counts come from equal chances. The
// seeds are fixed, so it fails always or never; the bound of 4.5 standard
// deviations leaves a fair generator a chance below 1e-4 of failing.
func Uniform(t *testing.T, counts []int) {
	t.Helper()
	total := 0
	for _, c := range counts {
		total += c
	}
	expected := float64(total) / float64(len(counts))
	chi2 := 0.0
	for _, c := range counts {
		chi2 += (float64(c) - expected) * (float64(c) - expected) / expected
	}
	df := float64(len(counts) - 1)
	if chi2 > df+4.5*math.Sqrt(2*df) {
		t.Errorf("counts %v are not uniform: chi2 %.1f with %g degrees of freedom", counts, chi2, df)
	}
}

// Equal checks a list.
func Equal[T comparable](t rapid.TB, got, want []T, what string) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
