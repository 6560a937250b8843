package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"lorasim/router"
)

// routed books a request for an adapter where the router picks, and returns it with its worker.
func (f *Fleet) routed(id int64, a int32) (*Request, int) {
	r := &Request{Request: router.Request{ID: id, Adapter: a, Prompt: 1, MaxNew: 1}}
	return r, f.Requests.Route(r)
}

// A worker that says by /health or /ready that it takes no requests gets none. Those that it has go on, and it is used
// again when it says so.
func TestWorkerThatDrains(t *testing.T) {
	for _, path := range []string{"/health", "/ready"} {
		t.Run(path, func(t *testing.T) {
			inMemory(t, func(t *memory) {
				k, other := newFakeWorker(t, "lora0"), newFakeWorker(t, "lora0")
				var drains atomic.Bool
				k.handler = func(rw http.ResponseWriter, r *http.Request) {
					switch {
					case r.URL.Path == path && drains.Load():
						rw.WriteHeader(http.StatusServiceUnavailable)
					case r.URL.Path == "/health", r.URL.Path == "/ready":
					default:
						k.answer(rw, r)
					}
				}
				f := running(t, k, other)
				begun, w := f.routed(1, 0)
				if w != 0 {
					t.Fatalf("worker %d, expected 0", w)
				}
				drains.Store(true)
				time.Sleep(3 * time.Second)
				if _, w := f.routed(2, 0); w != 1 || f.Up() != 1 {
					t.Errorf("worker %d of %d, expected 1 of 1", w, f.Up())
				}
				if m := strings.Join(f.Missing(), ", "); !strings.Contains(m, "takes no new requests") {
					t.Errorf("missing: %s", m)
				}
				if s := f.Workers()[0]; !s.Up || s.Running+s.Queued != 1 {
					t.Errorf("the worker that drains: %+v", s)
				}
				f.Requests.Finished(begun, 0, 1, 1)
				f.Requests.Left(begun)
				drains.Store(false)
				time.Sleep(3 * time.Second)
				if _, w := f.routed(3, 0); w != 0 || f.Up() != 2 || len(f.Missing()) > 0 {
					t.Errorf("worker %d of %d, missing %v, after the drain", w, f.Up(), f.Missing())
				}
			})
		})
	}
}

// A fleet serves as soon as its workers have told who they are. A worker that hangs while it loads the first adapters
// gets the requests for others, and no request waits for it where another worker holds the adapter.
func TestBeginsWithoutItsAdapters(t *testing.T) {
	inMemory(t, func(t *memory) {
		k, other := newFakeWorker(t), newFakeWorker(t, "lora0")
		k.hold = make(chan struct{})
		f, _, _ := newFleet(t, 1, func(c *Config) { c.Router.Placement = [][]int32{{0}, {0}} }, k, other)
		begun := time.Now()
		if err := f.Begin(context.Background()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took > 0 || f.Up() != 2 {
			t.Errorf("%d workers are up after %v", f.Up(), took)
		}
		<-k.arrivals
		if m := strings.Join(f.Missing(), ", "); !strings.Contains(m, "still loads adapters: 1") {
			t.Errorf("missing: %s", m)
		}
		if _, w := f.routed(1, 0); w != 1 {
			t.Errorf("worker %d, expected 1, which holds the adapter", w)
		}
		close(k.hold)
		time.Sleep(time.Second)
		if _, w := f.routed(2, 0); w != 0 || len(f.Missing()) > 0 {
			t.Errorf("worker %d, missing %v, after the load", w, f.Missing())
		}
	})
}

// While an unload hangs, a request for the adapter leaves after a second if another worker can serve it. Otherwise it
// waits as long as its client lets it.
func TestUnloadThatHangs(t *testing.T) {
	for _, alone := range []bool{false, true} {
		t.Run(fmt.Sprintf("alone %t", alone), func(t *testing.T) {
			inMemory(t, func(t *memory) {
				k := newFakeWorker(t, "lora0")
				workers := []*fakeWorker{k}
				if !alone {
					workers = append(workers, newFakeWorker(t, "lora0"))
				}
				f, _, _ := startFleet(t, 1, nil, workers...)
				k.hold = make(chan struct{})
				unloaded := make(chan error, 1)
				go func() { unloaded <- f.LoRAs.Unload(context.Background(), 0, "lora0") }()
				<-k.arrivals
				if _, w := f.routed(1, 0); !alone && w != 1 {
					t.Errorf("worker %d, expected the one that does not unload", w)
				}
				begun := time.Now()
				limit := Wait{Since: begun, Until: begun.Add(20 * time.Second)}
				err := f.LoRAs.EnsureWithin(context.Background(), 0, 0, limit)
				took := time.Since(begun)
				no, late := errors.AsType[*NoPlace](err)
				switch {
				case !alone && (err == nil || late || took != patience):
					t.Errorf("%v after %v", err, took)
				case alone && (!late || no.Call != "unload" || took != 20*time.Second):
					t.Errorf("%v after %v", err, took)
				}
				close(k.hold)
				if err := <-unloaded; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Two workers hold an adapter of one name from different paths: the second one gets no request for it, and the log
// says so once. Once it has unloaded its own, it can be used.
func TestSameNameOtherPath(t *testing.T) {
	inMemory(t, func(t *memory) {
		k, other := newFakeWorker(t, "lora0"), newFakeWorker(t)
		var root atomic.Value
		root.Store("/other/lora0")
		other.handler = func(rw http.ResponseWriter, r *http.Request) {
			if text := root.Load().(string); r.URL.Path == "/v1/models" && text != "" {
				fmt.Fprintf(rw, `{"data":[{"id":"base"},{"id":"lora0","parent":"base","root":%q}]}`, text)
				return
			}
			other.answer(rw, r)
		}
		logged := make(chan string, 100)
		f, policy, _ := newFleet(t, 1, func(c *Config) {
			c.Poll = time.Second
			c.Router.Placement = [][]int32{{}, {}}
			c.Log = func(format string, args ...any) { logged <- fmt.Sprintf(format, args...) }
		}, k, other)
		policy.to = 1
		// the first worker tells its adapters first
		if _, err := f.prober.identify(context.Background(), f.workers[0]); err != nil {
			t.Fatal(err)
		}
		if err := f.Start(context.Background()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); f.Run(ctx) }()
		time.Sleep(5 * time.Second)
		if _, w := f.routed(1, 0); w != 0 {
			t.Errorf("worker %d, expected 0", w)
		}
		if err := f.LoRAs.Ensure(ctx, 1, 0); err == nil || !strings.Contains(err.Error(), "/other/lora0") {
			t.Errorf("on the worker with other weights: %v", err)
		}
		said := 0
		for len(logged) > 0 {
			if strings.Contains(<-logged, "/other/lora0") {
				said++
			}
		}
		if said != 1 {
			t.Errorf("%d lines of the log, expected 1", said)
		}
		root.Store("")
		time.Sleep(3 * time.Second)
		if err := f.LoRAs.Ensure(ctx, 1, 0); err != nil {
			t.Error(err)
		}
		sameCalls(t, "the second worker", other, "+lora0")
		cancel()
		<-done
	})
}

// Loads that fail are tried again after pauses that double. An operator does not wait, and a success ends the pauses.
func TestLoadsThatFailRest(t *testing.T) {
	inMemory(t, func(t *memory) {
		k := newFakeWorker(t)
		f, _, _ := startFleet(t, 1, func(c *Config) { c.Router.Placement = [][]int32{{}} }, k)
		ctx := context.Background()
		k.refuse["+lora0"] = "no such file"
		ask := func(d time.Duration) (loads int) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
				if err := f.LoRAs.Ensure(ctx, 0, 0); err == nil || !strings.Contains(err.Error(), "no such file") {
					t.Fatal(err)
				}
			}
			return len(k.did())
		}
		// the pauses end at most 1, 3, 7 s and at least 0.5, 1.5, 3.5, 7.5 s after the first load
		if n := ask(7200 * time.Millisecond); n != 4 {
			t.Errorf("%d loads, expected 4", n)
		}
		ask(10 * time.Minute)
		if n := ask(10 * time.Minute); n < 9 || n > 21 {
			t.Errorf("%d loads in 10 minutes, expected one in 30 to 60 s", n)
		}
		if err := f.LoRAs.Load(ctx, 0, "lora0", ""); err == nil {
			t.Error("a load by hand without an error")
		}
		f.tasks.Wait()
		if n := len(k.did()); n != 1 {
			t.Errorf("%d loads by hand, expected 1", n)
		}
		delete(k.refuse, "+lora0")
		if err := f.LoRAs.Load(ctx, 0, "lora0", ""); err != nil {
			t.Error(err)
		}
		f.tasks.Wait()
		k.did()
		k.held = nil
		f.LoRAs.Forget(0, 0)
		k.refuse["+lora0"] = "no such file"
		if n := ask(450 * time.Millisecond); n != 1 {
			t.Errorf("%d loads after a success, expected 1", n)
		}
		if n := ask(time.Second); n != 1 {
			t.Errorf("%d loads in the second after, expected 1: the pauses are short again", n)
		}
	})
}
