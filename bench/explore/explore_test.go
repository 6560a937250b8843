package explore_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"lorasim/bench/explore"
	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/internal/testutil"
	"lorasim/scenarios"
	"lorasim/trace"
	"lorasim/trace/settings"
)

// small is a query that takes a moment.
func small(change ...func(*explore.Query)) explore.Query {
	q := explore.Query{Settings: map[string]string{"workload.num_prompts": "300", "workload.num_adapters": "8"},
		Policies: []string{"static", "least-loaded"}, SLO: "ttft:1000 tpot:50", Seeds: "2"}
	for _, c := range change {
		c(&q)
	}
	return q
}

// set changes a setting.
func set(key, value string) func(*explore.Query) {
	return func(q *explore.Query) { q.Settings[key] = value }
}

// answer is all parts of an answer by kind, and their kinds in order.
type answer struct {
	kinds []string
	data  map[string][]any
}

func ask(t *testing.T, x *explore.Explorer, q explore.Query) answer {
	t.Helper()
	a := answer{data: map[string][]any{}}
	if err := x.Run(t.Context(), q, func(e explore.Event) {
		a.kinds = append(a.kinds, e.Kind)
		a.data[e.Kind] = append(a.data[e.Kind], e.Data)
	}); err != nil {
		t.Fatal(err)
	}
	return a
}

// last is the last part of a kind.
func last[T any](t *testing.T, a answer, kind string) T {
	t.Helper()
	parts := a.data[kind]
	if len(parts) == 0 {
		t.Fatalf("no %s among %v; checked: %+v", kind, a.kinds, a.data[explore.KindChecked])
	}
	return parts[len(parts)-1].(T)
}

// TestParts: the parts of the answer come in their order, and agree with each other.
func TestParts(t *testing.T) {
	a := ask(t, explore.New(explore.Limits{}, trace.Files{}), small(func(q *explore.Query) { q.Price = "0.5" }))
	order := slices.Compact(slices.Clone(a.kinds))
	want := []string{explore.KindChecked, explore.KindRuns, explore.KindCompared, explore.KindPoints,
		explore.KindBreaks, explore.KindStates, explore.KindBreaks}
	if !slices.Equal(order, want) {
		t.Fatalf("%v, expected %v", order, want)
	}
	runs := last[[]explore.Run](t, a, explore.KindRuns)
	points, first := map[string]explore.Point{}, a.data[explore.KindPoints][0].([]explore.Point)
	for _, p := range first {
		if p.Factor == 1 {
			points[p.Policy] = p
		}
	}
	for i, r := range runs {
		if r.Policy != small().Policies[i] || len(r.TTFT) != 201 || !slices.IsSorted(r.E2E) {
			t.Errorf("%+v", r)
		}
		if p := points[r.Policy]; p.Attained != *r.Attained || p.Rate != 10 {
			t.Errorf("%s: %v of the requests within the SLO, on the curve %+v", r.Policy, *r.Attained, p)
		}
		sum := 0.0
		for _, x := range r.Parts {
			sum += x
		}
		res := parse(t, r.Result)
		mean, _ := res.Metrics.Get(result.MeanTTFT)
		if len(r.Parts) != len(explore.PartNames()) || math.Abs(sum-mean) > 0.01*mean {
			t.Errorf("%s: parts %v add up to %v ms, the mean TTFT is %v ms", r.Policy, r.Parts, sum, mean)
		}
		rate, _ := res.Metrics.Get(result.RequestThroughput)
		if r.Cost.Hour != 2 || math.Abs(*r.Cost.Thousand-2/3600.0/rate*1000) > 1e-12 {
			t.Errorf("%s costs %+v at %v requests/s", r.Policy, r.Cost, rate)
		}
	}
	table := strings.ReplaceAll(string(last[explore.Compared](t, a, explore.KindCompared).Table), `": "`, `":"`)
	if c := last[explore.Compared](t, a, explore.KindCompared); c.Seeds != 2 || c.Of != 2 ||
		!strings.Contains(table, `"baseline":"static"`) {
		t.Errorf("%d of %d seeds: %s", c.Seeds, c.Of, c.Table)
	}
}

func parse(t *testing.T, data []byte) *result.Result {
	t.Helper()
	list, err := result.ParseJSON(data)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestSameAsSim: the first run of a policy is the run of lorasim sim with the settings of the YAML.
func TestSameAsSim(t *testing.T) {
	x := explore.New(explore.Limits{}, trace.Files{})
	a := ask(t, x, small(set("workload.request_rate", "7"), set("cluster.num_workers", "2")))
	checked := last[explore.Checked](t, a, explore.KindChecked)
	for i, r := range last[[]explore.Run](t, a, explore.KindRuns) {
		sc, err := scenario.Parse([]byte(checked.YAML), "explore.yaml")
		if err != nil {
			t.Fatal(err)
		}
		testutil.Set(t, &sc, "policy", small().Policies[i])
		slo, err := result.ParseSLO(small().SLO)
		if err != nil {
			t.Fatal(err)
		}
		res, err := sc.Simulate(t.Context(), scenario.RunOptions{SLO: slo})
		if err != nil {
			t.Fatal(err)
		}
		var want bytes.Buffer
		if err := res.WriteJSON(&want); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(bytes.TrimSpace(r.Result), bytes.TrimSpace(want.Bytes())) {
			t.Errorf("%s: %s\nexpected %s", r.Policy, r.Result, want.Bytes())
		}
		kept, ok := x.Scenario(r.ID)
		if !ok || kept.Routing.Policy.String() != r.Policy || kept.Workload.RequestRate != 7 {
			t.Errorf("the scenario of %s: %v, %+v", r.ID, ok, kept.Routing)
		}
	}
	if _, ok := x.Scenario("unknown"); ok {
		t.Error("a scenario of no run")
	}
}

// TestFaults: each wrong value has its message at its field, and nothing runs.
func TestFaults(t *testing.T) {
	file := testutil.File(t, "log.csv", "no,log\n1,2\n")
	for name, c := range map[string]struct {
		change    func(*explore.Query)
		key, says string
	}{
		"text for a number": {set("workload.request_rate", "fast"), "workload.request_rate", "a number"},
		"too small":         {set("cluster.num_workers", "-1"), "cluster.num_workers", "-1"},
		"unknown word":      {set("cluster.adapter_home", "moon"), "cluster.adapter_home", "remote"},
		"unknown key":       {set("workload.num_prompt", "3"), "workload.num_prompt", "num_prompts"},
		"half a key":        {set("num_prompts", "3"), "num_prompts", "workload.num_prompts"},
		"grammar":           {set("workload.popularity", "zipf:x"), "workload.popularity", "x"},
		"too many requests": {set("workload.num_prompts", "1000000"), "workload.num_prompts", "at most 200000"},
		"too many in a window": {
			func(q *explore.Query) {
				q.Settings = map[string]string{"workload.window": "1000", "workload.request_rate": "1000"}
			}, "workload.num_prompts", "more than 200000",
		},
		"too many workers":      {set("cluster.num_workers", "100000"), "cluster.num_workers", "at most 256"},
		"too many adapters":     {set("workload.num_adapters", "900000"), "workload.num_adapters", "at most 20000"},
		"unknown profile":       {set("cluster.profile", "gpu9000"), "cluster.profile", "gpu9000"},
		"missing file":          {set("workload.file", "/nowhere/w.csv"), "workload.file", "/nowhere/w.csv"},
		"no log":                {set("workload.file", file), "workload.file", "log.csv"},
		"contradiction":         {set("workload.ramp_up_strategy", "linear"), "workload.ramp_up_strategy", "start_rps"},
		"names and number":      {set("workload.lora_names", "a,b"), "workload.num_adapters", "lora_names has 2"},
		"a worker not there":    {set("cluster.outages", "7@1-2"), "cluster.outages", "no worker 7"},
		"rank beyond the limit": {set("cluster.engine.max_lora_rank", "-3"), "cluster.engine.max_lora_rank", "-3"},
		"policy":                {func(q *explore.Query) { q.Policies[1] = "fastest" }, "policy.1", "fastest"},
		"option of a policy":    {func(q *explore.Query) { q.Policies[0] = "hash:c=x" }, "policy.0", "c"},
		"policy twice":          {func(q *explore.Query) { q.Policies[1] = "static" }, "policy.1", "twice"},
		"no policy":             {func(q *explore.Query) { q.Policies = nil }, "policy.0", "1 to 3"},
		"SLO":                   {func(q *explore.Query) { q.SLO = "ttft:soon" }, "slo", "milliseconds"},
		"price":                 {func(q *explore.Query) { q.Price = "cheap" }, "price", "cheap"},
		"price of another":      {func(q *explore.Query) { q.Price = "h100=2" }, "price", "has no price"},
		"seeds":                 {func(q *explore.Query) { q.Seeds = "many" }, "seeds", "1 to 30"},
	} {
		a := ask(t, explore.New(explore.Limits{}, trace.Files{}), small(c.change))
		faults := last[explore.Checked](t, a, explore.KindChecked).Faults
		if len(faults) != 1 || faults[0].Key != c.key || !strings.Contains(faults[0].Message, c.says) {
			t.Errorf("%s: %+v, expected %s: ... %s ...", name, faults, c.key, c.says)
		}
		if slices.Contains(a.kinds, explore.KindRuns) {
			t.Errorf("%s: %v", name, a.kinds)
		}
	}
}

// TestCancel: a query that is given up ends, and emits nothing more.
func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	q := small(set("workload.num_prompts", "20000"))
	after := 0
	start := time.Now()
	err := explore.New(explore.Limits{}, trace.Files{}).Run(ctx, q, func(e explore.Event) {
		if ctx.Err() != nil {
			after++
		}
		if e.Kind == explore.KindRuns {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) || after != 0 {
		t.Errorf("%v after %v, %d parts more", err, time.Since(start), after)
	}
}

// TestCurve: the attainment on both sides of the break is that of runs at these rates. Without an SLO or a rate there
// is no curve.
func TestCurve(t *testing.T) {
	a := ask(t, explore.New(explore.Limits{}, trace.Files{}), small(set("workload.num_prompts", "800")))
	var points []explore.Point
	for _, part := range a.data[explore.KindPoints] {
		points = append(points, part.([]explore.Point)...)
	}
	for _, b := range last[[]explore.Break](t, a, explore.KindBreaks) {
		if !(b.Holds > 0 && b.Fails > b.Holds && b.Fails < 1.5*b.Holds) || !strings.Contains(b.Words, "99 %") {
			t.Errorf("%+v", b)
		}
		for _, p := range points {
			if p.Policy == b.Policy && p.Rate <= b.Holds && p.Attained < 0.99 {
				t.Errorf("%s misses the SLO at %v, below the break at %v", p.Policy, p.Rate, b.Holds)
			}
			if p.Policy != b.Policy || math.Abs(p.Rate-b.Fails) > 1e-9 {
				continue
			}
			if p.Attained >= 0.99 {
				t.Errorf("%+v holds, expected it to fail", p)
			}
			sc := scenario.Default()
			sc.Workload.NumPrompts = settings.Some[int64](800)
			sc.Workload.NumAdapters = settings.Some(8)
			sc.Workload.RequestRate = 10 * p.Factor
			testutil.Set(t, &sc, "policy", p.Policy)
			res, err := sc.Simulate(t.Context(), scenario.RunOptions{SLO: result.SLO{TTFT: 1000, TPOT: 50}})
			if err != nil || res.Extra.Goodput.Share != p.Attained {
				t.Errorf("%s at %v requests/s: %v, a run of its own says %v (%v)", p.Policy, p.Rate, p.Attained,
					res.Extra.Goodput.Share, err)
			}
		}
	}
	for why, change := range map[string]func(*explore.Query){
		"no SLO":          func(q *explore.Query) { q.SLO = "" },
		"at once":         set("workload.request_rate", "inf"),
		"max_concurrency": set("client.max_concurrency", "4"),
	} {
		a := ask(t, explore.New(explore.Limits{}, trace.Files{}), small(change))
		note := last[string](t, a, explore.KindNote)
		if !strings.Contains(note, why) || a.data[explore.KindPoints] != nil {
			t.Errorf("%s: %q, %v", why, note, a.kinds)
		}
	}
}

// TestPresets: every scenario of the repository is a preset or needs a file, and its settings are valid.
func TestPresets(t *testing.T) {
	list, err := explore.Presets(scenarios.Files)
	if err != nil {
		t.Fatal(err)
	}
	names, err := os.ReadDir("../../scenarios")
	if err != nil {
		t.Fatal(err)
	}
	files := 0
	for _, n := range names {
		if strings.HasSuffix(n.Name(), ".yaml") {
			files++
		}
	}
	if len(list) < files-2 || list[0].Name != "defaults" {
		t.Errorf("%d presets of %d files", len(list), files)
	}
	for _, p := range list {
		x := explore.New(explore.Limits{}, trace.Files{})
		ctx, cancel := context.WithCancel(t.Context())
		err := x.Run(ctx, p.Query, func(e explore.Event) {
			if c, ok := e.Data.(explore.Checked); ok && len(c.Faults) > 0 {
				t.Errorf("%s: %+v", p.Name, c.Faults)
			}
			cancel() // what is checked is enough
		})
		cancel()
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", p.Name, err)
		}
	}
}

// TestKnobs: every setting is on the page once, but those that it has otherwise.
func TestKnobs(t *testing.T) {
	seen := map[string]int{}
	for _, k := range explore.Knobs() {
		if seen[k.Key]++; k.Help == "" || k.Label == "" {
			t.Errorf("%+v says too little", k)
		}
	}
	missing := 0
	for _, f := range scenario.Fields() {
		if seen[f.Key] == 0 {
			missing++
		} else if seen[f.Key] > 1 {
			t.Errorf("%s is there %d times", f.Key, seen[f.Key])
		}
	}
	if missing != 4 {
		t.Errorf("%d settings are not on the page", missing)
	}
	if _, err := json.Marshal(explore.Knobs()); err != nil {
		t.Error(err)
	}
}

// FuzzPreset: whatever a file has, it is a preset or an error.
func FuzzPreset(f *testing.F) {
	f.Add("scenario: {workload: {num_prompts: 10}}\npolicies: [static]\n")
	f.Add("workload: {request_rate: 3}\n")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := explore.ParsePreset([]byte(text), "x.yaml")
		if err == nil && (len(p.Query.Policies) == 0 || len(p.Query.Policies) > explore.MaxPolicies) {
			t.Errorf("%d policies", len(p.Query.Policies))
		}
	})
}

// BenchmarkFirstResults is the time from a query to the first runs of three policies with 2000 requests.
func BenchmarkFirstResults(b *testing.B) {
	q := explore.DefaultPreset().Query
	x := explore.New(explore.Limits{}, trace.Files{})
	b.ReportAllocs()
	for b.Loop() {
		ctx, cancel := context.WithCancel(b.Context())
		shown := false
		err := x.Run(ctx, q, func(e explore.Event) {
			if e.Kind == explore.KindRuns {
				shown = true
				cancel()
			}
		})
		cancel()
		if !shown || !errors.Is(err, context.Canceled) {
			b.Fatalf("first results: %v (%v)", shown, err)
		}
	}
}
