package gateway_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"lorasim/bench/serving/gateway"
	"lorasim/bench/serving/httpapi"
)

// dial opens a connection to a host and sends the head of a request.
func dial(t *memory, url, head string) net.Conn {
	t.Helper()
	host := strings.TrimPrefix(url, "http://")
	c, err := t.net.Transport().DialContext(t.Context(), "tcp", host+":80")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, head); err != nil {
		t.Fatal(err)
	}
	return c
}

func head(length int) string {
	return fmt.Sprintf("POST /generate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", length)
}

// A body that stops arriving, or arrives byte by byte, ends with status 408 within the
// client timeout, and no worker sees it; one that arrives steadily takes as long as it
// needs.
func TestSlowBody(t *testing.T) {
	for _, c := range []struct {
		name   string
		pieces int // of a body of 1 MiB
		every  time.Duration
		status int
	}{
		{"nothing comes", 0, 0, http.StatusRequestTimeout},
		{"a byte a second", 1 << 20, time.Second, http.StatusRequestTimeout},
		{"128 KiB a second", 8, time.Second, http.StatusOK},
		{"128 KiB each 10 s", 8, 10 * time.Second, http.StatusRequestTimeout},
	} {
		t.Run(c.name, func(t *testing.T) {
			inMemory(t, func(t *memory) {
				w := newTestWorker(t, httpapi.SGLang)
				srv := newGateway(t, "round-robin", func(g *gateway.Config) { g.ClientTimeout = 5 * time.Second }, w)
				seen := w.seen.Load()
				body := `{"sampling_params": {"max_new_tokens": 1}, "text": "x"`
				body += strings.Repeat(" ", 1<<20-len(body)-1) + "}"
				conn := dial(t, srv.URL, head(len(body)))
				answered := make(chan struct{})
				defer close(answered)
				go func() {
					for i := range c.pieces {
						size := len(body) / c.pieces
						if _, err := io.WriteString(conn, body[i*size:(i+1)*size]); err != nil {
							return
						}
						select {
						case <-time.After(c.every):
						case <-answered:
							return
						}
					}
				}()
				start := time.Now()
				resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				if resp.StatusCode != c.status {
					t.Errorf("status %d, expected %d", resp.StatusCode, c.status)
				}
				if took := time.Since(start); c.status == http.StatusRequestTimeout && took > 25*time.Second {
					t.Errorf("it took %v", took)
				}
				if c.status != http.StatusOK && w.seen.Load() != seen {
					t.Error("the worker has seen the request")
				}
			})
		})
	}
}

// A client that takes nothing of its reply is cut off after the client timeout, so
// that the worker does not generate for it.
func TestClientThatDoesNotRead(t *testing.T) {
	inMemory(t, func(t *memory) {
		w := newTestWorker(t, httpapi.SGLang)
		srv := newGateway(t, "round-robin", func(g *gateway.Config) { g.ClientTimeout = 5 * time.Second }, w)
		body := `{"text": "x", "stream": true, "sampling_params": {"max_new_tokens": 100000}}`
		conn := dial(t, srv.URL, head(len(body))+body)
		if _, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if _, text := get(t, srv.URL+"/metrics"); !strings.Contains(text,
			`lorasim_gateway_requests_running{worker="http://host1"} 0`) {
			t.Errorf("the request still runs:\n%s", text)
		}
	})
}

// Requests beyond the limit are answered 503 at once and do not reach a worker.
func TestMaxRequests(t *testing.T) {
	inMemory(t, func(t *memory) {
		w := newTestWorker(t, httpapi.SGLang)
		srv := newGateway(t, "round-robin", func(g *gateway.Config) { g.MaxRequests = 1 }, w)
		body := `{"text": "x", "stream": true, "sampling_params": {"max_new_tokens": 1000}}`
		first := dial(t, srv.URL, head(len(body))+body)
		if _, err := http.ReadResponse(bufio.NewReader(first), nil); err != nil {
			t.Fatal(err)
		}
		seen := w.seen.Load()
		if status, text := post(t, srv.URL+"/generate", body); status != http.StatusServiceUnavailable ||
			w.seen.Load() != seen {
			t.Errorf("the second: %d %s", status, text)
		}
		first.Close()
		time.Sleep(time.Second)
		if status, text := post(t, srv.URL+"/generate",
			`{"text": "x", "sampling_params": {"max_new_tokens": 1}}`); status != http.StatusOK {
			t.Errorf("once the first has gone: %d %s", status, text)
		}
	})
}
