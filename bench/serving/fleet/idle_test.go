package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lorasim/bench/serving/httpapi"
	"lorasim/internal/memnet"
	"lorasim/internal/testutil"
	"lorasim/router"
)

// state is what a fake engine tells at one look.
type state struct {
	running, waiting int
	busy             string // adapters; "?": not told
	at               int
}

// busyWorker is a worker whose looks are scripted; the last is repeated.
type busyWorker struct {
	*memnet.Host
	mu     sync.Mutex
	script []state
	looks  int
	calls  []string // changes, with the number of looks before: "2+a"
	gone   bool     // lora0, which it holds at first
}

func newBusyWorker(t *memory, api httpapi.Kind, script ...state) *busyWorker {
	k := &busyWorker{script: script}
	t.workers++
	k.Host = t.net.Serve(fmt.Sprintf("host%d", t.workers),
		http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			k.mu.Lock()
			defer k.mu.Unlock()
			switch {
			case r.URL.Path == "/server_info" && api == httpapi.SGLang, r.URL.Path == "/version" && api == httpapi.VLLM:
				fmt.Fprint(rw, "{}")
			case r.URL.Path == "/v1/models":
				if fmt.Fprint(rw, `{"data":[{"id":"base"}`); !k.gone {
					fmt.Fprint(rw, `,{"id":"lora0","parent":"base"}`)
				}
				fmt.Fprint(rw, "]}")
			case r.URL.Path == "/v1/loads":
				s := k.next()
				fmt.Fprintf(rw, `{"loads":[{"num_running_reqs":%d,"num_waiting_reqs":%d}]}`, s.running, s.waiting)
			case r.URL.Path == "/metrics":
				s := k.next()
				if s.busy == "?" { // as with --disable-log-stats
					break
				}
				fmt.Fprintf(rw, "# TYPE vllm:lora_requests_info gauge\nvllm:lora_requests_info{max_lora=\"2\",running_lora_adapters=%q} %d\n"+
					"vllm:num_requests_running %d\nvllm:num_requests_waiting %d\n", s.busy, s.at, s.running, s.waiting)
			case strings.HasSuffix(r.URL.Path, "load_lora_adapter") && r.Method == http.MethodPost:
				var body struct {
					Name string `json:"lora_name"`
				}
				json.NewDecoder(r.Body).Decode(&body)
				sign := "+"
				if strings.Contains(r.URL.Path, "unload") {
					sign = "-"
				}
				k.calls = append(k.calls, fmt.Sprintf("%d%s%s", k.looks, sign, body.Name))
			case strings.HasSuffix(r.URL.Path, "load_lora_adapter"):
				rw.WriteHeader(http.StatusMethodNotAllowed)
			default:
				http.NotFound(rw, r)
			}
		}))
	t.Cleanup(k.Kill)
	return k
}

func (k *busyWorker) next() state {
	s := k.script[min(k.looks, len(k.script)-1)]
	k.looks++
	return s
}

// begin forgets what was so far, as the looks when a fleet starts.
func (k *busyWorker) begin() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.looks, k.calls = 0, nil
}

func (k *busyWorker) did() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.calls
}

func busyFleet(t *memory, api httpapi.Kind, k *busyWorker, edit func(*Config)) *Fleet {
	other := newFakeWorker(t) // for startFleet alone
	f, _, _ := startFleet(t, 2, func(c *Config) {
		c.API, c.URLs = api, []string{k.URL}
		if edit != nil {
			edit(c)
		}
	}, other)
	k.begin()
	return f
}

// An adapter is unloaded when the engine has said three times in a row, anew each
// time, that nobody uses it.
func TestUnloadWaitsForTheEngine(t *testing.T) {
	inMemory(t, func(t *memory) {
		own := state{1, 0, "lora1", 1} // of the fleet, with another adapter
		for _, c := range []struct {
			name   string
			api    httpapi.Kind
			script []state
			want   string
		}{
			{"idle", httpapi.VLLM, []state{{}}, "3-lora0"},
			{"runs at first", httpapi.VLLM, []state{{2, 0, "lora0,lora1", 1}, {2, 0, "lora1", 2}, {2, 0,
				"lora1,lora0", 3},
				{2, 0, "lora1", 4}, {2, 0, "lora1", 5}, {1, 0, "lora1", 6}}, "6-lora0"},
			{"told anew", httpapi.VLLM, []state{own, own, own, {1, 0, "lora1", 2}, {1, 0, "lora1", 2}, {1, 0, "lora1",
				3}},
				"6-lora0"},
			{"one that waits may use it", httpapi.VLLM, []state{{1, 1, "lora1", 1}, {1, 1, "lora1", 2}, {1, 1,
				"lora1", 3},
				{1, 1, "lora1", 4}, {1, 0, "lora1", 5}, {1, 0, "lora1", 6}, {1, 0, "lora1", 7}}, "7-lora0"},
			{"the fleet's own waits", httpapi.VLLM, []state{{0, 1, "", 1}, {0, 1, "", 2}, {0, 1, "", 3}}, "3-lora0"},
			{"sglang tells no names", httpapi.SGLang, []state{{2, 0, "", 0}, {1, 1, "", 0}, {1, 0, "", 0}}, "5-lora0"},
		} {
			k := newBusyWorker(t, c.api, c.script...)
			f := busyFleet(t, c.api, k, nil)
			f.Requests.Book(&Request{Request: router.Request{ID: 1, Adapter: 1}}, 0)
			f.LoRAs.Release(0, 0)
			f.tasks.Wait()
			if got := k.did(); !slices.Equal(got, []string{c.want}) {
				t.Errorf("%s: %v, expected %s", c.name, got, c.want)
			}
		}
	})
}

// Where others use an adapter as long as the fleet can wait, or nobody knows, it
// stays.
func TestUnloadGivenUp(t *testing.T) {
	inMemory(t, func(t *memory) {
		for name, script := range map[string]state{"requests of other clients use it, or may": {1, 0, "lora0", 1},
			errUntold.Error(): {0, 0, "?", 0}} {
			var lines []string
			k := newBusyWorker(t, httpapi.VLLM, script)
			f := busyFleet(t, httpapi.VLLM, k, func(c *Config) {
				c.LoadLimit = 10 * time.Millisecond
				c.Log = func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
			})
			f.LoRAs.Release(0, 0)
			f.tasks.Wait()
			if len(k.did()) > 0 || !f.workers[0].loras.rows[0].held || len(lines) != 1 ||
				!strings.Contains(lines[0], "keeps adapter lora0: "+name) {
				t.Errorf("%v: %q", k.did(), lines)
			}
		}
	})
}

// A request that comes while the engine is watched calls the unload off.
func TestUnloadCalledOff(t *testing.T) {
	inMemory(t, func(t *memory) {
		k := newBusyWorker(t, httpapi.VLLM, state{1, 0, "lora0", 1})
		f := busyFleet(t, httpapi.VLLM, k, nil)
		f.LoRAs.Release(0, 0)
		time.Sleep(3 * between) // in which it looks, and finds it in use
		f.Requests.Book(&Request{Request: router.Request{ID: 1, Adapter: 0}}, 0)
		f.tasks.Wait()
		if len(k.did()) > 0 {
			t.Errorf("%v", k.did())
		}
	})
}

func (k *busyWorker) looked() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.looks
}

// vLLM does not survive two loads of a name with requests of both: what is lost
// without the fleet's doing is loaded again when the former's requests have
// ended, its own, which it counts, and others'.
func TestLoadWaitsForTheFormer(t *testing.T) {
	inMemory(t, func(t *memory) {
		k := newBusyWorker(t, httpapi.VLLM, state{2, 0, "lora0", 1}, state{1, 0, "lora0", 2}, state{})
		f := busyFleet(t, httpapi.VLLM, k, nil)
		old := &Request{Request: router.Request{ID: 1, Adapter: 0}}
		f.Requests.Book(old, 0)
		f.Requests.Tokens(old, 1, true)
		k.gone = true
		f.LoRAs.Forget(0, 0)
		late := &Request{Request: router.Request{ID: 2, Adapter: 0}}
		f.Requests.Book(late, 0)
		done := make(chan error)
		go func() { done <- f.LoRAs.Ensure(context.Background(), 0, 0) }()
		synctest.Wait()
		if k.looked() > 0 || len(k.did()) > 0 {
			t.Errorf("the fleet's own request runs: %v", k.did())
		}
		f.Requests.Left(old)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if got := k.did(); !slices.Equal(got, []string{"5+lora0"}) {
			t.Errorf("%v, expected a load after two looks that name it and three that do not", got)
		}
		k.begin()
		// one that nobody has had: one look, that names another
		if err := f.LoRAs.Ensure(context.Background(), 0, 1); err != nil {
			t.Fatal(err)
		}
		if got := k.did(); !slices.Equal(got, []string{"1+lora1"}) {
			t.Errorf("%v", got)
		}
		k.gone = false // others have loaded it meanwhile
		f.LoRAs.Forget(0, 0)
		k.begin()
		if err := f.LoRAs.Ensure(context.Background(), 0, 0); err != nil || len(k.did()) > 0 {
			t.Errorf("what is there again: %v, %v", err, k.did())
		}
		if k := f.workers[0]; k.loras.rows[0].outside > 0 || k.loras.rows[1].outside > 0 {
			t.Errorf("requests still wait: %+v, %+v", k.loras.rows[0], k.loras.rows[1])
		}
	})
}

// A worker without dynamic loading is asked for nothing.
func TestFixedAdapters(t *testing.T) {
	inMemory(t, func(t *memory) {
		for in, want := range map[Info]string{
			{API: httpapi.VLLM, LoRA: On, RunTime: Off}:    "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True",
			{API: httpapi.VLLM, LoRA: Off, RunTime: Off}:   "LoRA is disabled; start the server with --enable-lora",
			{API: httpapi.SGLang, LoRA: On, RunTime: Off}:  "one data-parallel replica",
			{API: httpapi.SGLang, LoRA: Off, RunTime: Off}: "LoRA is disabled; start the server with --enable-lora",
		} {
			k := newFakeWorker(t, "lora0")
			f, _, _ := startFleet(t, 2, nil, k)
			f.workers[0].health.info = in
			err := f.LoRAs.Ensure(context.Background(), 0, 1)
			testutil.ExpectError(t, err, "worker 0 does not hold adapter lora1 and ", want)
			if err := f.LoRAs.Ensure(context.Background(), 0, 0); err != nil {
				t.Errorf("what it holds: %v", err)
			}
			sameCalls(t, want, k)
		}
	})
}

// A worker that drops an adapter by itself to take another is asked at once what
// it holds.
func TestReadBackWhenFull(t *testing.T) {
	inMemory(t, func(t *memory) {
		k := newFakeWorker(t, "lora0")
		f, _, _ := startFleet(t, 2, func(c *Config) { c.Stated.MaxLoaded = 1 }, k)
		plain := k.handler
		k.handler = func(rw http.ResponseWriter, r *http.Request) {
			if plain(rw, r); r.URL.Path == "/load_lora_adapter" {
				k.mu.Lock()
				defer k.mu.Unlock()
				k.held = k.held[1:]
			}
		}
		if err := f.LoRAs.Ensure(context.Background(), 0, 1); err != nil {
			t.Fatal(err)
		}
		f.tasks.Wait()
		if ws := f.Workers(); !slices.Equal(ws[0].Adapters, []string{"lora1"}) {
			t.Errorf("%+v", ws)
		}
	})
}

// What workers tell of their limits counts, unless others are stated; that they
// differ is said once.
func TestStatedLimits(t *testing.T) {
	inMemory(t, func(t *memory) {
		var lines []string
		k := newFakeWorker(t)
		k.info = map[string]int{"max_running_requests": 7, "max_loras_per_batch": 5, "max_total_num_tokens": 99}
		f, _, _ := startFleet(t, 0, func(c *Config) {
			c.Limits = []Limits{{1, 2, 3, 4}}
			c.Stated = Limits{MaxRunning: 8, KVCapacity: 99}
			c.Log = func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
		}, k)
		k.load.Running = 1
		for range 2 {
			f.prober.probe(context.Background(), f.workers[0])
		}
		if got := f.Workers()[0].Limits; got != (Limits{8, 5, 99, 4}) {
			t.Errorf("%+v", got)
		}
		if len(lines) != 1 || !strings.HasSuffix(lines[0],
			"reports limit of running requests: 7; the given value applies: 8") {
			t.Errorf("%q", lines)
		}
	})
}
