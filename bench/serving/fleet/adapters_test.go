package fleet

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lorasim/router"
	"lorasim/trace"
)

func TestEnsure(t *testing.T) {
	inMemory(t, func(t *memory) {
		k := newFakeWorker(t, "lora0")
		f, _, _ := startFleet(t, 3, nil, k)
		ctx := context.Background()
		for _, a := range []int32{trace.BaseModel, 0} {
			if err := f.LoRAs.Ensure(ctx, 0, a); err != nil {
				t.Error(err)
			}
		}
		sameCalls(t, "what is there", k)

		var wg sync.WaitGroup // many at once are one load
		k.hold = make(chan struct{})
		for range 5 {
			wg.Go(func() {
				if err := f.LoRAs.Ensure(ctx, 0, 1); err != nil {
					t.Error(err)
				}
			})
		}
		<-k.arrivals
		f.mu.Lock()
		loading := f.view.Workers[0].Adapters[1].Loading
		f.mu.Unlock()
		if !loading {
			t.Error("the view does not show the load")
		}
		close(k.hold)
		wg.Wait()
		k.hold = nil
		sameCalls(t, "a load", k, "+lora1")
		if s := f.Stats(); s.Loads != 1 || s.Total().FailedLoads != 0 {
			t.Errorf("%+v, expected one load", s)
		}
		if st := f.view.Workers[0].Adapters[1]; st.Loading || st.Tier != router.Host {
			t.Errorf("after the load: %+v", st)
		}

		k.refuse["+lora2"] = "no such file"
		err := f.LoRAs.Ensure(ctx, 0, 2)
		if err == nil || err.Error() != "loading adapter lora2 on worker 0: POST /load_lora_adapter: status 400: no such file" {
			t.Error(err)
		}
		if s := f.Stats(); s.Loads != 1 || s.Total().FailedLoads != 1 {
			t.Errorf("%+v", s)
		}
		if st := f.view.Workers[0].Adapters[2]; st.Loading || st.Tier != router.Disk {
			t.Errorf("after the failure: %+v", st)
		}
		sameCalls(t, "a failure", k, "+lora2")

		k.hold = make(chan struct{})
		ctx, cancel := context.WithCancelCause(ctx)
		gone := errors.New("gone")
		cancel(gone)
		if err := f.LoRAs.Ensure(ctx, 0, 2); !errors.Is(err, gone) {
			t.Errorf("with a context that has ended: %v", err)
		}
		close(k.hold)
	})
}

// A full worker gives up what it has not used for longest, and nothing that is
// in use or pinned, when it refuses another.
func TestFullWorker(t *testing.T) {
	inMemory(t, func(t *memory) {
		k := newFakeWorker(t, "lora0", "lora1", "lora2")
		k.info["max_loaded_loras"] = 3
		f, _, _ := startFleet(t, 6, nil, k)
		use := func(id int64, a int32) *Request {
			r := &Request{Request: router.Request{ID: id, Adapter: a}}
			f.Requests.Book(r, 0)
			f.Requests.Tokens(r, 1, true)
			return r
		}
		two := use(1, 2)
		f.Requests.Left(use(2, 0))
		f.Requests.Left(use(3, 1))
		ensure := func(a int32) error {
			return f.LoRAs.EnsureWithin(context.Background(), 0, a, Wait{Until: time.Now().Add(5 * time.Second)})
		}
		if err := ensure(3); err != nil {
			t.Fatal(err)
		}
		changes := func(calls ...string) []string {
			return append(calls, calls[1]) // it is tried, refused, and tried again
		}
		// lora0 was used before lora1, and lora2 is in use
		sameCalls(t, "one too many", k, changes("-lora0", "+lora3")...)
		if s := f.Stats(); s.Unloads != 1 || s.Loads != 1 {
			t.Errorf("%+v", s)
		}
		if f.view.Workers[0].Adapters[0].Tier != router.Disk {
			t.Error("the view still has what was evicted")
		}
		f.view.Workers[0].Adapters[3].Pinned = true
		waiting := &Request{Request: router.Request{ID: 4, Adapter: 1}}
		f.Requests.Book(waiting, 0)
		late := &NoPlace{Adapter: "lora4", Late: true}
		if err := ensure(4); err == nil || err.Error() != late.Error() {
			t.Errorf("all are in use or pinned: %v, expected %v", err, late)
		}
		k.did()
		f.Requests.Left(two)
		k.refuse["-lora2"] = "cannot"
		if err := ensure(4); err == nil || err.Error() != late.Error() || f.Stats().Unloads != 1 {
			t.Errorf("what should go stays: %v, %+v", err, f.Stats())
		}
		delete(k.refuse, "-lora2")
		k.did()
		if err := ensure(4); err != nil {
			t.Error(err)
		}
		sameCalls(t, "in use no more", k, changes("-lora2", "+lora4")...)
	})
}

func TestIsLimit(t *testing.T) {
	for text, want := range map[string]bool{
		"Max_loaded_loras reached": true, "holds at most 3": true, "over the limit": true, "would exceed": true,
		"no such file": false,
	} {
		if isLimit(errors.New(text)) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
}

// An adapter is unloaded once its last request has left, unless it is needed.
func TestRelease(t *testing.T) {
	inMemory(t, func(t *memory) {
		k := newFakeWorker(t, "lora0", "lora1", "lora2")
		f, _, _ := startFleet(t, 3, nil, k)
		f.LoRAs.Release(0, 2)
		f.tasks.Wait()
		sameCalls(t, "not in use", k, "-lora2")
		f.LoRAs.Release(0, 2)
		f.tasks.Wait()
		sameCalls(t, "not there", k)

		running, waiting := &Request{Request: router.Request{ID: 1, Adapter: 0}},
			&Request{Request: router.Request{ID: 2, Adapter: 0}}
		f.Requests.Book(running, 0)
		f.Requests.Tokens(running, 1, true)
		f.Requests.Book(waiting, 0)
		f.LoRAs.Release(0, 0)
		f.Requests.Left(running)
		synctest.Wait() // it waits on
		sameCalls(t, "a request waits", k)
		f.Requests.Left(waiting)
		f.tasks.Wait()
		sameCalls(t, "all have left", k, "-lora0")
		if ws := f.Workers(); len(ws[0].Adapters) != 1 || ws[0].Adapters[0] != "lora1" {
			t.Errorf("%+v", ws)
		}

		r := &Request{Request: router.Request{ID: 3, Adapter: 1}}
		f.Requests.Book(r, 0)
		f.LoRAs.Release(0, 1)
		// of a request from before: the release stands
		if err := f.LoRAs.Ensure(context.Background(), 0, 1); err != nil {
			t.Fatal(err)
		}
		f.Requests.Left(r)
		f.tasks.Wait()
		sameCalls(t, "sent after the release", k, "-lora1")
		for what, need := range map[string]func() error{
			"a request came": func() error {
				late := &Request{Request: router.Request{ID: 4, Adapter: 1}}
				f.Requests.Book(late, 0)
				f.Requests.Left(late)
				return nil
			},
			"loaded by hand": func() error { return f.LoRAs.Load(context.Background(), 0, "lora1", "") },
			"a plan loads it": func() error {
				return f.LoRAs.keepAll(context.Background(), []router.Placement{{Worker: 0, Adapter: 1}})
			},
		} {
			if err := f.LoRAs.Load(context.Background(), 0, "lora1", ""); err != nil {
				t.Fatal(err)
			}
			k.did()
			f.Requests.Book(r, 0)
			f.LoRAs.Release(0, 1)
			synctest.Wait()
			if err := need(); err != nil {
				t.Fatal(err)
			}
			f.Requests.Left(r)
			f.tasks.Wait()
			sameCalls(t, what, k)
		}

		f.Requests.Book(r, 0)
		f.LoRAs.Release(0, 1)
		synctest.Wait()
		f.tasks.cancel()
		f.tasks.Wait() // with the fleet's end it waits no longer
		sameCalls(t, "after the end", k)
	})
}

// Loads and unloads of one adapter wait for each other.
func TestReleaseWhileLoading(t *testing.T) {
	inMemory(t, func(t *memory) {
		k := newFakeWorker(t, "lora0")
		f, _, _ := startFleet(t, 1, nil, k)
		k.hold = make(chan struct{})
		f.LoRAs.Release(0, 0)
		<-k.arrivals // the unload is under way
		done := make(chan error)
		go func() { done <- f.LoRAs.Ensure(context.Background(), 0, 0) }()
		close(k.hold)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if got := k.did(); len(got) != 2 || got[0] != "-lora0" || got[1] != "+lora0" {
			t.Errorf("%v", got)
		}
		if !f.workers[0].loras.rows[0].held {
			t.Error("not held after the load")
		}
	})
}

func TestByHand(t *testing.T) {
	inMemory(t, func(t *memory) {
		k, other := newFakeWorker(t), newFakeWorker(t)
		f, _, _ := startFleet(t, 2, nil, k, other)
		ctx := context.Background()
		for _, c := range []struct {
			w          int
			name, want string
		}{
			{0, "lora1", ""}, {1, "lora0", ""},
			{-1, "lora0", "worker -1, expected 0 to 1"}, {2, "lora0", "worker 2, expected 0 to 1"},
			{0, "lora2", `unknown adapter "lora2"`},
		} {
			for what, err := range map[string]error{"load": f.LoRAs.Load(ctx, c.w, c.name, ""),
				"unload": f.LoRAs.Unload(ctx, c.w, c.name)} {
				if c.want == "" && err != nil || c.want != "" && (err == nil || err.Error() != c.want) {
					t.Errorf("%s %s on %d: %v, expected %q", what, c.name, c.w, err, c.want)
				}
			}
		}
		f.tasks.Wait()
		sameCalls(t, "worker 0", k, "+lora1", "-lora1")
		sameCalls(t, "worker 1", other, "+lora0", "-lora0")
		if strings.Join(k.paths, " ") != "lora1" {
			t.Errorf("paths %v, expected the name where none is set", k.paths)
		}
		for w, ok := range map[int]bool{-1: false, 0: true, 1: true, 2: false} {
			if err := f.Drain(w, true); (err == nil) != ok {
				t.Errorf("draining %d: %v", w, err)
			}
		}
		if f.Up() != 0 {
			t.Error("drained workers are usable")
		}
		if f.Drain(1, false); f.Up() != 1 {
			t.Error("a drain that was taken back")
		}
	})
}
