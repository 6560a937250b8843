package scenario

import (
	"context"
	"fmt"
	"math"
	"testing"

	"lorasim/bench/result"
	"lorasim/bench/steady"
	"lorasim/internal/testutil"
	"lorasim/trace/settings"
)

// simulate runs a scenario as the command sim does.
func simulate(tb testing.TB, sc Scenario, saturate bool) *result.Result {
	tb.Helper()
	r, err := sc.Simulate(context.Background(), RunOptions{Saturate: saturate})
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

func builtIn(rate float64, requests int64, seed uint64) Scenario {
	sc := Default()
	sc.Workload.RequestRate, sc.Workload.NumPrompts, sc.Seed = rate, settings.Some[int64](requests), seed
	return sc
}

// TestSustainableRate: 20 % beyond the capacity of the workers a run is overloaded, however short it is, and the
// sustainable rate is that of a run in which all requests come at once: within 8 %, within 4 % with 20,000 requests.
func TestSustainableRate(t *testing.T) {
	for _, policy := range []string{"plan-and-route", "static", "least-loaded"} {
		all := builtIn(math.Inf(1), 20000, 1)
		testutil.Set(t, &all, "policy", policy)
		truth, _ := simulate(t, all, false).Metrics.Get(result.RequestThroughput)
		for _, n := range []int64{500, 2000, 20000} {
			off := 0.08
			if n == 20000 {
				off = 0.04
			}
			for _, rate := range []float64{18, 20, 40} {
				sc := builtIn(rate, n, 1)
				testutil.Set(t, &sc, "policy", policy)
				a := simulate(t, sc, true).Steady
				if a.State != steady.Overloaded || math.Abs(a.SustainableRate/truth-1) > off {
					t.Errorf("%s, %d requests at %g/s: %s, %.2f requests/s sustainable; expected overloaded, %.2f",
						policy, n, rate, a.State, a.SustainableRate, truth)
				}
			}
		}
	}
}

// TestSecondRunIsShort: the second run has few requests, and a run that would need more says that there was none.
func TestSecondRunIsShort(t *testing.T) {
	sc := builtIn(12, 300, 1)
	if a := simulate(t, sc, true).Steady; a.State != steady.Transient || a.SustainableRate == 0 {
		t.Errorf("%+v, expected transient, with a sustainable rate", a)
	}
	sc = builtIn(120, 3000, 1)
	testutil.Set(t, &sc, "num_workers", "40")
	without, with := simulate(t, sc, false), simulate(t, sc, true)
	if a := with.Steady; a.State != steady.Transient || a.Reason != without.Steady.Reason+unmeasured {
		t.Errorf("%+v, expected %q", a, unmeasured)
	}
}

// TestSaturateChangesNothingElse: the second run leaves all figures of the first alone,
// and does without where the workload cannot go on.
func TestSaturateChangesNothingElse(t *testing.T) {
	sc := builtIn(14, 2000, 1)
	with, without := simulate(t, sc, true), simulate(t, sc, false)
	if with.Metrics != without.Metrics {
		t.Errorf("metrics %v, without the second run %v", with.Metrics, without.Metrics)
	}
	if with.Steady.SustainableRate == 0 || without.Steady.SustainableRate != 0 ||
		with.Steady.State != steady.Transient {
		t.Errorf("state %+v, without the second run %+v", with.Steady, without.Steady)
	}
	testutil.Set(t, &sc, "pattern", "flash:60,60,10")
	if a := simulate(t, sc, true).Steady; a.State == steady.Transient && a.SustainableRate != 0 {
		t.Errorf("%+v: a flash crowd has no one rate", a)
	}
}

// TestClosedLoop: a client that limits the requests in flight has a steady state, and no
// rate that it offers.
func TestClosedLoop(t *testing.T) {
	sc := builtIn(math.Inf(1), 10000, 1)
	sc.Client.MaxConcurrency = 64
	if a := simulate(t, sc, true).Steady; a.State != steady.Steady || a.SustainableRate != 0 {
		t.Errorf("%+v, expected a steady state", a)
	}
	sc.Client.MaxConcurrency = 0
	if a := simulate(t, sc, true).Steady; a.State != steady.Overloaded {
		t.Errorf("all at once: %+v, expected overloaded", a)
	}
}

// TestWarmupOfScenario: the setting reaches the result, and one that leaves nothing is an
// error.
func TestWarmupOfScenario(t *testing.T) {
	sc := builtIn(10, 2000, 1)
	whole := simulate(t, sc, false)
	testutil.Set(t, &sc, "warmup", "auto")
	settled := simulate(t, sc, false)
	if settled.Steady.Excluded != whole.Steady.Warmup || settled.Extra.Requests >= whole.Extra.Requests {
		t.Errorf("auto leaves out %g s, expected %g", settled.Steady.Excluded, whole.Steady.Warmup)
	}
	testutil.Set(t, &sc, "warmup", "1000")
	_, err := sc.Simulate(context.Background(), RunOptions{})
	if want := fmt.Sprintf("warmup: 1000 s leave no request: the last one arrives after %.1f s",
		whole.Steady.LastArrival); err == nil || err.Error() != want {
		t.Errorf("error %v, expected %s", err, want)
	}
}

// BenchmarkStates prints the table of the built-in workload in lab/docs/steady.md.
func BenchmarkStates(b *testing.B) {
	for range b.N {
		fmt.Print("\n| requests | req/s | steady | transient | overloaded | overloaded, with a saturated run |\n|---:|---:|---:|---:|---:|---:|\n")
		for _, n := range []int64{2000, 20000} {
			seeds := 100
			if n > 2000 {
				seeds = 20
			}
			for _, rate := range []float64{8, 10, 12, 13, 14, 14.5, 15, 15.5, 16, 17, 20, 40} {
				share := map[steady.State]float64{}
				saturated := 0.0
				for seed := range seeds {
					sc := builtIn(rate, n, uint64(seed+1))
					a := simulate(b, sc, false).Steady
					share[a.State] += 100 / float64(seeds)
					if a.State == steady.Overloaded || simulate(b, sc, true).Steady.State == steady.Overloaded {
						saturated += 100 / float64(seeds)
					}
				}
				fmt.Printf("| %d | %g | %.1f %% | %.1f %% | %.1f %% | %.1f %% |\n",
					n, rate, share[steady.Steady], share[steady.Transient], share[steady.Overloaded], saturated)
			}
		}
	}
}
