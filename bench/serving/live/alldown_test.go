package live

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestAllDownPatience: the run is given up once no worker has been up for the
// whole time, which begins anew with every worker that was.
func TestAllDownPatience(t *testing.T) {
	for _, c := range []struct {
		name string
		up   func(time.Duration) bool // since the start
		want time.Duration            // when the wait ends, within 200 ms; 0: not in 100 s
	}{
		{"down from the start", func(time.Duration) bool { return false }, 10 * time.Second},
		{"never down", func(time.Duration) bool { return true }, 0},
		{"down for good", func(d time.Duration) bool { return d < 7*time.Second }, 17 * time.Second},
		{"up now and then", func(d time.Duration) bool { return d%(9*time.Second) < time.Second }, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithTimeout(t.Context(), 100*time.Second)
			defer stop()
			begin := time.Now()
			down := awaitAllDown(ctx, func() int {
				if c.up(time.Since(begin)) {
					return 1
				}
				return 0
			}, 10*time.Second)
			took := time.Since(begin)
			if down != (c.want > 0) || down && (took < c.want-200*time.Millisecond ||
				took > c.want+200*time.Millisecond) {
				t.Errorf("%s: given up %v after %v, expected after %v", c.name, down, took, c.want)
			}
		})
	}
}

// TestAllDown: with the only worker dead the run ends by itself and says so;
// what was sent has its records.
func TestAllDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wl := workload(1_000_000, 1, 0.02) // half an hour
		o := startWorkers(t, faults{})
		taken := int64(0)
		out := liveRun{cluster: o, wl: wl, fails: "no worker has been up for 300ms: the rest is not sent",
			set: func(c *Config) { c.Patience = 300 * time.Millisecond },
			during: func(sent func() int64) {
				for sent() < 10 {
					time.Sleep(time.Millisecond)
				}
				o.hosts[0].Kill()
				taken = sent()
			}}.run(context.Background(), t)
		if n := int64(len(out.recs)); n < taken-1 || n != out.stats.Sent || n == int64(len(wl.Requests)) ||
			out.stats.Stopped {
			t.Errorf("%d records of %d requests sent, %d when the worker died; stopped by hand: %v", n, out.stats.Sent,
				taken, out.stats.Stopped)
		}
	})
}
