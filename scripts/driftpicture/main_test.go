package main

import (
	"math"
	"testing"

	"lorasim/router"
	"lorasim/sim/record"
)

func TestAdd(t *testing.T) {
	var r run
	r.add([]record.Request{
		{Arrival: 0.1, Finish: 2.1},
		{Arrival: 1, Finish: 5},
		{Arrival: 2 * interval, Finish: 2*interval + 7},
		{Arrival: 9 * interval, Finish: 9 * interval, Status: record.Rejected},
	})
	want := []average{{6, 2}, {}, {7, 1}}
	if len(r.latency) != len(want) {
		t.Fatalf("%d intervals, expected %d", len(r.latency), len(want))
	}
	for k, a := range r.latency {
		if math.Abs(a.sum-want[k].sum) > 1e-9 || a.n != want[k].n {
			t.Errorf("interval %d: %v, expected %v", k, a, want[k])
		}
	}
	if r.until != 2*interval {
		t.Errorf("the last request arrived at %g", r.until)
	}
}

func TestStays(t *testing.T) {
	race := func(at float64, from, to string, gain float64) *router.Race {
		return &router.Race{At: at, Incumbent: from, Chosen: to,
			Candidates: []router.Raced{{Policy: from}, {Policy: to, Gain: gain}}}
	}
	r := run{until: 100, races: []*router.Race{
		race(10, "static", "static", 0), race(20, "static", "least-tokens", 0.5),
		race(30, "least-tokens", "least-tokens", 0), race(60, "least-tokens", "static", 0.25),
	}}
	want := []stay{{"static", 0, 20, 0}, {"least-tokens", 20, 60, 0.5}, {"static", 60, 100, 0.25}}
	got := r.stays()
	if len(got) != len(want) {
		t.Fatalf("%v, expected %v", got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("stay %d is %v, expected %v", i, got[i], want[i])
		}
	}
}

// The picture of a short workload has all runs in its legend, and a change of policy.
func TestCommand(t *testing.T) {
	if err := command(t.Context(), []string{"one"}); err == nil {
		t.Error("one argument is taken")
	}
	if err := command(t.Context(), []string{"missing.csv", t.TempDir() + "/x.svg"}); err == nil {
		t.Error("a workload that is not there is taken")
	}
}
