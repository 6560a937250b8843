package capacity

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/bench/stats"
	"lorasim/sim/profile"
	"lorasim/trace/columnar"
	"lorasim/trace/settings"
	"lorasim/trace/store"
)

// describe is a scenario with some settings.
func describe(t *testing.T, keys ...string) *scenario.Scenario {
	t.Helper()
	sc := scenario.Default()
	for _, set := range keys {
		key, value, _ := strings.Cut(set, "=")
		if err := sc.Set(key, value); err != nil {
			t.Fatal(err)
		}
	}
	return &sc
}

// queue is a cluster of workers that serve one request after the other. It
// returns for how long each keeps the worker, and how long a client sees it where
// it does not wait, s.
func queue(t *testing.T, keys ...string) (sc *scenario.Scenario, serves, sees float64) {
	t.Helper()
	sc = describe(t,
		append([]string{"max_running_requests=1", "lengths=constant:100,20", "num_adapters=1", "max_new_tokens=exact",
			"no_warmup=true", "policy=round-robin", "num_workers=1", "lora_backend=none"}, keys...)...)
	one := *sc
	one.Workload.NumPrompts = settings.Some[int64](1000)
	metric := func(rate float64, m result.ID) float64 {
		one.Workload.RequestRate = rate
		res, err := one.Simulate(t.Context(), scenario.RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		x, _ := res.Metrics.Get(m)
		return x
	}
	return sc, metric(math.Inf(1), result.Duration) / 1000, metric(0.01, result.MedianE2E) / 1000
}

func find(t *testing.T, sc *scenario.Scenario, o Options) *Answer {
	t.Helper()
	if o.MaxSeeds == 0 {
		o.MaxSeeds = 1000
	}
	if o.Budget == 0 {
		o.Budget = 4e6
	}
	a, err := Find(t.Context(), sc, o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// decided is what find decides, without the headroom and without the interval of fresh runs.
func decided(t *testing.T, sc *scenario.Scenario, o Options) (found, next *Tried) {
	t.Helper()
	o.MaxSeeds, o.Budget = 1000, 4e6
	s := newSearch(t.Context(), sc, o)
	defer s.dropAll()
	found, _, err := s.find()
	if err != nil {
		t.Fatal(err)
	}
	return found, s.nextCheaper(found)
}

// saved is a scenario with its workload in a file, so that runs have its length and
// all its requests count.
func saved(t *testing.T, sc *scenario.Scenario) *scenario.Scenario {
	t.Helper()
	in, err := sc.OpenWorkload(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	path := filepath.Join(t.TempDir(), "w.csv")
	if _, err := store.Write(path, in, store.WriteOptions{Files: columnar.Files(), MaxNew: true,
		Ranks: true}); err != nil {
		t.Fatal(err)
	}
	c := *sc
	c.Workload = scenario.Default().Workload
	c.Workload.File = path
	c.Workload.NumPrompts = settings.Optional[int64]{}
	c.Workload.NumAdapters = settings.Optional[int]{}
	return &c
}

// TestEqualGaps: requests that come at equal gaps of 1/rate to workers that take
// them in turn, each for a time s, need rate x s workers, and bear as much more
// load as these round up to.
func TestEqualGaps(t *testing.T) {
	for _, rate := range []float64{7, 23} {
		sc, s, sees := queue(t, "arrivals=total-deterministic", "num_prompts=3000")
		sc.Workload.RequestRate = rate
		need := rate * s
		a := find(t, sc, Options{SLO: result.SLO{E2E: 1000*sees + 1}, Attain: 0.99, MaxWorkers: 64})
		want := int(math.Ceil(need))
		if a.Found.Workers != want || !a.Found.Holds || !a.Found.Certain ||
			a.Found.Attainment.Mean < 1-float64(want)/1000 {
			t.Fatalf("%v requests/s of %.4f s: %v %+v, expected %d workers and 100 %%",
				rate, s, a.Found.Candidate, a.Found.Attainment, want)
		}
		if a.NextCheaper == nil || a.NextCheaper.Workers != want-1 || a.NextCheaper.Holds ||
			a.NextCheaper.Causes.Bottleneck() != "compute" {
			t.Errorf("the next cheaper is %+v", a.NextCheaper)
		}
		// a few requests may wait for less than the ms that the SLO leaves
		if room := float64(want) / need; math.Abs(a.Headroom.Factor-room) > 0.015 ||
			a.Headroom.High-a.Headroom.Low > 0.03 {
			t.Errorf("headroom is %v, expected %v", a.Headroom, room)
		}
		if near := float64(want)/need < nearBelow; (a.Verdict == Near) != near || a.Limit.Bottleneck() != "compute" {
			t.Errorf("the verdict is %s, limited by %s, at %d workers where %.2f are needed",
				a.Verdict, a.Limit.String(), want, need)
		}
	}
}

// TestPoisson: in an M/D/1 queue of utilization rho the share 1 - rho of the
// requests do not wait.
func TestPoisson(t *testing.T) {
	sc, s, sees := queue(t, "arrivals=total-exponential", "num_prompts=4000")
	const rho = 0.3
	sc.Workload.RequestRate = rho / s
	slo := result.SLO{E2E: 1000*sees + 0.001}
	a := find(t, sc, Options{SLO: slo, Attain: 0.66, MaxWorkers: 8})
	e := a.Found.Attainment
	if a.Found.Workers != 1 || a.NextCheaper != nil || math.Abs(e.Mean-(1-rho)) > 0.02 || !(e.Low > 0.66) {
		t.Errorf("%d workers with %+v, expected 1 with %v", a.Found.Workers, e, 1-rho)
	}
	// rho = 1 - attain, scaled
	if want, h := 0.34/rho, a.Headroom; math.Abs(h.Factor-want) > 0.03 || h.Low > want || h.High < want ||
		h.Low > h.Factor || h.High < h.Factor {
		t.Errorf("headroom is %v, expected about %v", h, want)
	}
	if found, next := decided(t, sc, Options{SLO: slo, Attain: 0.75, MaxWorkers: 8}); found.Workers != 2 ||
		next.Workers != 1 {
		t.Errorf("%d workers for 75 %%, expected 2", found.Workers)
	}
	a = find(t, sc, Options{SLO: slo, Attain: 0.75, MaxWorkers: 1})
	if a.Found.Holds || a.Verdict != Saturated || a.Failure() == nil ||
		!(a.Headroom.Factor > 0.8 && a.Headroom.Factor < 0.87) {
		t.Errorf("with one worker at most: %+v, %v", a.Found, a.Failure())
	}
}

// TestOverloaded: a cluster whose queues grow does not hold, however lenient the SLO
// is: an answer needs at least as much service as the requests take.
func TestOverloaded(t *testing.T) {
	for _, c := range []struct{ arrivals, load string }{{"total-deterministic", "2.1"}, {"total-exponential", "2.4"}} {
		sc, s, _ := queue(t, "arrivals="+c.arrivals, "num_prompts=500", "policy=least-loaded")
		load, _ := strconv.ParseFloat(c.load, 64)
		sc.Workload.RequestRate = load / s
		slo := result.SLO{E2E: 1e7}
		found, next := decided(t, sc, Options{SLO: slo, Attain: 0.99, MaxWorkers: 4})
		if found.Workers != 3 || !found.Holds || next == nil || next.Decision != Overloaded {
			t.Errorf("load %s: %v %s, next %+v; expected 3 workers, and 2 overloaded",
				c.load, found.Candidate, found.Decision, next)
		}
		a := find(t, sc, Options{SLO: slo, Attain: 0.99, MaxWorkers: 2})
		var b bytes.Buffer
		if err := a.WriteText(&b); err != nil || a.Found.Holds || a.Verdict != Saturated ||
			!strings.Contains(b.String(), "requests arrive faster than the workers serve them") {
			t.Errorf("%v: %s\n%s", err, a.Verdict, b.String())
		}
		if err := a.Failure(); err == nil || !strings.Contains(err.Error(), "overloaded") {
			t.Errorf("failure is %v", err)
		}
	}
}

// TestAgainstAll: the answer is that of trying every number of workers; a run
// that is given up is one that fails.
func TestAgainstAll(t *testing.T) {
	for _, c := range []struct{ policy, rate string }{
		{"least-loaded", "20"}, {"static", "6"}, {"affinity-spill", "35"},
	} {
		sc := saved(t, describe(t, "policy="+c.policy, "request_rate="+c.rate, "num_prompts=600"))
		o := Options{SLO: result.SLO{TTFT: 400, TPOT: 100}, Attain: 0.95, MaxWorkers: 12, MaxSeeds: 1}
		a := find(t, sc, o)
		s := newSearch(t.Context(), sc, o)
		shares := []float64{0}
		for w := 1; w <= o.MaxWorkers; w++ {
			cell := *sc
			cell.Cluster.NumWorkers = settings.Some(w)
			res, err := cell.Simulate(t.Context(), scenario.RunOptions{SLO: o.SLO})
			if err != nil {
				t.Fatal(err)
			}
			shares = append(shares, res.Extra.Goodput.Share)
			ok, err := s.holds(Candidate{Workers: w}, 1, 1, size{})
			if err != nil || ok != (shares[w] >= o.Attain) {
				t.Errorf("%s, %d workers: holds is %v (%v), the share is %v", c.policy, w, ok, err, shares[w])
			}
		}
		w := a.Found.Workers
		if math.Abs(a.Found.Attainment.Mean-shares[w]) > 1e-9 || a.Found.Holds != (shares[w] >= o.Attain) {
			t.Errorf("%s: %d workers with %v, expected %v", c.policy, w, a.Found.Attainment.Mean, shares[w])
		}
		if w > 1 && a.Found.Holds && (a.NextCheaper.Workers != w-1 || shares[w-1] >= o.Attain) {
			t.Errorf("%s: the next cheaper is %+v, %v", c.policy, a.NextCheaper, shares)
		}
	}
}

// TestBisect finds any threshold, in a number of steps that grows as its logarithm.
func TestBisect(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 1000).Draw(t, "most")
		lo := rapid.IntRange(0, most-1).Draw(t, "lo")
		want := rapid.IntRange(lo+1, most+1).Draw(t, "threshold")
		try := rapid.IntRange(lo+1, most).Draw(t, "try")
		calls := 0
		got, err := bisect(lo, try, most, func(n int) (bool, error) {
			if n <= lo || n > most {
				t.Fatalf("tries %d, expected %d to %d", n, lo+1, most)
			}
			calls++
			return n >= want, nil
		})
		if err != nil || got != want || calls > 22 {
			t.Fatalf("%d after %d steps (%v), expected %d", got, calls, err, want)
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 1000).Draw(t, "most")
		want, from := rapid.IntRange(1, most+1).Draw(t, "threshold"), rapid.IntRange(1, most).Draw(t, "from")
		calls := 0
		got, err := gallop(from, most, func(n int) (bool, error) {
			if n < 1 || n > most {
				t.Fatalf("tries %d, expected 1 to %d", n, most)
			}
			calls++
			return n >= want, nil
		})
		if err != nil || got != want || calls > 24 || want == from && calls > 2 {
			t.Fatalf("%d from %d after %d steps (%v), expected %d", got, from, calls, err, want)
		}
	})
	bad := errors.New("bad")
	if _, err := bisect(0, 1, 3, func(int) (bool, error) { return false, bad }); err != bad {
		t.Error(err)
	}
}

// TestBottleneck: what runs out where there is little of it.
func TestBottleneck(t *testing.T) {
	p, err := profile.Embedded("llama-2-7b-rtx-4090-sglang-0.5")
	if err != nil {
		t.Fatal(err)
	}
	p.Adapters.HostToGPU = profile.Stage{LatencyMs: 350, GBPerS: 100}
	p.Adapters.DiskToHost = profile.Stage{LatencyMs: 3000, GBPerS: 100}
	text, err := p.YAML()
	if err != nil {
		t.Fatal(err)
	}
	slow := filepath.Join(t.TempDir(), "slow.yaml")
	if err := os.WriteFile(slow, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if p, err = profile.Embedded("llama-3.1-8b-h100-64gb-vllm-0.8.5"); err != nil {
		t.Fatal(err)
	}
	p.Latency.FrontEnd = profile.FrontEnd{PerRequestMs: 350}
	if text, err = p.YAML(); err != nil {
		t.Fatal(err)
	}
	busy := filepath.Join(t.TempDir(), "busy.yaml")
	if err := os.WriteFile(busy, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		want, policies string
		workers        int
		settings       string
	}{
		{"compute", "least-loaded round-robin plan-and-route", 3, "max_running_requests=2"},
		{"compute", "least-loaded round-robin plan-and-route", 3,
			"lengths=constant:1000,5 num_adapters=1 kv_tokens=500000 request_rate=20"},
		{"KV", "least-loaded", 3, "kv_tokens=4000 num_adapters=2"},
		{"KV", "least-loaded round-robin plan-and-route", 30,
			"kv_tokens=2000 num_adapters=1 lengths=constant:300,100 request_rate=20"},
		{"slots", "least-loaded", 3, "max_loras_per_batch=2 lengths=constant:20,300"},
		{"slots", "least-loaded round-robin affinity plan-and-route", 12,
			"max_loras_per_batch=1 lengths=constant:50,100 request_rate=10"},
		{"loads", "least-loaded", 3, "profile=" + slow + " max_loras_per_batch=8 lengths=constant:20,20"},
		{"loads", "round-robin affinity plan-and-route", 12, "profile=" + slow + " num_adapters=64"},
		{"host memory", "least-loaded round-robin affinity plan-and-route", 3,
			"profile=" + slow + " max_loras_per_batch=8 max_loaded_loras=8 lengths=constant:20,20"},
		{"routing", "static hash", 3, "popularity=explicit:90,5,5 num_adapters=3 request_rate=16"},
		{"routing", "static hash", 12, "popularity=explicit:90,5,5 num_adapters=3 request_rate=16"},
		{"front end", "least-loaded round-robin plan-and-route", 3,
			"profile=" + busy + " lora_ranks=16 lengths=constant:20,20"},
		{"routing", "random", 6,
			"popularity=uniform lengths=constant:500,100 max_loras_per_batch=16 num_adapters=16 request_rate=12"},
	} {
		for _, policy := range strings.Fields(c.policies) {
			sc := describe(t,
				append([]string{"policy=" + policy, "request_rate=8", "num_prompts=400"},
					strings.Fields(c.settings)...)...)
			s := newSearch(t.Context(), sc, Options{SLO: result.SLO{TTFT: 1000}, Attain: 0.99})
			r, err := s.measure(Candidate{Workers: c.workers}, 1, 1, size{}, true)
			if err != nil || r.causes.Bottleneck() != c.want {
				t.Errorf("%s, %s: %v (%v), expected %s", policy, c.settings, r.causes.String(), err, c.want)
			}
		}
	}
}

// TestTooFew: a worker that has an outage must be there; a search that ends early finds nothing.
func TestTooFew(t *testing.T) {
	sc := describe(t, "request_rate=1", "num_prompts=100", "outages=2@5-20")
	o := Options{SLO: result.SLO{TTFT: 1000}, Attain: 0.5, MaxWorkers: 8, MaxSeeds: 16}
	if a := find(t, sc, o); a.Found.Workers != 3 || a.NextCheaper != nil {
		t.Errorf("%+v, next %+v", a.Found, a.NextCheaper)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := Find(ctx, sc, o); !errors.Is(err, context.Canceled) {
		t.Errorf("ended: %v", err)
	}
	o.MaxWorkers = 2
	if _, err := Find(t.Context(), sc, o); err == nil ||
		!strings.Contains(err.Error(), "there is no worker 2, expected 0 to 1") {
		t.Errorf("two at most: %v", err)
	}
}

// TestNumPrompts: the answer does not depend on num_prompts, which is the least
// length of a run.
func TestNumPrompts(t *testing.T) {
	sc, s, sees := queue(t, "arrivals=total-exponential", "policy=least-loaded")
	sc.Workload.RequestRate = 2.2 / s
	o := Options{SLO: result.SLO{E2E: 1500 * sees}, Attain: 0.9, MaxWorkers: 16, MaxSeeds: 1000, Budget: 4e6}
	for i, n := range []int64{500, 8000, 16000} {
		sc.Workload.NumPrompts = settings.Some[int64](n)
		search := newSearch(t.Context(), sc, o)
		found, _, err := search.find()
		if err != nil || !found.Holds || found.Workers != 5 {
			t.Errorf("%d requests: %+v (%v), expected 5 workers", n, found, err)
		}
		if want := []int64{16000, 16000, 16000}[i]; err == nil && found.Size.requests < want {
			t.Errorf("%d requests: runs of %d, expected %d at least", n, found.Size.requests, want)
		}
	}
}

// TestSeeds: base seeds have no seeds in common, nor have decisions and intervals.
func TestSeeds(t *testing.T) {
	seen := map[uint64]bool{}
	for base := range uint64(20) {
		for stream := forDecision; stream <= forInterval; stream++ {
			for i := range 500 {
				x := stats.Seed(base, stream, i)
				if seen[x] || x >= 1<<53 {
					t.Fatalf("seed %d of stream %d of base seed %d: %d", i, stream, base, x)
				}
				seen[x] = true
			}
		}
	}
}

// TestBudget: a budget that does not suffice to accept anything is reported, and is
// not exceeded by much.
func TestBudget(t *testing.T) {
	sc := describe(t, "request_rate=4", "policy=least-loaded")
	o := Options{SLO: result.SLO{TTFT: 1000}, Attain: 0.99, MaxWorkers: 8, Budget: 60000}
	a := find(t, sc, o)
	var b bytes.Buffer
	if err := a.WriteText(&b); err != nil || !a.Stopped || a.Found.Holds || a.Found.Certain || a.Verdict != Unknown ||
		a.Failure() == nil {
		t.Errorf("%v: %+v\n%s", err, a.Found, b.String())
	}
	if !strings.Contains(b.String(), "none within the budget of 60000 requests") {
		t.Error(b.String())
	}
}

// TestSavedWorkload: seeds only break ties in a saved workload, so that there is no
// interval and nothing is certain.
func TestSavedWorkload(t *testing.T) {
	sc := saved(t, describe(t, "request_rate=10", "num_prompts=500"))
	a := find(t, sc, Options{SLO: result.SLO{TTFT: 1000}, Attain: 0.9, MaxWorkers: 8})
	if !a.Found.Holds || a.Found.Certain || a.Found.Size.requests != 0 || a.Found.hasInterval() ||
		a.fixed != "a saved workload" {
		t.Errorf("%+v, %s", a.Found, a.fixed)
	}
	if a.Spent > 500*200 {
		t.Errorf("%d requests were simulated", a.Spent)
	}
}

// TestKinds: the cheapest of several kinds, by workers and by price.
func TestKinds(t *testing.T) {
	sc := saved(t, describe(t, "policy=static", "num_prompts=600", "request_rate=20", "num_adapters=32"))
	o := Options{
		SLO: result.SLO{TTFT: 500}, Attain: 0.9, MaxWorkers: 32, Slots: []int{1, 8},
		Policies: []string{"static", "affinity-spill"},
	}
	a := find(t, sc, o)
	if len(a.Kinds) != 4 || a.Found.Policy != "affinity-spill" || a.Found.Slots != 8 || !a.Found.Holds {
		t.Errorf("%+v of %+v, expected affinity-spill with 8 slots", a.Found, a.Kinds)
	}
	sc = saved(t, describe(t, "policy=affinity-spill", "num_prompts=600", "request_rate=20", "num_adapters=32"))
	profiles := []string{"llama-2-7b-rtx-4090-sglang-0.5", "analytic:llama-2-7b,h100"}
	o = Options{
		SLO: result.SLO{TTFT: 500}, Attain: 0.9, MaxWorkers: 32, Profiles: profiles,
		Cost: map[string]float64{profiles[0]: 1, profiles[1]: 1},
	}
	if a := find(t, sc, o); a.Found.Profile != profiles[1] {
		t.Errorf("at the same price %s, of %+v", a.Found.Candidate, a.Kinds)
	}
	o.Cost[profiles[1]] = 100
	if a := find(t, sc, o); a.Found.Profile != profiles[0] {
		t.Errorf("at a hundredfold price %s, of %+v", a.Found.Candidate, a.Kinds)
	}
	var got map[string]any
	text, err := json.Marshal(a)
	if err == nil {
		err = json.Unmarshal(text, &got)
	}
	if choice, _ := got["choice"].(map[string]any); err != nil || choice["policy"] != "affinity-spill" ||
		got["cost"] != float64(a.Found.Workers) {
		t.Errorf("%v: %s", err, text)
	}
	o.HostPlaces = []int{16, 4} // the latter cannot be, with 8 slots
	a = find(t, sc, o)
	if k := a.Kinds[1]; k.Err == "" || a.Found.HostPlaces != 16 {
		t.Errorf("%+v: expected one that cannot be", a.Kinds)
	}
	o.HostPlaces = []int{4}
	if _, err := Find(t.Context(), sc, o); err == nil {
		t.Error("no error where no kind can be")
	}
}

// Engines need a place in host memory for each slot. A candidate that states no places has enough.
func TestPlacesFollowSlots(t *testing.T) {
	for _, c := range []struct{ loaded, slots, host, want int }{
		{0, 8, 0, 0}, {2, 8, 0, 8}, {16, 8, 0, 16}, {2, 0, 0, 2}, {2, 8, 32, 32}, {2, 8, 4, 4}, // 4: the run refuses it
	} {
		base := scenario.Default()
		base.Cluster.Engine.MaxLoadedLoras = c.loaded
		sc, err := Candidate{Slots: c.slots, HostPlaces: c.host}.apply(&base)
		if got := sc.Cluster.Engine.MaxLoadedLoras; err != nil || got != c.want {
			t.Errorf("%+v: %d places, %v", c, got, err)
		}
	}
}
