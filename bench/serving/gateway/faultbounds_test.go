package gateway_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"testing"
	"time"

	"lorasim/bench/serving/faultworker"
	"lorasim/bench/serving/fleet"
	"lorasim/bench/serving/gateway"
	"lorasim/bench/serving/httpapi"
	"lorasim/bench/serving/live"
	"lorasim/internal/memnet"
	"lorasim/router"
	"lorasim/trace"
)

// The bounds below need ejection of outliers, idle timeouts, at-most-once delivery, waiting for adapter places, and
// recovery from panics over workers' bytes. go test ./bench/serving/gateway -tags faultbounds -run FaultBounds

// One of three workers cuts every stream: some are lost until it is ejected, not a third of all.
func TestFaultBoundsCut(t *testing.T) {
	for _, policy := range []string{"round-robin", "least-loaded", "static", "affinity", "k-shard"} {
		for _, share := range []float64{1, 0.7} {
			t.Run(fmt.Sprintf("%s, %v", policy, share), func(t *testing.T) {
				inMemory(t, func(t *memory) {
					f := startFaultCluster(t, policy, 3, nil, nil)
					f.breaks(0, faultworker.Rule{On: faultworker.Generate, Do: faultworker.Reset, Tokens: 1,
						Share: share})
					const n, most = 600, 40 // without ejection 140 are lost
					if s := f.ask(t.Context(), n, 30, false); n-s.whole > most {
						t.Errorf("%d of %d requests lost, expected at most %d", n-s.whole, n, most)
					}
				})
			})
		}
	}
}

// A worker hangs: each request has an end though its client would wait for ever, and the worker gets few more.
func TestFaultBoundsHang(t *testing.T) {
	for _, r := range []faultworker.Rule{{Do: faultworker.Hang}, {Do: faultworker.Stall},
		{Do: faultworker.Stall, Tokens: 1}} {
		t.Run(fmt.Sprintf("%s after %d", r.Do, r.Tokens), func(t *testing.T) {
			inMemory(t, func(t *memory) {
				f := startFaultCluster(t, "round-robin", 3, nil, func(c *gateway.Config) {
					c.FirstByte,
						c.Idle = time.Minute, time.Minute
				})
				r.On = faultworker.Generate
				f.breaks(0, r)
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				const n, clients = 600, 30
				begun := time.Now()
				s := f.ask(ctx, n, clients, false)
				if lost := n - s.whole; lost > clients+10 {
					t.Errorf("%d of %d requests lost", lost, n)
				}
				if took := time.Since(begun); took > 20*time.Minute {
					t.Errorf("the requests took %v", took)
				}
			})
		})
	}
}

// A late second reply goes to nobody, unless it comes after the next request was sent: then it costs that request, and
// no further one of the connection. How many connections that takes depends on the speed of the
// machine. Over loopback, as the bytes of a late reply wait in the kernel.
func TestFaultBoundsSecondReply(t *testing.T) {
	for _, late := range []time.Duration{0, time.Millisecond, 3 * time.Millisecond, 20 * time.Millisecond,
		150 * time.Millisecond} {
		t.Run(late.String(), func(t *testing.T) {
			t.Parallel()
			w, err := faultworker.New(faultworker.Config{Adapters: []string{"a", "b"}})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			if err := w.Listen("127.0.0.1:0"); err != nil {
				t.Fatal(err)
			}
			adapters := []trace.Adapter{{Name: "a"}, {Name: "b"}}
			rt, err := router.New("least-loaded", router.Env{Workers: router.Alike(1, router.Spec{}),
				Adapters: adapters})
			if err != nil {
				t.Fatal(err)
			}
			client := live.NewHTTPClient(nil)
			defer client.CloseIdleConnections()
			fl, err := fleet.New(fleet.Config{Connection: fleet.Connection{URLs: []string{w.URL()}, Client: client},
				Router: rt, Adapters: adapters})
			if err != nil {
				t.Fatal(err)
			}
			defer fl.Close()
			if err := fl.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			g, err := gateway.New(gateway.Config{Fleet: fl})
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			srv := httptest.NewServer(g)
			defer srv.Close()
			if err := w.Break(faultworker.Rule{On: faultworker.Generate, Do: faultworker.Second,
				After: late}); err != nil {
				t.Fatal(err)
			}
			f := &faultCluster{memory: &memory{T: t, client: srv.Client()}, gateway: &memnet.Host{URL: srv.URL}}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			before := w.Accepted()
			s := f.ask(ctx, 100, 4, true)
			if n := w.Accepted() - before + 1; s.foreign > n { // one may have been open
				t.Errorf("%d of 100 replies to the wrong client on %d connections, expected at most one on each",
					s.foreign, n)
			}
		})
	}
}

// Without retries no request is executed twice, whatever becomes of the connection.
func TestFaultBoundsOnce(t *testing.T) {
	for _, do := range []faultworker.Fault{faultworker.Drop, faultworker.Cut, faultworker.Reset} {
		for _, retries := range []int{0, 2} {
			t.Run(fmt.Sprintf("%s, %d retries", do, retries), func(t *testing.T) {
				inMemory(t, func(t *memory) {
					f := startFaultCluster(t, "round-robin", 3, nil, func(c *gateway.Config) { c.Retries = retries })
					for w := range f.workers {
						f.breaks(w, faultworker.Rule{On: faultworker.Generate, Do: do, Share: 0.3})
					}
					f.ask(t.Context(), 600, 20, true)
					if n := f.book.Totals(); n.Most > retries+1 {
						t.Errorf("%d requests executed more than once, one of them %d times", n.Twice, n.Most)
					}
				})
			})
		}
	}
}

// A request that kills its worker does not kill all of them.
func TestFaultBoundsPoison(t *testing.T) {
	inMemory(t, func(t *memory) {
		f := startFaultCluster(t, "least-loaded", 4, nil, nil)
		for w := range f.workers {
			f.breaks(w, faultworker.Rule{On: faultworker.Generate, Do: faultworker.Crash})
		}
		f.ask(t.Context(), 1, 1, true)
		if n := f.book.Totals().Most; n > 2 {
			t.Errorf("one request was executed by %d workers, each of which died of it", n)
		}
	})
}

// The load signal of one of three vLLM workers is no metric: the gateway goes on with the others.
func TestFaultBoundsMetrics(t *testing.T) {
	for _, text := range []string{"{}", "{", "a{}", "# TYPE", "\x00", "vllm:num_requests_running NaN\n"} {
		t.Run(fmt.Sprintf("%q", text), func(t *testing.T) {
			inMemory(t, func(t *memory) {
				f := startFaultCluster(t, "round-robin", 3,
					func(_ int, c *faultworker.Config) { c.API = httpapi.VLLM }, nil)
				f.breaks(0, faultworker.Rule{On: faultworker.Metrics, Do: faultworker.Answer, Text: text})
				time.Sleep(5 * time.Second)
				if status, text := get(t, f.gateway.URL+"/health"); status != 200 {
					t.Errorf("/health: %d %s", status, text)
				}
				for range 9 {
					if status, text := post(t, f.gateway.URL+"/v1/completions",
						`{"model": "a", "prompt": "x", "max_tokens": 2}`); status != 200 {
						t.Errorf("status %d: %s", status, text)
					}
				}
			})
		})
	}
}

// More adapters than places: requests wait for one.
func TestFaultBoundsPlaces(t *testing.T) {
	inMemory(t, func(t *memory) {
		f := startFaultCluster(t, "least-loaded", 2, func(_ int, c *faultworker.Config) {
			c.Adapters, c.Places, c.LoadTime = nil, 1, 20*time.Millisecond
		}, nil)
		const n = 400
		if s := f.ask(t.Context(), n, 40, false); s.whole != n {
			t.Errorf("%d of %d requests lost: %v", n-s.whole, n, s.errors[0])
		}
	})
}

// Connections to workers that no request uses are closed after a while.
func TestFaultBoundsIdleConnections(t *testing.T) {
	inMemory(t, func(t *memory) {
		f := startFaultCluster(t, "least-loaded", 1, nil, nil)
		const burst = 100
		f.ask(t.Context(), burst, burst, false)
		time.Sleep(10 * time.Minute)
		if n := f.workers[0].Connections(); n > 10 {
			t.Errorf("%d of %d connections are open 10 minutes later", n, burst)
		}
	})
}
