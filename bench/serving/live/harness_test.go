package live

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"lorasim/bench/result"
	"lorasim/bench/serving/emulate"
	"lorasim/bench/serving/fleet"
	"lorasim/bench/serving/httpapi"
	"lorasim/internal/memnet"
	"lorasim/router"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/trace"
)

// speed is how much faster than the wall clock the test workers are, where a
// test does not say.
const speed = 10

// faults are what goes wrong on a test worker.
type faults struct {
	API          httpapi.Kind
	StreamOutput bool
	// Generate is what happens to requests: "500", "truncate", "garbage",
	// "error-event", "slow", each after a few events where that makes sense; or
	// "base-model": the base model serves requests for adapters of completions.
	Generate string
	// Admin calls that fail with status 500, by path.
	Fail []string
	// DieOn makes the worker die in the middle of a call, by path; "resumed" is
	// a request that comes with tokens generated elsewhere.
	DieOn  string
	Prompt int   // longest prompt of a request that is new
	Loaded int   // adapters lora0, ... that it starts with
	Ranks  []int // theirs, in turn; nil: not known
	Limit  int   // adapters that it can hold
	Speed  float64
	// Prefixes: it has a prefix cache.
	Prefixes bool
	Slower   float64 // step times relative to the test profile; 0: 1
}

func TestMain(m *testing.M) {
	if serveProcess() {
		return
	}
	goleak.VerifyTestMain(m)
}

// testProfile has steps of some 10 ms.
func testProfile() *profile.Profile {
	p := profile.Default()
	p.Name = "test"
	p.Latency = profile.Latency{
		Decode:            profile.Decode{BaseMs: 10, PerRequestMs: 0.1},
		Prefill:           profile.Prefill{BaseMs: 10, PerTokenUs: 50, FirstWaveFactor: 1},
		LoRA:              profile.LoRA{Backend: profile.BackendNone},
		RequestOverheadMs: 2,
	}
	p.Memory.KVTokens = 1 << 20
	p.Engine.MaxRunningRequests = 64
	return &p
}

func newEmulated(f faults) (*emulate.Worker, error) {
	p := testProfile()
	if f.Slower > 0 {
		p = p.Slower(f.Slower)
	}
	p.Engine.MaxLoadedLoras, p.Engine.PrefixCache = f.Limit, f.Prefixes
	if f.Limit > 0 {
		p.Engine.MaxLorasPerBatch = f.Limit
	}
	cfg := emulate.Config{Costs: p.Compile(), API: f.API, Speed: cmp.Or(f.Speed, speed), Home: router.Disk,
		StreamOutput: f.StreamOutput}
	for i := range f.Loaded {
		a := emulate.Adapter{Name: fmt.Sprintf("lora%d", i)}
		if len(f.Ranks) > 0 {
			a.Rank = f.Ranks[i%len(f.Ranks)]
		}
		cfg.Adapters = append(cfg.Adapters, a)
	}
	return emulate.New(cfg)
}

// wrap puts the faults before a worker.
func (f faults) wrap(next http.Handler, die func()) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if slices.Contains(f.Fail, r.URL.Path) {
			http.Error(rw, `{"error":{"message":"injected"}}`, http.StatusInternalServerError)
			return
		}
		if f.DieOn == r.URL.Path {
			die()
		}
		if r.URL.Path != "/generate" && f.Generate != "base-model" {
			next.ServeHTTP(rw, r)
			return
		}
		body, _ := io.ReadAll(r.Body)
		if f.Generate == "base-model" && r.URL.Path == "/v1/completions" {
			body = adapterModel.ReplaceAll(body, []byte(`"model": "test"`))
			r.ContentLength = int64(len(body))
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if f.DieOn == "resumed" {
			var g struct {
				IDs []int32 `json:"input_ids"`
			}
			if json.Unmarshal(body, &g) == nil && len(g.IDs) > f.Prompt {
				die()
			}
		}
		f.generate(next, rw, r)
	})
}

var adapterModel = regexp.MustCompile(`"model": "lora\d+"`)

// generate serves a request with the faults of requests.
func (f faults) generate(next http.Handler, rw http.ResponseWriter, r *http.Request) {
	const after = 3 // events
	switch f.Generate {
	case "500":
		http.Error(rw, `{"error":{"message":"injected"}}`, http.StatusInternalServerError)
	case "truncate":
		next.ServeHTTP(&cutter{ResponseWriter: rw, left: after, end: func() { panic(http.ErrAbortHandler) }}, r)
	case "garbage":
		next.ServeHTTP(&cutter{ResponseWriter: rw, left: after, end: func() {
			fmt.Fprint(rw, "data: {\"text\": \"x\", no json\n\n")
			rw.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}}, r)
	case "error-event":
		next.ServeHTTP(&cutter{ResponseWriter: rw, left: after, end: func() {
			fmt.Fprint(rw, "data: {\"error\":{\"message\":\"injected\"}}\n\ndata: [DONE]\n\n")
			rw.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}}, r)
	case "slow":
		next.ServeHTTP(&cutter{ResponseWriter: rw, left: after, end: func() { <-r.Context().Done() }}, r)
	default:
		next.ServeHTTP(rw, r)
	}
}

// cutter lets some writes through and then does something else.
type cutter struct {
	http.ResponseWriter
	left int
	end  func()
}

func (c *cutter) Write(b []byte) (int, error) {
	if c.left--; c.left < 0 {
		c.end()
	}
	return c.ResponseWriter.Write(b)
}

func (c *cutter) Flush() { c.ResponseWriter.(http.Flusher).Flush() }

// cluster is workers on a network in memory, in a bubble of testing/synctest:
// their time and the client's is the bubble's, however slow the machine is.
type cluster struct {
	net   *memnet.Network
	hosts []*memnet.Host
	urls  []string
	*once
}

func startWorkers(t testing.TB, fs ...faults) *cluster {
	t.Helper()
	c := &cluster{net: memnet.New(), once: &once{open: map[string]int{}, calls: map[string]int{}}}
	for i, f := range fs {
		w, err := newEmulated(f)
		if err != nil {
			t.Fatal(err)
		}
		var h *memnet.Host
		die := func() {
			h.Kill()
			panic(http.ErrAbortHandler)
		}
		h = c.net.Serve(fmt.Sprintf("worker%d", i), c.wrap(fmt.Sprint(i), f.wrap(w, die)))
		t.Cleanup(func() {
			h.Kill()
			w.Close()
		})
		c.hosts, c.urls = append(c.hosts, h), append(c.urls, h.URL)
	}
	return c
}

// sound is n workers that work.
func sound(n int, f faults) []faults { return slices.Repeat([]faults{f}, n) }

// liveRun is a run against test workers.
type liveRun struct {
	*cluster
	speed    float64 // 0: speed
	wl       *trace.Workload
	router   *router.Router // nil: round robin
	backend  Backend
	move     router.Moving
	set      func(*Config)
	setFleet func(*fleet.Config)
	during   func(sent func() int64) // called beside the run
	fails    string                  // the error that the run must end with
	after    func(*fleet.Fleet)      // called at the end of the run
}

// outcomeOf is what came of a run.
type outcomeOf struct {
	recs   map[int64]record.Request
	tokens map[int64][]int32
	texts  map[int64]string
	stats  *Stats
	fleet  fleet.Stats
}

func (r liveRun) run(ctx context.Context, t testing.TB) *outcomeOf {
	t.Helper()
	if r.router == nil {
		r.router = newRouter(t, "round-robin", len(r.urls), r.wl.Adapters)
	}
	if r.backend == "" {
		r.backend = SGLang
	}
	r.speed = cmp.Or(r.speed, speed)
	clock := newClock(r.speed)
	var transport *http.Transport
	limit := time.Hour // of what goes over sockets: as long as a busy machine takes
	if r.net != nil {
		transport, limit = r.net.Transport(), 5*time.Second
	}
	client := NewHTTPClient(transport)
	defer client.CloseIdleConnections()
	fc := fleet.Config{Connection: fleet.Connection{URLs: r.urls, Client: client}, Router: r.router,
		Adapters: r.wl.Adapters,
		Now:      clock.Now, Speed: r.speed, Poll: 50 * time.Millisecond, Timeout: limit, LoadLimit: limit,
		Log: func(string, ...any) {}}
	for range r.urls {
		fc.Limits = append(fc.Limits, fleet.Limits{MaxRunning: 64, Slots: 8, KVCapacity: 1 << 20})
	}
	if r.setFleet != nil {
		r.setFleet(&fc)
	}
	f, err := fleet.New(fc)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Start(ctx); err != nil {
		t.Fatal(err)
	}
	out := &outcomeOf{recs: map[int64]record.Request{}, tokens: map[int64][]int32{}, texts: map[int64]string{}}
	var sent atomic.Int64
	cfg := Config{
		Source: &counting{r.wl.Source(), &sent}, Fleet: f, Backend: r.backend, Clock: clock,
		Done: func(q *record.Request) {
			if _, twice := out.recs[q.ID]; twice {
				t.Errorf("request %d ended twice", q.ID)
			}
			out.recs[q.ID] = *q
		},
		Output: func(r *record.Request, _, tokens []int32) { out.tokens[r.ID] = tokens },
		Text:   func(id int64, text string) { out.texts[id] = text },
		Seed:   1, FirstToken: 2 * limit, Idle: limit, Patience: 2 * limit, Retries: 3, Move: r.move,
		Grace: 100 * time.Millisecond,
	}
	if r.set != nil {
		r.set(&cfg)
	}
	var wg sync.WaitGroup
	if r.during != nil {
		wg.Go(func() { r.during(sent.Load) })
	}
	if out.stats, err = Run(ctx, cfg); err != nil && (r.fails == "" || !strings.Contains(err.Error(), r.fails)) ||
		err == nil && r.fails != "" {
		t.Fatalf("the run ends with %v, expected %q", err, r.fails)
	}
	wg.Wait()
	out.fleet = f.Stats()
	if r.after != nil {
		r.after(f)
	}
	return out
}

// counting counts the requests that were taken from a source.
type counting struct {
	trace.Source
	n *atomic.Int64
}

func (c *counting) Next() (trace.Request, error) {
	r, err := c.Source.Next()
	if err == nil {
		c.n.Add(1)
	}
	return r, err
}

func newRouter(t testing.TB, spec string, workers int, adapters []trace.Adapter) *router.Router {
	t.Helper()
	rt, err := router.New(spec, router.Env{Adapters: adapters, Seed: 1,
		Workers: router.Alike(workers, router.Spec{MaxRunning: 64, Slots: 8,
			Cost: profile.Model{Costs: testProfile().Compile()}})})
	if err != nil {
		t.Fatal(err)
	}
	return rt
}

// workload is n requests over the adapters, gap seconds apart.
func workload(n, adapters int, gap float64) *trace.Workload {
	w := &trace.Workload{Adapters: trace.Names(adapters, []int{16})}
	for i := range n {
		w.Requests = append(w.Requests, trace.Request{ID: int64(i), Arrival: float64(i) * gap,
			Adapter: int32(i%(adapters+1)) - 1, Prompt: int32(20 + i%7), Output: int32(30 + i%11)})
	}
	return w
}

// check makes sure that every request ended, in one status, and that the tokens
// of those that succeeded are what a worker generates that is never disturbed;
// what a failed one has is the beginning of that.
func (o *outcomeOf) check(t testing.TB, wl *trace.Workload) (ok int) {
	t.Helper()
	if len(o.recs) != len(wl.Requests) {
		t.Errorf("%d of %d requests ended", len(o.recs), len(wl.Requests))
	}
	for _, r := range wl.Requests {
		q := o.recs[r.ID]
		name := ""
		if r.Adapter >= 0 {
			name = wl.Adapters[r.Adapter].Name
		}
		if q.Version > 1 {
			name = fmt.Sprintf("%s@%d", name, q.Version)
		}
		want := emulate.Tokens(name, prompt(1, r.ID, r.Prompt, defaultVocabulary), int(r.Output))
		got := o.tokens[r.ID]
		if len(got) > len(want) || !slices.Equal(got, want[:len(got)]) {
			t.Errorf("request %d, %v: tokens %v, expected %v", r.ID, q.Status, got, want)
		}
		if text := emulate.Text(got); o.texts[r.ID] != text {
			t.Errorf("request %d, %v: text %q, expected %q", r.ID, q.Status, o.texts[r.ID], text)
		}
		if q.Status != record.OK {
			if q.Error == "" {
				t.Errorf("request %d %v without a reason", r.ID, q.Status)
			}
			continue
		}
		ok++
		if q.Output != r.Output || len(got) != int(r.Output) || len(q.Gaps) > int(r.Output)-1 {
			t.Errorf("request %d: %d tokens, %d ids and %d gaps, expected %d tokens", r.ID, q.Output, len(got),
				len(q.Gaps), r.Output)
		}
		if q.Sent < q.Arrival || q.FirstToken < q.Sent || q.Finish < q.FirstToken {
			t.Errorf("request %d: arrival %v, sent %v, first token %v, finish %v", r.ID, q.Arrival, q.Sent,
				q.FirstToken, q.Finish)
		}
	}
	o.checkBlock(t, wl, ok)
	return ok
}

// checkBlock makes sure that the block prints and counts what succeeded.
func (o *outcomeOf) checkBlock(t testing.TB, wl *trace.Workload, ok int) {
	t.Helper()
	c := result.NewCollector(result.Options{Adapters: wl.Adapters})
	for _, r := range wl.Requests {
		if q, ended := o.recs[r.ID]; ended {
			c.Done(&q)
			c.AddGaps(&q)
		}
	}
	var block strings.Builder
	if err := c.Result(result.Meta{Source: result.Live, Backend: "sglang"}, nil).WriteBlock(&block,
		result.SGLang); err != nil {
		t.Error(err)
	}
	if row := fmt.Sprintf("%-40s %-10d\n", "Successful requests:", ok); !strings.Contains(block.String(), row) {
		t.Errorf("the block lacks %q:\n%s", row, block.String())
	}
}
