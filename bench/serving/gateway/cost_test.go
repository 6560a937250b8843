package gateway_test

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"lorasim/bench/serving/fleet"
	"lorasim/bench/serving/gateway"
	"lorasim/bench/serving/httpapi"
	"lorasim/bench/serving/live"
	"lorasim/router"
	"lorasim/trace"
)

// newBefore starts a gateway with an access log (nil: none) before a worker that has one adapter.
func newBefore(t testing.TB, worker string, access *slog.Logger) *gateway.Gateway {
	t.Helper()
	rt, err := router.New("least-loaded", router.Env{Workers: router.Alike(1, router.Spec{}),
		Adapters: []trace.Adapter{{Name: "a"}}})
	if err != nil {
		t.Fatal(err)
	}
	client := live.NewHTTPClient(nil)
	t.Cleanup(client.CloseIdleConnections)
	f, err := fleet.New(fleet.Config{Connection: fleet.Connection{URLs: []string{worker}, API: httpapi.SGLang,
		Client: client}, Router: rt, Adapters: []trace.Adapter{{Name: "a"}}, Now: func() float64 { return 0 }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	if err := f.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	g, err := gateway.New(gateway.Config{Fleet: f, Access: access})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

// BenchmarkOneToken measures what the gateway costs a one-token request: its own
// processor time, with the worker and the clients in processes of their own, and
// what it adds to the median latency of clients that wait for each answer.
//
//	go test ./bench/serving/gateway -run '^$' -bench OneToken -benchtime 50000x
func BenchmarkOneToken(b *testing.B) {
	worker := startOther(b, "worker")
	g := newBefore(b, worker, nil)
	proxy := httptest.NewUnstartedServer(g)
	g.Limit(proxy.Config)
	proxy.Start()
	defer proxy.Close()
	for _, clients := range []int{1, 16} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			direct := askMany(b, worker, clients, min(b.N, 5000))
			askMany(b, proxy.URL, clients, clients) // connections
			b.ResetTimer()
			begun := processorTime(b)
			through := askMany(b, proxy.URL, clients, b.N)
			b.ReportMetric(float64((processorTime(b)-begun).Microseconds())/float64(b.N), "cpu-us/op")
			b.ReportMetric(float64((through - direct).Microseconds()), "added-p50-us")
		})
	}
}

func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// startOther runs this test binary as another process and returns the first line
// that it prints.
func startOther(b *testing.B, role string, args ...string) string {
	b.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "GATEWAY_BENCHMARK="+role)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe() // its end ends the process
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { in.Close(); cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// askMany has clients in another process send n requests in all, and returns the
// median latency.
func askMany(b *testing.B, url string, clients, n int) time.Duration {
	b.Helper()
	d, err := time.ParseDuration(startOther(b, "clients", url, strconv.Itoa(clients), strconv.Itoa(n)))
	if err != nil {
		b.Fatal(err)
	}
	return d
}

// playRole is what the other processes do.
func playRole(role string, args []string) error {
	if role == "worker" {
		srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			if r.URL.Path != "/v1/completions" {
				io.WriteString(rw, "{}") // what the fleet asks for
				return
			}
			rw.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(rw, "data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"text\":\" t1\",\"finish_reason\":\"length\"}]}\n\ndata: [DONE]\n\n")
		}))
		fmt.Println(srv.URL)
		io.Copy(io.Discard, os.Stdin)
		return nil
	}
	clients, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	client := live.NewHTTPClient(nil)
	body := `{"model": "a", "stream": true, "max_tokens": 1, "ignore_eos": true, "prompt": [` + strings.Repeat("1234, ",
		63) + `1]}`
	var mu sync.Mutex
	var all []time.Duration
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			var took []time.Duration
			for k := i; k < n; k += clients {
				begun := time.Now()
				resp, e := client.Post(args[0]+"/v1/completions", "application/json", strings.NewReader(body))
				if e == nil {
					var text []byte
					text, e = io.ReadAll(resp.Body)
					resp.Body.Close()
					if e == nil && resp.StatusCode != 200 {
						e = fmt.Errorf("status %d: %s", resp.StatusCode, text)
					}
				}
				if e != nil {
					mu.Lock()
					err = e
					mu.Unlock()
					return
				}
				took = append(took, time.Since(begun))
			}
			mu.Lock()
			all = append(all, took...)
			mu.Unlock()
		})
	}
	wg.Wait()
	if err != nil {
		return err
	}
	slices.Sort(all)
	fmt.Println(all[len(all)/2])
	return nil
}
