package gateway

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"lorasim/bench/serving/fleet"
)

// drop ends a connection without a reply, as a worker that dies does.
func drop(rw http.ResponseWriter, reset bool) {
	nc, _, err := rw.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	if reset {
		nc.(*net.TCPConn).SetLinger(0)
	}
	nc.Close()
}

// Workers that read and execute requests, and answer only some of them: without
// retries no request is executed twice, on connections new and kept, of any length
// and with any header; with retries, on two workers at most.
func TestAtMostOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		retries := rapid.SampledFrom([]int{0, 0, 1, 5}).Draw(rt, "retries")
		seed := rapid.Uint64().Draw(rt, "seed")
		var mu sync.Mutex
		rng := rand.New(rand.NewPCG(seed, 0))
		executed := map[string]int{}
		worker := func(rw http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			mu.Lock()
			executed[r.Header.Get("X-Id")]++
			fate := rng.Float64()
			mu.Unlock()
			switch {
			case fate < 0.15:
				drop(rw, false)
			case fate < 0.3:
				drop(rw, true)
			default:
				io.WriteString(rw, "fine")
			}
		}
		s := startScripted(t, retries, worker, worker, worker)
		defer s.Close()
		var wg sync.WaitGroup
		var repeated atomic.Int64
		for i := range 3 {
			wg.Go(func() {
				for k := range 10 {
					id := fmt.Sprint(i, " ", k)
					size := 10
					if k%5 == 0 {
						size = 100_000
					}
					r, _ := http.NewRequest("POST", s.URL+"/generate",
						strings.NewReader(`{"text":"`+strings.Repeat("x", size)+`"}`))
					r.Header.Set("X-Id", id)
					r.Header.Set("Idempotency-Key", id)
					resp, err := s.Client().Do(r)
					if err != nil {
						t.Error(err)
						return
					}
					io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
					mu.Lock()
					n := executed[id]
					mu.Unlock()
					if most := min(retries+1, fleet.MaxLost); n > most {
						t.Errorf("request %s was executed %d times, expected %d at most; status %d", id, n, most,
							resp.StatusCode)
					}
					repeated.Add(int64(max(n-1, 0)))
				}
			})
		}
		wg.Wait()
		if n := retriesIn(s.metrics(t)); int64(n) != repeated.Load() {
			t.Errorf("%d retries counted, %d executions beyond the first", n, repeated.Load())
		}
	})
}

// A request that brings workers down reaches two of them, however it does; one that
// is refused goes on to the next.
func TestPoison(t *testing.T) {
	busy := status(503, "busy")
	gone := func(rw http.ResponseWriter, _ *http.Request) { drop(rw, false) }
	for _, c := range []struct {
		name    string
		workers []http.HandlerFunc
		want    string
		asked   int64
		reason  string
	}{
		{"closed", []http.HandlerFunc{gone, gone, gone, gone},
			`502 {"error":{"code":502,"message":"the worker did not answer"`, 2, `{reason="no_reply"} 1`},
		{"errors", []http.HandlerFunc{status(500, "dead"), status(500, "dead"), gone, gone}, "500 dead", 2,
			`{reason="status"} 1`},
		{"closed, then an error", []http.HandlerFunc{gone, status(500, "dead"), status(200, "fine")}, "500 dead", 2,
			`{reason="no_reply"} 1`},
		{"busy ones between", []http.HandlerFunc{busy, gone, busy, gone, status(200, "fine")},
			`502 {"error":{"code":502,"message":"the worker did not answer"`, 4, `{reason="refused"} 2`},
		{"busy all the time", []http.HandlerFunc{busy, busy, busy, status(200, "fine")}, "200 fine", 4,
			`{reason="refused"} 3`},
		{"one dies, then busy ones", []http.HandlerFunc{gone, busy, busy, status(200, "fine")}, "200 fine", 4,
			`{reason="refused"} 2`},
	} {
		var asked atomic.Int64
		var all []http.HandlerFunc
		for _, w := range c.workers {
			all = append(all, func(rw http.ResponseWriter, r *http.Request) { asked.Add(1); w(rw, r) })
		}
		s := startScripted(t, 10, all...)
		s.policy.next = true
		code, text, err := s.post(t, "")
		if got := fmt.Sprintf("%d %s", code, text); err != nil || !strings.HasPrefix(got, c.want) ||
			asked.Load() != c.asked {
			t.Errorf("%s: %s, %v after %d workers; expected %s after %d", c.name, got, err, asked.Load(), c.want,
				c.asked)
		}
		if m := s.metrics(t); !strings.Contains(m, "lorasim_gateway_retries_total"+c.reason) {
			t.Errorf("%s: no %s in\n%s", c.name, c.reason, m)
		}
		s.Close()
	}
}

// A worker that closes its connections while they are idle, as uvicorn does after
// five seconds, makes no request fail.
func TestIdleClosedByWorker(t *testing.T) {
	s := startScripted(t, 0, status(200, "fine"))
	for i := range 30 {
		if code, text, err := s.post(t, ""); code != 200 || err != nil {
			t.Fatalf("request %d: %d %q, %v", i, code, text, err)
		}
		time.Sleep(15 * time.Millisecond) // it has rested
		if i%2 == 0 {
			s.workers[0].CloseClientConnections()
		}
	}
}
