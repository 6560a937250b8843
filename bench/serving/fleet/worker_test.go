package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lorasim/bench/serving/httpapi"
	"lorasim/internal/memnet"
	"lorasim/router"
	"lorasim/trace"
)

// fakeWorker is an sglang worker's administration, without a model behind it.
type fakeWorker struct {
	*memnet.Host
	handler  http.HandlerFunc
	mu       sync.Mutex
	held     []string          // adapters
	info     map[string]int    // what /server_info says
	load     load              // what /v1/loads says
	refuse   map[string]string // why it does not load an adapter
	calls    []string          // changes asked for, "+name" and "-name"
	paths    []string          // of adapters to load
	hold     chan struct{}     // loads and unloads wait for it
	slow     bool              // looks at its load never end
	arrivals chan string       // of calls, before they wait
}

// memory is a test in a bubble of testing/synctest, with a network in memory.
type memory struct {
	*testing.T
	net     *memnet.Network
	workers int
}

func inMemory(t *testing.T, test func(t *memory)) {
	synctest.Test(t, func(t *testing.T) { test(&memory{T: t, net: memnet.New()}) })
}

func newFakeWorker(t *memory, held ...string) *fakeWorker {
	k := &fakeWorker{held: held, info: map[string]int{}, refuse: map[string]string{},
		arrivals: make(chan string, 10000)}
	k.handler = k.answer
	t.workers++
	k.Host = t.net.Serve(fmt.Sprintf("host%d", t.workers),
		http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { k.handler(rw, r) }))
	t.Cleanup(k.Kill)
	return k
}

func (k *fakeWorker) answer(rw http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch r.URL.Path {
	case "/server_info":
		json.NewEncoder(rw).Encode(k.info)
	case "/v1/models":
		list := []map[string]string{{"id": "base"}}
		for _, name := range k.held {
			list = append(list, map[string]string{"id": name, "parent": "base", "root": "/held/" + name})
		}
		json.NewEncoder(rw).Encode(map[string]any{"data": list})
	case "/v1/loads":
		if k.slow {
			k.mu.Unlock()
			<-r.Context().Done()
			k.mu.Lock()
			return
		}
		fmt.Fprintf(rw, `{"loads":[{"num_running_reqs":%d,"num_waiting_reqs":%d}]}`, k.load.Running, k.load.Queued)
	case "/load_lora_adapter", "/unload_lora_adapter":
		k.change(rw, r)
	default:
		http.NotFound(rw, r)
	}
}

func (k *fakeWorker) change(rw http.ResponseWriter, r *http.Request) {
	var body struct {
		Name string `json:"lora_name"`
		Path string `json:"lora_path"`
	}
	json.NewDecoder(r.Body).Decode(&body)
	sign := map[string]string{"/load_lora_adapter": "+", "/unload_lora_adapter": "-"}[r.URL.Path]
	k.arrivals <- sign + body.Name
	if hold := k.hold; hold != nil {
		k.mu.Unlock()
		<-hold
		k.mu.Lock()
	}
	k.calls = append(k.calls, sign+body.Name)
	if why := k.refuse[sign+body.Name]; why != "" {
		rw.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(rw, `{"error_message":%q}`, why)
		return
	}
	if sign == "-" {
		k.held = slices.DeleteFunc(k.held, func(n string) bool { return n == body.Name })
		return
	}
	k.paths = append(k.paths, body.Path)
	if n := k.info["max_loaded_loras"]; n > 0 && len(k.held) >= n {
		rw.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(rw, `{"error_message":"max_loaded_loras reached"}`)
		return
	}
	k.held = append(k.held, body.Name)
}

// did returns the changes asked for so far, and forgets them.
func (k *fakeWorker) did() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	calls := k.calls
	k.calls = nil
	return calls
}

// fixed is a policy that sends everything to one worker and notes what it hears.
type fixed struct {
	router.Base
	to       int
	adjust   *router.Plan
	finished []router.Event
}

func (p *fixed) Route(r router.Request, v *router.View) router.Decision {
	return router.Decision{Worker: p.pick(r, v), Change: p.adjust}
}

func (p *fixed) pick(_ router.Request, v *router.View) int {
	if !v.Workers[p.to].Usable() {
		return slices.IndexFunc(v.Workers, func(w router.Worker) bool { return w.Usable() })
	}
	return p.to
}

func (p *fixed) Note(e router.Event) error {
	if e.Kind == router.Finished {
		p.finished = append(p.finished, e)
	}
	return nil
}

// outcomes is a planner that notes what became of its plans.
type outcomes struct {
	router.Base
	next *router.Plan
	seen []*router.PlannerInput
	told []error
	each time.Duration
}

func (o *outcomes) Interval() float64 { return o.each.Seconds() }
func (o *outcomes) Begin(s *router.PlannerInput) *router.Pending {
	o.seen = append(o.seen, s)
	return router.Ready(o.next)
}
func (o *outcomes) Applied(_ *router.Plan, err error) { o.told = append(o.told, err) }

// startFleet is a fleet of fake workers that has started, with adapters lora0,
// lora1, ... and the policy and planner above.
func startFleet(t *memory, adapters int, edit func(*Config), workers ...*fakeWorker) (*Fleet, *fixed, *outcomes) {
	t.Helper()
	f, policy, planner := newFleet(t, adapters, edit, workers...)
	if err := f.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	return f, policy, planner
}

// newFleet is startFleet before the start.
func newFleet(t *memory, adapters int, edit func(*Config), workers ...*fakeWorker) (*Fleet, *fixed, *outcomes) {
	t.Helper()
	policy, planner := &fixed{}, &outcomes{each: time.Hour}
	client := &http.Client{Transport: t.net.Transport()}
	now := 0.0
	var clock sync.Mutex
	cfg := Config{Connection: Connection{API: httpapi.SGLang, Client: client}, Adapters: trace.Names(adapters,
		[]int{8, 64}),
		Router: &router.Router{Policy: policy, Planner: planner},
		Now: func() float64 {
			clock.Lock()
			defer clock.Unlock()
			now += 0.25
			return now
		}}
	for _, k := range workers {
		cfg.URLs = append(cfg.URLs, k.URL)
		cfg.Router.Placement = append(cfg.Router.Placement, nil)
	}
	if edit != nil {
		edit(&cfg)
	}
	f, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close(); client.CloseIdleConnections() })
	return f, policy, planner
}

func sameCalls(t testing.TB, what string, k *fakeWorker, want ...string) {
	t.Helper()
	got := k.did()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s: the worker was asked for %v, expected %v", what, got, want)
	}
}

func copyBody(w io.Writer, r *http.Request) { io.Copy(w, r.Body) }

func answer(status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(body))}
}
