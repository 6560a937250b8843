package live

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"lorasim/bench/serving/fleet"
)

// A worker that stops answering, probes included, loses no request whose tokens are known, long before the time limits
// of requests.
func TestHungWorkerFailsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, stream := range []bool{true, false} {
			wl := long(workload(60, 2, 0.02))
			o := startWorkers(t, faults{}, faults{})
			begun := time.Now()
			out := liveRun{cluster: o, wl: wl,
				set: func(c *Config) { c.FirstToken, c.Idle, c.NoStream = time.Hour, time.Hour, !stream },
				setFleet: func(c *fleet.Config) {
					c.Poll, c.Timeout = time.Second, 2*time.Second
				},
				during: func(sent func() int64) {
					for sent() < 30 {
						time.Sleep(time.Millisecond)
					}
					o.hosts[0].Freeze()
				}}.run(context.Background(), t)
			if ok := out.check(t, wl); ok != 60 || out.stats.Failovers+out.stats.Retries == 0 {
				t.Errorf("stream %v: %d of 60 succeeded, %d went on elsewhere: %v", stream, ok, out.stats.Failovers,
					out.reasons())
			}
			if took := time.Since(begun); took > 30*time.Second {
				t.Errorf("stream %v: it took %v", stream, took)
			}
			o.hosts[0].Kill()
		}
	})
}

// A worker that breaks each stream is ejected, so that requests do not run out of retries.
func TestBadWorkerEjected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wl := workload(400, 2, 0.02)
		out := liveRun{cluster: startWorkers(t, faults{Generate: "truncate"}, faults{}, faults{}),
			wl: wl}.run(context.Background(), t)
		if ok := out.check(t, wl); ok != 400 || out.stats.Failovers > 40 || out.fleet.Ejections == 0 {
			t.Errorf("%d of 400 succeeded, %d failovers, %d ejections: %v", ok, out.stats.Failovers,
				out.fleet.Ejections, out.reasons())
		}
	})
}
