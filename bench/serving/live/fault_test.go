package live

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lorasim/bench/serving/fleet"
	"lorasim/bench/serving/httpapi"
	"lorasim/sim/record"
)

// reasons counts the requests that did not succeed by reason.
func (o *outcomeOf) reasons() map[string]int {
	m := map[string]int{}
	for _, r := range o.recs {
		if r.Status != record.OK {
			m[r.Status.String()+": "+r.Error]++
		}
	}
	return m
}

// One of two workers misbehaves; the other one is sound. Whatever goes wrong, each request ends once and no token is
// lost or repeated.
func TestFaults(t *testing.T) {
	const n = 60
	for _, c := range []struct {
		name   string
		faults faults
		want   int    // requests that succeed at least
		reason string // that the others have
		resume bool   // some must have gone on elsewhere
	}{
		{name: "none", want: n},
		{name: "status 500", faults: faults{Generate: "500"}, want: n},
		{name: "truncated stream", faults: faults{Generate: "truncate"}, want: n, resume: true},
		{name: "garbage", faults: faults{Generate: "garbage"}, want: n / 3, reason: "not the JSON"},
		{name: "error event", faults: faults{Generate: "error-event"}, want: n / 3, reason: "failed: injected"},
		{name: "slow body", faults: faults{Generate: "slow"}, want: n, resume: true},
		{name: "load fails", faults: faults{Fail: []string{"/load_lora_adapter"}}, want: n},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				wl := workload(n, 2, 0.02)
				out := liveRun{cluster: startWorkers(t, c.faults, faults{}), wl: wl, set: func(cfg *Config) {
					if c.faults.Generate == "slow" {
						cfg.Idle = 500 * time.Millisecond
					}
				}}.run(context.Background(), t)
				ok := out.check(t, wl)
				if ok < c.want || c.reason != "" && ok == n {
					t.Errorf("%d of %d requests succeeded, expected at least %d: %v", ok, n, c.want, out.reasons())
				}
				for reason := range out.reasons() {
					if c.reason == "" || !strings.Contains(reason, c.reason) {
						t.Errorf("a request ended with %q, expected %q", reason, c.reason)
					}
				}
				if (out.stats.Failovers > 0) != c.resume {
					t.Errorf("%d requests went on elsewhere", out.stats.Failovers)
				}
			})
		})
	}
}

func TestWorkerKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, failover := range []bool{true, false} {
			wl := long(workload(80, 2, 0.02))
			o := startWorkers(t, faults{}, faults{})
			out := liveRun{cluster: o, wl: wl,
				set: func(c *Config) { c.NoFailover = !failover },
				during: func(sent func() int64) {
					for sent() < 40 {
						time.Sleep(time.Millisecond)
					}
					o.hosts[0].Kill()
				}}.run(context.Background(), t)
			ok := out.check(t, wl)
			if failover && (ok != 80 || out.stats.Failovers == 0) || !failover && (ok == 80 || ok < 60) {
				t.Errorf("failover %v: %d of 80 succeeded, %d went on elsewhere: %v", failover, ok, out.stats.Failovers,
					out.reasons())
			}
			if out.fleet.Downs == 0 {
				t.Error("nobody noticed that the worker is down")
			}
		}
	})
}

// A worker that hangs takes connections and answers nothing.
func TestWorkerHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wl := workload(60, 2, 0.02)
		o := startWorkers(t, faults{}, faults{})
		out := liveRun{cluster: o, wl: wl,
			set: func(c *Config) { c.FirstToken, c.Idle = 3*time.Second, 3*time.Second },
			during: func(sent func() int64) {
				for sent() < 30 {
					time.Sleep(time.Millisecond)
				}
				o.hosts[0].Freeze()
			}}.run(context.Background(), t)
		if ok := out.check(t, wl); ok != 60 {
			t.Errorf("%d of 60 succeeded: %v", ok, out.reasons())
		}
	})
}

func TestConnectionRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wl := workload(30, 1, 0.02)
		o := startWorkers(t, faults{})
		o.urls = append([]string{"http://nobody"}, o.urls...)
		out := liveRun{cluster: o, wl: wl}.run(context.Background(), t)
		if ok := out.check(t, wl); ok != 30 {
			t.Errorf("one of two workers refuses: %d of 30 succeeded: %v", ok, out.reasons())
		}
		o = startWorkers(t)
		o.urls = []string{"http://nobody"}
		out = liveRun{cluster: o, wl: wl}.run(context.Background(), t)
		out.check(t, wl)
		if r := out.reasons(); r["rejected: no worker available"] != 30 {
			t.Errorf("the only worker refuses: %v", r)
		}
	})
}

// The run is stopped while requests are in flight: what was sent ends, finished
// or aborted, and soon.
func TestStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wl := workload(400, 2, 0.05)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		begun := time.Now()
		out := liveRun{cluster: startWorkers(t, faults{}), wl: wl,
			during: func(sent func() int64) {
				for sent() < 50 {
					time.Sleep(time.Millisecond)
				}
				cancel()
			}, set: func(c *Config) { c.Grace = 0 }}.run(ctx, t)
		// 50 requests, each 0.05 s of ten after the other, and a moment
		if took := time.Since(begun); took > 300*time.Millisecond {
			t.Errorf("it took %v to stop", took)
		}
		var aborted int
		for _, r := range out.recs {
			if r.Status == record.Aborted {
				aborted++
			}
		}
		if !out.stats.Stopped || out.stats.Sent >= 400 || int64(len(out.recs)) != out.stats.Sent || aborted == 0 {
			t.Errorf("stopped %v: %d sent, %d ended, %d aborted", out.stats.Stopped, out.stats.Sent, len(out.recs),
				aborted)
		}
	})
}

// More adapters than a worker holds: they are loaded when they are needed, and
// those used longest ago make room.
func TestAdaptersOnDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, api := range []httpapi.Kind{httpapi.SGLang, httpapi.VLLM} {
			wl := workload(60, 5, 0.1)
			backend := SGLang
			if api == httpapi.VLLM {
				backend = VLLM
			}
			out := liveRun{cluster: startWorkers(t, faults{API: api, Limit: 2}), wl: wl, backend: backend,
				set:      func(c *Config) { c.Retries = 50 },
				setFleet: func(c *fleet.Config) { c.Limits[0].Slots = 2 }}.run(context.Background(), t)
			if ok := out.check(t, wl); ok != 60 || out.fleet.Loads < 5 {
				t.Errorf("%s: %d of 60 succeeded with %d loads: %v", api, ok, out.fleet.Loads, out.reasons())
			}
		}
	})
}

// A worker that serves the base model in place of an adapter says so in its replies: the requests go to the other
// worker.
func TestBaseModelInPlaceOfAdapter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, whole := range []bool{false, true} {
			wl := workload(60, 2, 0.02)
			out := liveRun{cluster: startWorkers(t, faults{API: httpapi.VLLM, Generate: "base-model", Loaded: 2},
				faults{API: httpapi.VLLM, Loaded: 2}), wl: wl, backend: VLLM,
				set: func(c *Config) { c.NoStream = whole }}.run(context.Background(), t)
			if ok := out.check(t, wl); ok != 60 || out.stats.MaybeExecuted == 0 { // executed by the base model
				t.Errorf("whole replies %t: %d of 60 succeeded with %d retries: %v", whole, ok, out.stats.Retries,
					out.reasons())
			}
		}
	})
}
