package fleet

import (
	"context"
	"testing"
	"testing/synctest"

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
