package worth

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"lorasim/bench/scenario"
	"lorasim/bench/stats"
	"lorasim/bench/study/sweep"
	"lorasim/trace/columnar"
	"lorasim/trace/settings"
)

func TestLooks(t *testing.T) {
	for _, c := range []struct {
		from, to int
		want     []int
		first    float64 // level
	}{{5, 20, []int{5, 10, 20}, 0.05 * 5 / 35}, {4, 30, []int{4, 8, 16, 30}, 0.05 * 4 / 58}, {3, 3, []int{3}, 0.05}} {
		o := Options{Seeds: c.from, MaxSeeds: c.to}
		if got := o.looks(); !slices.Equal(got, c.want) || o.Check() != nil ||
			math.Abs(o.level(c.from)-c.first) > 1e-12 {
			t.Errorf("%d..%d: %v (%v), the first at %v, expected %v at %v",
				c.from, c.to, got, o.Check(), o.level(c.from), c.want, c.first)
		}
	}
	if err := (&Options{Seeds: 4, MaxSeeds: 3}).Check(); err == nil ||
		err.Error() != "4 seeds to begin with, but 3 at most" {
		t.Error(err)
	}
}

func TestPolicies(t *testing.T) {
	for moving, want := range map[string][]string{
		"recompute": {"route-only", "plan-and-route:move=waiting,place=off", "plan-and-route:move=waiting,interval=5",
			"plan-and-route:place=off,interval=5",
			"plan-and-route:interval=5", "plan-and-route:move=running,interval=5", "static", "affinity"},
		"queued": {
			"route-only", "plan-and-route:move=waiting,place=off", "plan-and-route:move=waiting,interval=5",
			"plan-and-route:move=none,interval=5", "static", "affinity",
		},
		"none": {"route-only", "plan-and-route:move=none,interval=5", "static", "affinity"},
	} {
		o := Options{Intervals: []string{"5"}, Baselines: []string{"static"}, Others: []string{"affinity", "static"}}
		o.Scenario.Routing.RequestMigration = moving
		if got := o.policies(); !slices.Equal(got, want) {
			t.Errorf("%s: %q, expected %q", moving, got, want)
		}
	}
}

// madeUp is runs that were never run: a metric of a policy by seed.
type madeUp struct {
	of    func(policy, metric string, seed int) float64
	seeds int
	apart string // a policy that completed other requests
}

func (m madeUp) values(policy, metric string) []float64 {
	out := make([]float64, m.seeds)
	for i := range out {
		out[i] = m.of(policy, metric, i)
	}
	return out
}

func (m madeUp) comparable(a, b string) bool { return a == b || a != m.apart && b != m.apart }

// answer decides on made-up runs of two metrics, of which the first is the one that
// factors change: gain says by how much parts lower it, as a share of 1000; a plain
// policy has a third more. The noise of a seed is common to all policies but for a
// thousandth.
func answer(
	t *testing.T, moving string, gain func(p parts, interval string) float64, change ...func(*Answer, *madeUp),
) *Answer {
	o := Options{Metrics: []string{"mean_e2e_latency_ms", "p99_ttft_ms"}, Intervals: []string{"2", "10"},
		Baselines: []string{"static", "least-loaded"},
		MinGain:   0.01, Seeds: 10, MaxSeeds: 10}
	o.Scenario.Routing.RequestMigration = moving
	share := map[string]float64{"static": -0.5, "least-loaded": -1. / 3}
	for _, s := range o.Intervals {
		for i := range 8 {
			p := parts{i&1 > 0, i&2 > 0, i&4 > 0}
			share[p.policy(s)] = gain(p, s)
		}
	}
	m := &madeUp{seeds: 10, of: func(policy, metric string, seed int) float64 {
		g, ok := share[policy]
		if !ok {
			t.Fatalf("no policy %s", policy)
		}
		if metric == "p99_ttft_ms" {
			g = 0
		}
		own := 0.001 * float64((7*seed+3*len(policy)+int(policy[len(policy)-1]))%5-2)
		return 1000 * (1 - g + 0.2*float64(seed%3) + own)
	}}
	a := &Answer{
		Dir: &sweep.Dir{Manifest: &sweep.Manifest{Grid: sweep.Grid{Seeds: make([]uint64, 10)}}}, opt: o, runs: m,
	}
	for _, c := range change {
		c(a, m)
	}
	a.decide()
	return a
}

// Whatever gains by itself is named as the cause, and nothing else.
func TestNamesTheCause(t *testing.T) {
	const W, R, P = Waiting, Running, Placing
	for name, c := range map[string]struct {
		moving string
		gain   func(p parts, s string) float64
		pays   []Factor
		chosen string
		says   string
	}{
		"nothing": {
			"recompute", func(parts, string) float64 { return 0 }, nil, "route-only",
			"Do not move waiting requests, place adapters or move running requests: --policy route-only",
		},
		"waiting": {
			"recompute", func(p parts, _ string) float64 { return on(p.waiting, .1) }, []Factor{W},
			"plan-and-route:move=waiting,place=off",
			"Move waiting requests; do not place adapters or move running requests: ",
		},
		"placing": {
			"recompute", func(p parts, s string) float64 { return on(p.places && s == "10", .1) }, []Factor{P},
			"plan-and-route:move=waiting,interval=10",
			"Place adapters (plans every 10 s); do not move running requests: ",
		},
		"plans alone": { // with moving waiting requests they gain nothing
			"recompute", func(p parts, s string) float64 { return on(!p.waiting && p.places && s == "10", .1) },
			[]Factor{Plans}, "plan-and-route:move=running,interval=10",
			"Make plans, which place adapters and move running requests (plans every 10 s); do not move waiting requests: ",
		},
		"placing alone": {
			"queued", func(p parts, s string) float64 { return on(!p.waiting && p.places && s == "2", .1) },
			[]Factor{P}, "plan-and-route:move=none,interval=2",
			"Place adapters (plans every 2 s); do not move waiting requests: ",
		},
		"running": {
			"recompute", func(p parts, s string) float64 { return on(p.running && s == "2", .1) }, []Factor{R},
			"plan-and-route:place=off,interval=2", "Move running requests (plans every 2 s); do not place adapters: ",
		},
		"all": {
			"recompute", func(p parts, _ string) float64 {
				return on(p.waiting, .1) + on(p.places, .1) + on(p.running, .1)
			}, []Factor{W, P, R}, "plan-and-route:interval=2",
			"Move waiting requests, place adapters and move running requests (plans every 2 s): ",
		},
		"plans do the same as moving waiting requests": {
			"recompute", func(p parts, _ string) float64 { return on(p.waiting || p.places || p.running, .1) },
			[]Factor{W}, "plan-and-route:move=waiting,place=off", "",
		},
		"only both parts of plans": {
			"recompute", func(p parts, _ string) float64 { return on(p.places && p.running, .1) }, []Factor{P, R},
			"plan-and-route:interval=2", "",
		},
		"placing, though it mends what running breaks": {
			"recompute", func(p parts, _ string) float64 { return on(p.places, .1) - on(p.running && !p.places, .02) },
			[]Factor{P}, "plan-and-route:move=waiting,interval=2", "",
		},
		"queued: placing": {
			"queued", func(p parts, s string) float64 { return on(p.places && s == "2", .1) }, []Factor{P},
			"plan-and-route:move=waiting,interval=2", "Place adapters (plans every 2 s): --policy ",
		},
		"queued: waiting": {
			"queued", func(p parts, _ string) float64 { return on(p.waiting, .1) }, []Factor{W},
			"plan-and-route:move=waiting,place=off", "Move waiting requests; do not place adapters: ",
		},
		"no moves: placing": {
			"none", func(p parts, _ string) float64 { return on(p.places, .1) }, []Factor{P},
			"plan-and-route:move=none,interval=2", "Place adapters (plans every 2 s): ",
		},
		"no moves: nothing": {
			"none", func(parts, string) float64 { return 0 }, nil, "route-only",
			"Do not place adapters: --policy route-only",
		},
	} {
		a := answer(t, c.moving, c.gain)
		want := append([]Factor{Routing}, c.pays...)
		if !slices.Equal(a.Pays, want) || a.Chosen() != c.chosen || a.Move() != (len(c.pays) > 0) ||
			!strings.HasPrefix(a.String(), c.says) || !strings.HasSuffix(a.headline(), "--policy "+c.chosen) {
			t.Errorf("%s: %v pay, chosen %s, expected %v and %s\n%s", name, a.Pays, a.Chosen(), want, c.chosen, a)
		}
		if !strings.Contains(a.String(), "\nRouting, compared with least-loaded, pays: Mean E2E -2") {
			t.Errorf("%s: the routing is not compared with the better of the plain policies:\n%s", name, a)
		}
	}
}

func on(yes bool, gain float64) float64 {
	if yes {
		return gain
	}
	return 0
}

// The effects of the parts of plans add up to that of the plans, seed by seed and on
// average, and what the runs share cancels out. The interaction is what the parts,
// each by itself, lack.
func TestEffectsAddUp(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		level := map[string]float64{}
		o := Options{Intervals: []string{"5"}, Metrics: []string{"m"}}
		o.Scenario.Routing.RequestMigration = "recompute"
		noise := rapid.SliceOfN(rapid.Float64Range(0, 500), 4, 4).Draw(rt, "noise")
		for _, p := range o.policies() {
			level[p] = rapid.Float64Range(100, 1000).Draw(rt, p)
		}
		r := madeUp{seeds: 4, of: func(p, _ string, i int) float64 { return level[p] + noise[i] }}
		stages, split, shown := o.effects()
		by := map[Factor]float64{}
		for _, e := range slices.Concat(stages, split, shown) {
			e.measure(r, o.Metrics, stats.Fresh)
			d := e.Changes[0].Diff
			if by[e.Factor] = d.Mean; math.Abs(d.Std) > 1e-9 {
				rt.Errorf("%s: a deviation of %v, though the seeds do the same to all", e.Factor, d.Std)
			}
		}
		all, both := level["plan-and-route:interval=5"], level["plan-and-route:move=waiting,place=off"]
		close := func(what string, got, want float64) {
			if math.Abs(got-want) > 1e-6 {
				rt.Errorf("%s is %v, expected %v", what, got, want)
			}
		}
		close("waiting", by[Waiting], both-level["route-only"])
		close("plans", by[Plans], all-both)
		close("placing and running", by[Placing]+by[Running], by[Plans])
		close("interaction", by[Interaction],
			all-both-(level["plan-and-route:move=waiting,interval=5"]-both)-
				(level["plan-and-route:place=off,interval=5"]-both))
		close("plans only", by[PlansOnly], level["plan-and-route:move=running,interval=5"]-level["route-only"])
	})
}

// What is judged at the limits of a gain, of chance, and of what compares.
func TestJudge(t *testing.T) {
	estimate := func(xs ...float64) Change {
		d := stats.Mean(xs)
		return Change{Metric: "mean_e2e_latency_ms", Diff: d, Base: 100, better: -d.Mean / 100}
	}
	sure, noise, zero := estimate(-30, -30.1, -29.9, -30), estimate(-60, 30, -50, 40), estimate(0, 0, 0, 0)
	loss := estimate(30, 30.1, 29.9, 30)
	for name, c := range map[string]struct {
		level, gain                    float64
		changes                        []Change
		better, worse, nothing, trades bool
	}{
		"a gain":           {.05, .01, []Change{sure, zero}, true, false, false, false},
		"too small a gain": {.05, .5, []Change{sure, zero}, false, false, true, false},
		"just the gain":    {.05, .25, []Change{estimate(-25, -25, -25, -25), zero}, true, false, false, false},
		"noise":            {.05, .01, []Change{zero, noise}, false, false, false, false},
		"nothing at all":   {.05, .01, []Change{zero, zero}, false, false, true, false},
		"a trade":          {.05, .01, []Change{loss, sure}, false, true, false, true},
		"a loss":           {.05, .01, []Change{loss, zero}, false, true, true, false},
		// half of the interval, at 5 % over 2 tests: 4.177 x 1.155 / sqrt(4) = 2.41 of 100
		"a gain may hide":  {.05, .02, []Change{zero, estimate(-1, 1, -1, 1)}, false, false, false, false},
		"no gain can hide": {.05, .025, []Change{zero, estimate(-1, 1, -1, 1)}, false, false, true, false},
		// p = 0.0117, twice as there are two tests
		"at 5 %":           {.05, .01, []Change{zero, estimate(-30, -20, -40, -25)}, true, false, false, false},
		"at 1 %":           {.01, .01, []Change{zero, estimate(-30, -20, -40, -25)}, false, false, false, false},
		"nothing compares": {.05, .01, nil, false, false, false, false},
	} {
		family := []Effect{{Changes: slices.Clone(c.changes)}}
		tests := judge(family, c.level, c.gain)
		e := &family[0]
		if e.better != c.better || e.worse != c.worse || e.nothing != c.nothing || e.trades(c.gain) != c.trades ||
			tests != len(c.changes) ||
			e.settled() != (c.better || c.worse || c.nothing || c.changes == nil) {
			t.Errorf("%s: better %v, worse %v, nothing %v, trades %v, %d tests",
				name, e.better, e.worse, e.nothing, e.trades(c.gain), tests)
		}
	}
}

func TestWordsOfReasons(t *testing.T) {
	a := answer(t, "recompute", func(p parts, _ string) float64 {
		return on(p.waiting, .1) + on(p.running, .1) - on(p.places, .1)
	})
	text := a.String()
	for _, want := range []string{
		"Move waiting requests; do not place adapters or move running requests: --policy plan-and-route:move=waiting,place=off\n",
		"\nMoving waiting requests pays: Mean E2E -8.", ", P99 TTFT ", " (may be chance).\n",
		"\nPlans (placing adapters, moving running requests), best interval ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("expected %q in\n%s", want, text)
		}
	}
	costs := answer(t,
		"recompute", func(p parts, _ string) float64 { return -on(p.waiting, .1) - on(p.places, .1) }).String()
	for _, want := range []string{
		"Do not move waiting requests, place adapters or move running requests",
		"\nMoving waiting requests costs: Mean E2E +8.", " cost: Mean E2E +7.",
	} {
		if !strings.Contains(costs, want) {
			t.Errorf("expected %q in\n%s", want, costs)
		}
	}
	pays := answer(t, "recompute", func(p parts, _ string) float64 { return on(p.running, .1) }).String()
	for _, want := range []string{
		" every 2 s pay: Mean E2E -8.", " Parts of it: placing adapters: Mean E2E ",
		"; moving running requests: Mean E2E -8.",
	} {
		if !strings.Contains(pays, want) {
			t.Errorf("expected %q in\n%s", want, pays)
		}
	}
	other := answer(t, "recompute", func(p parts, _ string) float64 { return on(p.waiting, .1) },
		func(_ *Answer, m *madeUp) { m.apart = "route-only" })
	if len(other.Pays) > 0 ||
		!strings.Contains(other.String(), "Moving waiting requests: unknown, different requests completed.") {
		t.Errorf("routing alone completed other requests: %v pay:\n%s", other.Pays, other)
	}
	either := answer(t, "recompute", func(p parts, _ string) float64 { return on(p.places && p.running, .1) },
		func(_ *Answer, m *madeUp) {
			of := m.of
			m.of = func(p, metric string, seed int) float64 { // one part by itself: now much better, now much worse
				if strings.Contains(p, "move=waiting,interval") || strings.Contains(p, "place=off,interval") {
					return of(p, metric, seed) + 400*float64(seed%2*2-1)*float64(len(p)%2*2-1)
				}
				return of(p, metric, seed)
			}
		})
	if want := []Factor{Routing, Plans}; !slices.Equal(either.Pays, want) ||
		either.Chosen() != "plan-and-route:interval=2" ||
		!strings.HasPrefix(either.String(),
			"Make plans, which place adapters and move running requests (plans every 2 s): --policy plan-and-route:interval=2\n") {
		t.Errorf("it is certain of neither part: %v pay:\n%s", either.Pays, either)
	}
	for name, c := range map[string]struct {
		std   float64
		fixed bool
	}{"differ": {1, false}, "the same": {0, true}} {
		a := answer(t, "recompute", func(p parts, _ string) float64 { return on(p.waiting, .1) },
			func(_ *Answer, m *madeUp) {
				of := m.of
				m.of = func(p, metric string, seed int) float64 { return of(p, metric, 0) + c.std*float64(seed) }
			})
		if a.Fixed != c.fixed || strings.Contains(a.String(), "Every seed gives the same run") != c.fixed {
			t.Errorf("seeds %s: %s", name, a)
		}
	}
}

func TestColumns(t *testing.T) {
	a := Answer{
		Tables: &sweep.Tables{Metrics: []string{"migrations", "mean_ttft_ms"}},
		opt:    Options{Metrics: []string{"mean_ttft_ms"}},
	}
	if got := a.columns(); !slices.Equal(got, []string{"mean_ttft_ms", "migrations"}) {
		t.Errorf("%v", got)
	}
}

// A study of a workload in which nothing ever waits ends with the first seeds; one
// whose answer is not clear goes on to the last.
func TestStudy(t *testing.T) {
	sc := scenario.Default()
	sc.Files = columnar.Files()
	sc.Workload.NumPrompts, sc.Cluster.NumWorkers = settings.Some[int64](100), settings.Some(2)
	o := Options{
		Scenario: sc, Intervals: []string{"2"}, Baselines: []string{"static"}, Others: []string{"random"},
		Metrics: []string{"mean_e2e_latency_ms"},
		MinGain: 0.01, Seeds: 2, MaxSeeds: 4,
		Run: func(d *sweep.Dir) error {
			_, err := d.Run(t.Context(), sweep.RunOptions{Jobs: 2})
			return err
		},
	}
	o.Scenario.Workload.RequestRate = 0.5
	a, err := Study(t.Context(), t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	if a.Move() || !a.Clear || len(a.Dir.Seeds) != 2 || a.Chosen() != Alone ||
		!strings.HasPrefix(a.headroom(), "Headroom: ") ||
		!strings.Contains(a.String(), "\nMoving waiting requests changes nothing.\n") {
		t.Errorf("%s", a)
	}
	var text, line bytes.Buffer
	var parsed struct {
		Schema, Policy, Text string
		Pays                 []string
		Move                 *bool
		Best                 string `json:"best_interval_s"`
		Effects              []struct {
			Factor, Against string
			Tested          bool
			Changes         []struct {
				Metric string
				P      *float64 `json:"p_holm"`
			}
		}
		Sweep struct{ Schema string }
	}
	err = errors.Join(a.WriteDetails(&text), a.WriteJSON(&line), json.Unmarshal(line.Bytes(), &parsed))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\neffect of ", "\nmoving waiting requests ", "\nstatic ",
		"(4 + 2 tests),\nat 5 % over 2 looks, 1.7 % at this one\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("expected %q in\n%s", want, text.String())
		}
	}
	if p := parsed; p.Schema != "lorasim.worth/2" || p.Policy != Alone || p.Text != a.String() || p.Pays == nil ||
		p.Move == nil || *p.Move || p.Best != "2" ||
		len(p.Effects) != 7 || p.Sweep.Schema == "" {
		t.Errorf("%d effects: %+v", len(p.Effects), p)
	}
	for _, e := range parsed.Effects {
		if len(e.Changes) != 1 || (e.Changes[0].P != nil) != e.Tested {
			t.Errorf("effect %+v: of a test there is a p-value, and only of that", e)
		}
	}
	o.MinGain, o.Metrics = 1e-12, []string{"mean_e2e_latency_ms", "cold_loads"}
	o.Scenario.Cluster.NumWorkers = settings.Some(4)
	o.Scenario.Workload.NumPrompts = settings.Some[int64](600)
	o.Scenario.Workload.RequestRate, o.Scenario.Cluster.Engine.MaxLorasPerBatch = 8, 8
	if a, err = Study(t.Context(), t.TempDir(), o); err != nil {
		t.Fatal(err)
	}
	if !a.Clear && len(a.Dir.Seeds) != 4 {
		t.Errorf("%d seeds: %s", len(a.Dir.Seeds), a)
	}
	// the adapters of a worker never change under static, which saves loads for certain
	if !strings.Contains(a.String(), "\nBy Cold loads, however, static is better: ") {
		t.Errorf("%s", a)
	}
	o.Metrics = []string{"requests"}
	if _, err := Study(t.Context(), t.TempDir(), o); err == nil || !strings.Contains(err.Error(), "cannot decide") {
		t.Error(err)
	}
}
