package fleet

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"lorasim/router"
	"lorasim/router/push"
)

// The first push of an adapter comes while requests for it run, without a version so far. The worker keeps version 1
// until they have left it, also one that was sent twice, and one that names the adapter in a batch.
func TestFirstPushBesideRequests(t *testing.T) {
	for _, options := range []string{"", "loads=demand"} {
		inMemory(t, func(t *memory) {
			o, err := push.Parse(options)
			if err != nil {
				t.Fatal(err)
			}
			k := newFakeWorker(t, "lora0", "lora1")
			f, _, _ := startFleet(t, 2, func(c *Config) { c.Push = &Push{o, 0} }, k)
			book := func(id int64, a int32) *Request {
				r := &Request{Request: router.Request{ID: id, Adapter: a}}
				f.Requests.Book(r, 0)
				return r
			}
			serve := func(r *Request, a int32, want string) {
				t.Helper()
				name, err := f.LoRAs.Serve(context.Background(), 0, r, a, Wait{})
				if err != nil || name != want {
					t.Errorf("%s: served by %q, %v; expected %s", options, name, err, want)
				}
			}
			did := func(what string, want ...string) {
				t.Helper()
				synctest.Wait()
				sameCalls(t, options+": "+what, k, want...)
			}
			once, twice, batch, late := book(1, 0), book(2, 0), book(3, 1), book(4, 0)
			serve(once, 0, "lora0")
			serve(twice, 0, "lora0")
			serve(twice, 0, "lora0") // the worker had evicted the adapter
			serve(batch, 1, "lora1")
			serve(batch, 0, "lora0")
			if _, err := f.LoRAs.Publish("lora0", "/v2"); err != nil {
				t.Fatal(err)
			}
			if options == "" {
				did("the push", "+lora0@2")
			} else {
				did("the push")
			}
			serve(late, 0, "lora0@2") // booked before the push, and admitted after it
			if options != "" {
				did("the next request", "+lora0@2")
			}
			f.Requests.Left(once)
			did("a request has left")
			f.Requests.Left(batch)
			did("a batch has left")
			f.Requests.Left(twice)
			did("all have left", "-lora0")
			f.Requests.Left(late)
			did("the end")
			if n := len(f.workers[0].leases); n > 0 {
				t.Errorf("%s: %d versions are still in use", options, n)
			}
		})
	}
}

// A worker that refuses the load or the unload of a version is asked again every second. When the fleet ends, nobody
// asks any more.
func TestRefusedVersions(t *testing.T) {
	for _, refused := range []string{"+lora0@2", "-lora0"} {
		inMemory(t, func(t *memory) {
			k := newFakeWorker(t, "lora0")
			k.refuse[refused] = "not now"
			var said atomic.Int64
			f, _, _ := startFleet(t, 1, func(c *Config) {
				c.Log = func(string, ...any) {
					if said.Add(1) > 1000 {
						select {} // the bubble ends with an error, instead of a loop that never ends
					}
				}
			}, k)
			if _, err := f.LoRAs.Publish("lora0", "/v2"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10*time.Second + 500*time.Millisecond)
			count := func() (n int) {
				for _, call := range k.did() {
					if call == refused {
						n++
					}
				}
				return n
			}
			if n := count(); n != 11 {
				t.Errorf("%s was asked for %d times in 10 s, expected 11", refused, n)
			}
			f.Close()
			f.tasks.Wait()
			time.Sleep(10 * time.Second)
			if n := count(); n > 0 || said.Load() > 12 {
				t.Errorf("%s was asked for %d times after the end; %d messages", refused, n, said.Load())
			}
		})
	}
}

// Workers hold versions that an earlier gateway has loaded. New versions get names that no worker holds.
func TestVersionsOfAnEarlierTime(t *testing.T) {
	inMemory(t, func(t *memory) {
		k, other := newFakeWorker(t, "lora0@7", "lora0", "lora0@x"), newFakeWorker(t, "lora0", "lora1@3", "lora0@4")
		f, _, _ := startFleet(t, 2, nil, k, other)
		for version := int32(2); version < 4; version++ {
			if got, err := f.LoRAs.Publish("lora0", "/new"); err != nil || got != version {
				t.Fatalf("version %d, %v", got, err)
			}
			time.Sleep(time.Second)
			f.relist(t)
		}
		synctest.Wait()
		sameCalls(t, "both pushes", k, "+lora0@8", "-lora0", "+lora0@9", "-lora0@8")
		sameCalls(t, "both pushes", other, "+lora0@8", "-lora0", "+lora0@9", "-lora0@8")
	})
}

// relist reads the lists of all workers.
func (f *Fleet) relist(t *memory) {
	for _, k := range f.workers {
		if err := f.discovery.ask(context.Background(), k, false); err != nil {
			t.Fatal(err)
		}
	}
}
