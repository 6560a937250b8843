package scenario

import (
	"encoding/json"
	"maps"
	"testing"
)

// The configuration in a result, also one read from a file, describes the scenario that made it.
func TestFromConfig(t *testing.T) {
	sc := Default()
	sc.Workload.NumPrompts, sc.Workload.RequestRate, sc.Workload.Popularity = 40, 2.5, "zipf:1.2"
	sc.Cluster.NumWorkers, sc.Routing.Policy = 3, "affinity-spill"
	res, err := sc.Simulate(t.Context(), RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(res.Config)
	if err != nil {
		t.Fatal(err)
	}
	var read map[string]any
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	for name, config := range map[string]map[string]any{"made": res.Config, "read": read} {
		got, ok := FromConfig(config)
		if !ok || got.Workload.NumPrompts != 40 || got.Workload.RequestRate != 2.5 ||
			got.Workload.Popularity != "zipf:1.2" || got.Cluster.NumWorkers != 3 ||
			got.Routing.Policy != "affinity-spill" {
			t.Errorf("%s: %t, %+v", name, ok, got)
		}
		broken := maps.Clone(config)
		broken["workload.num_prompts"] = "many"
		if _, ok := FromConfig(broken); ok {
			t.Errorf("%s: a number of requests that is no number counts as a scenario", name)
		}
	}
	if _, ok := FromConfig(map[string]any{"backend": "sglang"}); ok {
		t.Error("a result of another program counts as a scenario")
	}
}
