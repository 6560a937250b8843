package advise

import (
	"slices"
	"strings"
	"testing"

	"lorasim/bench/scenario"
	"lorasim/router"
)

// TestClasses: the classes of all policies; one that plans is never called simpler.
func TestClasses(t *testing.T) {
	for spec, want := range map[string]Class{
		"static": Fixed, "hash": Fixed, "round-robin": Fixed, "least-loaded": Loads, "bounded-hash:c=2": Loads,
		"affinity-spill": State, "kv-router": State, "rank-aware": State, "route-only": State, "any-worker": State,
		"plan-and-route": Plans, "plan-and-route:place=off": Plans, "dlora_period_mig": Plans, "llumnix": Plans,
		"unheard-of": Plans,
	} {
		if got := (Candidate{spec}).Class(); got != want {
			t.Errorf("%s: class %s, expected %s", spec, got, want)
		}
	}
	sc := scenario.Default()
	ps, err := sc.Profiles(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	in, err := sc.OpenWorkload(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range allPolicies() {
		if name == "explicit" || name == "script" {
			continue // needs a table, a program
		}
		own, err := Candidate{name}.apply(sc)
		if err != nil {
			t.Fatal(err)
		}
		rt, err := own.Router(t.Context(), ps, in.Adapters())
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(withoutPlans, name) {
			continue
		}
		if class := (Candidate{name}).Class(); rt.Plans() && class != Plans {
			t.Errorf("%s makes plans, but is of class %s", name, class)
		}
	}
}

// TestWithoutPlans: the policies that are said to make no plans neither load adapters
// nor move requests by plans, where plan-and-route does.
func TestWithoutPlans(t *testing.T) {
	for _, name := range append([]string{"plan-and-route"}, withoutPlans...) {
		own, err := Candidate{name}.apply(*describe(t, "num_prompts=1000", "request_rate=12", "max_loaded_loras=8"))
		if err != nil {
			t.Fatal(err)
		}
		res, err := own.Simulate(t.Context(), scenario.RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		applied, moved := int64(0), int64(0)
		if p := res.Extra.Plans; p != nil {
			applied = p.Applied
		}
		for _, m := range res.Extra.Migrations {
			moved += m.Count
		}
		if (applied+moved > 0) != (name == "plan-and-route") {
			t.Errorf("%s: %d plans applied, %d moves", name, applied, moved)
		}
	}
}

// TestSimpler: class, then options, then the order of the registry.
func TestSimpler(t *testing.T) {
	order := []string{"static", "hash", "least-loaded", "bounded-hash:c=2", "affinity", "affinity-spill",
		"affinity:kv=0", "plan-and-route", "plan-and-route:busy=1", "plan-and-route:busy=1,margin=1"}
	for i, a := range order {
		for j, b := range order {
			got := simpler(Candidate{a}, Candidate{b})
			if (got < 0) != (i < j) || (got == 0) != (i == j) {
				t.Errorf("simpler(%s, %s) = %d", a, b, got)
			}
		}
	}
}

// TestNeighbours: every neighbour of every policy is a valid spec that differs in one
// option.
func TestNeighbours(t *testing.T) {
	for _, name := range allPolicies() {
		for _, spec := range neighbours(name) {
			got, given, err := router.Given(spec)
			if err != nil || got != name || len(given) != 1 {
				t.Errorf("neighbour %s of %s: %v (%v)", spec, name, given, err)
			}
		}
	}
	for spec, want := range map[string]string{
		"static":       "",
		"bounded-hash": "c=1 c=3 c=6",
		"affinity": "variant=distinct variant=active variant=residency variant=load-state " +
			"holders=true lora=0.25 lora=0.5 lora=2 lora=4 queue=0.25 queue=0.5 queue=2 queue=4 " +
			"kv=0.25 kv=0.5 kv=2 kv=4 ties=first",
		"affinity-spill": "threshold=1 threshold=3 threshold=10 threshold=20 ties=first",
	} {
		if got := strings.ReplaceAll(strings.Join(neighbours(spec), " "), spec+":", ""); got != want {
			t.Errorf("%s: %s, expected %s", spec, got, want)
		}
	}
	// from a candidate with options on: back to the default, and beyond
	got := neighbours("bounded-hash:c=3")
	want := []string{"bounded-hash:c=1", "bounded-hash", "bounded-hash:c=6", "bounded-hash:c=12"}
	if !slices.Equal(got, want) {
		t.Errorf("%v, expected %v", got, want)
	}
	if got := neighbours("cache-aware"); !slices.Contains(got, "cache-aware:lora=true") ||
		!slices.Contains(got, "cache-aware:cold=smallest-tree") || !slices.Contains(got, "cache-aware:index=reported") {
		t.Errorf("words of options are missing: %v", got)
	}
	if got := neighbours("plan-and-route"); !slices.Contains(got, "plan-and-route:move=none") ||
		!slices.Contains(got, "plan-and-route:margin=0.2") || slices.ContainsFunc(got, func(s string) bool {
		return strings.Contains(s, "horizon") // auto is no number
	}) {
		t.Errorf("%v", got)
	}
}
