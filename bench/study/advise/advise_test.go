package advise

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/bench/stats"
	"lorasim/internal/testutil"
)

func describe(t *testing.T, settings ...string) *scenario.Scenario {
	t.Helper()
	sc := scenario.Default()
	for _, s := range settings {
		key, value, _ := strings.Cut(s, "=")
		if err := sc.Set(key, value); err != nil {
			t.Fatal(err)
		}
	}
	return &sc
}

func find(t *testing.T, sc *scenario.Scenario, o Options) *Advice {
	t.Helper()
	if o.Objective.Name == "" {
		o.Objective = objectives[0]
	}
	o.MinGain, o.Seeds = 2, max(o.Seeds, 8)
	a, err := Find(t.Context(), sc, o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

var few = []string{"static", "hash", "least-loaded", "affinity-spill", "plan-and-route"}

// TestFigures: the figures of the finalists are those of single simulations of the
// held-out seeds, and their differences are paired by seed.
func TestFigures(t *testing.T) {
	sc := describe(t, "num_prompts=200", "num_workers=2", "request_rate=4")
	a := find(t, sc, Options{Policies: few})
	pick := a.recommended()
	if !a.Confirmed || a.Attempts != 1 {
		t.Fatalf("not confirmed at the first attempt: %d", a.Attempts)
	}
	own := func(f *Finalist, i int) (score, ttft, regret float64) {
		one := *sc
		one.Seed = stats.Seed(1, forVerdict, i)
		testutil.Set(t, &one, "policy", f.Spec)
		res, err := one.Simulate(t.Context(), scenario.RunOptions{Oracle: true})
		if err != nil {
			t.Fatal(err)
		}
		get := func(m result.ID) float64 {
			v, _ := res.Metrics.Get(m)
			return v
		}
		ttft = get(result.MeanTTFT)
		return math.Log(get(result.MeanE2E)) + 0.35*math.Log(ttft) + 0.15*math.Log(get(result.P99TTFT)), ttft,
			res.Extra.Oracle.E2ERegret
	}
	for _, f := range a.Finalists {
		var diff, ttft, regret float64
		for i := range a.Seeds {
			x, t1, r := own(f, i)
			y, _, _ := own(pick, i)
			diff, ttft, regret = diff+(x-y)/float64(a.Seeds), ttft+t1/float64(a.Seeds), regret+r/float64(a.Seeds)
		}
		if math.Abs(f.TTFT.Mean-ttft) > 1e-6 || math.Abs(f.Regret.Mean-regret) > 1e-9 ||
			f != pick && math.Abs(f.Diff.Mean-diff) > 1e-9 {
			t.Errorf("%s: TTFT %v, regret %v, difference %v; expected %v, %v, %v", f.Spec, f.TTFT.Mean, f.Regret.Mean,
				f.Diff.Mean, ttft, regret, diff)
		}
		if !(f.Regret.Low > 0) {
			t.Errorf("%s: below the bound: %v", f.Spec, f.Regret)
		}
	}
}

// TestBaseSeeds: whichever the base seed, the recommendation is one that no other base
// seed calls significantly worse than its own.
func TestBaseSeeds(t *testing.T) {
	var all []*Advice
	for _, seed := range []string{"1", "2", "3"} {
		sc := describe(t, "num_prompts=300", "num_workers=3", "request_rate=6", "seed="+seed)
		all = append(all, find(t, sc, Options{Policies: few}))
	}
	for i, a := range all {
		for j, b := range all {
			k := slices.IndexFunc(b.Finalists, func(f *Finalist) bool { return f.Spec == a.recommended().Spec })
			if k < 0 || b.Finalists[k].Worse {
				t.Errorf("base seed %d recommends %s, which base seed %d finds worse than %s", i+1,
					a.recommended().Spec, j+1, b.recommended().Spec)
			}
		}
	}
}

// TestSameBytes: the same seed gives the same answer, page included; texts fit into 100
// columns.
func TestSameBytes(t *testing.T) {
	var text, again, page, pageAgain, js bytes.Buffer
	for _, w := range [][2]*bytes.Buffer{{&text, &page}, {&again, &pageAgain}} {
		sc := describe(t, "num_prompts=100", "num_workers=2", "request_rate=4")
		a := find(t, sc, Options{Policies: []string{"static", "affinity-spill"}, Search: true, Worst: true,
			Budget: 100_000})
		fmt.Fprintln(w[0], a)
		if err := errors.Join(a.WriteDetails(w[0]), a.WriteHTML(w[1]), a.WriteJSON(&js)); err != nil {
			t.Fatal(err)
		}
		if a.Worst == nil || a.Worst.Tried < 10 || a.Raced <= 2 {
			t.Errorf("worst scenario %+v, %d candidates", a.Worst, a.Raced)
		}
	}
	if text.String() != again.String() || page.String() != pageAgain.String() {
		t.Errorf("two answers:\n%s\n%s", &text, &again)
	}
	for line := range strings.Lines(text.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 100 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	if !strings.HasPrefix(text.String(), "Recommendation: --policy ") {
		t.Errorf("the answer does not begin with the recommendation:\n%s", &text)
	}
	dec := json.NewDecoder(&js)
	var first, second map[string]any
	if err := errors.Join(dec.Decode(&first), dec.Decode(&second)); err != nil || first["text"] != second["text"] ||
		first["schema"] != "lorasim.advise/1" || first["worst_scenario"] == nil {
		t.Errorf("%v: %v", err, first)
	}
}

// TestLength: runs that the scenario leaves open get long enough to be steady, those it
// gives stay.
func TestLength(t *testing.T) {
	a := find(t, describe(t, "num_workers=2", "request_rate=4"), Options{Policies: []string{"static", "least-loaded"}})
	if !a.Chosen || a.Requests < 2000 || a.Scenario.Workload.NumPrompts.Value != a.Requests {
		t.Errorf("length %d, chosen %v", a.Requests, a.Chosen)
	}
	a = find(t, describe(t, "num_prompts=250", "num_workers=2"), Options{Policies: []string{"static", "least-loaded"}})
	if a.Chosen || a.Requests != 250 {
		t.Errorf("length %d, chosen %v", a.Requests, a.Chosen)
	}
}

// TestOverload says that the answer is about runs of one length only.
func TestOverload(t *testing.T) {
	a := find(t, describe(t, "num_prompts=1000", "num_workers=1", "request_rate=30"),
		Options{Policies: []string{"static", "least-loaded"}})
	if text := a.String(); !strings.Contains(text, "\nOverloaded: ") {
		t.Errorf("no word of overload:\n%s", text)
	}
	if a.recommended().Spec != "static" { // one worker: both are the same
		t.Errorf("recommended %s", a.recommended().Spec)
	}
}

// TestGoodput: the share of requests within the SLO decides.
func TestGoodput(t *testing.T) {
	slo, err := result.ParseSLO("ttft:200")
	if err != nil {
		t.Fatal(err)
	}
	objective, err := ParseObjective("goodput")
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Objective: objective, Policies: []string{"static", "least-loaded", "plan-and-route"}}
	if o.Check() == nil {
		t.Error("goodput without an SLO was accepted")
	}
	o.SLO = slo
	a := find(t, describe(t, "num_prompts=400", "num_workers=3", "request_rate=7"), o)
	pick := a.recommended()
	for _, f := range a.Finalists[1:] {
		if diff := 100 * (pick.Good.Mean - f.Good.Mean); math.Abs(a.Objective.Percent(f.Diff.Mean)-diff) > 1e-9 ||
			f.Good.Mean > pick.Good.Mean+0.02 {
			t.Errorf("%s: %v within the SLO, recommended %v, difference %v points", f.Spec, f.Good.Mean, pick.Good.Mean,
				f.Diff.Mean)
		}
	}
}

// TestCancel: a study that is cancelled gives no answer.
func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	o := Options{Objective: objectives[0], Seeds: 8, MinGain: 2, Policies: few}
	o.Progress = func(_ string, done, _ int64) {
		if done == 3 {
			cancel()
		}
	}
	if a, err := Find(ctx, describe(t, "num_prompts=300"), o); !errors.Is(err, context.Canceled) || a != nil {
		t.Errorf("%v, %v", a, err)
	}
}

// TestObjectives: scores by hand.
func TestObjectives(t *testing.T) {
	f := Figures{E2E: 1000, TTFT: 100, P99TTFT: 400, Good: 0.75, Completed: 0.9}
	for name, want := range map[string]float64{
		"balanced": math.Log(1000) + 0.35*math.Log(100) + 0.15*math.Log(400) + 0.5,
		"e2e":      math.Log(1000) + 0.5, "ttft": math.Log(100) + 0.5, "p99-ttft": math.Log(400) + 0.5, "goodput": 0.25,
	} {
		o, err := ParseObjective(name)
		if err != nil || math.Abs(o.score(&f)-want) > 1e-9 {
			t.Errorf("%s: %v, expected %v (%v)", name, o.score(&f), want, err)
		}
		if p := o.Percent(o.fromPercent(7)); math.Abs(p-7) > 1e-9 {
			t.Errorf("%s: 7 became %v", name, p)
		}
	}
	if _, err := ParseObjective("e2"); err == nil || !strings.Contains(err.Error(), "e2e") {
		t.Errorf("e2: %v", err)
	}
}

// TestCommand: the command line of a scenario has its settings, quoted for a shell.
func TestCommand(t *testing.T) {
	sc := describe(t, "num_adapters=100", "prefix_cache=true", "outages=0@1-2", "lora_ranks=8,16", "policy=static")
	got := command(sc, Candidate{"explicit:map=0@0,rest@all x"})
	want := "lorasim sim --num-adapters 100 --lora-ranks 8,16 --outages 0@1-2 --engine-args prefix_cache=true " +
		"--policy 'explicit:map=0@0,rest@all x'"
	if got != want {
		t.Errorf("%s\nexpected\n%s", got, want)
	}
	if got := quoted("it's"); got != `'it'\''s'` {
		t.Error(got)
	}
	sc = describe(t, "num_adapters=100", "popularity=zipf:1.25", "arrivals=gamma:4", "outages=0@100-200",
		"lora_ranks=8,16,32", "profile=analytic:llama-2-7b,h100", "lengths=constant:100,200")
	w := &Worst{scenario: *sc}
	lines := w.lines(Candidate{"plan-and-route:interval=20,margin=0.1"})
	joined := ""
	for _, line := range lines {
		if len(line) > 100 {
			t.Errorf("%d columns: %s", len(line), line)
		}
		joined += strings.TrimSuffix(line, `\`)
	}
	got = strings.Join(strings.Fields(joined), " ")
	if got != w.Command(Candidate{"plan-and-route:interval=20,margin=0.1"}) {
		t.Errorf("%q", lines)
	}
}

// TestWorst: the figures of the worst scenario are those of single simulations with fresh
// seeds, and no single change that was tried is worse with the seeds of the search.
func TestWorst(t *testing.T) {
	sc := describe(t, "num_prompts=100", "num_workers=2", "request_rate=4")
	a := find(t, sc, Options{Policies: []string{"static", "least-loaded"}, Worst: true})
	w := a.Worst
	if w == nil {
		t.Fatal("no worst scenario")
	}
	loss := 0.0
	for i := range worstSeeds {
		for sign, spec := range map[float64]string{1: a.recommended().Spec, -1: w.Rival.Spec} {
			one, err := Candidate{spec}.apply(*sc)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range w.Changes {
				for _, set := range c.Settings {
					if err := one.Set(set[0], set[1]); err != nil {
						t.Fatal(err)
					}
				}
			}
			one.Seed = stats.Seed(1, forWorst, i)
			res, err := one.Simulate(t.Context(), scenario.RunOptions{})
			if err != nil {
				t.Fatal(err)
			}
			f := figuresOf(res, objectives[0])
			loss += sign * f.Score / worstSeeds
		}
	}
	if math.Abs(loss-w.Loss.Mean) > 1e-9 || w.Rival.Spec == a.recommended().Spec {
		t.Errorf("loss %v against %s, expected %v", w.Loss.Mean, w.Rival.Spec, loss)
	}
}
