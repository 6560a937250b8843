package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"lorasim/bench/serving/httpapi"
	"lorasim/internal/guard"
	"lorasim/internal/testutil"
	"lorasim/router"
	"lorasim/router/admission"
	"lorasim/trace"
)

// A request goes to no worker that its Only excludes, and Only gets addresses with a port. The next request sees all
// workers again.
func TestOnly(t *testing.T) {
	inMemory(t, func(t *memory) {
		workers := []*fakeWorker{newFakeWorker(t, "lora0"), newFakeWorker(t, "lora0")}
		f, policy, _ := startFleet(t, 1, nil, workers...)
		policy.to = 0
		var seen []string
		allow := func(addresses ...string) func(string) bool {
			return func(address string) bool {
				seen = append(seen, address)
				return slices.Contains(addresses, address)
			}
		}
		first, second := addressOf(workers[0].URL), addressOf(workers[1].URL)
		for i, c := range []struct {
			only func(string) bool
			want int
		}{{allow(second), 1}, {allow(first), 0}, {allow(first, second), 0}, {allow("other:80"), router.None},
			{nil, 0}} {
			r := &Request{Request: router.Request{ID: int64(i + 1)}, Only: c.only}
			if got := f.Requests.Route(r); got != c.want {
				t.Errorf("case %d: worker %d, expected %d", i, got, c.want)
			}
		}
		if len(seen) < 8 || !slices.Equal(seen[:2], []string{first, second}) || f.Up() != 2 {
			t.Errorf("addresses %q, %d workers up", seen, f.Up())
		}
	})
}

func TestAddress(t *testing.T) {
	for in, want := range map[string]string{
		"http://gpu0": "gpu0:80", "http://gpu0:30000": "gpu0:30000", "https://gpu0": "gpu0:443",
		"https://gpu0:8443": "gpu0:8443", "https://[::1]": "[::1]:443", "http://[::1]:8000/x": "[::1]:8000",
	} {
		if got := addressOf(in); got != want {
			t.Errorf("%s: %s, expected %s", in, got, want)
		}
	}
}

// Without admission no request is refused. With it one is, while the queues of all workers are too long.
func TestRefused(t *testing.T) {
	inMemory(t, func(t *memory) {
		for _, shed := range []admission.Shedding{{}, {Queue: 1}} {
			f, _, _ := startFleet(t, 1, func(c *Config) {
				if err := admission.Add(c.Router, shed, admission.RateLimit{}, router.Env{}, nil); err != nil {
					t.Fatal(err)
				}
			}, newFakeWorker(t, "lora0"), newFakeWorker(t, "lora0"))
			refused := func(id int64) bool {
				reason, after := f.Requests.Refuse(&Request{Request: router.Request{ID: id}})
				if (reason != "") != (after > 0) {
					t.Errorf("reason %q, another try after %v s", reason, after)
				}
				return reason != ""
			}
			if refused(1) {
				t.Errorf("shed %+v: refused with empty queues", shed)
			}
			rs := []*Request{{Request: router.Request{ID: 2}}, {Request: router.Request{ID: 3}}}
			f.Requests.Book(rs[0], 0)
			if refused(4) {
				t.Errorf("shed %+v: refused, and worker 1 has no queue", shed)
			}
			f.Requests.Book(rs[1], 1)
			if got, want := refused(5), shed.Queue > 0; got != want {
				t.Errorf("shed %+v: refused %t with a request waiting on each worker", shed, got)
			}
			f.Requests.Tokens(rs[1], 1, true) // it runs, and waits no longer
			if refused(6) {
				t.Errorf("shed %+v: refused, and no request waits on worker 1", shed)
			}
		}
	})
}

// vLLM may be started so that it does not report which adapters its requests use. Then a load does not wait for their
// end. While it reports another client's request for the adapter, the load waits, and at last fails.
func TestLoadWhereOthersMayUseIt(t *testing.T) {
	inMemory(t, func(t *memory) {
		k := newBusyWorker(t, httpapi.VLLM, state{0, 0, "?", 0})
		f := busyFleet(t, httpapi.VLLM, k, nil)
		if err := f.LoRAs.Ensure(t.Context(), 0, 1); err != nil || !slices.Equal(k.did(), []string{"1+lora1"}) {
			t.Errorf("use unknown: %v, calls %v", err, k.did())
		}
		k = newBusyWorker(t, httpapi.VLLM, state{1, 0, "lora1", 1})
		f = busyFleet(t, httpapi.VLLM, k, func(c *Config) { c.LoadLimit = time.Second })
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := f.LoRAs.Ensure(ctx, 0, 1); err == nil || len(k.did()) > 0 {
			t.Errorf("in use: %v, calls %v", err, k.did())
		}
	})
}

// A limit that a worker reports counts up to the largest number that makes sense.
func TestLargestLimits(t *testing.T) {
	e, _ := answers(t, map[string]string{"/v1/models": `{"data":[{"id":"m"}]}`,
		"/server_info": `{"model_path":"m","max_running_requests":1048576,"max_loras_per_batch":65536,"max_loaded_loras":1048576,` +
			`"max_total_num_tokens":1099511627776,"max_lora_rank":65536,"context_length":1073741824}`})
	in, err := e.discover(context.Background())
	want := Limits{MaxRunning: maxRequests, Slots: maxSlots, KVCapacity: maxKV, MaxLoaded: maxHeld}
	if err != nil || in.Limits != want || in.MaxRank != maxRank || in.ContextLength != maxContext {
		t.Errorf("%+v, %v; expected %+v", in, err, want)
	}
	e, _ = answers(t, map[string]string{"/v1/models": `{"data":[{"id":"m"}]}`,
		"/server_info": `{"model_path":"m","max_running_requests":1048577,"max_loras_per_batch":1}`})
	if in, err := e.discover(context.Background()); err != nil || in.Limits != (Limits{Slots: 1}) {
		t.Errorf("%+v, %v; expected 1 slot, and an unknown number of running requests", in, err)
	}
}

// A worker is ejected if at least half of its begun streams, and at least five, have stalled; not before.
func TestShareOfStalledStreams(t *testing.T) {
	for _, c := range []struct {
		stalled, others int
		ejected         bool
	}{{5, 5, true}, {5, 6, false}, {4, 0, false}, {5, 0, true}, {6, 6, true}, {6, 7, false}} {
		inMemory(t, func(t *memory) {
			f := running(t, newFakeWorker(t, "lora0"), newFakeWorker(t, "lora0"))
			rs := make([]*Request, c.stalled+c.others)
			for i := range rs {
				rs[i] = &Request{Request: router.Request{ID: int64(i + 1)}, Owner: &owner{}, Streams: true}
				f.Requests.Book(rs[i], 0)
				f.Requests.Tokens(rs[i], 1, true)
			}
			for range 20 {
				time.Sleep(time.Second)
				for _, r := range rs[c.stalled:] {
					f.Requests.Tokens(r, 1, false)
				}
			}
			if s := f.state(0); s.Ejected != c.ejected {
				t.Errorf("%d streams stalled, %d go on: %+v", c.stalled, c.others, s)
			}
		})
	}
}

// While a worker has requests of other adapters in flight, failures in a row of one adapter speak against that adapter
// on the worker. Failures of several adapters speak against the worker.
func TestFailuresInARow(t *testing.T) {
	for _, c := range []struct {
		name     string
		adapters []int32
		worker   bool
	}{
		{"lora2", []int32{2, 2, 2, 2, 2}, false}, {"lora3", []int32{3, 3, 3, 3, 3}, false},
		{"two adapters", []int32{2, 2, 3, 2, 2}, true}, {"two, the last differs", []int32{2, 2, 2, 2, 3}, true},
		{"two, the first differs", []int32{3, 2, 2, 2, 2}, true},
	} {
		f, _ := upFleet(t, 2, Outlier{})
		f.Requests.Book(&Request{Request: router.Request{ID: 100, Adapter: 0}}, 0)
		for i, a := range c.adapters {
			f.one(int64(i), a, 0, false)
		}
		s := f.state(0)
		if s.Ejected != c.worker || !c.worker && !slices.Equal(s.EjectedAdapters, []string{c.name}) {
			t.Errorf("%s: %+v, expected the worker ejected: %v", c.name, s, c.worker)
		}
	}
}

// The share of failures counts those of the last 15 to 30 s, also long after the start.
func TestShareForgets(t *testing.T) {
	for pause, want := range map[float64]bool{1: true, 31: false} {
		f, clock := upFleet(t, 3, Outlier{})
		clock.pass(1000)
		for range 2 { // twice 12 requests on worker 0, half of which fail; 20 are enough for a decision
			for i := range int64(12) {
				for w := range 3 {
					f.one(i, int32(i%4), w, w != 0 || i%2 == 0)
				}
			}
			clock.pass(pause)
		}
		if s := f.state(0); s.Ejected != want {
			t.Errorf("with a pause of %v s: %+v, expected ejected %v", pause, s, want)
		}
	}
}

// A worker tells the ids of its tokens in sglang's reply or in vLLM's.
func TestTellsIDs(t *testing.T) {
	for reply, want := range map[string]bool{
		`{"output_ids":[5]}`: true, `{"output_ids":[]}`: false, `{"text":"x"}`: false, `{"choices":[]}`: false,
		`{"choices":[{"token_ids":[5]}]}`: true, `{"choices":[{"text":"x"}]}`: false,
	} {
		e, _ := answers(t, map[string]string{"/generate": reply})
		if got, err := e.tellsIDs(t.Context(), "m"); err != nil || got != want {
			t.Errorf("%s: %v, %v; expected %v", reply, got, err, want)
		}
	}
}

// A panic in an error marks the worker down; any other error is none of its business.
func TestPanicked(t *testing.T) {
	f, _ := upFleet(t, 2, Outlier{})
	defer f.Close()
	f.Panicked(0, errors.New("connection refused"))
	if f.Up() != 2 || f.Stats().Panics != 0 {
		t.Errorf("an error without a panic: %d up, %d panics", f.Up(), f.Stats().Panics)
	}
	f.Panicked(0, fmt.Errorf("a reply: %w", &guard.Panic{Text: "x"}))
	if f.Up() != 1 || f.state(0).Up || f.Stats().Panics != 1 {
		t.Errorf("a panic: %d up, %d panics", f.Up(), f.Stats().Panics)
	}
}

// An adapter that nobody knew becomes known once a worker has loaded it, and not if the worker refuses.
func TestLoadUnknown(t *testing.T) {
	inMemory(t, func(t *memory) {
		k := newFakeWorker(t, "lora0")
		k.refuse = map[string]string{"+bad": "no such file"}
		f, _, _ := startFleet(t, 1, func(c *Config) {
			rt := c.Router
			c.Extend = func([]Info, []trace.Adapter) (*router.Router, []Limits, error) {
				next := *rt
				return &next, nil, nil
			}
		}, k)
		names := func() (list []string) {
			for _, a := range f.Adapters() {
				list = append(list, a.Name)
			}
			return list
		}
		err := f.LoRAs.Load(t.Context(), 0, "bad", "")
		testutil.ExpectError(t, err, "loading adapter bad on worker 0")
		testutil.ExpectError(t, err, "no such file")
		if got := names(); !slices.Equal(got, []string{"lora0"}) {
			t.Errorf("after a refused load: %v", got)
		}
		if err := f.LoRAs.Load(t.Context(), 0, "good", "/adapters/good"); err != nil {
			t.Error(err)
		}
		if got := names(); !slices.Equal(got, []string{"lora0", "good"}) ||
			!slices.Equal(f.Workers()[0].Adapters, []string{"lora0", "good"}) {
			t.Errorf("known are %v, worker 0 holds %v", got, f.Workers()[0].Adapters)
		}
		sameCalls(t, "two loads", k, "+bad", "+good")
	})
}

// views is a policy that keeps what it sees of the workers.
type views struct {
	router.Base
	seen [][]router.Worker
}

func (p *views) Route(_ router.Request, v *router.View) router.Decision {
	p.seen = append(p.seen, slices.Clone(v.Workers))
	return router.To(v.LeastLoaded())
}

// A worker that a request must avoid is hidden from this decision alone, and is not shown as down: a policy would
// forget what it sent there.
func TestHiddenWorkersAreNotDown(t *testing.T) {
	f := newTestFleet(t, 2, 1)
	defer f.Close()
	p := &views{}
	f.router.Policy = p
	for i := range int64(2) {
		r := &Request{Request: router.Request{ID: i, Adapter: trace.BaseModel, Prompt: 4, MaxNew: 6}}
		if w := f.Requests.Route(r, 0); w != 1 {
			t.Fatalf("request %d goes to worker %d, expected 1", i, w)
		}
		if w := p.seen[i][0]; !w.Up || w.Usable() {
			t.Errorf("the avoided worker is %+v, expected up and not usable", w)
		}
		if w := f.view.Workers[0]; !w.Usable() {
			t.Errorf("the shared view hides the avoided worker: %+v", w)
		}
	}
}
