package scenario

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"lorasim/internal/testutil"
	"lorasim/trace/settings"
)

// The configuration in a result, also one read from a file, describes the scenario that made it.
func TestFromConfig(t *testing.T) {
	sc := Default()
	sc.Workload.NumPrompts, sc.Workload.RequestRate = settings.Some[int64](40), 2.5
	testutil.Set(t, &sc, "popularity", "zipf:1.2")
	sc.Cluster.NumWorkers = settings.Some(3)
	testutil.Set(t, &sc, "policy", "affinity-spill")
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
		if !ok || got.Workload.NumPrompts.Value != 40 || got.Workload.RequestRate != 2.5 ||
			got.Workload.Popularity.String() != "zipf:1.2" || got.Cluster.NumWorkers != settings.Some(3) ||
			got.Routing.Policy.String() != "affinity-spill" {
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

// A 0 that a user gives is never the default: it is an error, or means none.
func TestZeroIsNoDefault(t *testing.T) {
	for _, key := range []string{"num_workers", "num_prompts"} {
		s := Default()
		err := s.Set(key, "0")
		if err == nil || !strings.Contains(err.Error(), `"0" is not a whole number from 1 to`) ||
			!strings.HasSuffix(err.Error(), "; leave "+key+" out for its default") {
			t.Errorf("%s=0: %v", key, err)
		}
	}
	s := Default()
	if err := s.Set("num_adapters", "0"); err != nil || !s.Workload.baseOnly() {
		t.Errorf("num_adapters=0: %v, base only is %v", err, s.Workload.baseOnly())
	}
	if err := s.Workload.check(); err == nil || !strings.Contains(err.Error(), "num_adapters is 0") {
		t.Errorf("a generated workload without adapters: %v", err)
	}
	if err := s.Set("num_adapters", "3"); err != nil || s.Workload.baseOnly() {
		t.Errorf("num_adapters=3: %v, base only is %v", err, s.Workload.baseOnly())
	}
	d := Default()
	for _, base := range []bool{false, true} {
		if d.Workload.NumAdapters = (settings.Optional[int]{}); base {
			d.Workload.NumAdapters = settings.Some(0)
		}
		text, err := d.YAML()
		has := func(line string) bool { return strings.Contains(string(text), line) }
		if err != nil || has("num_prompts:") || has("num_workers:") || has("num_adapters: 0") != base {
			t.Errorf("base only is %v: %v\n%s", base, err, text)
		}
		again, err := Parse(text, "again.yaml")
		if err != nil || again.Workload.baseOnly() != base {
			t.Errorf("read again: %v, base only is %v, expected %v", err, again.Workload.baseOnly(), base)
		}
	}
}

// Parse returns all errors of a file, one per line.
func TestAllErrorsOfAFile(t *testing.T) {
	text := "seed: x\nworkload:\n  request_rat: 3\n  num_prompts: 0\ncluster:\n  num_workers: -1\n"
	_, err := Parse([]byte(text), "a.yaml")
	if err == nil {
		t.Fatal("no error")
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != 4 {
		t.Fatalf("%d errors, expected 4: %v", len(lines), err)
	}
	for i, want := range []string{"a.yaml:1: ", "a.yaml:3: ", "a.yaml:4: ", "a.yaml:6: "} {
		if !strings.HasPrefix(lines[i], want) {
			t.Errorf("error %d: %q, expected %q", i, lines[i], want)
		}
	}
}
