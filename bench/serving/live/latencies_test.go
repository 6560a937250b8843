package live

import (
	"slices"
	"testing"
	"testing/synctest"

	"lorasim/bench/serving/fleet"
	"lorasim/router"
	"lorasim/sim"
	"lorasim/sim/profile"
	"lorasim/sim/record"
)

// The latencies of a fleet are those of the requests that each worker served. The twin predicts them for workers that
// are as their profile says, and the ratio finds the worker whose steps take 30 % longer.
func TestLatencies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		workers := sound(3, faults{Loaded: 4})
		workers[2].Slower = 1.3
		wl := workload(900, 4, 0.2) // small batches: larger ones grow with the step times
		rt := newRouter(t, "round-robin", 3, wl.Adapters)
		costs := slices.Repeat([]*profile.Costs{testProfile().Compile()}, 3)
		rt.Twin = sim.NewTwin(sim.Config{Workers: costs}, wl.Adapters)
		ended, left := make(chan struct{}), len(wl.Requests)
		var f *fleet.Fleet
		var list []fleet.WorkerLatency
		out := liveRun{cluster: startWorkers(t, workers...), wl: wl, router: rt,
			set: func(c *Config) {
				f = c.Fleet
				done := c.Done
				c.Done = func(r *record.Request) {
					if done(r); left == 1 {
						close(ended)
					}
					left--
				}
			},
			during: func(func() int64) {
				<-ended
				var err error
				if list, err = f.Latencies(); err != nil {
					t.Error(err)
				}
			}}.run(t.Context(), t)
		if len(list) != 3 {
			t.Fatalf("%+v", list)
		}
		for w, want := range []float64{1, 1, 1.3} {
			l := list[w]
			if l.Worker != w || l.Requests < 200 || l.Since <= 0 || l.Slower != 0 {
				t.Errorf("worker %d: %+v", w, l)
			}
			if l.Ratio < 0.92*want || l.Ratio > 1.08*want {
				t.Errorf("worker %d: decode times are %.3f times the prediction, expected %.1f", w, l.Ratio, want)
			}
			for what, x := range map[string]*fleet.Latency{"TTFT": l.TTFT, "TPOT": l.TPOT, "E2E": l.E2E} {
				if x == nil || x.Predicted == nil {
					t.Fatalf("worker %d: no prediction of %s", w, what)
				}
				if m := x.Measured; m.P50 <= 0 || m.P90 < m.P50 || m.P99 < m.P90 {
					t.Errorf("worker %d: %s %+v", w, what, m)
				}
				if got := x.Measured.P50 / x.Predicted.P50; what != "TTFT" && (got < 0.9*want || got > 1.1*want) {
					t.Errorf("worker %d: median %s is %.3f times the predicted one, expected %.1f", w, what, got, want)
				}
			}
		}
		var e2e []float64 // of worker 0, by the records: all but the first quarter of the requests
		for id, r := range out.recs {
			if id%3 == 0 && id >= int64(len(wl.Requests)/4) {
				e2e = append(e2e, r.Finish-r.Sent)
			}
		}
		slices.Sort(e2e)
		if got, want := list[0].E2E.Measured.P50, e2e[len(e2e)/2]; got < 0.97*want || got > 1.03*want {
			t.Errorf("median E2E latency of worker 0 is %.4f s, by the records %.4f s", got, want)
		}
	})
}

// The TTFT of a request that moved while it ran is that which its client saw, not that on its last worker.
func TestLatenciesOfMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wl := long(workload(120, 2, 0.02))
		run := liveRun{cluster: startWorkers(t, faults{}, faults{}), wl: wl, router: evacuate(2).router(2, 2),
			move: router.MoveRecompute}
		var f *fleet.Fleet
		run.set = func(c *Config) { f = c.Fleet }
		out := run.run(t.Context(), t)
		list, err := f.Latencies()
		if err != nil || out.stats.Moved == 0 || out.stats.Recomputed < out.stats.Moved {
			t.Fatalf("%v; %+v", err, out.stats)
		}
		for _, l := range list {
			var ttft []float64
			for _, r := range out.recs {
				if int(r.WorkerLast) == l.Worker {
					ttft = append(ttft, r.FirstToken-r.Sent)
				}
			}
			if len(ttft) == 0 {
				continue
			}
			slices.Sort(ttft)
			if got, want := l.TTFT.Measured.P50, ttft[len(ttft)/2]; got < 0.95*want || got > 1.05*want {
				t.Errorf("median TTFT of worker %d is %.4f s, by the records %.4f s", l.Worker, got, want)
			}
		}
	})
}
