package live

import (
	"slices"
	"testing"
	"testing/synctest"

	"lorasim/bench/serving/fleet"
	"lorasim/router"
	"lorasim/sim/record"
)

// The latencies of a fleet are those of the requests that each worker served: those of a worker whose steps take 30 %
// longer are longer.
func TestLatencies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		workers := sound(3, faults{Loaded: 4})
		workers[2].Slower = 1.3
		wl := workload(900, 4, 0.2) // small batches: larger ones grow with the step times
		rt := newRouter(t, "round-robin", 3, wl.Adapters)
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
				list = f.Latencies()
			}}.run(t.Context(), t)
		if len(list) != 3 {
			t.Fatalf("%+v", list)
		}
		for w := range list {
			l := list[w]
			if l.Worker != w || l.Requests < 200 || l.Since <= 0 {
				t.Errorf("worker %d: %+v", w, l)
			}
			for what, x := range map[string]*fleet.Percentiles{"TTFT": l.TTFT, "TPOT": l.TPOT, "E2E": l.E2E} {
				if x == nil || x.P50 <= 0 || x.P90 < x.P50 || x.P99 < x.P90 {
					t.Errorf("worker %d: %s %+v", w, what, x)
				}
			}
			var e2e []float64
			for id, r := range out.recs {
				if int(id%3) == w {
					e2e = append(e2e, r.Finish-r.Sent)
				}
			}
			slices.Sort(e2e)
			if got, want := l.E2E.P50, e2e[len(e2e)/2]; got < 0.97*want || got > 1.03*want {
				t.Errorf("median E2E latency of worker %d is %.4f s, by the records %.4f s", w, got, want)
			}
		}
		if got := list[2].TPOT.P50 / list[0].TPOT.P50; got < 1.2 || got > 1.4 {
			t.Errorf("steps of worker 2 take 1.3 times as long, its median TPOT %.3f times", got)
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
		list := f.Latencies()
		if out.stats.Moved == 0 || out.fleet.Plans.Recomputed < out.stats.Moved {
			t.Fatalf("%+v", out.fleet.Plans)
		}
		var repeated int64
		for _, w := range out.stats.Workers {
			repeated += w.RepeatedTokens
		}
		if repeated != out.fleet.Plans.Recomputed {
			t.Errorf("workers computed %d tokens again, after moves %d", repeated, out.fleet.Plans.Recomputed)
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
			if got, want := l.TTFT.P50, ttft[len(ttft)/2]; got < 0.95*want || got > 1.05*want {
				t.Errorf("median TTFT of worker %d is %.4f s, by the records %.4f s", l.Worker, got, want)
			}
		}
	})
}
