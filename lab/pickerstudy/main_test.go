package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lorasim/bench/study/sweep"
)

// TestWorkloads: the studies load, with seeds that no search uses, and their policies have names for tables.
func TestWorkloads(t *testing.T) {
	dir := filepath.Join("..", "..", "scenarios", "pickers")
	for _, name := range workloads {
		spec, err := sweep.LoadSpec(t.Context(), filepath.Join(dir, name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var labels []string
		for _, p := range spec.Policies {
			labels = append(labels, label(t.Context(), p))
		}
		want := []string{"KServe, LoRA", "GIE", "llm-d baseline", "affinity", "plan-and-route"}
		if !slices.Equal(labels, want) {
			t.Errorf("%s: policies %q, expected %q", name, labels, want)
		}
		sc, err := near(spec)
		if err != nil {
			t.Fatal(err)
		}
		rates := spec.Axes[0].Values
		f := spec.Axes[0].Key
		if f != "workload.request_rate" || len(rates) != 2 {
			t.Fatalf("%s: axis %s %v, expected two rates", name, f, rates)
		}
		if sc.Seed == spec.Scenario.Seed || sc.Workload.RequestRate <= 10 {
			t.Errorf("%s: searched with seed %d at %g requests/s", name, sc.Seed, sc.Workload.RequestRate)
		}
	}
}

// TestShown: the picture leaves out what was tuned on other workloads, and the first policy, which is the zero line.
func TestShown(t *testing.T) {
	s := &study{labels: []string{"KServe, LoRA", "GIE", "KServe, tuned on chat", "KServe, tuned"}}
	if got := shown(s); !slices.Equal(got, []int{3, 1}) {
		t.Errorf("rows %v, expected 3 and 1", got)
	}
	var labels []string
	for _, tick := range ratioTicks(0.4, 3) {
		labels = append(labels, tick.Label)
	}
	if got := strings.Join(labels, " "); got != "x0.5 x1 x2" {
		t.Errorf("ticks %s", got)
	}
}
