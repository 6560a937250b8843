package wire

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// server reads one request after the other of each connection, and lets the test
// answer them; requests are counted when they have been read whole.
type server struct {
	url      string
	seen     atomic.Int64 // requests
	conns    atomic.Int64
	open     atomic.Int64
	listener net.Listener
}

func serve(t testing.TB, reply func(n int64, body string, nc net.Conn) (goOn bool)) *server {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{url: "http://" + l.Addr().String(), listener: l}
	var wg sync.WaitGroup
	var mu sync.Mutex
	all := map[net.Conn]bool{}
	wg.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			s.conns.Add(1)
			s.open.Add(1)
			mu.Lock()
			all[nc] = true
			mu.Unlock()
			wg.Go(func() {
				defer s.open.Add(-1)
				defer nc.Close()
				in := bufio.NewReader(nc)
				for {
					r, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					body, err := io.ReadAll(r.Body)
					if err != nil || !reply(s.seen.Add(1), string(body), nc) {
						return
					}
				}
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for nc := range all {
			nc.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return s
}

func say(w io.Writer, text string) {
	fmt.Fprintf(w, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
}

// until waits for what happens soon.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}

// idles returns the idle connections of a client.
func (c *Client) idles() (list []*conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.pools {
		list = append(list, p.idle...)
	}
	return list
}

// A request that was written is not sent a second time, whatever the server does
// then, and whatever the request's headers say; one of which nothing was written is.
func TestAtMostOnce(t *testing.T) {
	ends := map[string]func(nc net.Conn) bool{
		"closed": func(nc net.Conn) bool { return false },
		"reset":  func(nc net.Conn) bool { nc.(*net.TCPConn).SetLinger(0); return false },
		"half a head": func(nc net.Conn) bool {
			io.WriteString(nc, "HTTP/1.1 200 OK\r\nContent-")
			return false
		},
		"nonsense": func(nc net.Conn) bool { io.WriteString(nc, "x\r\n\r\n"); return false },
	}
	for how, end := range ends {
		for _, q := range []struct {
			name, method string
			body         string
			header       string
		}{
			{"post", "POST", "x", ""}, {"no body", "POST", "", "Idempotency-Key"}, {"get", "GET", "", ""},
			{"key", "POST", "x", "Idempotency-Key"},
			{"another key", "POST", "x", "X-Idempotency-Key"}, {"long", "POST", strings.Repeat("x", maxWhole+1), ""},
			{"long and key", "POST", strings.Repeat("x", maxWhole+1), "Idempotency-Key"},
			{"long get", "GET", strings.Repeat("x", maxWhole+1), ""},
		} {
			t.Run(how+" "+q.name, func(t *testing.T) {
				s := serve(t, func(n int64, body string, nc net.Conn) bool {
					if n == 1 {
						say(nc, "fine")
						return true
					}
					return end(nc)
				})
				c := newClient(t)
				for i := range 2 { // the second is on a kept connection
					r, err := http.NewRequestWithContext(t.Context(), q.method, s.url, strings.NewReader(q.body))
					if err != nil {
						t.Fatal(err)
					}
					if q.header != "" {
						r.Header.Set(q.header, "k")
					}
					resp, err := c.RoundTrip(r)
					if (err == nil) != (i == 0) || err != nil && Unsent(err) {
						t.Fatalf("request %d: %v", i, err)
					}
					if err == nil {
						io.ReadAll(resp.Body)
						resp.Body.Close()
						time.Sleep(5 * time.Millisecond) // http.Transport puts it back on its own time
					}
				}
				if n := s.seen.Load(); n != 2 {
					t.Errorf("%d requests at the server, expected 2", n)
				}
			})
		}
	}
}

// The same over https, whose connections http.Transport keeps.
func TestAtMostOnceHTTPS(t *testing.T) {
	for _, method := range []string{"POST", "GET", "HEAD", "OPTIONS"} {
		var seen atomic.Int64
		var key atomic.Value
		s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			key.Store(r.Header.Get("Idempotency-Key") + r.Header.Get("Content-Length") +
				strings.Join(r.TransferEncoding, ""))
			if seen.Add(1) > 1 {
				panic(http.ErrAbortHandler)
			}
		}))
		c := New(s.Client())
		for i := range 2 {
			r, _ := http.NewRequestWithContext(t.Context(), method, s.URL, nil)
			r.Header.Set("Idempotency-Key", "k")
			resp, err := c.RoundTrip(r)
			if (err == nil) != (i == 0) {
				t.Fatalf("%s: %v", method, err)
			}
			if err == nil {
				io.ReadAll(resp.Body)
				resp.Body.Close()
			}
			if r.Header.Get("Idempotency-Key") != "k" || key.Load() != "k" && method == "GET" {
				t.Errorf("%s: the request's own header is %v, the server got %q", method, r.Header, key.Load())
			}
		}
		if n := seen.Load(); n != 2 {
			t.Errorf("%s: %d requests at the server, expected 2", method, n)
		}
		s.Close()
	}
}

// Random faults after the request was read: every request that the server has
// executed was sent once, and a client that does not repeat loses what was dropped.
func TestDrops(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		drops := rapid.SliceOfN(rapid.SampledFrom([]string{"", "", "close", "reset", "close after"}), 1, 30).Draw(rt,
			"drops")
		var mu sync.Mutex
		executed := map[string]int{}
		s := serve(t, func(n int64, body string, nc net.Conn) bool {
			mu.Lock()
			executed[body]++
			mu.Unlock()
			var i int
			fmt.Sscan(body, &i)
			switch drops[i] {
			case "close":
				return false
			case "reset":
				nc.(*net.TCPConn).SetLinger(0)
				return false
			}
			say(nc, body)
			return drops[i] == ""
		})
		c := newClient(t)
		for i, how := range drops {
			body := fmt.Sprint(i)
			_, text, err := post(t, c, s.url, body)
			lost := how == "close" || how == "reset"
			if !lost && (err != nil || text != body) || lost && (err == nil || Unsent(err)) {
				rt.Fatalf("request %d of %q: %q, %v", i, drops, text, err)
			}
			if how == "close after" { // a stale connection is no failed request
				until(t, "the end arrives", func() bool { return closedOrGone(c) })
			}
			mu.Lock()
			if executed[body] != 1 {
				rt.Fatalf("request %d of %q was executed %d times", i, drops, executed[body])
			}
			mu.Unlock()
		}
		c.CloseIdle()
	})
}

// closedOrGone says whether no idle connection is open at the server's end.
func closedOrGone(c *Client) bool {
	for _, k := range c.idles() {
		if k.check() == nil {
			return false
		}
	}
	return true
}

// Connections that the server closed while they were idle are no failed requests,
// and are counted.
func TestStale(t *testing.T) {
	s := serve(t, func(_ int64, body string, nc net.Conn) bool { say(nc, body); return false })
	c := newClient(t)
	for i := range 20 {
		body := fmt.Sprint(i)
		if _, text, err := post(t, c, s.url, body); err != nil || text != body {
			t.Fatalf("request %d: %q %v", i, text, err)
		}
		until(t, "the end arrives", func() bool { return closedOrGone(c) })
	}
	if st := c.Stats(); s.seen.Load() != 20 || st.Opened != 20 || st.Stale != 19 || st.Unasked != 0 {
		t.Errorf("%d requests at the server, %+v", s.seen.Load(), st)
	}
}

// Bytes that nobody asked for, before the connection serves again or after: no
// request gets them, and for a while no connection to that server serves twice.
func TestUnasked(t *testing.T) {
	for _, c := range []struct {
		name string
		late time.Duration
	}{{"with the reply", 0}, {"later", time.Millisecond}} {
		s := serve(t, func(n int64, body string, nc net.Conn) bool {
			say(nc, body)
			if n == 1 { // a second reply
				time.Sleep(c.late)
				say(nc, "second of "+body)
			}
			return true
		})
		client := newClient(t)
		for i := range 10 {
			body := fmt.Sprint(i)
			_, text, err := post(t, client, s.url, body)
			if err != nil || text != body {
				t.Fatalf("%s: request %d: %q, %v", c.name, i, text, err)
			}
			if i == 0 {
				until(t, "the second reply arrives", func() bool { return closedOrGone(client) })
			}
		}
		if st := client.Stats(); st.Unasked != 1 || s.conns.Load() != 10 || s.seen.Load() != 10 {
			t.Errorf("%s: %+v, %d connections, %d requests", c.name, st, s.conns.Load(), s.seen.Load())
		}
		client.mu.Lock()
		for _, p := range client.pools {
			p.suspected = time.Now().Add(-suspicion) // a minute later
		}
		client.mu.Unlock()
		post(t, client, s.url, "x")
		if n := len(client.idles()); n != 1 {
			t.Errorf("%s: %d connections kept after the suspicion", c.name, n)
		}
	}
}

// A reply that begins before the request was written whole is not delivered.
func TestEarlyReply(t *testing.T) {
	s := serve(t, func(_ int64, body string, nc net.Conn) bool { say(nc, body[:1]); return true })
	c := newClient(t)
	post(t, c, s.url, "x")
	k := c.take(addr(t, s.url), 0)
	if k == nil {
		t.Fatal("no idle connection")
	}
	k.kept = true
	r := request(t, t.Context(), s.url, strings.Repeat("y", 3*4*bufferSize))
	writes := 0
	k.Conn = &hooked{k.Conn, func() { // a reply to something else arrives after the first write
		writes++
		k.look = func(uintptr) bool { k.looked = nil; return true }
	}}
	resp, err := k.exchange(r)
	if err == nil || !errors.Is(err, errUnasked) || Unsent(err) {
		t.Errorf("%v, %v", resp, err)
	}
	if writes != 1 {
		t.Errorf("%d writes, expected 1", writes)
	}
}

type hooked struct {
	net.Conn
	after func()
}

func (h *hooked) Write(p []byte) (int, error) {
	defer h.after()
	return h.Conn.Write(p)
}

// Connections idle for longer than the limit are closed, all of a burst as well, and
// nothing stays behind.
func TestReaper(t *testing.T) {
	const n = 600
	all := make(chan struct{})
	s := serve(t, func(k int64, body string, nc net.Conn) bool {
		if k == n {
			close(all)
		}
		<-all
		say(nc, body)
		return true
	})
	c := newClient(t)
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() { post(t, c, s.url, "x") })
	}
	wg.Wait()
	if k := len(c.idles()); k != n {
		t.Fatalf("%d idle connections, expected %d", k, n)
	}
	c.mu.Lock()
	for _, p := range c.pools {
		for i, k := range p.idle {
			if i < n-1 { // all but one
				k.since = time.Now().Add(-idleLimit)
			}
		}
	}
	c.mu.Unlock()
	c.reap()
	if k := len(c.idles()); k != 1 {
		t.Errorf("%d idle connections, expected 1", k)
	}
	until(t, "the server sees the ends", func() bool { return s.open.Load() == 1 })
	c.mu.Lock()
	for _, p := range c.pools {
		p.idle[0].since = time.Now().Add(-idleLimit)
	}
	c.mu.Unlock()
	if c.take(addr(t, s.url), 0) != nil {
		t.Error("an old connection is taken")
	}
	until(t, "the timer closes the last one", func() bool { return s.open.Load() == 0 })
	c.mu.Lock()
	if c.reaping || len(c.pools) != 0 || c.stats.Expired != n {
		t.Errorf("reaping %v, %d pools, %+v", c.reaping, len(c.pools), c.stats)
	}
	c.mu.Unlock()
}

// At most maxIdle connections to a server are kept, and none by a closed client.
func TestMaxIdle(t *testing.T) {
	c := New(&http.Client{Transport: &http.Transport{}})
	defer c.Close()
	put := func() (closed bool) {
		near, far := net.Pipe()
		defer far.Close()
		c.put(newConn(near, c, "a:1"))
		return errors.Is(near.SetDeadline(time.Time{}), io.ErrClosedPipe)
	}
	for i := range maxIdle + 2 {
		if closed := put(); closed != (i >= maxIdle) {
			t.Fatalf("connection %d: closed %v", i, closed)
		}
	}
	c.Close()
	if len(c.idles()) != 0 || !put() || c.reaping {
		t.Errorf("%d idle after the end, reaping %v", len(c.idles()), c.reaping)
	}
}

// The connection that has rested and was used last serves next.
func TestTake(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := New(&http.Client{})
		now := time.Now()
		ages := rapid.SliceOfN(rapid.IntRange(0, 4000), 0, 20).Draw(t, "ages, ms")
		p := &pool{}
		c.pools["a"] = p
		oldest := 4001
		for _, age := range ages {
			if age >= oldest {
				continue
			}
			oldest = age
			p.idle = append(p.idle, &conn{since: now.Add(-time.Duration(age) * time.Millisecond)})
		}
		n := len(p.idle)
		k := c.take("a", 0)
		after := time.Now()
		if k != nil && (now.Sub(k.since) >= idleLimit || after.Sub(k.since) < rest || len(p.idle) != n-1) {
			t.Fatalf("idle for %v", now.Sub(k.since))
		}
		for _, left := range p.idle {
			age := now.Sub(left.since)
			if k == nil && age > rest && after.Sub(left.since) < idleLimit || k != nil && left.since.After(k.since) &&
				age > rest {
				t.Fatalf("one idle for %v was passed over", age)
			}
		}
	})
}

// What was not written is told apart from what was.
func TestUnsent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	c := newClient(t)
	for _, body := range []string{"x", strings.Repeat("x", maxWhole+1)} {
		_, _, err := post(t, c, "http://"+l.Addr().String(), body)
		if !Unsent(err) || !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%v, expected a refused connection", err)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	r, _ := http.NewRequestWithContext(ctx, "GET", "http://a", nil)
	if _, err := c.RoundTrip(r); !errors.Is(err, why) {
		t.Errorf("%v, expected the cause", err)
	}
}

// BenchmarkRoundTrip is one request after the other over kept connections.
func BenchmarkRoundTrip(b *testing.B) {
	s := serve(b, func(_ int64, body string, nc net.Conn) bool { say(nc, "fine"); return true })
	c := New(&http.Client{Transport: &http.Transport{}})
	defer c.CloseIdle()
	body := strings.Repeat("x", 400)
	b.ReportAllocs()
	for range b.N {
		r, err := http.NewRequest(http.MethodPost, s.url, strings.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		resp, err := c.RoundTrip(r)
		if err != nil {
			b.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
}

// BenchmarkCheck is the look at a connection before it serves again.
func BenchmarkCheck(b *testing.B) {
	s := serve(b, func(_ int64, body string, nc net.Conn) bool { return true })
	nc, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		b.Fatal(err)
	}
	defer nc.Close()
	k := newConn(nc, nil, "")
	b.ReportAllocs()
	for range b.N {
		if err := k.check(); err != nil {
			b.Fatal(err)
		}
	}
}
