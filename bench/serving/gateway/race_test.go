//go:build race

package gateway_test

// underRace: the race detector makes tests ten times as slow. Goroutines are the same for all policies, so one in four
// is enough for it.
const underRace = true
