package waits

import (
	"math"
	"testing"

	"lorasim/bench/result"
	"lorasim/router"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/trace"
)

// TestRouting: of requests that wait, those are the router's that it sent to a
// worker while another had room, as long as one has.
func TestRouting(t *testing.T) {
	p, err := profile.Embedded("llama-2-7b-rtx-4090-sglang-0.5")
	if err != nil {
		t.Fatal(err)
	}
	type at struct{ running, queued [3]int }
	idle, astray := at{running: [3]int{1, 0, 0}}, at{[3]int{1, 0, 0}, [3]int{1, 0, 0}}
	for name, c := range map[string]struct {
		steps   []at // 1 s each
		change  func(w *router.Worker)
		routing float64 // s
	}{
		"astray":                         {[]at{idle, astray, astray}, nil, 2},
		"as busy elsewhere, for a while": {[]at{idle, astray, {[3]int{1, 2, 2}, [3]int{1, 0, 0}}, astray}, nil, 2},
		"it began, another gave way":     {[]at{idle, astray, {running: [3]int{2, 0, 0}}, astray}, nil, 1},
		"one of two began": {
			[]at{idle, {[3]int{1, 0, 0}, [3]int{2, 0, 0}}, {[3]int{2, 0, 0}, [3]int{1, 0, 0}}}, nil, 3,
		},
		"the second came when all had some": {
			[]at{idle, astray, {[3]int{1, 3, 3}, [3]int{2, 0, 0}}, {[3]int{1, 0, 0}, [3]int{2, 0, 0}}}, nil, 2,
		},
		"the least loaded": {
			[]at{{running: [3]int{1, 1, 1}}, {[3]int{1, 1, 1}, [3]int{1, 0, 0}}, {[3]int{1, 0, 0}, [3]int{1, 0, 0}}},
			nil, 0,
		},
		"six, of which two could stay": {[]at{idle, {[3]int{1, 0, 0}, [3]int{6, 0, 0}}}, nil, 4},
		"others have requests waiting": {[]at{idle, {[3]int{1, 0, 0}, [3]int{3, 1, 1}}}, nil, 0},
		"others down":                  {[]at{idle, astray}, func(w *router.Worker) { w.Up = false }, 0},
		"others take one at a time": {
			[]at{{running: [3]int{3, 1, 1}}, {[3]int{3, 1, 1}, [3]int{1, 0, 0}}},
			func(w *router.Worker) { w.MaxRunning = 1 }, 0,
		},
		"others without a slot": {[]at{idle, astray}, func(w *router.Worker) { w.ActiveLoras = 2 }, 0},
	} {
		u := New(result.SLO{TTFT: 1}, []*profile.Profile{p, p, p}, make([]trace.Adapter, 1))
		for _, now := range c.steps {
			v := router.View{Workers: make([]router.Worker, 3)}
			waiting := 0
			for j := range v.Workers {
				v.Workers[j] = router.Worker{
					Up: true, MaxRunning: 8, Slots: 2, Running: now.running[j], Queued: now.queued[j],
					Adapters: make([]router.AdapterState, 2),
				}
				waiting += now.queued[j]
				if j > 0 && c.change != nil {
					c.change(&v.Workers[j])
				}
			}
			before := u.waits
			u.state(1, &v)
			if got := u.waits[Routing] + u.waits[Compute] - before[Routing] - before[Compute]; math.Abs(
				got-float64(waiting)) > 1e-9 {
				t.Errorf("%s: %v of %d wait", name, got, waiting)
			}
		}
		if math.Abs(u.waits[Routing]-c.routing) > 1e-9 {
			t.Errorf("%s: %v s, expected %v", name, u.waits[Routing], c.routing)
		}
		if c.routing < 2 {
			continue
		}
		u.loads, u.load, u.fetch = 10, 4, 1 // 0.4 s each: the router spared them so much
		got := u.Causes(&result.Result{Extra: &result.Extra{}})
		if spared := 0.4 * u.astray; u.astray == 0 || math.Abs(got[Routing]-c.routing+spared) > 1e-9 ||
			math.Abs(got[Loads]-0.75*spared) > 1e-9 || math.Abs(got[HostMemory]-0.25*spared) > 1e-9 {
			t.Errorf("%s: %v with loads", name, got)
		}
	}
}

// TestLoadTime: by hand, of 17 s of waits, 20 s to first tokens that came too late,
// of which 3 s for adapters, and two workers that load for a quarter of their time.
func TestLoadTime(t *testing.T) {
	res := &result.Result{Extra: &result.Extra{Workers: make([]result.WorkerStats, 2)}}
	res.Metrics.Set(result.Duration, 10)
	res.Extra.Workers[0].Busy, res.Extra.Workers[1].Busy = 0.5, 0.3
	res.Extra.Workers[0].LoadTime = 2
	u := Observer{
		observed: observed{
			waits: Causes{Compute: 8, KVCache: 4, Slots: 4, Loads: 1}, first: 20, cold: 3, decode: 4, loads: 4, load: 8,
			fetch: 2,
		},
	}
	want := Causes{Compute: 9.75, KVCache: 3, Slots: 3, HostMemory: 1.8125, Loads: 6.4375}
	if got := u.Causes(res); got != want {
		t.Errorf("%v, expected %v", got, want)
	}
	u = Observer{observed: observed{first: 3, cold: 1, decode: 2}} // all loads were before the workers were looked at
	if got, want := u.Causes(&result.Result{Extra: &result.Extra{}}), (Causes{Compute: 4, Loads: 1}); got != want {
		t.Errorf("%v, expected %v", got, want)
	}
}

// TestTooSlow: the time of requests that miss a limit counts where they miss it.
func TestTooSlow(t *testing.T) {
	for _, c := range []struct {
		r                   record.Request
		first, cold, decode float64
	}{
		// 62.5 ms each
		{record.Request{Sent: 0.9, FirstToken: 1, Finish: 1.625, Output: 11, ColdLoad: 0.05}, 0, 0, 0.625},
		{record.Request{Sent: 0.9, FirstToken: 1, Finish: 1.5, Output: 11}, 0, 0, 0},
		{record.Request{Sent: 1, FirstToken: 1, Finish: 1.0625, Output: 1}, 0, 0, 0.0625},
		{record.Request{Sent: 0, FirstToken: 0.5, Finish: 10.5, Output: 1001}, 0, 0, 10}, // all of it too late
		{record.Request{Sent: 1, FirstToken: 1.75, Finish: 1.75, Output: 1, ColdLoad: 0.25}, 0.75, 0.25, 0},
		{record.Request{Sent: 1, FirstToken: 1.75, Finish: 1.75, Output: 1, ColdLoad: 3}, 0.75, 0.75, 0},
		{record.Request{Sent: 1, FirstToken: 9, Finish: 99, Output: 1, Status: record.Failed}, 0, 0, 0},
	} {
		u := Observer{slo: result.SLO{TTFT: 500, TPOT: 50, E2E: 10000}}
		if u.done(&c.r); u.first != c.first || u.cold != c.cold || u.decode != c.decode {
			t.Errorf("%+v: %v, %v, %v", c, u.first, u.cold, u.decode)
		}
		none := Observer{}
		if none.done(&c.r); none.first+none.decode != 0 {
			t.Errorf("%+v: %+v without limits", c, none)
		}
	}
}

func TestCauses(t *testing.T) {
	for _, c := range []struct {
		causes           Causes
		text, bottleneck string
	}{
		{Causes{}, "none", "compute"},
		{Causes{Compute: 1, Routing: 1}, "compute 50 %, routing 50 %", "compute"},
		{Causes{FrontEnd: 3, Compute: 1}, "front end 75 %, compute 25 %", "front end"},
		{Causes{Slots: 2, Loads: 1, KVCache: 1}, "slots 50 %, KV 25 %, loads 25 %", "slots"},
		{Causes{HostMemory: 994, Loads: 6}, "host memory 99 %, loads 1 %", "host memory"},
		{Causes{HostMemory: 996, Loads: 4}, "host memory 100 %", "host memory"},
	} {
		if got, b := c.causes.String(), c.causes.Bottleneck(); got != c.text || b != c.bottleneck {
			t.Errorf("%v: %q, %s; expected %q, %s", c.causes, got, b, c.text, c.bottleneck)
		}
	}
}

// TestParts: without an SLO the parts of all requests add up to their times to the first token.
func TestParts(t *testing.T) {
	o := New(result.SLO{}, nil, nil)
	o.waits = Causes{Compute: 2, Slots: 1}
	for range 4 {
		o.done(&record.Request{Sent: 1, FirstToken: 2, Finish: 9, Output: 3})
	}
	c, own := o.Parts(&result.Result{Extra: &result.Extra{}})
	if c != (Causes{Compute: 2, Slots: 1}) || own != 1 {
		t.Errorf("%v, own steps %v s", c, own)
	}
}
