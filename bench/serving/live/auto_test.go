package live

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lorasim/bench/serving/fleet"
	"lorasim/router"
	"lorasim/sim"
	"lorasim/sim/profile"
	"lorasim/trace"
)

// newAuto is the policy auto with a twin of workers of the test profile.
func newAuto(t testing.TB, spec string, workers int, adapters []trace.Adapter) *router.Router {
	t.Helper()
	costs := testProfile().Compile()
	begun := time.Now()
	rt, err := router.New(spec, router.Env{Adapters: adapters, Seed: 1,
		Workers: router.Alike(workers, router.Spec{MaxRunning: 64, Slots: 8, Memory: 1e10, KVBytes: 1e3,
			AdapterBytes: make([]float64, len(adapters)), Cost: profile.Model{Costs: costs}}),
		Twin: sim.NewTwin(sim.Config{Workers: slices.Repeat([]*profile.Costs{costs}, workers)}, adapters),
		Live: &router.Live{Clock: func() float64 { return time.Since(begun).Seconds() }}})
	if err != nil {
		t.Fatal(err)
	}
	return rt
}

// auto races beside routing. Nothing is lost, replies stay the same, each race is in the log, and the factors of the
// step times find the worker whose steps take 30 % longer than its profile says.
func TestAuto(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		workers := sound(3, faults{Loaded: 4})
		workers[2].Slower = 1.3
		wl := workload(1200, 4, 0.02)
		var log bytes.Buffer
		out := liveRun{cluster: startWorkers(t, workers...), wl: wl,
			router:   newAuto(t, "auto:candidates=round-robin+least-loaded+static,every=128", 3, wl.Adapters),
			setFleet: func(c *fleet.Config) { c.Plans = slog.New(slog.NewTextHandler(&log, nil)) },
		}.run(t.Context(), t)
		if ok := out.check(t, wl); ok != len(wl.Requests) {
			t.Errorf("%d of %d requests succeeded", ok, len(wl.Requests))
		}
		r := out.fleet.Races
		if r.Count < 4 || r.Failed > 0 || r.Compared == nil || len(r.Slower) != 3 {
			t.Fatalf("%+v", r)
		}
		for w, want := range []float64{1, 1, 1.3} {
			if got := r.Slower[w]; got < 0.92*want || got > 1.08*want {
				t.Errorf("worker %d: step times are %.3f times the profile's, expected %.1f", w, got, want)
			}
		}
		if m := r.Compared; m.E2E < 0.9*m.PredictedE2E || m.E2E > 1.1*m.PredictedE2E {
			t.Errorf("mean E2E %.3f s, predicted %.3f s", m.E2E, m.PredictedE2E)
		}
		if n := strings.Count(log.String(), "msg=race"); int64(n) != r.Count ||
			!strings.Contains(log.String(), "measured_e2e_s=") {
			t.Errorf("%d lines on %d races: %s", n, r.Count, log.String())
		}
		t.Logf("%+v; compared %+v", r, *r.Compared)
	})
}
