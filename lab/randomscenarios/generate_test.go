package main

import (
	"bytes"
	"context"
	"math/rand/v2"
	"strings"
	"testing"

	"lorasim/bench/scenario"
	"lorasim/internal/testutil"
)

// TestGenerate: the same seed and number give the same scenario, whatever else was drawn;
// it runs, and its command reads back as itself.
func TestGenerate(t *testing.T) {
	first, _, err := Generate(t.Context(), 9, 1)
	if err != nil {
		t.Fatal(err)
	}
	again, _, err := Generate(t.Context(), 9, 1)
	if err != nil {
		t.Fatal(err)
	}
	if Command(first) != Command(again) {
		t.Errorf("%s, the second time %s", Command(first), Command(again))
	}
	var few, more, stderr bytes.Buffer
	for n, out := range map[string]*bytes.Buffer{"1": &few, "2": &more} {
		args := []string{t.TempDir(), "--seed", "9", "--scenarios", n, "--print"}
		if err := command(t.Context(), args, out, &stderr); err != nil {
			t.Fatal(err)
		}
	}
	if !strings.HasPrefix(more.String(), few.String()) || strings.Count(more.String(), "\n") != 2 {
		t.Errorf("2 scenarios:\n%s1 scenario:\n%s", more.String(), few.String())
	}
	if !strings.Contains(more.String(), "1: lorasim sim "+Command(first)+"\n") {
		t.Errorf("scenario 1 is %s, expected it in\n%s", Command(first), more.String())
	}
	res, err := simulate(t.Context(), first)
	if err != nil {
		t.Fatal(err)
	}
	if e := res.Endings(); e == nil || e.Requests != first.Workload.NumPrompts.Value {
		t.Errorf("%+v, expected %d requests", e, first.Workload.NumPrompts.Value)
	}
}

// TestRate: the rate is between 40 and 110 % of what the cluster sustains.
func TestRate(t *testing.T) {
	for i := range uint64(50) {
		sustains := func(scenario.Scenario) (float64, error) { return 1000, nil }
		sc, err := drawScenario(t.Context(), rand.New(rand.NewPCG(5, i)), sustains)
		if err != nil {
			t.Fatal(err)
		}
		if r := sc.Workload.RequestRate; r < 400 || r > 1100 {
			t.Errorf("draw %d: %g requests/s, expected 400 to 1100", i, r)
		}
	}
}

// TestSustainable: the rate of the built-in workload is that of docs/steady.md, within 10 %.
func TestSustainable(t *testing.T) {
	sc := scenario.Default()
	sc.Seed = 1
	rate, err := sustainable(t.Context(), sc)
	if err != nil || rate < 0.9*14.7 || rate > 1.1*14.7 {
		t.Errorf("%g requests/s, %v, expected about 14.7", rate, err)
	}
	sc.Cluster.Engine.PrefixCache = true
	testutil.Set(t, &sc, "conversations", "chat")
	if talk, err := sustainable(t.Context(), sc); err != nil || talk < 1 || talk > 100 {
		t.Errorf("%g turns/s, %v", talk, err)
	}
}

// TestDraws: every draw is a scenario that bench/scenario takes, or its adapters do not fit;
// all dimensions occur, and commands read back as the scenario.
func TestDraws(t *testing.T) {
	const draws = 250
	seen, ran := map[string]int{}, 0
	for i := range uint64(draws) {
		rate := func(scenario.Scenario) (float64, error) { return 20, nil }
		sc, err := drawScenario(t.Context(), rand.New(rand.NewPCG(1, i)), rate)
		if err != nil {
			t.Fatalf("draw %d: %v", i, err)
		}
		back, err := ParseCommand(Command(sc))
		if err != nil {
			t.Fatalf("draw %d: %v", i, err)
		}
		for _, f := range scenario.Fields() {
			if f.Get(back) != f.Get(sc) {
				t.Errorf("draw %d: %s is %q, by the command %q", i, f.Key, f.Get(sc), f.Get(back))
			}
		}
		if !fits(t, sc) {
			continue
		}
		ran++
		for _, d := range dimensions(sc) {
			seen[d]++
		}
	}
	if ran < draws*6/10 {
		t.Errorf("%d of %d draws fit, expected most", ran, draws)
	}
	for _, d := range strings.Fields(`embedded computed two-kinds 2-workers 32-workers 4-adapters 500-adapters ranks one-rank
		2-slots 64-slots host-memory zipf uniform powerlaw maf2 azure-conv azure-code constant copula sharegpt lognormal
		gamma total-exponential bursty conversations prefix-cache no-prefix-cache sessions drift diurnal on-off flash outages
		staleness reactive forecast schedule remote vllm sglang locality overlapped block few-requests many-requests`) {
		if seen[d] == 0 {
			t.Errorf("no scenario of %d has %s", ran, d)
		}
	}
}

// fits says whether the scenario runs with one request.
func fits(t *testing.T, sc *scenario.Scenario) bool {
	t.Helper()
	first, err := sc.First(context.Background())
	if err != nil {
		t.Fatalf("%s: %v", Command(sc), err)
	}
	return sc.Check(context.Background(), first) == nil
}

// dimensions names what is special about a scenario.
func dimensions(sc *scenario.Scenario) (out []string) {
	w, c, r := &sc.Workload, &sc.Cluster, &sc.Routing
	for name, is := range map[string]bool{
		"embedded":  !strings.Contains(c.Profile.String(), "analytic:"),
		"computed":  strings.Contains(c.Profile.String(), "analytic:"),
		"two-kinds": strings.Contains(c.Profile.String(), "*"), "2-workers": c.NumWorkers.Value == 2,
		"32-workers": c.NumWorkers.Value == 32,
		"4-adapters": w.NumAdapters.Value == 4, "500-adapters": w.NumAdapters.Value == 500,
		"ranks": strings.Contains(w.LoraRanks.String(), ","), "one-rank": w.LoraRanks.String() == "16",
		"2-slots": c.Engine.MaxLorasPerBatch == 2, "64-slots": c.Engine.MaxLorasPerBatch == 64,
		"host-memory": c.Engine.MaxLoadedLoras > 0,
		"zipf":        strings.HasPrefix(w.Popularity.String(), "zipf:"), "uniform": w.Popularity.String() == "uniform",
		"powerlaw": strings.HasPrefix(w.Popularity.String(), "powerlaw"), "maf2": w.Popularity.String() == "maf2",
		"azure-conv": w.Lengths.String() == "azure-conv", "azure-code": w.Lengths.String() == "azure-code",
		"constant": strings.HasPrefix(w.Lengths.String(), "constant"),
		"copula":   strings.HasPrefix(w.Lengths.String(), "copula"),
		"sharegpt": w.Lengths.String() == "sharegpt", "lognormal": strings.HasPrefix(w.Lengths.String(), "lognormal:"),
		"gamma":             strings.HasPrefix(w.Arrivals.String(), "gamma"),
		"total-exponential": w.Arrivals.String() == "total-exponential",
		"bursty":            w.Arrivals.String() == "gamma:4", "conversations": w.Conversations.String() != "",
		"prefix-cache":    c.Engine.PrefixCache,
		"no-prefix-cache": w.Conversations.String() != "" && !c.Engine.PrefixCache,
		"sessions":        w.Sessions.String() != "", "drift": w.Drift > 0,
		"diurnal": strings.HasPrefix(w.Pattern.String(), "diurnal"),
		"on-off":  strings.HasPrefix(w.Pattern.String(), "on-off"),
		"flash":   strings.HasPrefix(w.Pattern.String(), "flash"), "outages": c.Outages.String() != "",
		"staleness": r.ViewStaleness > 0,
		"reactive":  strings.Contains(c.Elastic.String(), "rule=reactive"),
		"forecast":  strings.Contains(c.Elastic.String(), "rule=forecast"),
		"schedule":  strings.Contains(c.Elastic.String(), "rule=schedule"), "remote": c.AdapterHome == "remote",
		"vllm": c.Engine.Scheduler == "vllm", "sglang": c.Engine.Scheduler == "sglang",
		"locality":   w.Locality.String() != "",
		"overlapped": c.Engine.AdapterLoading == "overlapped", "block": c.Engine.HeadOfLine == "block",
		"few-requests": w.NumPrompts.Value < 2000, "many-requests": w.NumPrompts.Value > 5500,
	} {
		if is {
			out = append(out, name)
		}
	}
	return out
}
