package remedy

import (
	"strings"
	"testing"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	_ "lorasim/router/builtin"
)

// TestFind: in each scenario one thing is short, and the change of that thing helps most.
func TestFind(t *testing.T) {
	for _, c := range []struct{ name, settings, want string }{
		{"slots", "max_loras_per_batch=2 request_rate=11", "4 adapter slots instead of 2: mean E2E -"},
		{"workers", "num_workers=2 num_adapters=4 request_rate=12", "1 worker more: mean E2E -"},
		{"policy", "policy=hash num_adapters=4 popularity=zipf:2 request_rate=12", "policy plan-and-route: mean E2E -"},
		{"nothing", "num_workers=16 num_adapters=4 request_rate=0.2 num_prompts=200",
			"no gain of 3 % in the mean E2E by: 1 worker more"},
	} {
		sc := scenario.Default()
		for _, set := range strings.Fields(c.settings) {
			key, value, _ := strings.Cut(set, "=")
			if err := sc.Set(key, value); err != nil {
				t.Fatal(err)
			}
		}
		res, err := sc.Simulate(t.Context(), scenario.RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		f, err := Find(t.Context(), &sc, res)
		if err != nil || f == nil {
			t.Fatalf("%s: %v, %v", c.name, f, err)
		}
		if !strings.HasPrefix(f.String(), c.want) {
			t.Errorf("%s: %s, expected %s", c.name, f, c.want)
		}
		// what it states is what the scenario with the change shows
		if f.Best != nil {
			changed := sc
			if err := changed.Set(f.Best.key, f.Best.value); err != nil {
				t.Fatal(err)
			}
			res, err := changed.Simulate(t.Context(), scenario.RunOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if e2e, _ := res.Metrics.Get(result.MeanE2E); e2e != f.Best.E2E {
				t.Errorf("%s: mean E2E %v ms, simulated %v", c.name, f.Best.E2E, e2e)
			}
		}
	}
}

// TestNotTried: long runs, runs of many adapters and elastic clusters are not simulated again.
func TestNotTried(t *testing.T) {
	sc := scenario.Default()
	if err := sc.Set("num_prompts", "50"); err != nil {
		t.Fatal(err)
	}
	res, err := sc.Simulate(t.Context(), scenario.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	res.Scenario.Workload.Requests = mostRequests + 1
	if f, err := Find(t.Context(), &sc, res); f != nil || err != nil {
		t.Errorf("%v, %v", f, err)
	}
	res.Scenario.Workload.Requests, res.Scenario.Adapters = 50, mostAdapters+1
	if f, err := Find(t.Context(), &sc, res); f != nil || err != nil {
		t.Errorf("%v, %v", f, err)
	}
	res.Scenario.Adapters, res.Scenario.Elastic = 10, "queue"
	if f, err := Find(t.Context(), &sc, res); f != nil || err != nil {
		t.Errorf("%v, %v", f, err)
	}
}
