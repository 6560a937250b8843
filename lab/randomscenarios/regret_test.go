package main

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// near says whether two numbers are the same but for rounding.
func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

// folder has runs of one scenario: mean E2E by policy and seed; TTFT is a tenth of it, P99
// TTFT the half.
func folder(e2e map[string][]float64) *Store {
	s := &Store{Scenarios: []Numbered{{Generator: 1, Command: "--num-prompts 10"}}}
	for _, policy := range []string{"a", "b", "c", "new"} {
		for i, x := range e2e[policy] {
			s.Runs = append(s.Runs, Run{Policy: policy, Seed: uint64(i + 1), E2E: x, TTFT: x / 10, P99TTFT: x / 2,
				Requests: 10, Completed: 10})
		}
	}
	return s
}

// judged is the regret of a policy.
func judged(t *testing.T, s *Store, policy string) Regret {
	t.Helper()
	rs := Judge(s, []string{"a", "b", "c"}, nil, 0).of(policy)
	if len(rs) != 1 {
		t.Fatalf("%s: %d regrets, expected 1", policy, len(rs))
	}
	return rs[0]
}

// TestRegret compares with numbers by hand.
func TestRegret(t *testing.T) {
	s := folder(map[string][]float64{
		"a": {100, 300}, "b": {200, 220}, "c": {400, 400}, "new": {150, 150},
	})
	// Means are 200, 210, 400 and 150. The judged policy is no rival of its own.
	a := judged(t, s, "a")
	if a.Best[e2e] != "b" || a.Hindsight[e2e] != 0 || a.Mean[ttft] != 20 {
		t.Errorf("a: %+v", a)
	}
	// On seed 1 the best other is b, on seed 2 also: (300/220 + 100/200) / 2 - 1 < 0.
	if a.CrossFitted[e2e] != 0 {
		t.Errorf("a: cross-fitted %g, expected 0", a.CrossFitted[e2e])
	}
	b := judged(t, s, "b")
	// Seed 1 chooses a, seed 2 measures 220/300; seed 2 chooses a, seed 1 measures 200/100.
	if want := (220./300+200./100)/2 - 1; b.Best[e2e] != "a" || !near(b.Hindsight[e2e], 0.05) ||
		!near(b.CrossFitted[e2e], want) {
		t.Errorf("b: %+v, expected 0.05 and %g", b, want)
	}
	c := judged(t, s, "c")
	// Seed 1 chooses a, measured on seed 2: 400/300; seed 2 chooses b, measured on seed 1: 400/200.
	if want := (400./300+400./200)/2 - 1; !near(c.Hindsight[e2e], 1) || !near(c.CrossFitted[e2e], want) ||
		!near(c.Hindsight[p99], 1) || !near(c.Objective, 1.5*math.Log(2)) {
		t.Errorf("c: %+v, expected 1, %g and the objective 1.5 ln 2", c, want)
	}
	if r := judged(t, s, "new"); r.Hindsight[e2e] != 0 || r.Best[e2e] != "a" {
		t.Errorf("new, which is better than all: %+v", r)
	}
	// The choice on seed 1 is a: 300 on seed 2, where b has 220; on seed 2 it is b: 200 on seed 1, where a has 100.
	chosen := judged(t, s, chosenByObjective)
	if want := (300./220 - 1 + 200./100 - 1) / 2; !near(chosen.Hindsight[e2e], want) || !near(chosen.Mean[e2e], 250) {
		t.Errorf("%+v, expected a regret of %g and a mean of 250", chosen, want)
	}
}

// TestSerious: a loss is serious if it is above 15 % and certain.
func TestSerious(t *testing.T) {
	for _, c := range []struct {
		b    []float64
		want bool
	}{
		{[]float64{120, 121, 119, 120}, true},
		{[]float64{112, 113, 111, 112}, false}, // certain, but small
		{[]float64{100, 100, 100, 220}, false}, // large, but by one seed
	} {
		s := folder(map[string][]float64{"a": {100, 101, 99, 100}, "b": c.b, "c": {900, 900, 900, 900}})
		if r := judged(t, s, "b"); r.Serious != c.want {
			t.Errorf("%v: serious %t, expected %t", c.b, r.Serious, c.want)
		}
	}
}

// TestHalves: of four seeds, every two are chosen on once.
func TestHalves(t *testing.T) {
	c := Case{seeds: 4}
	if halves := c.splits(); len(halves) != 6 {
		t.Errorf("%b, expected six halves", halves)
	}
	seen := map[[2]uint]bool{}
	c.overHalves(func(chosenOn, measuredOn uint) float64 {
		if chosenOn&measuredOn != 0 || chosenOn|measuredOn != 0b1111 {
			t.Errorf("chosen on %b, measured on %b", chosenOn, measuredOn)
		}
		seen[[2]uint{chosenOn, measuredOn}] = true
		return 0
	})
	if len(seen) != 6 {
		t.Errorf("%v, expected six", seen)
	}
}

// TestIncomplete: scenarios without all runs of the baselines do not count, and a policy
// that leaves requests is neither judged nor the best.
func TestIncomplete(t *testing.T) {
	s := folder(map[string][]float64{"a": {100, 100}, "b": {200, 200}, "c": {300, 300}})
	s.Runs[0].Completed = 5
	table := Judge(s, []string{"a", "b", "c"}, nil, 0)
	if len(table.of("a")) != 0 || judged(t, s, "c").Best[e2e] != "b" {
		t.Errorf("a left requests: %+v", table.Regrets)
	}
	s = folder(map[string][]float64{"a": {100, 100}, "b": {200}, "c": {300, 300}})
	table = Judge(s, []string{"a", "b", "c"}, nil, 0)
	if len(table.LeftOut) != 1 || table.LeftOut[0].Why != "not all seeds of b" || len(table.Regrets) != 0 {
		t.Errorf("%+v", table)
	}
	s = folder(map[string][]float64{"a": {100}, "b": {200}, "c": {300}})
	s.Runs[1].Error = "took more than 1m0s"
	if table = Judge(s, []string{"a", "b", "c"}, nil, 0); len(table.LeftOut) != 1 {
		t.Errorf("%+v, expected the scenario left out", table)
	}
}

// TestReport: tables, JSON and picture have every policy, and the same bytes each time.
func TestReport(t *testing.T) {
	s := folder(map[string][]float64{"a": {100, 120}, "b": {200, 220}, "c": {400, 400}, "new": {150, 150}})
	var texts, pictures []string
	for range 2 {
		table := Judge(s, []string{"a", "b", "c", "not run"}, nil, 0)
		path := filepath.Join(t.TempDir(), "x.svg")
		if err := table.Plot(path); err != nil {
			t.Fatal(err)
		}
		picture, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		json := filepath.Join(t.TempDir(), "x.json")
		if err := table.WriteJSON(json); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(json)
		if err != nil {
			t.Fatal(err)
		}
		texts, pictures = append(texts, table.Markdown(3)+string(text)), append(pictures, string(picture))
	}
	if texts[0] != texts[1] || pictures[0] != pictures[1] {
		t.Error("two reports differ")
	}
	for _, want := range []string{"1 scenarios, 2 seeds each, 3 baselines: a, b, c.",
		"| `b` | 1 | 0.970 | 91 / 91 / 91 / 91 % | 100 % | 1 |", "| `a` | 1 | 1 | 1 | 1 |", `"hindsight"`} {
		if !strings.Contains(texts[0], want) {
			t.Errorf("%q is not in\n%s", want, texts[0])
		}
	}
	for _, name := range []string{"new", "best on other seeds"} {
		if !strings.Contains(pictures[0], name) {
			t.Errorf("the picture does not name %s", name)
		}
	}
}

// The sustained rate is compared with the largest one of the other baselines, in overload only.
func TestSustainedShare(t *testing.T) {
	s := folder(map[string][]float64{"a": {100, 300}, "b": {200, 220}, "c": {400, 400}, "new": {150, 150}})
	for i := range s.Runs {
		s.Runs[i].Sustained = map[string]float64{"a": 20, "b": 10, "c": 5, "new": 19}[s.Runs[i].Policy]
	}
	if got := judged(t, s, "new").Sustained; got != 0 {
		t.Errorf("a share of %g without overload, expected none", got)
	}
	s.Scenarios[0].Load = 2
	for policy, want := range map[string]float64{"a": 2, "b": 0.5, "new": 0.95} {
		if got := judged(t, s, policy).Sustained; !near(got, want) {
			t.Errorf("%s sustains %g of the others' rate, expected %g", policy, got, want)
		}
	}
	s.Runs[3].Sustained = 0 // one run cannot tell: all are compared by their throughput
	for i := range s.Runs {
		s.Runs[i].Throughput = map[string]float64{"a": 20, "b": 10, "c": 5, "new": 18}[s.Runs[i].Policy]
	}
	if got := judged(t, s, "new").Sustained; !near(got, 0.9) {
		t.Errorf("new has %g of the others' throughput, expected 0.9", got)
	}
	s.Runs[3].Sustained = 10
	text := Judge(s, []string{"a", "b", "c"}, nil, 0).Markdown(0)
	if row := "| `new` | 1 | 0.950 | 0.950 | 0.950 | 0 |"; !strings.Contains(text, row) {
		t.Errorf("the report has no row %q:\n%s", row, text)
	}
}

// A policy far from the best in all metrics on the first seeds needs no further ones, and is left out of the table.
func TestScreen(t *testing.T) {
	runs := map[string][]float64{"a": {100, 110, 90}, "b": {120, 130, 60}, "c": {300, 300}, "new": {900, 900, 100}}
	s := folder(runs)
	s.Runs = append(s.Runs, Run{Policy: "failed", Seed: 1, Error: noSuccess},
		Run{Policy: "failed", Seed: 2, Error: noSuccess},
		Run{Policy: "plan-and-route:busy=1", Seed: 1, E2E: 900, Completed: 10})
	for policy, want := range map[string]bool{"a": true, "b": true, "c": false, "new": false, "failed": false,
		"plan-and-route:busy=1": true, "not run": true} {
		if got := mayBeBest(s.Runs, 0, policy, 2); got != want {
			t.Errorf("%s may be the best: %v, expected %v", policy, got, want)
		}
	}
	s = folder(runs)
	table := Judge(s, []string{"a", "b", "c"}, nil, 2)
	if len(table.LeftOut) != 0 || len(table.of("c")) != 0 || slices.Contains(table.Policies, "c") {
		t.Errorf("left out %v, rows %v", table.LeftOut, table.Policies)
	}
	if r := table.of("a"); len(r) != 1 || r[0].Best[e2e] != "b" {
		t.Errorf("a: %+v", r)
	}
	if table := Judge(s, []string{"a", "b", "c"}, nil, 0); len(table.LeftOut) != 1 {
		t.Error("without --screen, all baselines need all seeds")
	}
}
