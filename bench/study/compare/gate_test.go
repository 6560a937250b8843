package compare

import (
	"encoding/xml"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/bench/stats"
	"lorasim/internal/testutil"
	"lorasim/trace/columnar"
)

// TestGateIsRight: of 20 races each, at least 19 find a planted loss, and at least 19 let a neutral change pass.
func TestGateIsRight(t *testing.T) {
	if testing.Short() {
		t.Skip("some 5 CPU s")
	}
	cases := []struct {
		name   string
		want   Outcome
		limits string
		change func(sc *scenario.Scenario)
	}{
		{"a worker fewer", Failed, "mean_ttft_ms>5%,p99_ttft_ms>10%", set(t, "num_workers", "2")},
		{"a worse policy", Failed, "mean_ttft_ms>5%,p99_ttft_ms>10%", set(t, "policy", "random")},
		{"fewer adapter slots", Failed, "mean_ttft_ms>5%,output_throughput>3%", set(t, "max_loras_per_batch", "2")},
		{"another seed in the file", Passed, "p99_ttft_ms>0%", func(sc *scenario.Scenario) { sc.Seed += 1000 }},
		{"ties in another way", Passed, "mean_e2e_latency_ms>3%,median_ttft_ms>5%",
			set(t, "policy", "affinity-spill:ties=first")},
		{"a worker more", Passed, "mean_ttft_ms>5%,output_throughput>3%", set(t, "num_workers", "4")},
	}
	for _, c := range cases {
		limits, err := ParseLimits(c.limits)
		if err != nil {
			t.Fatal(err)
		}
		count := map[Outcome]int{}
		for seed := range uint64(20) {
			base := small(t)
			base.Seed = 100*seed + 1
			changed := base
			c.change(&changed)
			g, err := (&Race{Base: &base, New: &changed, Limits: limits}).Run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			count[g.Outcome()]++
		}
		t.Logf("%s: %v", c.name, count)
		if count[c.want] < 19 {
			t.Errorf("%s: %v, expected %q at least 19 times", c.name, count, c.want)
		}
	}
}

func set(t *testing.T, key, value string) func(*scenario.Scenario) {
	return func(sc *scenario.Scenario) { testutil.Set(t, sc, key, value) }
}

// small is a scenario that runs within milliseconds.
func small(t *testing.T) scenario.Scenario {
	sc := scenario.Default()
	sc.Files = columnar.Files()
	for key, value := range map[string]string{"num_prompts": "200", "request_rate": "8", "num_adapters": "24",
		"num_workers": "3", "policy": "affinity-spill"} {
		testutil.Set(t, &sc, key, value)
	}
	return sc
}

// drawn is a run with a log-normal latency for each seed. Runs with the same draws differ by ratio and noise alone.
func drawn(rng *rand.Rand, of stats.Sampling, common []float64, ratio, noise float64) *Run {
	var seeds []string
	var numbers [][]result.Value
	for i, x := range common {
		seeds = append(seeds, strconv.Itoa(i+1))
		y := 100 * math.Exp(0.5*x) * ratio * math.Exp(noise*rng.NormFloat64())
		numbers = append(numbers, []result.Value{{Name: "requests", Value: 100}, {Name: "completed", Value: 100},
			{Name: "mean_ttft_ms", Value: y}, {Name: "output_throughput", Value: 1e5 / y}})
	}
	r := FromValues("", seeds, numbers)
	r.sampling = of
	return r
}

func normals(rng *rand.Rand, n int) (xs []float64) {
	for range n {
		xs = append(xs, rng.NormFloat64())
	}
	return xs
}

func mustGate(t *testing.T, base, changed *Run, limits string, looks int) *Gate {
	t.Helper()
	ls, err := ParseLimits(limits)
	if err != nil {
		t.Fatal(err)
	}
	g, err := NewGate(base, changed, ls, looks, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestGateErrs: at the limit itself a gate fails in at most 5 % of cases, and passes in at most 5 %; what is beyond by
// several standard errors it finds.
func TestGateErrs(t *testing.T) {
	const trials = 400
	rng := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct {
		ratio        float64
		unpaired     bool
		fails, holds [2]int // least and most, of trials
	}{
		{1.05, false, [2]int{3, 20}, [2]int{3, 20}}, // each end misses with half of 5 %
		{1.05, true, [2]int{3, 20}, [2]int{3, 20}},
		{1.00, false, [2]int{0, 1}, [2]int{390, trials}},
		{1.10, false, [2]int{390, trials}, [2]int{0, 1}},
	} {
		fails, holds := 0, 0
		for range trials {
			common := normals(rng, 16)
			if c.unpaired {
				common = make([]float64, 16)
			}
			base, changed := drawn(rng, stats.Fresh, common, 1, 0.02), drawn(rng, stats.Fresh, common, c.ratio, 0.02)
			if c.unpaired {
				for i := range base.Seeds {
					base.Seeds[i] = ""
				}
			}
			switch mustGate(t, base, changed, "mean_ttft_ms>5%", 1).Outcome() {
			case Failed:
				fails++
			case Passed:
				holds++
			}
		}
		if fails < c.fails[0] || fails > c.fails[1] || holds < c.holds[0] || holds > c.holds[1] {
			t.Errorf("ratio %v, unpaired %v: %d fail, expected %v; %d pass, expected %v", c.ratio, c.unpaired, fails,
				c.fails, holds, c.holds)
		}
	}
}

// TestGateTogether: with several limits and looks, all intervals hold together, so each is wider.
func TestGateTogether(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	common := normals(rng, 8)
	base, changed := drawn(rng, stats.Fresh, common, 1, 0.02), drawn(rng, stats.Fresh, common, 1.02, 0.02)
	width := func(limits string, looks int) float64 {
		c := mustGate(t, base, changed, limits, looks).Checks[0]
		return math.Log1p(c.High) - math.Log1p(c.Low)
	}
	one, two, four := width("mean_ttft_ms>5%", 1), width("mean_ttft_ms>5%,output_throughput>5%", 1),
		width("mean_ttft_ms>5%,output_throughput>5%", 2)
	if r := two / one; math.Abs(r-stats.TQuantile(1-0.0125, 7)/stats.TQuantile(1-0.025, 7)) > 1e-9 {
		t.Errorf("two limits: %v times as wide", r)
	}
	if r := four / one; math.Abs(r-stats.TQuantile(1-0.00625, 7)/stats.TQuantile(1-0.025, 7)) > 1e-9 {
		t.Errorf("two limits and looks: %v times as wide", r)
	}
}

// TestNeeded: the number of runs that a gate asks for decides in about 80 % of cases.
func TestNeeded(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	asked, decided := 0, 0
	for range 400 {
		common := normals(rng, 8)
		g := mustGate(t, drawn(rng, stats.Fresh, common, 1, 0.05), drawn(rng, stats.Fresh, common, 1.08, 0.05),
			"mean_ttft_ms>5%", 1)
		n := g.Needed()
		if g.Outcome() != Unsure || n == 0 || n > 2000 {
			continue
		}
		asked++
		// the means stay as they are: draw around the ratio that was measured
		common = normals(rng, n)
		std := g.Table.Runs[1].spread(g.Table.Runs[0])
		again := drawn(rng, stats.Fresh, common, 1+g.Checks[0].Change, std)
		g = mustGate(t, drawn(rng, stats.Fresh, common, 1, 0), again, "mean_ttft_ms>5%", 1)
		if g.Outcome() != Unsure {
			decided++
		}
	}
	if share := float64(decided) / float64(asked); asked < 100 || share < 0.7 || share > 0.9 {
		t.Errorf("%d of %d decided, expected some 80 %%", decided, asked)
	}
}

// spread is the standard deviation of the logarithms of the ratios of two runs' first latencies.
func (r *Run) spread(o *Run) float64 {
	var xs []float64
	for i, x := range r.values["mean_ttft_ms"] {
		xs = append(xs, math.Log(x/o.values["mean_ttft_ms"][i]))
	}
	return stats.Mean(xs).Std
}

// TestSides: what is compared with what.
func TestSides(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	common := normals(rng, 12)
	run := func(n int, of stats.Sampling, ratio float64) *Run {
		return drawn(rng, of, common[:n], ratio, 0.01)
	}
	// only the common seeds count
	short := run(12, stats.Fresh, 1.2)
	short.Seeds, short.numbers, short.completed = short.Seeds[4:], short.numbers[4:], short.completed[4:]
	if c := mustGate(t, run(10, stats.Fresh, 1), short, "mean_ttft_ms>5%", 1).Checks[0]; c.Runs != 6 || !c.Paired ||
		c.Outcome != Failed || math.Abs(c.Change-0.2) > 0.02 {
		t.Errorf("six common seeds: %+v", c)
	}
	// more is better of a throughput
	g := mustGate(t, run(8, stats.Fresh, 1), run(8, stats.Fresh, 1.2), "output_throughput>3%", 1)
	if c := g.Checks[0]; c.Outcome != Failed || math.Abs(c.Change+1-1/1.2) > 0.02 ||
		!strings.Contains(g.String(), "limit -3 %") {
		t.Errorf("%+v, %s", c, g)
	}
	// equal runs pass, however few
	one := run(8, stats.OneWorkload, 1)
	if c := mustGate(t, one, one, "mean_ttft_ms>0%", 1).Checks[0]; c.Outcome != Passed {
		t.Errorf("the same runs: %+v", c)
	}
	// the seeds of one workload do not show what others would do
	double := mustGate(t, run(8, stats.OneWorkload, 1), run(8, stats.OneWorkload, 2), "mean_ttft_ms>5%", 1)
	if c := double.Checks[0]; c.Outcome != Unsure || !strings.Contains(c.Reason, "--resample") || c.Needed != 0 {
		t.Errorf("one workload: %+v", c)
	}
	// draws from one workload have an interval that more draws do not narrow
	wide := func(n int) float64 {
		c := mustGate(t, run(n, stats.Resampled, 1), run(n, stats.Resampled, 1), "mean_ttft_ms>5%", 1).Checks[0]
		return c.High - c.Low
	}
	if a := wide(12); a < 0.03 || a > 0.12 {
		t.Errorf("12 draws: width %v", a)
	}
	// one run a side
	single := mustGate(t, run(1, stats.Fresh, 1), run(1, stats.Fresh, 2), "mean_ttft_ms>5%", 1)
	if c := single.Checks[0]; c.Outcome != Unsure || c.Needed != 8 || c.Change < 0.9 {
		t.Errorf("one run each: %+v", c)
	}
	// a base of 0
	zero := func(x ...float64) *Run {
		var numbers [][]result.Value
		for _, v := range x {
			numbers = append(numbers, []result.Value{{Name: "requests", Value: 100}, {Name: "failed", Value: v}})
		}
		return FromValues("", []string{"1", "2", "3", "4"}, numbers)
	}
	for want, x := range map[Outcome][]float64{Failed: {3, 4, 3, 4}, Passed: {0, 0, 0, 0}, Unsure: {0, 9, 0, 0}} {
		if c := mustGate(t, zero(0, 0, 0, 0), zero(x...), "failed>5%", 1).Checks[0]; c.Outcome != want {
			t.Errorf("from 0 to %v: %+v, expected %s", x, c, want)
		}
	}
}

// TestGateCompletes: who rejects requests is not faster for it.
func TestGateCompletes(t *testing.T) {
	run := func(done float64, ttft float64) *Run {
		var numbers [][]result.Value
		var seeds []string
		for i := range 8 {
			seeds = append(seeds, fmt.Sprint(i))
			numbers = append(numbers, []result.Value{{Name: "requests", Value: 1000},
				{Name: "completed", Value: done - float64(i%2)}, {Name: "mean_ttft_ms", Value: ttft + float64(i%2)}})
		}
		return FromValues("", seeds, numbers)
	}
	for _, c := range []struct {
		name      string
		base, new *Run
		want      Outcome
		reason    string
	}{
		{"rejects and is fast", run(1000, 100), run(800, 10), Failed, "NEW rejects or loses requests: 20.1 %"},
		{"rejects three in a thousand", run(1000, 100), run(997, 90), Passed, ""},
		{"completes more and is fast", run(800, 100), run(1000, 90), Passed, ""},
		{"completes more and is slow", run(800, 100), run(1000, 200), Unsure, "NEW completes more requests"},
	} {
		if got := mustGate(t, c.base, c.new, "mean_ttft_ms>5%", 1).Checks[0]; got.Outcome != c.want ||
			!strings.HasPrefix(got.Reason, c.reason) || c.reason == "" && got.Reason != "" {
			t.Errorf("%s: %+v, expected %s, %q", c.name, got, c.want, c.reason)
		}
	}
	limits, _ := ParseLimits("mean_ttft_ms>5%")
	other := run(1000, 100)
	for i := range other.completed {
		other.completed[i].Requests = 1500
	}
	if _, err := NewGate(run(1000, 100), other, limits, 1, Options{}); err == nil ||
		!strings.Contains(err.Error(), "different requests, NEW 1500 requests instead of 1000") {
		t.Errorf("other requests: %v", err)
	}
	limits, _ = ParseLimits("p99_e2e_latency_ms>5%")
	if _, err := NewGate(run(1000, 100), run(1000, 100), limits, 1, Options{}); err == nil ||
		err.Error() != "neither BASE nor NEW has p99_e2e_latency_ms" {
		t.Errorf("an absent metric: %v", err)
	}
}

// TestGateFormats: the table of a pull request keeps its cells, and JUnit counts what it lists.
func TestGateFormats(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	common := normals(rng, 8)
	base, changed := drawn(rng, stats.Fresh, common, 1, 0.01), drawn(rng, stats.Fresh, common, 1.5, 0.01)
	changed.What = "a|b <script>"
	g := mustGate(t, base, changed, "mean_ttft_ms>5%,output_throughput>33%", 1)
	var text, markdown, junit strings.Builder
	for as, b := range map[string]*strings.Builder{"text": &text, "markdown": &markdown, "junit": &junit} {
		if err := g.WriteAs(b, as, "lorasim compare --seeds 99 'a<b'"); err != nil {
			t.Fatal(err)
		}
	}
	for _, line := range strings.Split(markdown.String(), "\n") {
		if cells := strings.Count(line, "|"); strings.HasPrefix(line, "| ") && cells != 7 {
			t.Errorf("%d bars in %s", cells, line)
		}
	}
	for _, want := range []string{"**lorasim: worse.**", `a\|b &lt;script>`,
		"```sh\nlorasim compare --seeds 99 'a<b'\n```"} {
		if !strings.Contains(markdown.String(), want) {
			t.Errorf("no %q in\n%s", want, &markdown)
		}
	}
	var suite junitSuite
	if err := xml.Unmarshal([]byte(junit.String()), &suite); err != nil {
		t.Fatal(err)
	}
	failures, errors := 0, 0
	for _, c := range suite.Cases {
		if c.Failure != nil {
			failures++
		}
		if c.Error != nil {
			errors++
		}
	}
	if suite.Tests != 2 || failures != 1 || errors != 1 || suite.Failures != 1 || suite.Errors != 1 ||
		suite.Cases[0].Name != "mean_ttft_ms>5%" || !strings.Contains(suite.Cases[1].Error.Text, "'a<b'") {
		t.Errorf("%+v", suite)
	}
	if !strings.HasPrefix(text.String(), "NEW is worse than BASE: mean_ttft_ms +") ||
		!strings.Contains(text.String(), "\nNEW   sweep  .  a|b <script>, 8 seeds\n") {
		t.Errorf("%s", &text)
	}
}
