package result

import (
	"testing"

	"lorasim/bench/steady"
)

// A title is for a number that there is.
func TestTitles(t *testing.T) {
	names := map[string]bool{}
	for _, v := range Values(&Result{Steady: &steady.Assessment{OfferedRate: 2, SustainableRate: 1}, Extra: &Extra{
		Goodput: &Goodput{
			AdapterGoodput: AdapterGoodput{Worst: &Worst{}},
			Others:         &Others{AdapterGoodput: AdapterGoodput{Worst: &Worst{}}}}, Fairness: &Fairness{},
		Balance: &Balance{}, Counters: Counters{Plans: &PlanCounters{}, Elastic: &Elastic{}}, Oracle: &Oracle{},
	}}) {
		names[v.Name] = true
	}
	for name := range titles {
		if !names[name] {
			t.Errorf("no number is called %s", name)
		}
	}
	for name, want := range map[string]string{
		"mean_ttft_ms": "Mean TTFT (ms)", "scheduled_ttft.mean_ms": "Scheduled TTFT mean (ms)",
		"solver_time_s": "Solver time (s)", "cold_loads": "Cold loads", "": "",
	} {
		if got := Title(name); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestWhatIsBetter(t *testing.T) {
	for name, want := range map[string]int{
		"output_throughput": -1, "goodput.share": -1, "goodput.adapter_share": -1, "goodput.worst_adapter.share": -1,
		"goodput.worst_adapter.requests": 0, "fairness.tokens": -1, "fairness.adapters": 0, "p99_ttft_ms": 1,
		"failed": 1, "rejected": 1, "aborted": 1,
		"unfinished": 1, "unsent": 1, "duration": 1, "solver_time_s": 1, "max_output_tokens_per_s": 0, "cold_loads": 1,
		"load_balance.cv": 1, "load_balance.max": 0,
		"completed": 0, "concurrency": 0, "evictions": 1, "retractions": 1, "cold_start_wait_s": 1,
	} {
		if got := int(Better(name)); got != want {
			t.Errorf("%s: %d, expected %d", name, got, want)
		}
	}
}

func TestNeedsSteady(t *testing.T) {
	for name, want := range map[string]bool{"mean_ttft_ms": true, "p99_e2e_latency_ms": true, "std_itl_ms": true,
		"goodput.share": true, "concurrency": true,
		"scheduled_ttft.mean_ms": true, "completed": false, "cold_loads": false, "load_balance.cv": false,
		"rejected": false, "duration": false, "request_throughput": false, "output_throughput": false,
		"total_output_tokens": false, "steady.sustainable_rate": false} {
		if NeedsSteady(name) != want {
			t.Errorf("%s: %v", name, !want)
		}
	}
}
