package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"lorasim/router"
)

// full is a fleet of one worker with few places, and requests for it.
type full struct {
	*memory
	k      *fakeWorker
	f      *Fleet
	use    *use
	others bool // use the worker, too: adapters leave it while requests run

	mu     sync.Mutex
	nextID int64
	errs   []string
	begun  []string // adapters, in the order in which their requests were sent
}

func newFull(t *memory, places, adapters int, edit func(*Config)) *full {
	k := newFakeWorker(t)
	k.info["max_loaded_loras"] = places
	f, _, _ := startFleet(t, adapters, func(c *Config) {
		c.Router.Placement = [][]int32{{}} // nothing is loaded at the start
		if edit != nil {
			edit(c)
		}
	}, k)
	x := &full{memory: t, k: k, f: f, use: &use{map[string]int{}, map[string]bool{}}}
	k.handler = x.unload(k.handler)
	return x
}

// request sends a request for an adapter that takes a time, and returns how long it
// waited for its place.
func (x *full) request(ctx context.Context, a int32, service time.Duration, limit time.Duration) (time.Duration,
	error) {
	x.mu.Lock()
	x.nextID++
	r := &Request{Request: router.Request{ID: x.nextID, Adapter: a}}
	x.mu.Unlock()
	begun := time.Now()
	wait := Wait{Since: begun}
	if limit > 0 {
		wait.Until = begun.Add(limit)
	}
	x.f.Requests.Book(r, 0)
	defer x.f.Requests.Left(r)
	name := x.f.Adapters()[a].Name
	err := x.f.LoRAs.EnsureWithin(ctx, 0, a, wait)
	for err == nil && !x.start(name) {
		if !x.others {
			x.mu.Lock()
			x.errs = append(x.errs, fmt.Sprintf("request %d: %s is not loaded", r.ID, name))
			x.mu.Unlock()
			return 0, nil
		}
		x.f.LoRAs.Forget(0, a)
		time.Sleep(10 * time.Millisecond) // as the gateway
		err = x.f.LoRAs.EnsureWithin(ctx, 0, a, wait)
	}
	waited := time.Since(begun)
	if err != nil {
		return waited, err
	}
	x.mu.Lock()
	x.begun = append(x.begun, name)
	x.mu.Unlock()
	x.f.Requests.Tokens(r, 1, true)
	time.Sleep(service)
	x.k.mu.Lock()
	defer x.k.mu.Unlock()
	x.use.running[name]--
	return waited, nil
}

// use is what requests run on a worker, as sglang counts them: its unload takes an
// adapter from new requests, and waits for those that run.
type use struct {
	running   map[string]int
	unloading map[string]bool
}

// start begins a request at the worker; false: the adapter is not loaded.
func (x *full) start(name string) bool {
	x.k.mu.Lock()
	defer x.k.mu.Unlock()
	ok := slices.Contains(x.k.held, name) && !x.use.unloading[name]
	if ok {
		x.use.running[name]++
	}
	return ok
}

func (x *full) unload(plain http.HandlerFunc) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/unload_lora_adapter" {
			plain(rw, r)
			return
		}
		body, _ := io.ReadAll(r.Body)
		var q struct {
			Name string `json:"lora_name"`
		}
		json.Unmarshal(body, &q)
		x.k.mu.Lock()
		x.use.unloading[q.Name] = true
		for x.use.running[q.Name] > 0 {
			x.k.mu.Unlock()
			time.Sleep(time.Millisecond)
			x.k.mu.Lock()
		}
		delete(x.use.unloading, q.Name)
		x.k.mu.Unlock()
		r.Body = io.NopCloser(bytes.NewReader(body))
		plain(rw, r)
	}
}

// quiet checks that nobody waits and nothing is left of those who did.
func (x *full) quiet() {
	x.Helper()
	synctest.Wait()
	x.f.mu.Lock()
	defer x.f.mu.Unlock()
	k := x.f.workers[0]
	if len(k.places.tickets) > 0 || k.places.served || k.loras.yielding > 0 {
		x.Errorf("%d requests wait, served %v, %d adapters yield", len(k.places.tickets), k.places.served,
			k.loras.yielding)
	}
	held, calls := 0, 0
	for a, s := range k.loras.rows {
		if s.waiting != 0 || s.outside != 0 {
			x.Errorf("adapter %d: %d wait, %d are outside", a, s.waiting, s.outside)
		}
		if s.held {
			held++
		}
		if s.call != nil {
			calls++
		}
	}
	if held != len(k.loras.held) || calls != k.loras.calls {
		x.Errorf("%d adapters are held and %d change; counted %d and %d", held, calls, len(k.loras.held), k.loras.calls)
	}
	for _, err := range x.errs {
		x.Error(err)
	}
}

// With more adapters than places every request is served, whose adapter stays until it
// has ended, and none waits for longer than a turn for each adapter before its own.
func TestPlaces(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		type order struct {
			adapter         int32
			after, service  time.Duration
			gone, dismissed time.Duration // its client goes, or it is refused, if it waits for so long; 0: never
		}
		places := rapid.IntRange(1, 4).Draw(rt, "places")
		adapters := rapid.IntRange(1, 8).Draw(rt, "adapters")
		ms := func(most int) *rapid.Generator[time.Duration] {
			return rapid.Map(rapid.IntRange(0, most),
				func(n int) time.Duration { return time.Duration(n) * time.Millisecond })
		}
		orders := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) order {
			o := order{rapid.Int32Range(0, int32(adapters)-1).Draw(rt, "adapter"), ms(100).Draw(rt, "after"),
				ms(2000).Draw(rt, "service"), 0, 0}
			switch rapid.IntRange(0, 9).Draw(rt, "fate") {
			case 0:
				o.gone = 1 + ms(1000).Draw(rt, "gone")
			case 1:
				o.dismissed = 1 + ms(1000).Draw(rt, "dismissed")
			}
			return o
		}), 1, 60).Draw(rt, "requests")
		broken := rapid.IntRange(-1, adapters-1).Draw(rt, "adapter that cannot be loaded")
		unloaded := rapid.IntRange(-1, adapters-1).Draw(rt, "adapter that is unloaded by hand")
		inMemory(t, func(t *memory) {
			x := newFull(t, places, adapters, nil)
			if broken >= 0 {
				x.k.refuse[fmt.Sprintf("+lora%d", broken)] = "no such file"
			}
			longest := time.Duration(0)
			var wg sync.WaitGroup
			for i, o := range orders {
				time.Sleep(o.after)
				longest = max(longest, o.service)
				if i == len(orders)/2 && unloaded >= 0 {
					x.f.LoRAs.Release(0, int32(unloaded))
				}
				x.f.mu.Lock()
				before := map[int32]bool{o.adapter: true}
				for _, t := range x.f.workers[0].places.tickets {
					before[t.adapter] = true
				}
				x.f.mu.Unlock()
				wg.Go(func() {
					ctx, cancel := context.WithCancel(context.Background())
					defer cancel()
					if o.gone > 0 {
						defer time.AfterFunc(o.gone, cancel).Stop()
					}
					waited, err := x.request(ctx, o.adapter, o.service, o.dismissed)
					no, late := errors.AsType[*NoPlace](err)
					switch {
					case err == nil:
					case o.adapter == int32(broken) && strings.Contains(err.Error(), "no such file"):
					case o.gone > 0 && errors.Is(err, context.Canceled), o.dismissed > 0 && late && no.Late:
					default:
						x.Errorf("request %d for adapter %d: %v", i, o.adapter, err)
					}
					// the looks at the worker and the polls for idle adapters come on top
					if turn := 2*time.Second + hold + 2*look + retryFull; waited > turn*time.Duration(len(before)+1) {
						x.Errorf("request %d waited for %v behind %d adapters", i, waited, len(before)-1)
					}
				})
			}
			wg.Wait()
			x.quiet()
		})
		if t.Failed() {
			rt.FailNow()
		}
	})
}

// The adapter of the request that came first gets the next place, and the requests
// that wait for it are served as one batch.
func TestPlacesInOrder(t *testing.T) {
	inMemory(t, func(t *memory) {
		x := newFull(t, 1, 4, nil)
		var wg sync.WaitGroup
		for _, a := range []int32{0, 1, 2, 1, 3, 0, 1} {
			wg.Go(func() {
				if _, err := x.request(context.Background(), a, time.Second, 0); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(time.Millisecond)
		}
		wg.Wait()
		if got := strings.Join(x.begun, " "); got != "lora0 lora0 lora1 lora1 lora1 lora2 lora3" &&
			got != "lora0 lora1 lora1 lora1 lora2 lora3 lora0" {
			t.Errorf("%s", got)
		}
		if s := x.f.Stats(); s.PlaceWaits < 5 || s.PlaceTimeouts > 0 || s.Evictions < 3 ||
			s.Total().FailedLoads > 0 ||
			s.PlaceWaitTime <= 0 {
			t.Errorf("%+v", s)
		}
		x.quiet()
	})
}

// Adapters that are never idle give up their places in turn.
func TestPlacesYield(t *testing.T) {
	inMemory(t, func(t *memory) {
		x := newFull(t, 2, 3, nil)
		ctx, stop := context.WithCancel(context.Background())
		var hot sync.WaitGroup
		for a := range int32(2) {
			for i := range 3 { // whose requests overlap
				hot.Go(func() {
					for time.Sleep(time.Duration(i) * 100 * time.Millisecond); ctx.Err() == nil; {
						if _, err := x.request(context.Background(), a, 300*time.Millisecond, 0); err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		time.Sleep(time.Second)
		for range 5 {
			if waited, err := x.request(ctx, 2, 300*time.Millisecond, 0); err != nil ||
				waited > hold+300*time.Millisecond+2*look {
				t.Errorf("waited for %v, %v", waited, err)
			}
			time.Sleep(time.Second)
		}
		stop()
		hot.Wait()
		if n := len(x.begun); n < 5+6*2*3 { // a third less than without the others
			t.Errorf("%d requests in 8 s", n)
		}
		x.quiet()
	})
}

// A request that waits is told when its time is over, the queue is full, its client is gone, or
// the worker is down or lost; the others wait on.
func TestNoPlace(t *testing.T) {
	inMemory(t, func(t *memory) {
		x := newFull(t, 1, 4, func(c *Config) { c.MaxPending = 2 })
		var wg sync.WaitGroup
		defer wg.Wait()
		send := func(a int32, service, limit time.Duration, check func(time.Duration, error)) {
			wg.Go(func() { check(x.request(context.Background(), a, service, limit)) })
			synctest.Wait()
		}
		served := func(_ time.Duration, err error) {
			if err != nil {
				t.Error(err)
			}
		}
		send(0, 10*time.Second, 0, served)
		send(1, time.Second, 3*time.Second, func(waited time.Duration, err error) {
			no, ok := errors.AsType[*NoPlace](err)
			if !ok || !no.Late || no.After < 3*time.Second || waited != 3*time.Second ||
				err.Error() != "worker 0 has no slot for adapter lora1 in time: all slots are in use, 1 requests wait" {
				t.Errorf("after %v: %+v, %v", waited, no, err)
			}
		})
		send(2, time.Second, 0, served)
		send(3, time.Second, 0, func(waited time.Duration, err error) {
			if no, ok := errors.AsType[*NoPlace](err); !ok || no.Late || waited != 0 ||
				!strings.HasSuffix(err.Error(), "and its queue is full: 2 requests wait") {
				t.Errorf("after %v: %v", waited, err)
			}
		})
		if ws := x.f.Workers(); ws[0].Pending != 2 || ws[0].Queued < 2 {
			t.Errorf("%+v", ws)
		}
		wg.Wait() // 0 ends, 2 gets its place
		x.quiet()

		send(3, 10*time.Second, 0, served)
		down := func(waited time.Duration, err error) {
			if err == nil || !strings.Contains(err.Error(), "worker is down: gone") {
				t.Errorf("after %v: %v", waited, err)
			}
		}
		send(1, time.Second, 0, down)
		send(2, time.Second, 0, down)
		x.f.mu.Lock()
		x.f.down(x.f.workers[0], errors.New("gone"))
		x.f.mu.Unlock()
		synctest.Wait()
		x.quiet()
		x.f.prober.probe(context.Background(), x.f.workers[0]) // it is back
		send(1, time.Second, 0, served)
		wg.Wait()
		x.quiet()
	})
}

// An adapter that an engine turns out not to hold is loaded again for those who wait;
// the end of the fleet ends all waits.
func TestPlacesForgotten(t *testing.T) {
	inMemory(t, func(t *memory) {
		x := newFull(t, 1, 3, nil)
		x.others = true
		var wg sync.WaitGroup
		send := func(a int32, want string) {
			wg.Go(func() {
				if _, err := x.request(context.Background(), a, time.Second, 0); want == "" && err != nil ||
					want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
					t.Errorf("%v, expected %q", err, want)
				}
			})
			synctest.Wait()
		}
		send(0, "")
		send(1, "")
		send(2, "")
		x.f.Drain(0, true) // what waits is served
		time.Sleep(1500 * time.Millisecond)
		x.k.mu.Lock()
		x.k.held = nil // another client has unloaded it
		x.k.mu.Unlock()
		x.f.LoRAs.Forget(0, 1)
		wg.Wait()
		x.quiet()

		send(0, "")
		send(1, "context canceled")
		x.f.tasks.cancel()
		wg.Wait()
		x.quiet()
	})
}

// A load that a plan or an operator wants finds all places taken by another client, whose adapters the fleet has not
// seen yet. Requests for the adapter wait for a place, whether they come before, during or after that load.
func TestPlacesTakenBeforeTheFirstLook(t *testing.T) {
	for _, c := range []struct {
		name    string
		theirs  []string
		after   time.Duration // from the start of the load to the request
		refused time.Duration // the time after which the worker refuses the load
		leave   time.Duration // when the other client gives up its places; 0: never
		most    time.Duration // that the request may wait
	}{
		{"while the load is refused", []string{"lora2", "lora3"}, 50 * time.Millisecond, 100 * time.Millisecond, 0,
			hold + 2*look},
		{"after it was refused", []string{"lora2", "lora3"}, 200 * time.Millisecond, 100 * time.Millisecond, 0,
			hold + 2*look},
		{"adapters that the fleet does not know", []string{"x", "y"}, 200 * time.Millisecond, 100 * time.Millisecond,
			2 * time.Second, 2*time.Second + look},
	} {
		t.Run(c.name, func(t *testing.T) {
			inMemory(t, func(t *memory) {
				x := newFull(t, 2, 4, nil)
				x.k.handler = func(plain http.HandlerFunc) http.HandlerFunc {
					var once sync.Once
					return func(rw http.ResponseWriter, r *http.Request) {
						if r.URL.Path == "/load_lora_adapter" {
							once.Do(func() {
								x.k.mu.Lock()
								x.k.held = slices.Clone(c.theirs)
								x.k.mu.Unlock()
								time.Sleep(c.refused)
							})
						}
						plain(rw, r)
					}
				}(x.k.handler)
				var loads sync.WaitGroup
				loads.Go(func() {
					if err := x.f.LoRAs.keep(context.Background(), 0, 0); c.after > c.refused && (err == nil ||
						!strings.Contains(err.Error(), "max_loaded_loras reached")) {
						t.Errorf("the load: %v", err)
					}
				})
				if c.leave > 0 {
					time.AfterFunc(c.leave, func() {
						x.k.mu.Lock()
						defer x.k.mu.Unlock()
						x.k.held = nil
					})
				}
				time.Sleep(c.after)
				waited, err := x.request(context.Background(), 0, time.Second, time.Minute)
				if err != nil || waited > c.most {
					t.Errorf("waited for %v, at most %v: %v", waited, c.most, err)
				}
				loads.Wait()
				failed := int64(0)
				if c.after > c.refused {
					failed = 1 // nothing waited for it
				}
				if s := x.f.Stats(); s.Total().FailedLoads != failed {
					t.Errorf("%d failed loads, expected %d", s.Total().FailedLoads, failed)
				}
				x.quiet()
			})
		})
	}
}

// Two fleets, each of which knows nothing of the other, take turns.
func TestPlacesOfTwo(t *testing.T) {
	inMemory(t, func(t *memory) {
		x := newFull(t, 2, 6, nil)
		x.others = true
		other := &full{memory: t, k: x.k, use: x.use, others: true}
		other.f, _, _ = startFleet(t, 6, func(c *Config) { c.Router.Placement = [][]int32{{}} }, x.k)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		served := map[*full]int{}
		longest := map[*full]time.Duration{}
		var mu sync.Mutex
		var wg sync.WaitGroup
		for n, who := range []*full{x, other} {
			for i := range 6 {
				wg.Go(func() {
					for a := int32(i); ctx.Err() == nil; a = (a + 1 + int32(n)) % 6 {
						waited, err := who.request(context.Background(), a, 200*time.Millisecond, time.Minute)
						mu.Lock()
						if err != nil {
							t.Error(err)
						}
						served[who]++
						longest[who] = max(longest[who], waited)
						mu.Unlock()
					}
				})
			}
		}
		for range 60 {
			time.Sleep(time.Second)
			x.f.prober.probe(ctx, x.f.workers[0])
			other.f.prober.probe(ctx, other.f.workers[0])
		}
		cancel()
		wg.Wait()
		t.Logf("served %d and %d, longest wait %v and %v", served[x], served[other], longest[x], longest[other])
		if a, b := served[x], served[other]; min(a, b) == 0 || max(a, b) > 2*min(a, b) {
			t.Errorf("served %d and %d", a, b)
		}
		x.quiet()
		other.quiet()
	})
}
