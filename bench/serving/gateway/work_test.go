package gateway_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
)

// allocations is the number of allocations of a streamed request of 16 tokens, without those of client and worker. More
// than 5 % more or less fails: if that is on purpose, say why in the commit and change the number.
const allocations = 98

// TestWork counts the allocations of a streamed request.
func TestWork(t *testing.T) {
	if underRace {
		t.Skip("the race detector allocates, too")
	}
	const n = 500
	ask := newStreams(t)
	for range 100 { // connections, pools
		ask()
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // which would empty the pools
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range n {
		ask()
	}
	runtime.ReadMemStats(&after)
	got := float64(after.Mallocs-before.Mallocs) / n
	t.Logf("%.1f allocations", got)
	if d := got - allocations; d > 0.05*allocations || d < -0.05*allocations {
		t.Errorf("%.1f allocations a streamed request, expected %d", got, allocations)
	}
}

// BenchmarkStream is a streamed request of 16 tokens.
func BenchmarkStream(b *testing.B) {
	ask := newStreams(b)
	for range 100 {
		ask()
	}
	b.ReportAllocs()
	begun := processorTime(b)
	for b.Loop() {
		ask()
	}
	b.ReportMetric(float64((processorTime(b)-begun).Microseconds())/float64(b.N), "cpu-us/op")
}

// newStreams starts a gateway before a worker. The function that it returns sends a streamed request of 16 tokens and
// reads the reply, without allocations of its own or of the worker.
func newStreams(t testing.TB) (ask func()) {
	g := newBefore(t, newScriptedWorker(t), slog.New(slog.NewTextHandler(io.Discard, nil)))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: g}
	g.Limit(srv)
	go srv.Serve(l) // ends with the server
	t.Cleanup(func() { srv.Close() })
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	body := `{"model": "a", "stream": true, "max_tokens": 16, "ignore_eos": true, "prompt": [` +
		strings.Repeat("1234, ", 63) + `1]}`
	request := fmt.Appendf(nil, "POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"+
		"Content-Length: %d\r\n\r\n%s", len(body), body)
	buf, end := make([]byte, 16<<10), []byte("data: [DONE]\n\n\r\n0\r\n\r\n")
	return func() {
		if _, err := conn.Write(request); err != nil {
			t.Fatal(err)
		}
		for n := 0; !bytes.HasSuffix(buf[:n], end); {
			got, err := conn.Read(buf[n:])
			if err != nil {
				t.Fatalf("%v after %q", err, buf[:n])
			}
			n += got
		}
	}
}

// newScriptedWorker starts a worker that streams the same 16 tokens for each request, and returns its URL. It allocates
// nothing for a request.
func newScriptedWorker(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	reply := [][]byte{[]byte("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")}
	for i := range 17 {
		event := fmt.Sprintf(`data: {"id":"x","choices":[{"index":0,"text":" t%d","finish_reason":null}]}`+"\n\n", i)
		if i == 16 {
			event = "data: [DONE]\n\n"
		}
		reply = append(reply, fmt.Appendf(nil, "%x\r\n%s\r\n", len(event), event))
	}
	reply = append(reply, []byte("0\r\n\r\n"))
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serveScript(c, reply)
		}
	}()
	return "http://" + l.Addr().String()
}

// serveScript answers completions with the parts of a reply, each in a packet of its own, and other requests with {}.
func serveScript(c net.Conn, reply [][]byte) {
	defer c.Close()
	buf := make([]byte, 16<<10)
	for {
		n, end := 0, []byte("\r\n\r\n")
		for !bytes.HasSuffix(buf[:n], end) {
			got, err := c.Read(buf[n:])
			if err != nil {
				return
			}
			if n += got; bytes.HasPrefix(buf[:n], []byte("POST")) {
				end = []byte("}") // of the body, which comes whole
			}
		}
		if !bytes.HasPrefix(buf[:n], []byte("POST /v1/completions")) {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}") // what the fleet asks for
			continue
		}
		for _, part := range reply {
			if _, err := c.Write(part); err != nil {
				return
			}
		}
	}
}
