package capacity

import (
	"context"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/trace/settings"
)

// TestPerAdapter: the answer is that of trying every number of workers, and a run
// that is given up, because some adapters cannot meet the SLO any more, is one that fails.
func TestPerAdapter(t *testing.T) {
	for _, c := range []struct {
		policy, rate, asked string
		attain, adapters    float64
	}{
		{"least-loaded", "16", "", 0.9, 1}, {"static", "5", "popularity=zipf:1.3", 0.95, 0.8},
		{"affinity-spill", "25", "max_loras_per_batch=4", 0.99, 0.9},
		{"least-loaded", "8", "context_length=1200", 0.5, 0.9}, // requests are rejected
	} {
		keys := []string{"policy=" + c.policy, "request_rate=" + c.rate, "num_prompts=1500", "num_adapters=24"}
		if c.asked != "" {
			keys = append(keys, c.asked)
		}
		sc := saved(t, describe(t, keys...))
		o := Options{
			SLO: result.SLO{TTFT: 400, TPOT: 100}, Attain: c.attain, PerAdapter: c.adapters, MaxWorkers: 10,
			MaxSeeds: 1,
		}
		a := find(t, sc, o)
		s := newSearch(t.Context(), sc, o)
		shares, early := []float64{0}, 0
		var worst []result.Worst
		for w := 1; w <= o.MaxWorkers; w++ {
			cell := *sc
			cell.Cluster.NumWorkers = settings.Some(w)
			slo := o.SLO
			slo.Attain = c.attain
			res, err := cell.Simulate(t.Context(), scenario.RunOptions{SLO: slo})
			if err != nil {
				t.Fatal(err)
			}
			g := res.Extra.Goodput
			shares, worst = append(shares, g.Adapters), append(worst, *g.Worst)
			before := s.ended.Load()
			ok, err := s.holds(Candidate{Workers: w}, 1, 1, size{})
			if err != nil || ok != (g.Adapters >= c.adapters) {
				t.Errorf("%v, %d workers: holds is %v (%v), the share is %v", c, w, ok, err, g.Adapters)
			}
			for range 2 { // found, and remembered
				if known, err := s.known(Candidate{Workers: w}); err != nil || known != ok {
					t.Errorf("%v, %d workers: known is %v (%v), expected %v", c, w, known, err, ok)
				}
			}
			if s.ended.Load() == before {
				early++
			}
		}
		w := a.Found.Workers
		if math.Abs(a.Found.Attainment.Mean-shares[w]) > 1e-9 || a.Found.Holds != (shares[w] >= c.adapters) ||
			a.Found.Worst != worst[w-1] {
			t.Errorf("%v: %d workers with %v, worst %+v; expected %v, %+v",
				c, w, a.Found.Attainment.Mean, a.Found.Worst, shares[w], worst[w-1])
		}
		if w > 1 && a.Found.Holds && (a.NextCheaper.Workers != w-1 || shares[w-1] >= c.adapters) {
			t.Errorf("%v: the next cheaper is %+v, %v", c, a.NextCheaper, shares)
		}
		if early == 0 && slices.Min(shares[1:]) < c.adapters {
			t.Errorf("%v: no run was given up", c)
		}
	}
}

// TestMixes: the cheapest cluster of up to two profiles is that of trying all.
func TestMixes(t *testing.T) {
	profiles := []string{"llama-2-7b-rtx-4090-sglang-0.5", "analytic:llama-2-7b,h100", "analytic:llama-2-7b,a100-80gb"}
	mixed := 0
	for _, c := range []struct {
		rate    string
		prices  []float64
		attain  float64
		slots   []int
		maximum int
	}{
		{"20", []float64{1, 1.8}, 0.9, nil, 9},
		{"26", []float64{1, 1.8}, 0.95, []int{4, 8}, 9},
		{"34", []float64{1, 3.3, 2.6}, 0.95, nil, 6},
		{"16", []float64{1, 100}, 0.9, nil, 3}, // of the first alone there are not enough
	} {
		sc := saved(t, describe(t, "policy=least-loaded", "num_prompts=400", "num_adapters=16", "request_rate="+c.rate))
		o := Options{
			SLO: result.SLO{TTFT: 500}, Attain: c.attain, MaxWorkers: c.maximum, MaxSeeds: 1, Mix: true, Slots: c.slots,
			Cost: map[string]float64{},
		}
		for i, price := range c.prices {
			o.Profiles = append(o.Profiles, profiles[i])
			o.Cost[profiles[i]] = price
		}
		s := newSearch(t.Context(), sc, o)
		least, best := math.Inf(1), Candidate{}
		try := func(k Candidate) {
			r, err := s.measure(k, 1, sc.Seed, size{}, false)
			if err != nil {
				t.Fatal(err)
			}
			cost := o.Cost[k.Profile]*float64(k.Workers) + o.Cost[k.With]*float64(k.More)
			if r.attainment >= c.attain && cost < least-1e-9 {
				least, best = cost, k
			}
		}
		for i, p := range o.Profiles {
			for _, slots := range append(slices.Clone(c.slots), 0)[:max(len(c.slots), 1)] {
				for n := 1; n <= c.maximum; n++ {
					try(Candidate{Workers: n, Profile: p, Slots: slots})
					for _, q := range o.Profiles[i+1:] {
						for m := 1; m <= c.maximum-n; m++ {
							try(Candidate{Workers: n, Profile: p, More: m, With: q, Slots: slots})
						}
					}
				}
			}
		}
		a := find(t, sc, o)
		if got := a.cost(a.Found.Candidate); math.Abs(got-least) > 1e-9 || a.Found.Holds != !math.IsInf(least, 1) {
			t.Errorf("%+v: %s costs %v, expected %v: %s", c, a.Found.Candidate, got, least, best)
		}
		if a.Found.With != "" {
			mixed++
		}
	}
	if mixed < 2 {
		t.Errorf("%d of the answers are mixes: the cases tell nothing", mixed)
	}
}

// TestDescend: from a candidate that holds to one with less, of two the cheaper one.
func TestDescend(t *testing.T) {
	s := newSearch(t.Context(), &scenario.Scenario{}, Options{Cost: map[string]float64{"a": 2, "b": 1}})
	holds := [][]int{{3, 3}, {2, 3}, {3, 2}, {2, 2}, {1, 3}, {0, 3}} // of a and b
	for n := range 4 {
		for m := range 4 {
			c := Candidate{Workers: n, Profile: "a", More: m, With: "b"}
			switch {
			case n == 0:
				c = Candidate{Workers: m, Profile: "b"}
			case m == 0:
				c = Candidate{Workers: n, Profile: "a"}
			}
			ok := slices.ContainsFunc(holds, func(h []int) bool { return h[0] == n && h[1] == m })
			s.judged[c] = &Tried{Candidate: c, Holds: ok}
		}
	}
	got, err := s.descend(s.judged[Candidate{Workers: 3, Profile: "a", More: 3, With: "b"}])
	if want := (Candidate{Workers: 3, Profile: "b"}); err != nil || got.Candidate != want {
		t.Errorf("%v (%v), expected %v", got, err, want)
	}
	for from, want := range map[int]int{20: 3, 9: 3, 22: 22, 30: 22} { // more workers hurt here and there
		s := newSearch(t.Context(), &scenario.Scenario{}, Options{})
		for w := 1; w <= from; w++ {
			c := Candidate{Workers: w}
			s.first[c] = slices.Contains([]int{3, 4, 11, 12, 22}, w) // 1 to 8 fewer are looked at
			s.judged[c] = &Tried{Candidate: c, Holds: s.first[c] && w != 4 || w == from && from != 30}
		}
		if got, err := s.descend(s.judged[Candidate{Workers: from}]); err != nil || got.Workers != want {
			t.Errorf("from %d workers to %v (%v), expected %d", from, got, err, want)
		}
	}
}

// TestMixed: of any clusters of which more workers serve more, the cheapest mix.
func TestMixed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string, most int) int { return rapid.IntRange(1, most).Draw(t, name) }
		most, need, one, other := draw("most workers", 12), draw("need", 60), draw("one serves", 9),
			draw("another serves", 9)
		bonus := draw("of both", 5) // clusters of both may serve more than their parts
		o := Options{
			MaxWorkers: most, Profiles: []string{"a", "b"},
			Cost: map[string]float64{"a": float64(draw("a costs", 9)), "b": float64(draw("b costs", 9))},
		}
		s := newSearch(context.Background(), &scenario.Scenario{}, o)
		kinds := []Kind{{Candidate: Candidate{Profile: "a"}}, {Candidate: Candidate{Profile: "b"}}}
		least, alone := math.Inf(1), math.Inf(1)
		for n := 0; n <= most; n++ {
			for m := 0; m <= most-n; m++ {
				holds := n*one+m*other+bonus*min(n, m) >= need
				if c := (Candidate{Workers: n, Profile: "a", More: m, With: "b"}); n > 0 && m > 0 {
					if s.first[c] = holds; holds {
						least = min(least, o.cost(c))
					}
					continue
				}
				for i, workers := range []int{n, m} {
					if c := kinds[i].with(workers); holds && workers > 0 &&
						(kinds[i].Workers == 0 || workers < kinds[i].Workers) {
						kinds[i].Workers = c.Workers
					}
				}
			}
		}
		for _, k := range kinds {
			if k.Workers > 0 {
				alone = min(alone, o.cost(k.Candidate))
			}
		}
		mix := Kind{Candidate: Candidate{Profile: "a", With: "b"}}
		if err := s.mixed(&mix, kinds); err != nil {
			t.Fatal(err)
		}
		switch {
		case least >= alone:
			if mix.Workers != 0 {
				t.Fatalf("%s costs %v, one kind alone %v", mix.Candidate, mix.Cost, alone)
			}
		case !s.first[mix.Candidate] || mix.Cost != least || o.cost(mix.Candidate) != least:
			t.Fatalf("%s costs %v, expected %v", mix.Candidate, mix.Cost, least)
		}
	})
}
