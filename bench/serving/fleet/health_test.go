package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"lorasim/bench/serving/httpapi"
	"lorasim/internal/testutil"
	"lorasim/router"
	"lorasim/trace"
)

func TestDefaults(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("a fleet without workers")
	}
	f, err := New(Config{Connection: Connection{URLs: []string{"u"}}, Adapters: trace.Names(1, []int{16}),
		Limits: []Limits{{MaxRunning: 4, Slots: 2, KVCapacity: 9}}})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c := f.cfg
	if c.Speed != 1 || c.Poll != time.Second || c.Timeout != 2*time.Second || c.LoadLimit != time.Minute ||
		c.Path(c.Adapters[0]) != "lora0" || f.stale != nil {
		t.Errorf("%+v", c)
	}
	c.Log("nobody listens") // must not fail
	if v := f.view.Workers[0]; v.MaxRunning != 4 || v.Slots != 2 || v.KVCapacity != 9 || v.Up {
		t.Errorf("%+v", v)
	}
	g, err := New(Config{Connection: Connection{URLs: []string{"u"}}, Speed: 3, Poll: 4, Timeout: 5, LoadLimit: 6,
		Staleness: 0.1,
		Path:      func(a trace.Adapter) string { return "/p/" + a.Name }, Log: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if c := g.cfg; c.Speed != 3 || c.Poll != 4 || c.Timeout != 5 || c.LoadLimit != 6 ||
		c.Path(trace.Adapter{Name: "a"}) != "/p/a" || g.stale == nil {
		t.Errorf("%+v", c)
	}
}

// Workers start with the adapters of the router's placement, or, without one,
// with as many as they have room for.
func TestStart(t *testing.T) {
	inMemory(t, func(t *memory) {
		for _, c := range []struct {
			name      string
			maxLoaded int
			place     [][]int32
			want      []string
		}{
			{"placed", 0, [][]int32{{4, 0, 3}}, []string{"+lora0", "+lora4"}},
			{"placed nowhere", 0, [][]int32{{}}, nil},
			{"room for 3", 3, nil, []string{"+lora0", "+lora1"}},
			{"no room", 1, nil, nil},
			{"all", 0, nil, []string{"+lora0", "+lora1", "+lora2", "+lora4"}},
		} {
			k := newFakeWorker(t, "lora3")
			k.info = map[string]int{"max_loaded_loras": c.maxLoaded, "max_running_requests": 7,
				"max_loras_per_batch": 5, "max_total_num_tokens": 99}
			f, _, _ := startFleet(t, 5, func(cfg *Config) {
				cfg.Router.Placement = c.place
				cfg.Path = func(a trace.Adapter) string { return "/w/" + a.Name }
			}, k)
			sameCalls(t, c.name, k, c.want...)
			if v := f.view.Workers[0]; !v.Up || v.MaxRunning != 7 || v.Slots != 5 || v.KVCapacity != 99 ||
				v.HostSlots != c.maxLoaded || v.Adapters[3].Tier != router.Host {
				t.Errorf("%s: %+v", c.name, v)
			}
			for _, p := range k.paths {
				if !strings.HasPrefix(p, "/w/lora") {
					t.Errorf("%s: path %s", c.name, p)
				}
			}
		}
	})
}

// Where a worker does not say what it can hold, what was stated stands; one that
// takes no more adapters is used with those that it took, and an adapter that a
// placement wants and that fails leaves the next to be tried.
func TestStartWithFailures(t *testing.T) {
	inMemory(t, func(t *memory) {
		for placed, want := range map[bool][]string{false: {"+lora0", "+lora1"}, true: {"+lora0", "+lora1", "+lora2"}} {
			k := newFakeWorker(t)
			k.refuse["+lora1"] = "broken file"
			f, _, _ := startFleet(t, 3, func(c *Config) {
				c.Limits = []Limits{{MaxRunning: 4, Slots: 2, KVCapacity: 9}}
				if c.Router.Placement = nil; placed {
					c.Router.Placement = [][]int32{{0, 1, 2}}
				}
			}, k)
			sameCalls(t, fmt.Sprintf("placed %v", placed), k, want...)
			if v := f.view.Workers[0]; !v.Up || v.MaxRunning != 4 || v.Slots != 2 || v.KVCapacity != 9 {
				t.Errorf("%+v", v)
			}
		}
	})
}

// A worker that cannot be reached is down until a later look finds it.
func TestDownAndUp(t *testing.T) {
	inMemory(t, func(t *memory) {
		const url = "http://nobody"
		var mu sync.Mutex
		var lines []string
		k := newFakeWorker(t, "lora0")
		f, _, _ := startFleet(t, 1, func(c *Config) {
			c.URLs = append(c.URLs, url)
			c.Router.Placement = nil
			c.Poll = time.Millisecond
			c.Log = func(format string, args ...any) {
				mu.Lock()
				defer mu.Unlock()
				lines = append(lines, fmt.Sprintf(format, args...))
			}
		}, k)
		ctx := context.Background()
		if f.Up() != 1 || len(lines) != 1 || !strings.HasPrefix(lines[0], "worker 1 ("+url+"): ") {
			t.Errorf("%d up: %q", f.Up(), lines)
		}
		if f.prober.probe(ctx, f.workers[1]); f.Up() != 1 {
			t.Errorf("%d up, and nobody is there", f.Up())
		}
		late := newFakeWorker(t, "lora0")
		f.workers[1].url = late.URL // it comes up
		if f.prober.probe(ctx, f.workers[1]); f.Up() != 2 {
			t.Errorf("%d up", f.Up())
		}

		r := &Request{Request: router.Request{ID: 1, Adapter: 0}}
		f.Requests.Book(r, 1)
		f.Requests.Failed(r, 1, errors.New("cut off"))
		if f.Up() != 2 {
			t.Error("down on a suspicion")
		}
		f.Requests.Failed(r, 1, syscall.ECONNREFUSED)
		f.Requests.Failed(r, 1, syscall.ECONNREFUSED) // counted once
		if s := f.Stats(); f.Up() != 1 || s.Downs != 1 || f.view.Workers[1].Adapters[0].Tier != router.Disk ||
			f.workers[1].loras.rows[0].held {
			t.Errorf("%d up, %+v, %+v", f.Up(), s, f.view.Workers[1])
		}
		lines = nil
		f.prober.probe(ctx, f.workers[1])
		if f.Up() != 2 || len(lines) != 1 || lines[0] != "worker 1 ("+url+") is up" ||
			!f.workers[1].loras.rows[0].held {
			t.Errorf("%d up: %q", f.Up(), lines)
		}
		late.Kill()
		if f.prober.probe(ctx, f.workers[1]); f.Up() != 1 {
			t.Error("up, though it refuses connections")
		}
		lines = nil
		if f.prober.probe(ctx, f.workers[1]); f.Up() != 1 || len(lines) != 0 || f.Stats().Downs != 2 {
			t.Errorf("%q", lines)
		}
	})
}

// A worker that is slow to answer once is not down, one that is so twice in a
// row is.
func TestSlowLooks(t *testing.T) {
	inMemory(t, func(t *memory) {
		k := newFakeWorker(t)
		f, _, _ := startFleet(t, 0, func(c *Config) { c.Timeout = 30 * time.Millisecond }, k)
		slow := func(v bool) {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.slow = v
		}
		for i, c := range []struct {
			slow bool
			up   int
		}{{true, 1}, {false, 1}, {true, 1}, {true, 0}} {
			slow(c.slow)
			if f.prober.probe(context.Background(), f.workers[0]); f.Up() != c.up {
				t.Errorf("look %d: %d up, expected %d", i, f.Up(), c.up)
			}
		}
		slow(false)
		f.prober.probe(context.Background(), f.workers[0])
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		f.prober.probe(ctx, f.workers[0])
		if f.prober.probe(ctx, f.workers[0]); f.Up() != 1 {
			t.Error("the end of the fleet was taken for the worker's")
		}
	})
}

// What a worker says of its load beyond the fleet's own requests is entered as
// others', first of its queue.
func TestForeignLoad(t *testing.T) {
	inMemory(t, func(t *memory) {
		k := newFakeWorker(t)
		f, _, _ := startFleet(t, 0, nil, k)
		for id := range int64(3) {
			r := &Request{Request: router.Request{ID: id, Adapter: trace.BaseModel}}
			f.Requests.Book(r, 0)
			if id > 0 {
				f.Requests.Tokens(r, 1, true)
			}
		}
		for _, c := range []struct {
			running, queued, wantRunning, wantQueued int
		}{
			{2, 1, 2, 1},  // its own alone
			{2, 0, 2, 1},  // fewer: not yet counted there
			{7, 1, 6, 2},  // five more, one of which may wait
			{4, 9, 3, 10}, // nine wait, and one more of the others runs
			{1, 3, 2, 2},
		} {
			k.load = load{Running: c.running, Queued: c.queued}
			before := f.view.Now
			f.prober.probe(context.Background(), f.workers[0])
			if v := f.view.Workers[0]; v.Running != c.wantRunning || v.Queued != c.wantQueued {
				t.Errorf("%d running and %d waiting there: %d and %d here, expected %d and %d", c.running, c.queued,
					v.Running, v.Queued, c.wantRunning, c.wantQueued)
			}
			f.fresh()
			if age := f.view.Workers[0].Age; age != 0.25 || f.view.Now <= before {
				t.Errorf("age %v, expected one tick of the clock", age)
			}
		}
		f.Requests.Failed(&Request{}, 0, syscall.ECONNREFUSED)
		if v := f.view.Workers[0]; v.Running != 2 || v.Queued != 1 {
			t.Errorf("a worker that is down has requests of others: %+v", v)
		}
	})
}

// Looks go on as long as the fleet runs.
func TestRun(t *testing.T) {
	inMemory(t, func(t *memory) {
		k := newFakeWorker(t)
		k.load = load{Running: 3}
		f, _, _ := startFleet(t, 0, func(c *Config) { c.Poll = time.Millisecond; c.Router.Planner = nil }, k)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { f.Run(ctx); close(done) }()
		for f.Workers()[0].Running != 3 {
			time.Sleep(time.Millisecond)
		}
		cancel()
		<-done
	})
}

func TestRouting(t *testing.T) {
	inMemory(t, func(t *memory) {
		workers := []*fakeWorker{newFakeWorker(t), newFakeWorker(t, "lora1"), newFakeWorker(t, "lora0")}
		f, policy, _ := startFleet(t, 2, nil, workers...)
		for _, c := range []struct {
			adapter int32
			want    int
		}{{trace.BaseModel, 0}, {1, 1}, {0, 2}} {
			if got := f.Requests.First(c.adapter, ""); got != c.want {
				t.Errorf("adapter %d: first %d, expected %d", c.adapter, got, c.want)
			}
		}
		f.Drain(0, true)
		f.LoRAs.Forget(2, 0)
		if f.Requests.First(trace.BaseModel, "") != 1 || f.Requests.First(0, "") != 1 ||
			f.view.Workers[2].Adapters[0].Tier != router.Disk {
			t.Errorf("%d, %d", f.Requests.First(trace.BaseModel, ""), f.Requests.First(0, ""))
		}
		f.Drain(0, false)
		route := func(avoid int) int {
			r := &Request{Request: router.Request{ID: 1, Adapter: 1}}
			w := f.Requests.Route(r, avoid)
			if w != router.None {
				f.Requests.Left(r)
			}
			return w
		}
		policy.to = 1
		if a, b := route(-1), route(1); a != 1 || b != 0 || !f.view.Workers[1].Up {
			t.Errorf("routed to %d; avoiding 1, to %d", a, b)
		}
		f.Drain(0, true)
		f.Drain(2, true)
		if w := route(1); w != 1 {
			t.Errorf("the one to avoid is the only one: %d", w)
		}
		f.Drain(1, true)
		if w := route(-1); w != router.None || f.Requests.First(1, "") != router.None {
			t.Errorf("none is usable: %d, first %d", w, f.Requests.First(1, ""))
		}
		f.Drain(2, false)
		r := &Request{Request: router.Request{ID: 2, Adapter: trace.BaseModel}}
		if w := f.Requests.MoveTo(r, 2); w != 2 {
			t.Error(w)
		}
		f.Requests.Left(r)
		f.Requests.Left(r) // no harm
		if w := f.Requests.MoveTo(r, 1); w != 2 || f.Workers()[2].Queued != 1 {
			t.Errorf("booked on %d: %+v", w, f.Workers())
		}
		f.Requests.Tokens(r, 4, true)
		f.Requests.Finished(r, 2, 0.5, 0.5)
		if len(policy.finished) != 1 || policy.finished[0].Output != 4 || policy.finished[0].Exec != 0.5 ||
			policy.finished[0].Worker != 2 {
			t.Errorf("%+v", policy.finished)
		}
	})
}

// Adapters that workers hold and nobody named are taken in, where that is
// allowed: at the start, and when others load them later.
func TestTakeIn(t *testing.T) {
	inMemory(t, func(t *memory) {
		var lines []string
		a, b := newFakeWorker(t, "x", "lora0"), newFakeWorker(t, "y", "x")
		var known []trace.Adapter
		var refuse error
		edit := func(c *Config) {
			rt := c.Router
			c.Staleness = 1
			c.Log = func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
			c.Extend = func(_ []Info, all []trace.Adapter) (*router.Router, []Limits, error) {
				known = slices.Clone(all)
				next := *rt
				return &next, nil, refuse
			}
		}
		f, _, _ := startFleet(t, 1, edit, a, b)
		names := func() (list []string) {
			for _, a := range f.Adapters() {
				list = append(list, a.Name)
			}
			return list
		}
		if got := names(); !slices.Equal(got, []string{"lora0", "x", "y"}) || len(known) != 3 {
			t.Fatalf("%v", got)
		}
		if ws := f.Workers(); !slices.Equal(ws[0].Adapters, []string{"lora0", "x"}) ||
			!slices.Equal(ws[1].Adapters, []string{"x", "y"}) {
			t.Errorf("%+v", ws)
		}
		if len(lines) != 2 || !strings.HasSuffix(lines[0], "holds adapter x") ||
			!strings.HasSuffix(lines[1], "holds adapter y") {
			t.Errorf("%q", lines)
		}
		err := f.LoRAs.Load(context.Background(), 0, "y", "")
		if err != nil || !slices.Equal(a.paths, []string{"/held/y"}) {
			t.Errorf("%v, loaded from %v", err, a.paths)
		}
		stale := f.stale

		a.held = []string{"lora0", "z"} // others are at work
		f.prober.probe(context.Background(), f.workers[0])
		if ws := f.Workers(); !slices.Equal(ws[0].Adapters, []string{"lora0", "z"}) || len(names()) != 4 ||
			f.stale == stale {
			t.Errorf("%+v, %v", ws, names())
		}
		f.prober.probe(context.Background(), f.workers[0])
		if len(f.view.Workers[1].Adapters) != 4 || f.view.Workers[1].Adapters[3].Tier != router.Disk {
			t.Errorf("%+v", f.view.Workers[1].Adapters)
		}

		// what was taken in is served, and learnt of
		r := &Request{Request: router.Request{ID: 1, Adapter: 3, MaxNew: 10}}
		if w := f.Requests.Route(r); w != 0 {
			t.Errorf("routed to %d", w)
		}
		f.Requests.Tokens(r, 4, true)
		f.Requests.Finished(r, 0, 1, 1)
		f.Requests.Left(r)

		refuse = errors.New("a router for no more than 4")
		lines = nil
		a.held = append(a.held, "v")
		f.prober.probe(context.Background(), f.workers[0])
		if len(names()) != 4 || len(lines) != 1 ||
			!strings.Contains(lines[0], "cannot be used: a router for no more than 4") {
			t.Errorf("%v: %q", names(), lines)
		}

		c := newFakeWorker(t, "x")
		g, _, _ := startFleet(t, 1, nil, c)
		c.held = append(c.held, "lora0") // by others
		g.prober.probe(context.Background(), g.workers[0])
		if ws := g.Workers(); len(g.Adapters()) != 1 || !slices.Equal(ws[0].Adapters, []string{"lora0"}) {
			t.Errorf("taken in, though nobody allowed it, or not read back: %+v", ws)
		}
		c.held = nil // by the engine itself
		g.prober.probe(context.Background(), g.workers[0])
		if len(g.Workers()[0].Adapters) != 0 || !g.workers[0].loras.rows[0].lost {
			t.Error("what the worker has dropped is still held")
		}
	})
}

// A list of adapters that is older than a change is not believed.
func TestRelistIsLate(t *testing.T) {
	inMemory(t, func(t *memory) {
		k := newFakeWorker(t, "lora0")
		asked, answer := make(chan struct{}), make(chan struct{})
		var first atomic.Bool // the look that is late; a load asks, too
		f, _, _ := startFleet(t, 2, func(c *Config) {
			rt := c.Router
			c.Extend = func([]Info, []trace.Adapter) (*router.Router, []Limits, error) { return rt, nil, nil }
		}, k)
		plain := k.handler
		k.handler = func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/v1/models" && first.CompareAndSwap(false, true) {
				close(asked)
				<-answer
				k.mu.Lock()
				k.held = nil // the list from before the load
				k.mu.Unlock()
			}
			plain(rw, r)
		}
		done := make(chan struct{})
		go func() { f.discovery.ask(context.Background(), f.workers[0], false); close(done) }()
		<-asked
		if err := f.LoRAs.Ensure(context.Background(), 0, 1); err != nil {
			t.Fatal(err)
		}
		close(answer)
		<-done
		if ws := f.Workers(); len(ws[0].Adapters) != 2 {
			t.Errorf("%+v", ws)
		}
	})
}

func TestEndpoint(t *testing.T) {
	type call struct{ method, path, body, auth string }
	var got call
	status, body := 200, ""
	e, _ := answers(t, nil)
	e.header = http.Header{"Authorization": {"Bearer k"}}
	e.client.Transport = testutil.RoundTrip(func(r *http.Request) (*http.Response, error) {
		data := new(strings.Builder)
		copyBody(data, r)
		got = call{r.Method, r.URL.Path, data.String(), r.Header.Get("Authorization")}
		return answer(status, body), nil
	})
	ctx := context.Background()
	for _, c := range []struct {
		api    httpapi.Kind
		status int
		body   string
		do     func() error
		want   call
		err    string
	}{
		{httpapi.SGLang, 200, "", func() error { return e.loadAdapter(ctx, "a", "/p") },
			call{"POST", "/load_lora_adapter", `{"lora_name":"a","lora_path":"/p"}`, "Bearer k"}, ""},
		{httpapi.VLLM, 299, "", func() error { return e.loadAdapter(ctx, "a", "/p") },
			call{"POST", "/v1/load_lora_adapter",
				`{"lora_name":"a","lora_path":"/p"}`, "Bearer k"}, ""},
		{httpapi.VLLM, 400, `{"error":"a has already been loaded"}`,
			func() error { return e.loadAdapter(ctx, "a", "/p") },
			call{"POST", "/v1/load_lora_adapter", `{"lora_name":"a","lora_path":"/p"}`, "Bearer k"}, ""},
		{httpapi.VLLM, 404, `{"error":"no file"}`, func() error { return e.loadAdapter(ctx, "a", "/p") },
			call{"POST", "/v1/load_lora_adapter", `{"lora_name":"a","lora_path":"/p"}`, "Bearer k"},
			"POST /v1/load_lora_adapter: status 404: no file"},
		{httpapi.VLLM, 404, "", func() error { return e.unloadAdapter(ctx, "a") },
			call{"POST", "/v1/unload_lora_adapter",
				`{"lora_name":"a"}`, "Bearer k"}, ""},
		{httpapi.SGLang, 400, `{"error_message":"a is not loaded"}`, func() error { return e.unloadAdapter(ctx, "a") },
			call{"POST", "/unload_lora_adapter", `{"lora_name":"a"}`, "Bearer k"}, ""},
		{httpapi.SGLang, 500, "", func() error { return e.unloadAdapter(ctx, "a") },
			call{"POST", "/unload_lora_adapter",
				`{"lora_name":"a"}`, "Bearer k"}, "POST /unload_lora_adapter: status 500"},
		{httpapi.SGLang, 200, "", func() error { return e.abort(ctx, "r") },
			call{"POST", "/abort_request", `{"rid":"r"}`,
				"Bearer k"}, ""},
		{httpapi.VLLM, 200, "", func() error { return e.abort(ctx, "r") }, call{}, ErrNoAbort.Error()},
		{httpapi.Auto, 503, "", func() error { _, err := e.discover(ctx); return err },
			call{"GET", "/server_info", "", "Bearer k"}, "GET /server_info: status 503"},
		{httpapi.SGLang, 404, "", func() error { _, err := e.discover(ctx); return err },
			call{"GET", "/get_server_info", "",
				"Bearer k"}, "GET /get_server_info: status 404"},
		{httpapi.VLLM, 503, "", func() error { _, err := e.discover(ctx); return err },
			call{"GET", "/version", "", "Bearer k"},
			"GET /version: status 503"},
		{httpapi.VLLM, 404, "", func() error { _, err := e.discover(ctx); return err },
			call{"GET", "/v1/models", "", "Bearer k"}, "GET /v1/models: status 404"},
		{httpapi.VLLM, 500, "", func() error { _, err := e.load(ctx); return err },
			call{"GET", "/metrics", "", "Bearer k"},
			"GET /metrics: status 500"},
		{httpapi.SGLang, 500, "", func() error { _, err := e.load(ctx); return err },
			call{"GET", "/v1/loads", "", "Bearer k"},
			"GET /v1/loads: status 500"},
		{httpapi.SGLang, 200, "<html>", func() error { _, err := e.models(ctx); return err },
			call{"GET", "/v1/models", "", "Bearer k"},
			"GET /v1/models: invalid character '<' looking for beginning of value: the answer is not JSON, expected a " +
				"server of sglang or vLLM"},
	} {
		e.asked = c.api
		e.api.Store(c.api)
		status, body, got = c.status, c.body, call{}
		err := c.do()
		if text := fmt.Sprint(err); got != c.want || err == nil && c.err != "" || err != nil && text != c.err {
			t.Errorf("%s, %d %s: %+v, %v; expected %+v, %q", c.api, c.status, c.body, got, err, c.want, c.err)
		}
	}
}
