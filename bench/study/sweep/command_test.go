package sweep

import (
	"strings"
	"testing"

	"lorasim/bench/scenario"
	"lorasim/trace/columnar"
)

// TestCommand: the command of a sweep's folder plans the same cells.
func TestCommand(t *testing.T) {
	for _, c := range []struct {
		axes     []string
		policies []string
		want     string
	}{
		{[]string{"request_rate=2,4", "lora_ranks=8|8,64"}, []string{"static", "p2c"},
			"lorasim sweep -o DIR --name two --set request_rate=2,4 --set 'lora_ranks=8|8,64' --policies static,p2c " +
				"--seeds 7 --goodput 'ttft:500 tpot:100' --seed 3 --num-prompts 300"},
		{nil, []string{"affinity:variant=residency"},
			"lorasim sweep -o DIR --name two --policies affinity:variant=residency --seeds 7 " +
				"--goodput 'ttft:500 tpot:100' --seed 3 --num-prompts 300"},
	} {
		spec := &Spec{Name: "two", Scenario: scenario.Default(), SeedCount: 2}
		spec.Goodput = "ttft:500 tpot:100"
		spec.Scenario.Seed, spec.Scenario.Files = 3, columnar.Files()
		for _, text := range append(c.axes, "policy="+strings.Join(c.policies, ",")) {
			a, err := ParseSet(text)
			if err == nil {
				err = spec.Add(a)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		m, err := spec.Plan(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		d, err := Create(t.TempDir(), m)
		if err != nil {
			t.Fatal(err)
		}
		got, err := d.Command("DIR", 7, func(sc *scenario.Scenario) error { return sc.Set("num_prompts", "300") })
		if err != nil || got != c.want {
			t.Errorf("%s, %v, expected %s", got, err, c.want)
		}
	}
}
