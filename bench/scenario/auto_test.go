package scenario

import (
	"context"
	"encoding/json"
	"math"
	"testing"

	"lorasim/bench/result"
	"lorasim/sim"
	"lorasim/sim/record"
	"lorasim/trace"
)

// decided is what a run with policy auto decided, and when requests ended.
type decided struct {
	worker map[int64]int32
	sent   map[int64]float64
	finish map[int64]float64
	races  []string // as JSON
	at     []float64
}

func decisions(t *testing.T, sc Scenario, w *trace.Workload) decided {
	t.Helper()
	d := decided{worker: map[int64]int32{}, sent: map[int64]float64{}, finish: map[int64]float64{}}
	hooks := sim.Hooks{
		Done: func(r *record.Request) {
			d.worker[r.ID], d.sent[r.ID], d.finish[r.ID] = r.WorkerFirst, r.Sent, r.Finish
		},
		Plan: func(r *sim.PlanRecord) {
			if r.Plan.Race == nil {
				return
			}
			text, err := json.Marshal(r.Plan.Race)
			if err != nil {
				t.Fatal(err)
			}
			d.races, d.at = append(d.races, string(text)), append(d.at, r.Plan.Race.At)
		},
	}
	_, err := sc.Simulate(context.Background(), RunOptions{Input: &Input{Source: w.Source()},
		Watch: func([]trace.Adapter) sim.Hooks { return hooks }})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Whatever requests generate after a time, policy auto decides the same until then.
func TestAutoKnowsNoOutputsInAdvance(t *testing.T) {
	sc := Default()
	sc.Routing.Policy, sc.Seed = "auto:budget=60", 3
	sc.Cluster.NumWorkers = 3
	sc.Workload.NumPrompts, sc.Workload.RequestRate, sc.Workload.NumAdapters = 500, 12, 40
	in, err := sc.OpenWorkload(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	w, err := trace.Collect(in.Source)
	if err != nil {
		t.Fatal(err)
	}
	for i := range w.Requests {
		w.Requests[i].MaxNew = 4096
	}
	a := decisions(t, sc, w)
	if len(a.races) < 4 {
		t.Fatalf("%d races", len(a.races))
	}
	for _, until := range []float64{a.at[1] + 0.1, a.at[len(a.at)-1] + 0.1} {
		other := &trace.Workload{Adapters: w.Adapters, Requests: append([]trace.Request{}, w.Requests...)}
		changed := 0
		for i := range other.Requests {
			if r := &other.Requests[i]; a.finish[r.ID] > until {
				r.Output += 20 + int32(r.ID*37%300)
				changed++
			}
		}
		b := decisions(t, sc, other)
		if changed == 0 {
			t.Fatal("no request ends later")
		}
		for i, at := range a.at {
			if at <= until && (i >= len(b.races) || a.races[i] != b.races[i]) {
				t.Errorf("the race at %v s knows outputs of requests that end after %v s", at, until)
			}
		}
		for id, at := range a.sent {
			if at <= until && a.worker[id] != b.worker[id] {
				t.Errorf("request %d, sent at %v s, goes elsewhere where outputs after %v s are others", id, at, until)
			}
		}
	}
}

// The same seed gives the same run, and another one other numbers.
func TestAutoIsDeterministic(t *testing.T) {
	sc := Default()
	sc.Routing.Policy, sc.Cluster.NumWorkers = "auto:profile-error=20%", 2
	sc.Workload.NumPrompts, sc.Workload.RequestRate = 300, 8
	run := func() string {
		res, err := sc.Simulate(context.Background(), RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(res)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if a, b := run(), run(); a != b {
		t.Error("two runs of the same seed differ")
	}
}

// In scenarios where its first candidate is far from the best one, auto comes close to that.
func TestAutoComesCloseToTheBest(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates seconds")
	}
	for _, c := range autoCases {
		t.Run(c.best, func(t *testing.T) {
			value := func(policy string) float64 {
				sc := Default()
				for key, v := range c.settings {
					if err := sc.Set(key, v); err != nil {
						t.Fatal(err)
					}
				}
				sc.Seed, sc.Routing.Policy = 1, policy
				res, err := sc.Simulate(context.Background(), RunOptions{})
				if err != nil {
					t.Fatal(err)
				}
				sum := 0.0
				weights := map[result.ID]float64{result.MeanE2E: 1, result.MeanTTFT: 0.35, result.P99TTFT: 0.15}
				for name, weight := range weights {
					v, _ := res.Metrics.Get(name)
					sum += weight * math.Log(v)
				}
				return sum
			}
			auto, best, first := value("auto:candidates="+c.candidates), value(c.best), value(c.first)
			t.Logf("objective: auto %.3f, %s %.3f, %s %.3f", auto, c.best, best, c.first, first)
			if auto > best+c.within {
				t.Errorf("auto is %.3f behind %s, want at most %.3f", auto-best, c.best, c.within)
			}
			if first < best+3*c.within {
				t.Errorf("%s is only %.3f behind %s: the scenario shows nothing", c.first, first-best, c.best)
			}
		})
	}
}

// autoCases are scenarios in which the first candidate is far from the best one, and how much worse auto may be than
// that, as a difference of its objective.
var autoCases = []struct {
	first, best, candidates string
	within                  float64
	settings                map[string]string
}{
	{"round-robin", "static", "round-robin+plan-and-route+static", 0.8, map[string]string{
		"profile": "llama-3.1-8b-h100-64gb-vllm-0.8.5", "lora_ranks": "16", "num_workers": "4", "num_adapters": "128",
		"request_rate": "40", "num_prompts": "8000"}},
	{"static", "plan-and-route", "static+plan-and-route+least-loaded", 0.3, map[string]string{
		"profile": "analytic:llama-3.1-8b,h100", "num_workers": "12", "num_adapters": "4", "lora_ranks": "64",
		"max_loras_per_batch": "4", "max_loaded_loras": "4", "lengths": "constant:50,10",
		"popularity": "powerlaw:0.3", "num_prompts": "30000", "request_rate": "1306"}},
}
