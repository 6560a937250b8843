package live

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"lorasim/bench/result"
	"lorasim/bench/serving/emulate"
	"lorasim/bench/serving/httpapi"
	"lorasim/router"
	"lorasim/router/admission"
	"lorasim/sim"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/trace"
)

// descriptors counts the open files of this process; -1 where that is unknown.
func descriptors() int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return -1
	}
	return len(list)
}

// 2,000 streams at a time: all end well, and neither goroutines nor descriptors are left.
func TestManyStreams(t *testing.T) {
	const n = 2000
	p := testProfile()
	p.Engine.MaxRunningRequests = n
	p.Engine.ChunkedPrefillSize, p.Engine.MaxPrefillTokens = 1<<20, 1<<20
	p.Latency.Prefill.PerTokenUs = 0
	before, routines := descriptors(), runtime.NumGoroutine()
	func() {
		w, err := emulate.New(emulate.Config{Costs: p.Compile(), Speed: speed, Home: router.Disk})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		var arrived atomic.Int64
		all := make(chan struct{})
		srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/generate" { // nobody is answered before all are there
				if arrived.Add(1) == n {
					close(all)
				}
				<-all
			}
			w.ServeHTTP(rw, r)
		}))
		defer srv.Close()
		wl := workload(n, 0, 0)
		for i := range wl.Requests {
			wl.Requests[i].Output = 5
		}
		out := liveRun{cluster: &cluster{urls: []string{srv.URL}}, wl: wl}.run(context.Background(), t)
		if ok := out.check(t, wl); ok != n {
			t.Errorf("%d of %d succeeded: %v", ok, n, out.reasons())
		}
	}()
	for range 6000 { // the ends of closed connections take a moment
		if runtime.NumGoroutine() <= routines && descriptors() <= before {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	if d, r := descriptors(), runtime.NumGoroutine(); d > before || r > routines {
		t.Errorf("%d descriptors and %d goroutines before, %d and %d after", before, routines, d, r)
	}
}

// The same workload through the simulator and, twice as fast, through emulated
// workers: every request is on the same worker, and each of its times the same to
// the microsecond. lab/docs/live.md has a measurement on the wall clock.
func TestLiveEqualsSim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 60
		ranks := []int{8, 16}
		wl := &trace.Workload{Adapters: trace.Names(4, ranks)}
		for i := range n {
			wl.Requests = append(wl.Requests, trace.Request{ID: int64(i), Arrival: float64(i) * 0.1,
				Adapter: int32(i*7%5) - 1, Prompt: int32(100 + i*37%400), Output: int32(20 + i*13%80)})
		}
		costs := testProfile().Compile()
		place := func() *router.Router { return newRouter(t, "static", 2, wl.Adapters) }
		simulated := result.NewCollector(result.Options{Workers: 2, Adapters: wl.Adapters, KeepRecords: true})
		if _, err := sim.Run(context.Background(),
			sim.Config{Source: wl.Source(), Workers: []*profile.Costs{costs, costs},
				Router: place(), Observer: simulated, Home: router.Disk}); err != nil {
			t.Fatal(err)
		}
		o := startWorkers(t, sound(2, faults{Loaded: 4, Ranks: ranks, Speed: 2})...)
		out := liveRun{cluster: o, speed: 2, wl: wl, router: place()}.run(context.Background(), t)
		if ok := out.check(t, wl); ok != n {
			t.Fatalf("%d of 60 succeeded: %v", ok, out.reasons())
		}
		want := simulated.Result(result.Meta{}, nil).Records
		if len(want) != n {
			t.Fatalf("%d records of the simulation, expected %d", len(want), n)
		}
		for _, a := range want {
			b := out.recs[a.ID]
			same := func(x, y float64) bool { return math.Abs(x-y) < 1e-6 }
			if a.WorkerFirst != b.WorkerFirst || !same(a.Sent, b.Sent) || !same(a.FirstToken, b.FirstToken) ||
				!same(a.Finish, b.Finish) {
				t.Errorf("request %d: simulated on worker %d, sent %.7f, first token %.7f, finish %.7f; live on %d, %.7f, %.7f, %.7f",
					a.ID, a.WorkerFirst, a.Sent, a.FirstToken, a.Finish, b.WorkerFirst, b.Sent, b.FirstToken, b.Finish)
			}
		}
	})
}

// Whole replies, a closed loop, the warm-up and the OpenAI endpoints.
func TestKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			name    string
			backend Backend
			api     httpapi.Kind
			set     func(*Config)
		}{
			{"closed loop", SGLang, httpapi.SGLang, func(c *Config) { c.MaxConcurrency = 3 }},
			{"whole replies", SGLang, httpapi.SGLang, func(c *Config) { c.NoStream = true }},
			{"warm-up", SGLang, httpapi.SGLang, func(c *Config) { c.WarmUp = true }},
			{"vLLM", VLLM, httpapi.VLLM, nil},
			{"vLLM, whole replies", VLLM, httpapi.VLLM, func(c *Config) { c.NoStream = true }},
		} {
			wl := workload(30, 2, 0.01)
			o := startWorkers(t, sound(2, faults{API: c.api, Loaded: 2})...)
			out := liveRun{cluster: o, wl: wl, backend: c.backend, set: c.set}.run(context.Background(), t)
			if ok := out.check(t, wl); ok != 30 {
				t.Errorf("%s: %d of 30 succeeded: %v", c.name, ok, out.reasons())
			}
			switch c.name {
			case "closed loop":
				if n := inFlight(out.recs); n > 3 {
					t.Errorf("%d requests in flight, at most 3 expected", n)
				}
			case "warm-up":
				if n := o.count("0/generate") + o.count("1/generate"); n != 31 {
					t.Errorf("%d requests with a warm-up of one", n)
				}
			}
		}
		// completions and chats of sglang tell no token ids: counts alone
		for _, b := range []Backend{SGLangOAI, SGLangOAIChat, VLLMChat} {
			api := httpapi.SGLang
			if b.vllm() {
				api = httpapi.VLLM
			}
			wl := workload(20, 2, 0.01)
			out := liveRun{cluster: startWorkers(t, faults{API: api, Loaded: 2}), wl: wl,
				backend: b}.run(context.Background(), t)
			for id, r := range out.recs {
				if n := len(emulate.Tokenize(out.texts[id])); n != int(r.Output) && !b.chat() {
					t.Errorf("%s: request %d has %d words of text for %d tokens", b, id, n, r.Output)
				}
				if r.Status != record.OK || r.Output != wl.Requests[id].Output {
					t.Errorf("%s: request %d %v (%s) with %d tokens of %d", b, id, r.Status, r.Error, r.Output,
						wl.Requests[id].Output)
				}
			}
		}
	})
}

// inFlight is the largest number of requests between sending and end.
func inFlight(recs map[int64]record.Request) int {
	type edge struct {
		at float64
		d  int
	}
	var edges []edge
	for _, r := range recs {
		edges = append(edges, edge{r.Sent, 1}, edge{r.Finish, -1})
	}
	slices.SortFunc(edges, func(a, b edge) int {
		if a.at != b.at {
			return int(math.Copysign(1, a.at-b.at))
		}
		return a.d - b.d
	})
	n, most := 0, 0
	for _, e := range edges {
		n += e.d
		most = max(most, n)
	}
	return most
}

// A request that a worker cannot serve is rejected with the worker's words.
func TestRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wl := workload(3, 0, 0)
		wl.Requests[1].Prompt = 5000
		o := startWorkers(t, faults{})
		out := liveRun{cluster: o, wl: wl}.run(context.Background(), t)
		if r := out.recs[1]; r.Status != record.Failed || !strings.Contains(r.Error, "context length 4096") {
			t.Errorf("too long a prompt: %v, %s", r.Status, r.Error)
		}
		out = liveRun{cluster: o, wl: wl, set: func(c *Config) { c.NoStream = true }}.run(context.Background(), t)
		if r := out.recs[1]; r.Status != record.Rejected || !strings.Contains(r.Error, "context length 4096") {
			t.Errorf("the same without a stream: %v, %s", r.Status, r.Error)
		}
	})
}

// A request over the rate limit is rejected and reaches no worker.
func TestRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wl := workload(4, 0, 0)
		o := startWorkers(t, faults{})
		rt := newRouter(t, "round-robin", len(o.urls), wl.Adapters)
		limit := admission.RateLimit{Rate: 0.001, Burst: 2}
		if err := admission.Add(rt, admission.Shedding{}, limit, router.Env{Adapters: wl.Adapters}, nil); err != nil {
			t.Fatal(err)
		}
		out := liveRun{cluster: o, wl: wl, router: rt}.run(context.Background(), t)
		for i, want := range []record.Status{record.OK, record.OK, record.Rejected, record.Rejected} {
			if r := out.recs[int64(i)]; r.Status != want || want == record.Rejected &&
				(!strings.Contains(r.Error, "rate limit") || r.WorkerFirst >= 0) {
				t.Errorf("request %d: %v on worker %d, %s", i, r.Status, r.WorkerFirst, r.Error)
			}
		}
	})
}

// BenchmarkClient is the client's whole way for requests of one token, and of 17
// that come one at a time, 64 requests at a time, with the emulated worker in a
// process of its own: client-us/request is the processor time of the client alone.
func BenchmarkClient(b *testing.B) {
	for _, c := range []struct {
		tokens int32
		speed  float64
	}{{1, 1000}, {17, 1}} {
		b.Run(fmt.Sprintf("tokens=%d", c.tokens), func(b *testing.B) {
			url, _ := startProcess(b, faults{Speed: c.speed})
			wl := workload(b.N, 0, 0)
			for i := range wl.Requests {
				wl.Requests[i].Output, wl.Requests[i].Prompt = c.tokens, 64
			}
			b.ReportAllocs()
			before := cpuTime(b)
			b.ResetTimer()
			out := liveRun{cluster: &cluster{urls: []string{url}}, speed: c.speed, wl: wl, set: func(cfg *Config) {
				cfg.MaxConcurrency, cfg.Output, cfg.Text = 64, nil, nil
			}}.run(context.Background(), b)
			b.StopTimer()
			b.ReportMetric(float64(cpuTime(b)-before)/1e3/float64(b.N), "client-us/request")
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
			for _, r := range out.recs {
				if r.Status != record.OK || r.Output != c.tokens {
					b.Fatalf("%v (%s) with %d tokens", r.Status, r.Error, r.Output)
				}
			}
		})
	}
}

// cpuTime is the processor time of this process so far, ns.
func cpuTime(b *testing.B) int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
