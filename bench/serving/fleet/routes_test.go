package fleet

import (
	"context"
	"slices"
	"testing"
	"time"

	"lorasim/router"
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
			if got := f.Requests.Route(r, -1); got != c.want {
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
		for _, shed := range []string{"", "queue:1"} {
			f, _, _ := startFleet(t, 1, func(c *Config) {
				admission, err := router.NewAdmission(shed, "", router.Env{})
				if err != nil {
					t.Fatal(err)
				}
				c.Router.Admission = admission
			}, newFakeWorker(t, "lora0"), newFakeWorker(t, "lora0"))
			refused := func(id int64) bool {
				reason, after := f.Requests.Refuse(&Request{Request: router.Request{ID: id}})
				if (reason != "") != (after > 0) {
					t.Errorf("reason %q, another try after %v s", reason, after)
				}
				return reason != ""
			}
			if refused(1) {
				t.Errorf("shed %q: refused with empty queues", shed)
			}
			rs := []*Request{{Request: router.Request{ID: 2}}, {Request: router.Request{ID: 3}}}
			f.Requests.Book(rs[0], 0)
			if refused(4) {
				t.Errorf("shed %q: refused, and worker 1 has no queue", shed)
			}
			f.Requests.Book(rs[1], 1)
			if got, want := refused(5), shed != ""; got != want {
				t.Errorf("shed %q: refused %t with a request waiting on each worker", shed, got)
			}
			f.Requests.Tokens(rs[1], 1, true) // it runs, and waits no longer
			if refused(6) {
				t.Errorf("shed %q: refused, and no request waits on worker 1", shed)
			}
		}
	})
}

// vLLM may be started so that it does not report which adapters its requests use. Then a load does not wait for their
// end. While it reports another client's request for the adapter, the load waits, and at last fails.
func TestLoadWhereOthersMayUseIt(t *testing.T) {
	inMemory(t, func(t *memory) {
		k := newBusyWorker(t, VLLM, state{0, 0, "?", 0})
		f := busyFleet(t, VLLM, k, nil)
		if err := f.LoRAs.Ensure(t.Context(), 0, 1); err != nil || !slices.Equal(k.did(), []string{"1+lora1"}) {
			t.Errorf("use unknown: %v, calls %v", err, k.did())
		}
		k = newBusyWorker(t, VLLM, state{1, 0, "lora1", 1})
		f = busyFleet(t, VLLM, k, func(c *Config) { c.LoadLimit = time.Second })
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
		"/server_info": `{"max_running_requests":1048576,"max_loras_per_batch":65536,"max_loaded_loras":1048576,` +
			`"max_total_num_tokens":1099511627776,"max_lora_rank":65536,"context_length":1073741824}`})
	in, err := e.discover(context.Background())
	want := Limits{MaxRunning: maxRequests, Slots: maxSlots, KVCapacity: maxKV, MaxLoaded: maxHeld}
	if err != nil || in.Limits != want || in.MaxRank != maxRank || in.ContextLength != maxContext {
		t.Errorf("%+v, %v; expected %+v", in, err, want)
	}
	e, _ = answers(t, map[string]string{"/v1/models": `{"data":[{"id":"m"}]}`,
		"/server_info": `{"max_running_requests":1048577,"max_loras_per_batch":1}`})
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
