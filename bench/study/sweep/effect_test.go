package sweep

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"lorasim/bench/result"
	"lorasim/bench/stats"
	"lorasim/bench/steady"
	"lorasim/trace/columnar"
)

// merged is a sweep with all its cells run.
func merged(t *testing.T, text string) (*Dir, *Tables) {
	t.Helper()
	spec, err := ParseSpec([]byte(text), "x.yaml")
	if err != nil {
		t.Fatal(err)
	}
	spec.Scenario.Files = columnar.Files()
	d := create(t, spec)
	if _, err := d.Run(t.Context(), RunOptions{}); err != nil {
		t.Fatal(err)
	}
	tables, err := d.Tables(MergeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return d, tables
}

const intervals = `
scenario: {workload: {num_prompts: 2500, request_rate: 6}}
set: {migration_interval: [2, 10, 30]}
policies: [static, dlora_period_mig, "plan-and-route:margin=0,busy=0"]
seeds: 3
`

// TestEffectOfInterval: a policy that does not use the axis, one whose plans never change anything, and one that plans.
func TestEffectOfInterval(t *testing.T) {
	d, tables := merged(t, intervals)
	const metric = "mean_e2e_latency_ms"
	list, err := d.Effects(t.Context(), tables, metric)
	if err != nil || len(list) != 3 {
		t.Fatal(list, err)
	}
	static, dlora, planner := list[0], list[1], list[2]
	if static.None != "the policy does not use it" || static.Idle != "" {
		t.Errorf("static: %+v", static)
	}
	if dlora.None != "its plans change nothing" || slices.Max(dlora.Moves) != 0 ||
		!strings.HasSuffix(dlora.Idle, "nothing to change; most often: no worker had 16 requests more than the mean") {
		t.Errorf("dlora_period_mig: %+v", dlora)
	}
	if planner.None != "" || !(planner.Plans[0] > 2*planner.Plans[1] && planner.Plans[1] > planner.Plans[2]) {
		t.Errorf("plan-and-route: %+v", planner)
	}
	// the differences are those of runs with the same seed, computed here once more
	for i, p := range planner.Points {
		best := planner.Points[planner.best()]
		sum := 0.0
		for s, x := range p.BySeed(metric) {
			sum += x - best.BySeed(metric)[s]
		}
		if i == planner.best() {
			continue
		}
		k := slices.IndexFunc(planner.Verdict.Others, func(o stats.Versus) bool { return o.Name == p.Values[0] })
		if sum < 0 || k < 0 || math.Abs(planner.Verdict.Others[k].Diff.Mean-sum/3) > 1e-9 {
			t.Errorf("%s: difference to the best %v, %+v", p.Values[0], sum/3, planner.Verdict.Others)
		}
	}
	var b strings.Builder
	if err := d.WriteEffects(&b, list, 0); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\nEffect of migration_interval on Mean E2E Latency (ms), difference to the best value of each policy\n",
		"\nstatic: no effect, since the policy does not use it\n",
		"\ndlora_period_mig: 0 plans made, 0 requests moved. At 2 (seed 1), ",
		": plans made, applied and requests moved, mean of a run, at 2: "} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	var text strings.Builder
	var parsed struct {
		Next    string
		Effects []struct {
			Axis, Policy string
			None         string `json:"no_effect_since"`
			Idle         string `json:"nothing_to_change"`
			Values       []struct {
				Value string
				Mean  float64
				Made  *float64 `json:"plans_made"`
			}
		}
	}
	err = d.WriteJSON(&text, tables, []string{metric}, JSONOptions{Effects: list, Next: "lorasim sim"})
	if err = errors.Join(err, json.Unmarshal([]byte(text.String()), &parsed)); err != nil || len(parsed.Effects) != 3 {
		t.Fatal(err, text.String())
	}
	for i, e := range parsed.Effects {
		if e.Axis != "routing.migration_interval" || e.Policy != list[i].Policy || e.None != list[i].None ||
			e.Idle != list[i].Idle || len(e.Values) != 3 || e.Values[2].Value != list[i].Points[2].Values[0] ||
			e.Values[1].Mean != mean(list[i].Points[1], metric) || (e.Values[0].Made == nil) != (i < 2) {
			t.Errorf("%+v, expected %+v", e, list[i])
		}
	}
	answer := strings.Join(d.Answer(tables, metric, list), "\n")
	for _, want := range []string{"Best policy by Mean E2E Latency (ms): ",
		"Effect of migration_interval: static: no effect, ",
		"dlora_period_mig: no effect, since its plans change nothing (at 2 (seed 1), "} {
		if !strings.Contains(answer, want) {
			t.Errorf("no %q in\n%s", want, answer)
		}
	}
}

// TestEffectByHand: the best value, a significant difference, and one that is within the noise.
func TestEffectByHand(t *testing.T) {
	axis := Axis{Key: "routing.migration_interval", Values: []string{"2", "10", "60"}}
	grid := Grid{Axes: []Axis{axis}, Policies: []string{"static"}, Seeds: make([]uint64, 4)}
	d := &Dir{Manifest: &Manifest{Grid: grid}}
	table := func(by ...[]float64) *Tables {
		tables := &Tables{}
		for i, values := range by {
			p := Point{Values: []string{axis.Values[i]}, Policy: "plan-and-route",
				Stationarity: steady.Stationarity{State: steady.Steady}}
			for _, x := range values {
				p.results = append(p.results, &CellResult{Values: []result.Value{{Name: "mean_ttft_ms", Value: x},
					{Name: "plans.applied", Value: 1}}})
			}
			tables.Points = append(tables.Points, p)
		}
		return tables
	}
	for _, c := range []struct {
		by      [][]float64
		summary string
		seeds   int
	}{
		{[][]float64{{100, 200, 300, 400}, {110, 211, 309, 412}, {100.1, 199.9, 300.2, 400}},
			"best at 2; 10 is worse by 4.2 % ±0.9", 0},
		{[][]float64{{100, 200, 300, 400}, {140, 190, 310, 380}, {101, 201, 299, 402}},
			"no significant effect (at most 19.7 %)", 284},
		{[][]float64{{100, 200, 300, 400}, {100, 200, 300, 400}, {100, 200, 300, 400}},
			"no effect, since it moves adapters when a request arrives, at no interval", 0},
	} {
		e := AxisEffect{Axis: axis, Policy: "plan-and-route"}
		tables := table(c.by...)
		for i := range tables.Points {
			e.Points = append(e.Points, &tables.Points[i])
		}
		e.judge("mean_ttft_ms")
		if got := e.summary(); got != c.summary {
			t.Errorf("%v: %s, expected %s", c.by, got, c.summary)
		}
		d.Policies = []string{"plan-and-route"}
		if got := d.MoreSeeds(&Tables{}, "mean_ttft_ms", []AxisEffect{e}, 0.02); got != c.seeds {
			t.Errorf("%v: %d seeds, expected %d", c.by, got, c.seeds)
		}
	}
}

// TestAnswerOfSettings: how often each policy is the best where an axis has several values.
func TestAnswerOfSettings(t *testing.T) {
	var of tally
	for _, p := range []string{"a", "b", "a", "c", "a", "b", "d", "e"} {
		of.add(p)
	}
	if got, want := of.text(), "a in 3, b in 2, c in 1 and 2 more"; got != want || of.sum() != 8 {
		t.Errorf("%s, expected %s", got, want)
	}
	d, tables := merged(t, `
scenario: {workload: {num_prompts: 250}}
set: {request_rate: [6, 12], num_workers: [2, 4]}
policies: [static, p2c]
seeds: 2
`)
	effects, err := d.Effects(t.Context(), tables, "output_throughput")
	if err != nil || len(effects) != 4 || effects[0].Axis.Leaf() != "num_workers" { // not that of the workload
		t.Fatalf("%+v, %v", effects, err)
	}
	answer := strings.Join(d.Answer(tables, "output_throughput", effects), "\n")
	if !strings.Contains(answer, "of 4 settings") || !strings.Contains(answer, "Effect of num_workers: static: ") {
		t.Error(answer)
	}
	needed, own := tables.Needed()
	if needed < 2000 || own != 250 {
		t.Errorf("%d requests needed, %d made", needed, own)
	}
}

// A sweep over the interval of pushes states what they cost, and how old the versions are. Runs without pushes have no
// age.
func TestEffectOfPushes(t *testing.T) {
	d, tables := merged(t, `
scenario: {workload: {num_prompts: 300, request_rate: 6}}
set: {push_interval: [0, 20, 5]}
policies: [static]
seeds: 2
`)
	const metric, age = "mean_e2e_latency_ms", "pushes.mean_age_s"
	list, err := d.Effects(t.Context(), tables, metric)
	if err != nil || len(list) != 2 || list[0].metric != metric || list[1].metric != age || list[1].best() != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	answer := strings.Join(d.Answer(tables, metric, list), "\n")
	if !strings.Contains(answer, "Effect of push_interval: static: ") ||
		!strings.Contains(answer, "\nEffect of push_interval on Mean age of versions (s): static: best at 5; 20 is worse by ") {
		t.Error(answer)
	}
	var b strings.Builder
	if err := d.WriteEffects(&b, list, 0); err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(b.String(), "\nEffect of push_interval on Mean age of versions (s), ")
	_, row, _ := strings.Cut(table, "\nstatic")
	if !strings.HasPrefix(strings.TrimSpace(row), "-  +") || strings.Contains(row, "?") {
		t.Error(b.String())
	}
	text, err := json.Marshal(d.jsonEffects(list))
	if err != nil || strings.Count(string(text), `"mean":`) < 5 || strings.Contains(string(text), `"0","mean":0`) {
		t.Errorf("%s, %v", text, err)
	}
	if list, err = d.Effects(t.Context(), tables, age); err != nil || len(list) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
}
