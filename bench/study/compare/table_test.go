package compare

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lorasim/bench/result"
	"lorasim/bench/result/importer"
	"lorasim/bench/stats"
	"lorasim/bench/steady"
	"lorasim/sim/record"
	"lorasim/trace/columnar"
)

// seeded is a run of two seeds or more with one metric.
func seeded(name, metric string, seeds []string, xs ...float64) *Run {
	var all [][]result.Value
	for _, x := range xs {
		all = append(all, []result.Value{{Name: metric, Value: x}})
	}
	return FromValues(name, seeds, all)
}

// Differences are paired only where both runs have the same seeds, each with a
// value.
func TestPairing(t *testing.T) {
	const m = "mean_e2e_latency_ms"
	two, others := []string{"1", "2"}, []string{"1", "3"}
	base := seeded("base", m, two, 100, 200)
	for _, c := range []struct {
		run    *Run
		paired int
	}{
		{seeded("same seeds", m, two, 90, 190), 2},
		{seeded("others", m, others, 90, 190), 0},
		{seeded("one seed", m, two[:1], 90), 0},
		{seeded("a value is missing", m, two, 90), 0},
	} {
		tab := compared(t, base, c.run)
		cells := tab.row(m).Cells
		if cells[1].Diff.N != c.paired || cells[0].Diff.N != 0 {
			t.Errorf("%s: %d pairs, expected %d", c.run.Name, cells[1].Diff.N, c.paired)
		}
		if r := cells[1].Ratio; math.Abs(r-cells[1].Mean/150) > 1e-12 {
			t.Errorf("%s: ratio %v", c.run.Name, r)
		}
	}
	half := seeded("half", m, two, 90)
	if c := compared(t, half, base).row(m).Cells[1]; c.Diff.N != 0 {
		t.Errorf("the baseline lacks a value: %+v", c.Diff)
	}
	tab := compared(t, seeded("zero", m, []string{"1"}, 0), seeded("five", m, []string{"1"}, 5))
	if c := tab.row(m).Cells[1]; !math.IsNaN(c.Ratio) {
		t.Errorf("ratio to 0: %v", c.Ratio)
	}
}

// Rows of zeros are left out, but for how many requests completed.
func TestRowsShown(t *testing.T) {
	v := func(completed, failed, evictions float64) []result.Value {
		return []result.Value{
			{Name: "completed", Value: completed}, {Name: "failed", Value: failed},
			{Name: "evictions", Value: evictions}, {Name: "odd", Value: 1},
		}
	}
	runs := []*Run{
		FromValues("a", []string{"1"}, [][]result.Value{v(0, 0, 0)}),
		FromValues("b", []string{"1"}, [][]result.Value{v(0, 0, 2)}),
	}
	names := func(o Options) string {
		tab, err := New(runs, o)
		if err != nil {
			t.Fatal(err)
		}
		var list []string
		for _, r := range tab.Rows {
			list = append(list, r.Metric)
		}
		return strings.Join(list, " ")
	}
	for want, o := range map[string]Options{
		"completed evictions": {}, "completed failed evictions odd": {All: true},
		"odd failed": {Metrics: []string{"odd", "failed"}},
	} {
		if got := names(o); got != want {
			t.Errorf("%+v: %s, expected %s", o, got, want)
		}
	}
	if _, err := New(nil, Options{}); err == nil || err.Error() != "nothing to compare" {
		t.Error(err)
	}
}

// A run that did not get all tokens back states token throughputs that are not
// comparable with those of one that did; two of its kind compare.
func TestTokensAskedFor(t *testing.T) {
	run := func(name string, got float64) *Run {
		r := &result.Result{}
		r.Metrics.Set(result.TotalOutputTokens, 1000)
		r.Metrics.Set(result.TotalOutputTokensRetokenized, got)
		r.Metrics.Set(result.OutputThroughput, got)
		r.Metrics.Set(result.TotalThroughput, got+10)
		r.Metrics.Set(result.RequestThroughput, got/100)
		return FromResult(name, r)
	}
	few, all := run("few", 799), run("all", 800)
	if !few.Asked || all.Asked {
		t.Errorf("799 of 1000 are fewer: %v, 800 are not: %v", few.Asked, all.Asked)
	}
	tab := compared(t, few, all)
	for metric, apart := range map[string]bool{
		"output_throughput": true, "total_throughput": true, "request_throughput": false,
	} {
		if c := tab.row(metric).Cells; c[0].Apart != apart || c[1].Apart || c[1].Best == apart {
			t.Errorf("%s: %+v", metric, c)
		}
	}
	if c := compared(t, few, run("fewer", 500)).row("output_throughput").Cells; c[0].Apart || !c[0].Best {
		t.Errorf("two that count what was asked for: %+v", c)
	}
	counted := &result.Result{}
	counted.Metrics.Set(result.TotalOutputTokens, 1000)
	if FromResult("x", counted).Asked {
		t.Error("a result that does not say how many tokens came")
	}
	if only := FromResult("x", &result.Result{}); only.Asked || only.Source != "log" {
		t.Errorf("a result without tokens: %+v", only)
	}
}

// Runs of other requests are not judged, and one sentence says why.
func TestWorkloadsDiffer(t *testing.T) {
	type numbers struct{ requests, completed, set, input float64 }
	same := numbers{100, 100, 7, 1000}
	run := func(name string, n numbers, e2e float64) *Run {
		return FromValues(name, []string{"1"}, [][]result.Value{
			append(values(n.requests, n.completed, n.set, e2e), result.Value{
				Name: "total_input_tokens", Value: n.input,
			}),
		})
	}
	for _, c := range []struct {
		name string
		edit func(r *Run)
		numbers
		want string
	}{
		{"the same", nil, same, ""},
		{"counted otherwise", nil, numbers{100, 100, 7, 1019}, ""},
		{"fewer", nil, numbers{40, 40, 3, 1000}, "40 requests instead of 100"},
		{"one more", nil, numbers{101, 101, 7, 1000}, "101 requests instead of 100"},
		{"longer prompts", nil, numbers{100, 100, 7, 1021}, "1021 input tokens instead of 1000"},
		{"longer prompts of those that completed", nil, numbers{100, 50, 7, 600}, ""},
		{"others", nil, numbers{100, 100, 8, 1000}, "different request ids"},
		{"another set", func(r *Run) { r.dataset = "random" }, numbers{100, 100, 0, 1000},
			"data set random instead of sharegpt"},
		{"another name of the same set", func(r *Run) { r.dataset = "random" }, same, ""},
		{"slower", func(r *Run) { r.stated = 2 }, same, "2 requests/s instead of 4"},
		{"a little slower, as measured", func(r *Run) { r.measured = 3.7 }, same, ""},
		{"slower, as measured", func(r *Run) { r.measured = 3.5 }, same, "3.5 requests/s instead of 4"},
	} {
		a, b := run("a", same, 80), run("b", c.numbers, 70)
		a.dataset, a.stated = "sharegpt", 4
		if c.edit != nil {
			c.edit(b)
		}
		tab := compared(t, a, b)
		want := ""
		if c.want != "" {
			want = "b: requests differ from those of a (" + c.want + "): no star and no verdict between the two"
		}
		if got := strings.Join(tab.Notes, ""); got != want &&
			!strings.HasPrefix(got, "b: 50 % of its requests did not complete") {
			t.Errorf("%s: %q, want %q", c.name, got, want)
		}
		if cell := tab.row("mean_e2e_latency_ms").Cells[1]; cell.Best != (c.want == "" && c.completed == 100) {
			t.Errorf("%s: %+v", c.name, cell)
		}
		if (tab.Verdict != nil) != (c.want == "" && c.completed == 100) {
			t.Errorf("%s: verdict %v", c.name, tab.Verdict)
		}
	}
}

// Single runs are judged by the intervals within them.
func TestIntervalsWithinRuns(t *testing.T) {
	run := func(name string, mean, half float64, state steady.State) *Run {
		r := &result.Result{Steady: &steady.Assessment{State: state, Reason: "why"}}
		r.Metrics.Set(result.MeanE2E, mean)
		r.Metrics.Set(result.MeanTTFT, mean/10)
		if half > 0 {
			r.Steady.Intervals = []steady.Interval{{Metric: "mean_e2e_latency_ms", Low: mean - half, High: mean + half}}
		}
		return FromResult(name, r)
	}
	for _, c := range []struct {
		a, b    *Run
		verdict string // "": none
		best    bool   // of a
	}{
		{run("a", 100, 3, steady.Steady), run("b", 110, 4, steady.Steady),
			"a is the best; worse: b +10.0 % ±5.0 (one run each, by batch means)", true},
		{run("a", 100, 8, steady.Steady), run("b", 110, 6, steady.Steady),
			"a has the lowest mean; not significantly different: b +10.0 % ±10.0 (one run each, by batch means)",
			false},
		{run("a", 100, 0, steady.Steady), run("b", 1558, 6, steady.Steady),
			"a has the lowest value; one run each cannot show whether that is chance: b +1458.0 %", true},
		{run("a", 100, 3, steady.Steady), run("b", 1558, 0, steady.Overloaded),
			"no verdict: b is overloaded; only a can be judged", false},
		{run("a", 100, 3, steady.Transient), run("b", 1558, 6, steady.Steady),
			"no verdict: a is transient; only b can be judged", false},
	} {
		tab := compared(t, c.a, c.b)
		got := ""
		if tab.Verdict != nil {
			got = tab.Verdict.String()
		}
		cells := tab.row("mean_e2e_latency_ms").Cells
		if got != c.verdict || cells[0].Best != c.best || cells[1].Best {
			t.Errorf("%q, want %q; %+v", got, c.verdict, cells)
		}
	}
	// 95 % of the intervals of differences between runs that are alike hold 0, to 3
	// standard errors, and 5 % of the tests reject
	rng, inside, rejected := rand.New(rand.NewPCG(1, 2)), 0, 0
	for range 2000 {
		d := differenceWithin(run("a", 100+rng.NormFloat64(), 1.96, steady.Steady),
			run("b", 100+2*rng.NormFloat64(), 2*1.96, steady.Steady), "mean_e2e_latency_ms")
		if d.Low <= 0 && 0 <= d.High {
			inside++
		}
		if d.P() < stats.Level {
			rejected++
		}
	}
	if share := float64(inside) / 2000; math.Abs(share-0.95) > 0.015 || rejected != 2000-inside {
		t.Errorf("%.3f of the intervals hold 0, %d tests reject", share, rejected)
	}
}

// The run whose completed requests count is the one that completed most.
func TestReference(t *testing.T) {
	one := []string{"1"}
	run := func(name string, completed, set float64) *Run {
		return FromValues(name, one, [][]result.Value{values(100, completed, set, 50)})
	}
	other := run("e", 90, 2)
	other.Seeds = []string{"7"} // of a single run it does not matter
	tab := compared(t, run("a", 80, 1), run("b", 90, 2), run("c", 90, 3), run("d", 90, 2), other)
	for i, apart := range []bool{true, false, true, false, false} {
		if c := tab.row("mean_e2e_latency_ms").Cells[i]; c.Apart != apart {
			t.Errorf("%s: apart %v", tab.Runs[i].Name, c.Apart)
		}
	}
	tab = compared(t, seeded("unknown", "duration", one, 50), run("a", 80, 1), run("b", 90, 2))
	if c := tab.row("mean_e2e_latency_ms").Cells; !c[1].Apart || c[2].Apart {
		t.Errorf("80 %%, 90 %%, and one of which it is not known: %+v", c)
	}
	two := func(name string, a, b float64) *Run {
		return FromValues(name, []string{"1", "2"}, [][]result.Value{values(100, a, 1, 50), values(100, b, 1, 50)})
	}
	tab = compared(t, two("half", 100, 50), two("most", 80, 90))
	if c := tab.row("mean_e2e_latency_ms").Cells; !c[0].Apart || c[1].Apart {
		t.Errorf("75 %% and 85 %%: %+v", c)
	}
	if n := tab.Notes; len(n) != 2 || n[0] != "half: 25 % of its requests did not complete" ||
		n[1] != "most: 15 % of its requests did not complete" {
		t.Errorf("%q", n)
	}
	tab = compared(t, two("a", 80, 90), two("b", 80, 90),
		FromValues("c", []string{"1", "3"}, [][]result.Value{values(100, 80, 1, 50), values(100, 90, 1, 50)}))
	if c := tab.row("mean_e2e_latency_ms").Cells; c[1].Apart || !c[2].Apart {
		t.Errorf("other seeds: %+v", c)
	}
}

// What logs say of the rate is held against what was sent.
func TestSentRate(t *testing.T) {
	for _, c := range []struct {
		counts []int64
		last   float64
		rate   result.Rate
		want   float64
	}{
		{[]int64{30, 10}, 20, 5, 2}, {nil, 20, 5, 0}, {[]int64{30}, 0, 5, 0}, {[]int64{30}, -1, 5, 0},
		{[]int64{30}, 20, 0, 0}, {[]int64{30}, 20, result.Rate(math.Inf(1)), 0},
		{[]int64{30}, 20, result.Rate(math.NaN()), 0},
	} {
		m := &importer.Imported{
			Result: &result.Result{}, Context: importer.Context{ModelCounts: c.counts, LastArrival: c.last},
		}
		m.RequestRate = c.rate
		if got := sentRate(m); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// The runs above the table: a line for each, with the line of a log and the
// number of seeds.
func TestText(t *testing.T) {
	run := func(name string, seeds []string, xs ...float64) *Run {
		var all [][]result.Value
		for _, x := range xs {
			all = append(all, []result.Value{
				{Name: "requests", Value: 10}, {Name: "completed", Value: 10}, {Name: "mean_ttft_ms", Value: x},
			})
		}
		return FromValues(name, seeds, all)
	}
	a := run("A", []string{"1"}, 10)
	a.File, a.Line, a.What, a.Source = "x/bench.log", 12, "one", "log"
	b := run("B", []string{"1", "2"}, 5, 7)
	b.File, b.What = "out", "two"
	var out strings.Builder
	if err := compared(t, a, b).WriteText(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"A  log    bench.log:12  one\n", "B  sweep  out           two, 2 seeds\n", " 10 ", "*6 ±", "×0.60\n",
		"× ratio to A\n± half of the 95 %",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	out.Reset()
	if err := compared(t, a).WriteText(&out); err != nil || strings.Contains(out.String(), "ratio") ||
		strings.Contains(out.String(), "±") {
		t.Errorf("%v: one run has no ratios and no intervals:\n%s", err, out.String())
	}
	for want, c := range map[string]Cell{
		"-":       {},
		"12":      {Estimate: stats.Estimate{N: 1, Mean: 12}},
		"1.26":    {Estimate: stats.Estimate{N: 1, Mean: 1.256}},
		"*3":      {Estimate: stats.Estimate{N: 1, Mean: 3}, Best: true},
		"3 ≠":     {Estimate: stats.Estimate{N: 1, Mean: 3}, Apart: true},
		"3 ±0.50": {Estimate: stats.Estimate{N: 2, Mean: 3, Low: 2.5, High: 3.5}},
		"-1.26":   {Estimate: stats.Estimate{N: 1, Mean: -1.256}},
	} {
		if got := c.text(); got != want {
			t.Errorf("%q, expected %q", got, want)
		}
	}
	diff := stats.Estimate{N: 3, Mean: -1, Low: -2, High: 0}
	longer := stats.Estimate{N: 3, Mean: -1, Low: -3, High: -0.4}
	for want, c := range map[string]Cell{
		"":            {Ratio: math.NaN()},
		"×0.75":       {Ratio: 0.75, Estimate: stats.Estimate{N: 1, Mean: 3}},
		"×0.75 ±0.25": {Ratio: 0.75, Estimate: stats.Estimate{N: 3, Mean: 3}, Relative: ratioBy(diff, 4)},

		"×0.75 (0.25 to 0.9)": {Ratio: 0.75, Estimate: stats.Estimate{N: 3, Mean: 3}, Relative: ratioBy(longer, 4)},
	} {
		if got := c.ratio(); got != want {
			t.Errorf("%q, expected %q", got, want)
		}
	}
}

// JSON lines are records where they have an arrival and an adapter, else results.
func TestKinds(t *testing.T) {
	dir := t.TempDir()
	for i, c := range []struct {
		name, text string
		want       kind
	}{
		{"a.jsonl", `{"arrival_s": 1, "adapter": "x"}` + "\n{", recordsFile},
		{"b.jsonl", `{"arrival_s": 1, "adapter": "x"}`, recordsFile},
		{"c.jsonl", `{"arrival_s": 1}`, resultsFile}, {"d.jsonl", `{"adapter": "x"}`, resultsFile},
		{"e.log", "arrival_s adapter", resultsFile},
		{"f.jsonl", strings.Repeat(" ", 1<<17), resultsFile}, {"g.CSV", "", recordsFile},
		{"h.parquet", "", recordsFile}, {"i.arrow", "", recordsFile},
	} {
		path := filepath.Join(dir, c.name)
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := kindOf(path); err != nil || got != c.want {
			t.Errorf("%d, %s: %v, %v", i, c.name, got, err)
		}
	}
}

// Records without the times of tokens have no ITL rather than one of zero; with
// them, they have.
func TestRecordsWithoutGaps(t *testing.T) {
	dir := t.TempDir()
	line := func(first, gaps string) string {
		return `{"id":0,"arrival_s":0,"sent_s":0,"first_token_s":` + first +
			`,"finish_s":3,"prompt_tokens":5,"output_tokens":3,"adapter":0,"status":"ok"` + gaps + "}\n"
	}
	for i, c := range []struct {
		text     string
		itl      bool
		streamed record.Streaming
	}{
		{line("1", ""), false, record.Streamed},
		{line("3", ""), false, record.StreamingUnknown},
		{line("1", `,"token_gaps_s":[1,1]`), true, record.Streamed},
		{strings.Replace(line("1", ""), `"ok"`, `"aborted"`, 1) + strings.Replace(line("3", ""), `"id":0`, `"id":1`, 1),
			false, record.StreamingUnknown},
		{line("1", `,"streamed":"no"`), false, record.NotStreamed},
		{line("1", "") + strings.Replace(line("1", `,"token_gaps_s":[1,1]`), `"id":0`, `"id":1`, 1), true,
			record.Streamed},
	} {
		path := filepath.Join(dir, fmt.Sprintf("%d.jsonl", i))
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		runs, _, err := Load(t.Context(), columnar.Files(), []string{path}, result.SLO{})
		if err != nil {
			t.Error(i, err)
			continue
		}
		r := runs[0]
		for _, m := range []string{"mean_itl_ms", "max_itl_ms", "max_output_tokens_per_s"} {
			if has := len(r.values[m]) > 0; has != c.itl {
				t.Errorf("%d: %s there: %v", i, m, has)
			}
		}
		if r.Streamed != c.streamed || len(r.values["mean_tpot_ms"]) == 0 || len(r.values["mean_ttft_ms"]) == 0 {
			t.Errorf("%d: %+v", i, r)
		}
	}
}

func TestDescribe(t *testing.T) {
	config := map[string]any{"routing.policy": "p2c", "cluster.num_workers": 4}
	for want, r := range map[string]*result.Result{
		"sglang, static, rate 2.0": {
			Meta: result.Meta{
				Backend: "sglang", Policy: "static", RequestRate: 2, Config: map[string]any{"routing.policy": "p2c"},
			},
		},
		"p2c, 4 workers, concurrency 8": {
			Meta: result.Meta{Config: config, MaxConcurrency: 8, Scenario: result.Scenario{Summary: "defaults"}},
		},
		"p2c, 4 workers, night": {Meta: result.Meta{Config: config, Scenario: result.Scenario{Summary: "night"}}},
		"p2c, 4 workers":        {Meta: result.Meta{Config: config, Scenario: result.Scenario{Summary: "seed=3"}}},
		"defaults":              {Meta: result.Meta{Scenario: result.Scenario{Summary: "defaults"}}},
		"dlora": {
			Meta: result.Meta{Backend: "dlora", Config: map[string]any{"inference_architecture": "dlora"}},
		},
		"sglang, dlora": {
			Meta: result.Meta{
				Backend: "sglang", Config: map[string]any{"inference_architecture": "dlora", "routing.policy": nil},
			},
		},
	} {
		if got := describe(r); got != want {
			t.Errorf("%q, expected %q", got, want)
		}
	}
}

// Only results that tell all of their settings, and have other seeds, are joined.
func TestJoinSeeds(t *testing.T) {
	res := func(seed int64, config map[string]any) *Run {
		r := &result.Result{Meta: result.Meta{Config: config}}
		if seed >= 0 {
			r.Seed = &seed
		}
		return FromResult("f", r)
	}
	a, b := map[string]any{"x": 1}, map[string]any{"x": 2}
	var got []string
	for _, r := range joinSeeds([]*Run{
		res(1, a), res(2, a), res(1, a), res(3, b), res(4, nil), res(5, nil), res(-1, a), res(-1, a), res(6, a),
	}) {
		got = append(got, strings.Join(r.Seeds, "+"))
	}
	if s := fmt.Sprint(got); s != "[1+2+6 1 3 4 5  ]" {
		t.Error(s)
	}
}

// Titles and names are aligned at their left end, numbers at their right, and
// ratios follow the numbers.
func TestAlignment(t *testing.T) {
	one := []string{"1"}
	v := func(completed, ttft float64) [][]result.Value {
		return [][]result.Value{
			{{Name: "requests", Value: completed}, {Name: "completed", Value: completed}, {
				Name: "mean_ttft_ms", Value: ttft,
			}},
		}
	}
	a, b, c := FromValues("A", one, v(8, 1234.5)), FromValues("B", one, v(16000, 12.25)), FromValues("C", one, v(8, 99))
	a.File, a.What, b.File, b.What, c.File, c.What = "a", "first", "bbb", "second", "c", "third"
	tab, err := New([]*Run{a, b, c}, Options{Baseline: "b"})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := tab.WriteText(&out); err != nil {
		t.Fatal(err)
	}
	want := `No verdict: the runs had different requests, or were measured differently (≠)

A  sweep  a    first
B  sweep  bbb  second
C  sweep  c    third

                     A                B        C
Successful requests        8 ×0.00    16000 ≠    8 ×0.00
Mean TTFT (ms) ↓     1234.50 ×100.78  12.25 ≠  *99 ×8.08
`
	if !strings.HasPrefix(out.String(), want) {
		t.Errorf("%s\nexpected\n%s", out.String(), want)
	}
}

// A run without the metric, or with one that is not comparable, does not stand
// against the best; one that is not clearly worse does, wherever it stands.
func TestBestOfThree(t *testing.T) {
	seeds := []string{"1", "2", "3"}
	run := func(name string, set float64, e2e ...float64) *Run {
		var all [][]result.Value
		for i := range 3 {
			v := []result.Value{{Name: "requests", Value: 10}, {Name: "completed", Value: set}}
			if i < len(e2e) {
				v = append(v, result.Value{Name: "mean_e2e_latency_ms", Value: e2e[i]})
			}
			all = append(all, v)
		}
		return FromValues(name, seeds, all)
	}
	best, worse := run("best", 10, 90, 190, 290), run("worse", 10, 100, 200, 301)
	for _, c := range []struct {
		name  string
		third *Run
		clear bool
	}{
		{"worse too", run("c", 10, 110, 210, 311), true},
		{"without a value", run("c", 10), true},
		{"neither", run("c", 5), true},
		{"as good", run("c", 10, 90, 190, 290), false},
		{"not comparable", run("c", 5, 95, 185, 290), true},
		{"about the same", run("c", 10, 95, 185, 291), false},
	} {
		for _, order := range [][]*Run{{best, worse, c.third}, {c.third, best, worse}, {best, c.third, worse}} {
			cells := compared(t, order...).row("mean_e2e_latency_ms").Cells
			for i, r := range order {
				if cells[i].N == 0 && cells[i].Apart {
					t.Errorf("%s: no value, and not comparable", c.name)
				}
				if is := r == best && c.clear; cells[i].Best != is || cells[i].Clear != (r == best && c.clear) {
					t.Errorf("%s: %s is the best: %v", c.name, r.Name, cells[i].Best)
				}
			}
		}
	}
}

// The verdict is on the runs with the seeds and values of the first that has any.
func TestVerdict(t *testing.T) {
	const m = "mean_e2e_latency_ms"
	seeds := []string{"1", "2", "3"}
	run := func(name string, seeds []string, e2e ...float64) *Run {
		var all [][]result.Value
		for _, x := range e2e {
			all = append(all, values(10, 10, 1, x))
		}
		return FromValues(name, seeds, all)
	}
	none := run("none", seeds, 1, 2, 3)
	delete(none.values, m)
	tab := compared(t, none, run("slow", seeds, 100, 200, 301), run("fast", seeds, 90, 190, 290),
		run("other seeds", []string{"1", "2", "4"}, 80, 180, 280), run("fewer", seeds[:2], 80, 180))
	if len(tab.Notes) > 0 {
		t.Errorf("notes on whole runs: %q", tab.Notes)
	}
	const want = "fast is the best; worse: slow +5.4 % ±0.8; not comparable: other seeds, fewer"
	var text, object strings.Builder
	if err := errors.Join(tab.WriteText(&text), tab.WriteJSON(&object)); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(strings.ReplaceAll(text.String(), "\n  ", " "),
		"By Mean E2E Latency (ms): "+want+"\n\n") || !strings.HasSuffix(text.String(), "\n"+stats.VerdictNote+"\n") ||
		!strings.Contains(object.String(), `"text": "`+want+`"`) {
		t.Errorf("%s\n%s\nexpected %q", text.String(), object.String(), want)
	}
	single := compared(t, seeded("a", m, []string{"1"}, 5), seeded("b", m, []string{"2"}, 6))
	if v := single.Verdict; v == nil || v.Seeds != 1 || len(v.Apart) > 0 {
		t.Errorf("single runs: %+v", v)
	}
	text.Reset()
	if err := single.WriteText(&text); err != nil || strings.Contains(text.String(), stats.VerdictNote) {
		t.Errorf("a note on tests that single runs do not have: %v\n%s", err, text.String())
	}
	object.Reset()
	if err := compared(t, seeded("alone", m, seeds, 1, 2, 3)).WriteJSON(&object); err != nil ||
		strings.Contains(object.String(), `"verdict"`) {
		t.Errorf("a verdict on one run: %v\n%s", err, object.String())
	}
}

func TestJSONOfSeeds(t *testing.T) {
	const m = "mean_e2e_latency_ms"
	tab := compared(t, seeded("A", m, []string{"1", "2", "3"}, 90, 190, 290),
		seeded("B", m, []string{"1", "2", "3"}, 100, 200, 301))
	var out strings.Builder
	if err := tab.WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Metrics []struct {
			Better string
			Runs   map[string]map[string]any
		}
	}
	if err := json.Unmarshal([]byte(out.String()), &got); err != nil {
		t.Fatal(err)
	}
	a, b := got.Metrics[0].Runs["A"], got.Metrics[0].Runs["B"]
	if got.Metrics[0].Better != "less" || a["best"] != true || a["best_by_intervals"] != true || b["best"] != nil ||
		a["ratio"] != nil ||
		math.Abs(b["diff_mean"].(float64)-31.0/3) > 1e-9 || !(b["diff_ci95_low"].(float64) > 0) {
		t.Error(out.String())
	}
}

// Runs of one workload with warm-ups of different lengths count different numbers of
// requests, and compare all the same; arrivals tell other workloads.
func TestWarmupsCompare(t *testing.T) {
	run := func(name string, requests, excluded, last, rate float64) *Run {
		r := &result.Result{
			Steady: &steady.Assessment{State: steady.Steady, Excluded: excluded, LastArrival: last, OfferedRate: rate},
		}
		r.Ended = &result.Endings{Requests: int64(requests)}
		r.Metrics.Set(result.Completed, requests)
		return FromResult(name, r)
	}
	for _, c := range []struct {
		b    *Run
		want string
	}{
		{run("b", 900, 10, 100, 10), ""},
		{run("b", 1000, 0, 100, 10), ""},
		{run("b", 900, 10, 50, 10), "the last request arrives after 50 s instead of 100 s"},
		{run("b", 900, 10, 100, 9), "9 requests/s instead of 10"},
	} {
		a := run("a", 950, 5, 100, 10)
		if got := c.b.differsFrom(a); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// TestUnequalSides: the difference of single runs uses the side of each interval that faces the other run, and a run
// without an interval says how long one with an interval is.
func TestUnequalSides(t *testing.T) {
	run := func(name string, mean, low, high float64) *Run {
		r := &result.Result{Steady: &steady.Assessment{State: steady.Steady,
			Intervals: []steady.Interval{{Metric: "mean_e2e_latency_ms", Low: low, High: high}},
			TooShort:  []steady.TooShort{{Metric: "mean_ttft_ms", Needed: 9000}}}}
		r.Metrics.Set(result.MeanE2E, mean)
		r.Metrics.Set(result.MeanTTFT, mean/10)
		return FromResult(name, r)
	}
	a, b := run("a", 120, 117, 150), run("b", 100, 98, 104)
	d := differenceWithin(a, b, "mean_e2e_latency_ms")
	if d.Low != 20-5 || math.Abs(d.High-20-math.Hypot(30, 2)) > 1e-9 || d.P() > 0.05 {
		t.Errorf("%+v, p %v", d, d.P())
	}
	if e := differenceWithin(b, a, "mean_e2e_latency_ms"); e.Low != -d.High || e.High != -d.Low || e.P() != d.P() {
		t.Errorf("%+v, p %v, expected the opposite of %+v", e, e.P(), d)
	}
	notes := compared(t, a, b).tooShort()
	if len(notes) != 1 || notes[0] != "a, b: mean_ttft_ms without ±, too short: needs about 9000 requests" {
		t.Errorf("%q", notes)
	}
}
