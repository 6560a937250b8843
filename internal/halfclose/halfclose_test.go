package halfclose_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"lorasim/internal/halfclose"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve serves a handler on loopback and returns a connection to it.
func serve(t *testing.T, h http.HandlerFunc) *net.TCPConn {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: halfclose.Handler(h), ConnContext: halfclose.ConnContext}
	done := make(chan struct{})
	go func() { defer close(done); srv.Serve(halfclose.Listener(l)) }()
	t.Cleanup(func() { srv.Close(); <-done })
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn)
}

const request = "POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc"

// A client that closes its side gets the whole answer, be it quick, slow to begin
// (with an interim response before it), or streamed.
func TestHalfClosed(t *testing.T) {
	for _, c := range []struct {
		name    string
		before  time.Duration // the answer
		between time.Duration // its parts
		interim int
		request string
	}{
		{"quick", 0, 0, 0, request}, {"slow to begin", 700 * time.Millisecond, 0, 1, request},
		{"streamed", 0, 300 * time.Millisecond, 0, request}, {"without a body", 50 * time.Millisecond, 0, 0,
			"GET / HTTP/1.1\r\nHost: h\r\n\r\n"},
		{"two requests", 50 * time.Millisecond, 0, 0, request + request},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			conn := serve(t, func(rw http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				wait := func(d time.Duration) {
					select {
					case <-r.Context().Done():
						t.Error("the client counts as gone")
					case <-time.After(d):
					}
				}
				wait(c.before)
				for range 3 {
					io.WriteString(rw, "part ")
					http.NewResponseController(rw).Flush()
					wait(c.between)
				}
			})
			io.WriteString(conn, c.request)
			conn.CloseWrite()
			in := bufio.NewReader(conn)
			for range strings.Count(c.request, "Host:") {
				interim := 0
				resp, err := http.ReadResponse(in, nil)
				for ; err == nil && resp.StatusCode == 100; resp, err = http.ReadResponse(in, nil) {
					interim++
				}
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(resp.Body)
				if err != nil || resp.StatusCode != 200 || string(body) != "part part part " || interim != c.interim {
					t.Errorf("%d %q, %v, %d interim responses, expected %d", resp.StatusCode, body, err, interim,
						c.interim)
				}
			}
			if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
				t.Errorf("after the answer: %q, %v", rest, err)
			}
		})
	}
}

// A client that has gone is noticed, before its answer has begun or later; one of
// HTTP/1.0, or in the middle of its body, at once.
func TestGone(t *testing.T) {
	for _, c := range []struct {
		name, request string
		stream        bool
		most          time.Duration
	}{
		{"before the answer", request, false, 3 * time.Second}, {"in the answer", request, true, 3 * time.Second},
		{"HTTP/1.0", "GET / HTTP/1.0\r\n\r\n", false, 400 * time.Millisecond},
		{"in the body", strings.TrimSuffix(request, "c"), false, 400 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			begun, ended := make(chan struct{}), make(chan time.Time, 1)
			conn := serve(t, func(rw http.ResponseWriter, r *http.Request) {
				defer func() { ended <- time.Now() }()
				close(begun)
				if _, err := io.Copy(io.Discard, r.Body); err != nil {
					return
				}
				for range 100 {
					if c.stream {
						io.WriteString(rw, "part")
						http.NewResponseController(rw).Flush()
					}
					select {
					case <-r.Context().Done():
						return
					case <-time.After(100 * time.Millisecond):
					}
				}
			})
			io.WriteString(conn, c.request)
			<-begun
			time.Sleep(20 * time.Millisecond) // nothing to wait for: net/http begins to watch the connection
			left := time.Now()
			if c.name == "HTTP/1.0" {
				conn.CloseWrite()
			} else {
				conn.Close()
			}
			if d := (<-ended).Sub(left); d > c.most {
				t.Errorf("noticed after %v, expected at most %v", d, c.most)
			}
		})
	}
}

// Shutdown and keep-alive are as without the package.
func TestKeepAlive(t *testing.T) {
	conn := serve(t, func(rw http.ResponseWriter, r *http.Request) { io.WriteString(rw, "fine") })
	in := bufio.NewReader(conn)
	for range 3 {
		io.WriteString(conn, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "fine" {
			t.Fatal(string(body), err)
		}
	}
	conn.CloseWrite() // idle: it is closed at once
	conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
		t.Errorf("%q, %v", rest, err)
	}
	ctx := context.Background()
	if halfclose.ConnContext(ctx, nil) != ctx {
		t.Error("a context for a connection of another kind")
	}
}
