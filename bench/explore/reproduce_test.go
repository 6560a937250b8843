package explore

import (
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"lorasim/bench/study/sweep"
	"lorasim/internal/format"
	"lorasim/trace"
)

// TestYAML: the file and a query read from it are the query, whatever its settings.
func TestYAML(t *testing.T) {
	values := map[string][]string{
		"workload.request_rate": {"3", "0.5", "inf"}, "workload.popularity": {"uniform", "zipf:1.2", "explicit:3,2,1"},
		"workload.arrivals": {"gamma:2", "gamma:1,3", "total-exponential"}, "workload.lora_names": {"a,b", "x y,'z'"},
		"cluster.engine.prefix_cache": {"true"}, "workload.trace_speed": {"2"}, "seed": {"9"},
		"cluster.profile": {"llama2-7b-24gb*2"}, "workload.file": {"/tmp/it's a \"log\": 1.csv", "- x", "true"},
		"client.warmup": {"auto"}, "routing.shed": {"ttft:500+queue:9"},
	}
	keys := slices.Sorted(maps.Keys(values))
	x := New(Limits{}, trace.Files{})
	rapid.Check(t, func(t *rapid.T) {
		q := Query{Settings: map[string]string{}, Policies: []string{"static", "bounded-hash:c=1.5"},
			SLO: "ttft:500 attain:0.9", Seeds: "3"}
		for _, key := range rapid.SliceOfDistinct(rapid.SampledFrom(keys), rapid.ID[string]).Draw(t, "keys") {
			q.Settings[key] = rapid.SampledFrom(values[key]).Draw(t, key)
		}
		resolved, faults := x.resolve(q)
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		text := resolved.yaml()
		p, err := ParsePreset([]byte(text), "explore.yaml")
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if !maps.Equal(p.Query.Settings, q.Settings) || !slices.Equal(p.Query.Policies, q.Policies) ||
			p.Query.SLO != q.SLO || p.Query.Seeds != q.Seeds {
			t.Errorf("%+v, expected %+v\n%s", p.Query, q, text)
		}
		if _, err := sweep.ParseSpec([]byte(text), "explore.yaml"); err != nil {
			t.Error(err)
		}
	})
}

// TestShell: a shell reads back what was quoted for it.
func TestShell(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no sh is installed")
	}
	words := []string{"", "static", "it's", "a b", `"$HOME" \ ` + "`x`", "-n", "a;b", "ttft:500 tpot:50", "*"}
	for _, word := range words {
		out, err := exec.Command(sh, "-c", "printf %s "+format.Shell(word)).Output()
		if err != nil || strings.TrimPrefix(string(out), "--") != word && string(out) != word {
			t.Errorf("%q became %q (%v)", word, out, err)
		}
	}
}
