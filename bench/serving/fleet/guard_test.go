package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"lorasim/internal/guard"
	"lorasim/internal/testutil"
	"lorasim/router"
	"lorasim/trace"
)

// A panic over one worker's bytes takes that worker down, is logged with its stack
// and counted, and the other worker is served. It happens wherever a worker is
// asked: at the start, at a probe, at a load and an unload.
func TestPanics(t *testing.T) {
	for _, c := range []struct{ name, path string }{
		{"at the start", "/server_info"}, {"at a probe", "/v1/loads"}, {"at a load", "/load_lora_adapter"},
		{"at an unload", "/unload_lora_adapter"},
	} {
		inMemory(t, func(t *memory) {
			bad, good := newFakeWorker(t), newFakeWorker(t)
			var armed atomic.Bool
			var mu sync.Mutex
			var log strings.Builder
			armed.Store(c.path == "/server_info")
			f, _, _ := startFleet(t, 2, func(cfg *Config) {
				base := cfg.Client.Transport
				cfg.Client = &http.Client{Transport: testutil.RoundTrip(func(r *http.Request) (*http.Response, error) {
					if armed.Load() && "http://"+r.URL.Host == bad.URL && r.URL.Path == c.path {
						panic("bytes\nof a worker")
					}
					return base.RoundTrip(r)
				})}
				cfg.Log = func(format string, args ...any) {
					mu.Lock()
					defer mu.Unlock()
					fmt.Fprintf(&log, format+"\n", args...)
				}
			}, bad, good)
			ctx := context.Background()
			f.LoRAs.Load(ctx, 0, "lora0", "")
			armed.Store(true)
			switch c.path {
			case "/v1/loads":
				f.Guard(0, func() error { f.prober.probe(ctx, f.workers[0]); return nil })
			case "/load_lora_adapter":
				testutil.ExpectError(t, f.LoRAs.Load(ctx, 0, "lora1", ""), "panic: bytes of a worker")
			case "/unload_lora_adapter":
				f.LoRAs.Unload(ctx, 0, "lora0")
				f.tasks.Wait()
			}
			s := f.Stats()
			if w := f.Workers(); w[0].Up || !w[1].Up || s.Panics != 1 {
				t.Errorf("%s: up %v %v, %d panics", c.name, w[0].Up, w[1].Up, s.Panics)
			}
			mu.Lock()
			if text := log.String(); !strings.Contains(text, "worker 0 ("+bad.URL+"): panic: bytes of a worker\n") ||
				!strings.Contains(text, "guard_test.go") {
				t.Errorf("%s: the log has %s", c.name, text)
			}
			mu.Unlock()
			if err := f.LoRAs.Load(ctx, 1, "lora1", ""); err != nil {
				t.Errorf("%s: the other worker: %v", c.name, err)
			}
			armed.Store(false)
			f.prober.probe(ctx, f.workers[0])
			if !f.Workers()[0].Up {
				t.Errorf("%s: the worker does not come back", c.name)
			}
		})
	}
}

// A panic with the fleet's lock held leaves it unlocked, and the log is bounded.
func TestPanicUnderLock(t *testing.T) {
	inMemory(t, func(t *memory) {
		k := newFakeWorker(t, "found")
		stacks := 0
		f, _, _ := startFleet(t, 1, func(cfg *Config) {
			cfg.Extend = func([]Info, []trace.Adapter) (*router.Router, []Limits, error) { panic("no router") }
			cfg.Log = func(format string, args ...any) {
				if strings.Contains(format, "\n") {
					stacks++
				}
			}
		}, k)
		for range 20 {
			f.Guard(0, func() error { _, err := f.prober.identify(context.Background(), f.workers[0]); return err })
		}
		if s := f.Stats(); f.Up() != 0 || s.Panics < 20 || stacks != maxStacks {
			t.Errorf("%d up, %d panics, %d stacks in the log", f.Up(), s.Panics, stacks)
		}
	})
}

// A panic that two borders see counts once.
func TestPanicTwice(t *testing.T) {
	f, err := New(Config{Connection: Connection{URLs: []string{"u"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	err = f.Guard(0, func() error {
		return fmt.Errorf("outside: %w", f.Guard(0, func() error { panic("x") }))
	})
	if _, ok := errors.AsType[*guard.Panic](err); !ok || f.Stats().Panics != 1 {
		t.Errorf("%v, %d panics", err, f.Stats().Panics)
	}
}

// What a worker sends as metrics that is none makes it unusable, and is no panic.
func TestBracesAsMetrics(t *testing.T) {
	e, _ := answers(t, map[string]string{"/version": `{"version":"1"}`, "/v1/models": `{"data":[{"id":"m"}]}`,
		"/metrics": "{}"})
	_, err := e.discover(t.Context())
	testutil.ExpectError(t, err, "GET /metrics: ")
	for _, text := range []string{"{}", "{", "{}\n", "{} 1\n", "#", "# TYPE", "a{", "a{b=", "{\"a\"} 1\n", "{\"\"} 1\n",
		"\x00"} {
		if p, ok := errors.AsType[*guard.Panic](guard.Do(func() error {
			_,
				err := readVLLM([]byte(text))
			return err
		})); ok {
			t.Errorf("%q: %v\n%s", text, p, p.Stack)
		}
	}
}
