package scenario

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"lorasim/bench/result"
	"lorasim/internal/testutil"
	"lorasim/trace"
	"lorasim/trace/columnar"
	"lorasim/trace/settings"
	"lorasim/trace/store"
)

func collect(t *testing.T, sc *Scenario) []trace.Request {
	t.Helper()
	in, err := sc.OpenWorkload(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	w, err := trace.Collect(in)
	if err != nil {
		t.Fatal(err)
	}
	return w.Requests
}

func TestBudgets(t *testing.T) {
	for _, c := range []struct {
		set    string
		budget func(output int32) int32 // as the workload has it without a law
		cut    int32                    // outputs end there; 0: nowhere
	}{
		{"", func(int32) int32 { return 1024 }, 0},
		{"max_new_tokens=300", func(int32) int32 { return 300 }, 300},
		{"max_new_tokens=exact", func(o int32) int32 { return o }, 0},
		{"max_new_tokens=x2", func(o int32) int32 { return 2 * o }, 0},
		{"lengths=sharegpt", func(int32) int32 { return 1024 }, 0},
		{"lengths=constant:10,5000", func(o int32) int32 { return 5000 }, 0}, // auto gives way
		{"lengths=random", func(o int32) int32 { return o }, 0},
		{"random_output_len=64", func(o int32) int32 { return o }, 0},
		{"random_output_len=64 max_new_tokens=2048", func(int32) int32 { return 2048 }, 0},
		{"lengths=measured-rate4", func(o int32) int32 { return o }, 0},
		{"compat=slora popularity=powerlaw:1", func(o int32) int32 { return o }, 0},
	} {
		plain, sc := Default(), Default()
		for _, s := range []*Scenario{&plain, &sc} {
			s.Workload.NumPrompts = settings.Some[int64](300)
			for _, set := range strings.Fields(c.set) {
				key, value, _ := strings.Cut(set, "=")
				if err := s.Set(key, value); err != nil {
					t.Fatal(err)
				}
			}
		}
		testutil.Set(t, &plain, "max_new_tokens", "exact")
		want := collect(t, &plain)
		for i, r := range collect(t, &sc) {
			output := want[i].Output
			budget := c.budget(output)
			if c.cut > 0 {
				output = min(output, c.cut)
			}
			if r.Budget() != budget || r.Output != output || r.Prompt != want[i].Prompt {
				t.Fatalf("%s: request %d: %d of %d tokens, want %d of %d", c.set, i, r.Output, r.Budget(), output,
					budget)
			}
		}
	}
}

// A saved workload's own column counts, unless a law is asked for.
func TestBudgetsOfFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w.csv")
	w := &trace.Workload{Adapters: trace.Names(1, nil),
		Requests: []trace.Request{{ID: 0, Prompt: 5, Output: 40, MaxNew: 77}, {ID: 1, Prompt: 5, Output: 60}}}
	if _, err := store.Write(path, w.Source(), store.WriteOptions{Files: columnar.Files(), MaxNew: true}); err != nil {
		t.Fatal(err)
	}
	for law, want := range map[string][2]int32{"auto": {77, 60}, "trace": {77, 60}, "exact": {40, 60}, "50": {50, 50},
		"x1.5": {60, 90}} {
		sc := Default()
		sc.Workload.File = path
		testutil.Set(t, &sc, "max_new_tokens", law)
		rs := collect(t, &sc)
		if rs[0].Budget() != want[0] || rs[1].Budget() != want[1] {
			t.Errorf("%s: budgets %d and %d, want %v", law, rs[0].Budget(), rs[1].Budget(), want)
		}
	}
	sc := Default()
	testutil.Set(t, &sc, "max_new_tokens", "trace")
	_, err := sc.OpenWorkload(context.Background(), nil)
	testutil.ExpectError(t, err, "only a saved workload states any")
	testutil.ExpectError(t, sc.Set("max_new_tokens", "exakt"), `did you mean "exact"?`)
}

// What clients ask for changes what engines reserve, not what routers expect.
func TestBudgetsReachEngines(t *testing.T) {
	ttft := func(law string, known bool) float64 {
		sc := Default()
		sc.Workload.NumPrompts, sc.Routing.KnownOutputs = settings.Some[int64](1500), known
		testutil.Set(t, &sc, "max_new_tokens", law, "policy", "least-tokens")
		res, err := sc.Simulate(context.Background(), RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		m, ok := res.Metrics.Get(result.MeanTTFT)
		if !ok {
			t.Fatal("no mean TTFT")
		}
		return m
	}
	exact, asked, known := ttft("exact", false), ttft("2048", false), ttft("exact", true)
	if asked <= exact {
		t.Errorf("mean TTFT %v ms with a budget of 2048, %v exact: nothing was reserved for it", asked, exact)
	}
	if known == exact {
		t.Error("least-tokens decides the same whether it knows the outputs or not")
	}
}
