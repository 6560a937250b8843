package fleet

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lorasim/router"
)

// owner notes why its requests were cut.
type owner struct {
	mu     sync.Mutex
	causes []error
}

func (o *owner) Cut(_ int, cause error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.causes = append(o.causes, cause)
}

func (o *owner) cut() []error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.causes
}

// running starts a fleet's probes on the bubble's clock.
func running(t *memory, workers ...*fakeWorker) *Fleet { return runningWith(t, nil, workers...) }

// runningWith is running with another configuration.
func runningWith(t *memory, edit func(*Config), workers ...*fakeWorker) *Fleet {
	begun := time.Now()
	f, _, _ := startFleet(t, 1, func(c *Config) {
		c.Now = func() float64 { return time.Since(begun).Seconds() }
		c.Poll = time.Second
		if edit != nil {
			edit(c)
		}
	}, workers...)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); f.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return f
}

// Of a worker whose probes get no answer, the silent requests are cut after a while, and no others.
func TestHung(t *testing.T) {
	inMemory(t, func(t *memory) {
		k := newFakeWorker(t, "lora0")
		f := running(t, k, newFakeWorker(t, "lora0"))
		silent, alive := &owner{}, &owner{}
		rs := []*Request{{Request: router.Request{ID: 1}, Owner: silent},
			{Request: router.Request{ID: 2}, Owner: alive}}
		for _, r := range rs {
			f.Requests.Book(r, 0)
			f.Requests.Tokens(r, 1, true)
		}
		time.Sleep(time.Minute)
		if len(silent.cut()) > 0 {
			t.Error("cut, and the worker answers probes")
		}
		frozen := time.Now()
		k.Freeze()
		for range 30 {
			f.Requests.Tokens(rs[1], 1, false) // it answers nothing else
			time.Sleep(time.Second)
			if n := len(silent.cut()); n > 0 && time.Since(frozen) < 10*time.Second {
				t.Error("cut at once")
			}
		}
		if c := silent.cut(); len(c) == 0 || c[0] != errHung || len(alive.cut()) > 0 {
			t.Errorf("cut: %v, and %v of one that goes on", c, alive.cut())
		}
		k.Kill() // so that its probes end
	})
}

// A worker that has closed its port may still send replies. Once it sends nothing more at all, its requests are cut:
// nothing else would end them. The same holds after another process has taken its port.
func TestShut(t *testing.T) {
	for _, next := range []bool{false, true} {
		inMemory(t, func(t *memory) {
			k := newFakeWorker(t, "lora0")
			k.info["context_length"] = 1024
			f := runningWith(t, joinable(new([]int)), k, newFakeWorker(t, "lora0"))
			quiet, busy := &owner{}, &owner{}
			rs := []*Request{{Request: router.Request{ID: 1}, Owner: quiet},
				{Request: router.Request{ID: 2}, Owner: busy}}
			for _, r := range rs {
				f.Requests.Book(r, 0)
			}
			k.Kill()
			if next {
				k.info["context_length"] = 2048
				k.Host = t.net.Serve("host1", http.HandlerFunc(k.answer))
				t.Cleanup(k.Host.Kill)
			}
			for range 30 {
				time.Sleep(time.Second)
				f.Requests.Tokens(rs[1], 1, rs[1].Generated() == 0)
			}
			if len(quiet.cut())+len(busy.cut()) > 0 {
				t.Error("cut, and the worker still sends")
			}
			time.Sleep(9 * time.Second)
			if len(quiet.cut())+len(busy.cut()) > 0 {
				t.Error("cut at once")
			}
			time.Sleep(3 * time.Second)
			for _, o := range []*owner{quiet, busy} {
				if c := o.cut(); len(c) == 0 || c[0] != errClosed {
					t.Errorf("cut: %v", c)
				}
			}
			for _, r := range rs {
				f.Requests.Left(r)
			}
			time.Sleep(2 * time.Second)
			if f.at(0).former != nil || next != (f.Up() == 2) {
				t.Errorf("%d up, the former process is kept: %t", f.Up(), f.at(0).former != nil)
			}
		})
	}
}

// A worker that fails probes in another way than by silence may be on its way out: its requests end by themselves.
func TestNotHung(t *testing.T) {
	inMemory(t, func(t *memory) {
		k := newFakeWorker(t, "lora0")
		var fails atomic.Bool
		k.handler = func(rw http.ResponseWriter, r *http.Request) {
			if fails.Load() {
				rw.WriteHeader(http.StatusInternalServerError)
				return
			}
			k.answer(rw, r)
		}
		f := running(t, k)
		o := &owner{}
		f.Requests.Book(&Request{Request: router.Request{ID: 1}, Owner: o}, 0)
		fails.Store(true)
		time.Sleep(5 * time.Minute)
		if f.Up() != 0 || len(o.cut()) > 0 {
			t.Errorf("%d up, cut %v", f.Up(), o.cut())
		}
	})
}

// A worker that answers probes and sends nothing gets no new requests; its streams are cut much later. What it sends
// puts it back.
func TestStalled(t *testing.T) {
	inMemory(t, func(t *memory) {
		f := running(t, newFakeWorker(t, "lora0"), newFakeWorker(t, "lora0"))
		o := &owner{}
		var rs []*Request
		book := func(n int, streams bool) {
			for range n {
				rs = append(rs, &Request{Request: router.Request{ID: int64(len(rs))}, Owner: o, Streams: streams})
				f.Requests.Book(rs[len(rs)-1], 0)
			}
		}
		book(4, true)
		book(4, false)
		time.Sleep(10 * time.Minute)
		if f.state(0).Ejected || len(o.cut()) > 0 {
			t.Errorf("four streams, and whole replies that take long: %+v, cut %v", f.state(0), o.cut())
		}
		book(1, true)
		time.Sleep(9 * time.Second)
		if f.state(0).Ejected {
			t.Error("ejected at once")
		}
		time.Sleep(3 * time.Second)
		if s := f.state(0); !s.Ejected || s.Reason != Stalled {
			t.Errorf("five streams: %+v", s)
		}
		f.Requests.Tokens(rs[8], 1, true)
		time.Sleep(2 * time.Second)
		if s := f.state(0); s.Ejected || s.Trial {
			t.Errorf("it sends again: %+v", s)
		}
		book(1, true)
		time.Sleep(40 * time.Second)
		if len(o.cut()) > 0 {
			t.Error("cut, and it may compute a long prompt")
		}
		time.Sleep(40 * time.Second)
		if c := o.cut(); len(c) == 0 || c[0] != errStalled {
			t.Errorf("cut %v", c)
		}
	})
}

// A worker that begins streams and does not go on with them is ejected too, though each new one brings something.
func TestStalledStreams(t *testing.T) {
	inMemory(t, func(t *memory) {
		f := running(t, newFakeWorker(t, "lora0"), newFakeWorker(t, "lora0"))
		var rs []*Request
		for range 22 {
			r := &Request{Request: router.Request{ID: int64(len(rs))}, Owner: &owner{}, Streams: true}
			rs = append(rs, r)
			f.Requests.Book(r, 0)
			f.Requests.Tokens(r, 1, true)
			time.Sleep(time.Second)
		}
		if s := f.state(0); !s.Ejected || s.Reason != Stalled {
			t.Errorf("%+v", s)
		}
		for _, r := range rs {
			f.Requests.Tokens(r, 1, false)
		}
		time.Sleep(2 * time.Second)
		if s := f.state(0); s.Ejected {
			t.Errorf("they go on: %+v", s)
		}
	})
}
