package wire

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newClient is a client whose connections need no rest.
func newClient(t testing.TB) *Client {
	base := &http.Client{Transport: &http.Transport{}}
	c := New(base)
	c.rest = 0
	t.Cleanup(func() {
		c.Close()
		base.CloseIdleConnections()
	})
	return c
}

func request(t *testing.T, ctx context.Context, url, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Key", "k")
	return r
}

// post sends a body and reads the whole reply.
func post(t *testing.T, c *Client, url, body string) (int, string, error) {
	t.Helper()
	resp, err := c.RoundTrip(request(t, t.Context(), url, body))
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(data), err
}

// addr is where the server of a URL listens.
func addr(t *testing.T, url string) string { return hostPort(request(t, t.Context(), url, "").URL) }

// counted serves and counts the connections that were made.
func counted(t *testing.T, h http.HandlerFunc) (*httptest.Server, *atomic.Int64) {
	var n atomic.Int64
	s := httptest.NewUnstartedServer(h)
	s.Config.ConnState = func(_ net.Conn, st http.ConnState) {
		if st == http.StateNew {
			n.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	return s, &n
}

// Replies of known length, in chunks, without a body and large ones all come over
// the one connection, and the server sees what was sent.
func TestPost(t *testing.T) {
	long := strings.Repeat("0123456789", 5000)
	s, conns := counted(t, func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		if r.Header.Get("X-Key") != "k" || r.URL.Path != "/a" || r.URL.RawQuery != "b=c" || r.Host == "" {
			t.Errorf("%s %s of %q with %v", r.Method, r.URL, r.Host, r.Header)
		}
		switch q := string(data); q {
		case "none":
			w.WriteHeader(http.StatusNoContent)
		case "refuse":
			http.Error(w, "no", http.StatusTeapot)
		case "hints":
			w.Header().Set("Link", "</x>")
			w.WriteHeader(http.StatusEarlyHints)
			fmt.Fprint(w, q)
		default:
			for i := 0; i < len(q); i += 1000 {
				io.WriteString(w, q[i:min(i+1000, len(q))])
				w.(http.Flusher).Flush()
			}
		}
	})
	c := newClient(t)
	for _, step := range []struct {
		body, want string
		status     int
	}{{"x", "x", 200}, {"none", "", 204}, {long, long, 200}, {"refuse", "no\n", 418}, {"hints", "hints", 200},
		{"", "", 200}, {"y", "y", 200}} {
		status, got, err := post(t, c, s.URL+"/a?b=c", step.body)
		if err != nil || status != step.status || got != step.want {
			t.Errorf("%.20q: status %d, %.20q, %v; expected %d, %.20q", step.body, status, got, err, step.status,
				step.want)
		}
	}
	if n := conns.Load(); n != 1 {
		t.Errorf("%d connections for one request after the other", n)
	}
}

// What the client cannot do itself goes over the http.Client.
func TestLeftToHTTPClient(t *testing.T) {
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) })
	s := httptest.NewTLSServer(echo)
	defer s.Close()
	if status, got, err := post(t, New(s.Client()), s.URL, "x"); status != 200 || got != "x" || err != nil {
		t.Errorf("https: %d %q %v", status, got, err)
	}
	proxied := &http.Transport{Proxy: func(*http.Request) (*url.URL, error) { return url.Parse("http://proxy:1") }}
	for name, c := range map[string]struct {
		client *http.Client
		url    string
		plain  bool
	}{
		"plain":              {&http.Client{Transport: &http.Transport{}}, "http://a/b", true},
		"a password":         {&http.Client{Transport: &http.Transport{}}, "http://u:p@a/b", false},
		"a proxy":            {&http.Client{Transport: proxied}, "http://a/b", false},
		"a zone":             {&http.Client{Transport: &http.Transport{}}, "http://[fe80::1%25eth0]/b", false},
		"letters":            {&http.Client{Transport: &http.Transport{}}, "http://bücher/b", false},
		"no known transport": {&http.Client{}, "http://a/b", false},
	} {
		if plain := New(c.client).plain(request(t, t.Context(), c.url, "")); plain != c.plain {
			t.Errorf("%s: plain %t", name, plain)
		}
	}
}

// answer is a server that reads a request and sends the given bytes, and then
// closes, or keeps the connection open.
func answer(t *testing.T, text string, closes bool) (url string, conns *atomic.Int64) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	conns = new(atomic.Int64)
	done := make(chan struct{})
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	go func() {
		defer close(done)
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			conns.Add(1)
			go func() {
				defer nc.Close()
				in := bufio.NewReader(nc)
				for {
					req, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					io.Copy(io.Discard, req.Body)
					io.WriteString(nc, text)
					if closes {
						return
					}
				}
			}()
		}
	}()
	return "http://" + l.Addr().String(), conns
}

// Replies as they may come, and what is made of them.
func TestReplies(t *testing.T) {
	for _, c := range []struct {
		name, reply string
		closes      bool
		status      int
		body, fail  string
		conns       int64 // of two requests
	}{
		{"length", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab", false, 200, "ab", "", 1},
		{"bare newlines, no reason", "HTTP/1.1 200\ncontent-length:2\n\nab", false, 200, "ab", "", 1},
		{"chunks and a trailer", "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n1\r\na\r\n1;x=y\r\nb\r\n0\r\nX-T: 1\r\n\r\n", false, 200, "ab", "", 2},
		{"chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n1\r\na\r\n1;x=y\r\nb\r\n0\r\n\r\n", false, 200,
			"ab", "", 1},
		{"chunks win over a length", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n", false, 200, "ab", "", 2},
		{"a length after chunks", "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\ncontent-LENGTH: 2\n\n2\r\nab\r\n0\r\n\r\n", false, 200, "ab", "", 2},
		{"a length of text, a length as value",
			"HTTP/1.1 200 OK\r\nX: Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n", false,
			200, "ab", "", 1},
		{"chunks behind a head that is too long to look at", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 5000) +
			"\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n", false, 200, "ab", "", 2},
		{"many provisional replies", strings.Repeat("HTTP/1.1 102 x\r\n\r\n", 6) +
			"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na", false, 0, "", "more than 5", 2},
		{"another protocol than was asked for", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", false, 0, "",
			"status 101", 2},
		{"status 099", "HTTP/1.1 099 x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na", false, 0, "", "status 99",
			2},
		{"status +20", "HTTP/1.1 +20 x\r\n\r\n", false, 0, "", "status 20", 2},
		{"no body", "HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n", false, 304, "", "", 1},
		{"provisional replies first", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na", false, 200, "a", "", 1},
		{"announced close", "HTTP/1.1 200 OK\r\nConnection: x, Close\r\nContent-Length: 1\r\n\r\na", false, 200, "a",
			"", 2},
		{"until the end", "HTTP/1.1 200 OK\r\n\r\nab", true, 200, "ab", "", 2},
		{"HTTP/1.0", "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na", false, 200, "a", "", 2},
		{"more than was asked for", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nabc", false, 200, "a", "", 2},
		{"a long line", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 10000) + "\r\nContent-Length: 1\r\n\r\na", false,
			200, "a", "", 1},
		{"a folded line", "HTTP/1.1 200 OK\r\nX: a\r\n b: c\r\nContent-Length: 1\r\n\r\na", false, 200, "a", "", 1},
		{"nothing", "", true, 0, "", "closed before a reply", 2},
		{"half a head", "HTTP/1.1 200 OK\r\nContent-", true, 0, "", "missing colon", 2},
		{"too short a body", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", true, 200, "ab", "unexpected EOF", 2},
		{"chunks cut off", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", true, 200, "ab",
			"unexpected EOF", 2},
		{"the last chunk cut off", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n", true, 200,
			"a", "unexpected EOF", 2},
		{"another protocol", "SSH-2.0-x\r\n\r\n", true, 0, "", "malformed HTTP response", 2},
		{"a status of two digits", "HTTP/1.1 20 OK\r\n\r\n", true, 0, "", "malformed HTTP status code", 2},
		{"no field", "HTTP/1.1 200 OK\r\nfoo\r\n\r\n", true, 0, "", "missing colon", 2},
		{"two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", true, 0, "",
			"multiple Content-Length", 2},
		{"no length", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nab", true, 0, "", "bad Content-Length", 2},
		{"another coding", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nab", true, 0, "",
			"unsupported transfer encoding", 2},
		{"an endless head", "HTTP/1.1 200 OK\r\n" + strings.Repeat("X: y\r\n", 300_000), true, 0, "", "longer than", 2},
		{"an endless line", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 2<<20), true, 0, "", "longer than", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			url, conns := answer(t, c.reply, c.closes)
			client := newClient(t)
			for range 2 {
				status, body, err := post(t, client, url, "x")
				if status != c.status || body != c.body || (err != nil) != (c.fail != "") || err != nil &&
					!strings.Contains(err.Error(), c.fail) {
					t.Errorf("status %d, %.40q, error %v; expected %d, %q, error %q", status, body, err, c.status,
						c.body, c.fail)
				}
			}
			if n := conns.Load(); n != c.conns {
				t.Errorf("%d connections, expected %d", n, c.conns)
			}
		})
	}
}

// The end of a context ends a request that waits for the head of its reply or for
// more of its body, with the context's cause; one that has ended sends nothing.
func TestCancel(t *testing.T) {
	begun := make(chan struct{}, 1)
	gone := make(chan struct{})
	s, _ := counted(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if string(body) == "body" {
			io.WriteString(w, "first")
			w.(http.Flusher).Flush()
		}
		begun <- struct{}{}
		<-r.Context().Done() // the server sees that the client has gone
		gone <- struct{}{}
	})
	c := newClient(t)
	cause := errors.New("enough")
	for _, body := range []string{"head", "body"} {
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		if body == "head" {
			go func() {
				<-begun
				cancel(cause)
			}()
		}
		resp, err := c.RoundTrip(request(t, ctx, s.URL, body))
		if body == "body" {
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(resp.Body, make([]byte, 5)); err != nil {
				t.Fatal(err)
			}
			<-begun
			cancel(cause)
			_, err = resp.Body.Read(make([]byte, 1))
			resp.Body.Close()
		}
		if !errors.Is(err, cause) {
			t.Errorf("%s: %v", body, err)
		}
		<-gone
		if _, err := c.RoundTrip(request(t, ctx, s.URL, "")); !errors.Is(err, cause) {
			t.Errorf("with an ended context: %v", err)
		}
	}
	if c.take(addr(t, s.URL), 0) != nil {
		t.Error("a connection that was cut off is kept")
	}
}

// Close gives up what was not read, and its connection.
func TestClose(t *testing.T) {
	url, conns := answer(t, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nab", false)
	c := newClient(t)
	for range 2 {
		resp, err := c.RoundTrip(request(t, t.Context(), url, ""))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		resp.Body.Close()
		if _, err := io.ReadAll(resp.Body); err == nil {
			t.Error("a closed reply goes on")
		}
	}
	if n := conns.Load(); n != 2 {
		t.Errorf("%d connections, expected 2", n)
	}
}

func TestRefused(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	c := newClient(t)
	var op *net.OpError
	if _, _, err := post(t, c, "http://"+l.Addr().String(), "x"); !errors.As(err, &op) || op.Op != "dial" {
		t.Errorf("%v, expected an error of the dial", err)
	}
}

// pipe is a connection that only reads.
type pipe struct {
	net.Conn
	io.Reader
}

func (p pipe) Read(b []byte) (int, error)  { return p.Reader.Read(b) }
func (p pipe) Write(b []byte) (int, error) { return len(b), nil }
func (p pipe) SetDeadline(time.Time) error { return nil }
func (p pipe) Close() error                { return nil }

// Whatever a server sends is understood in the same way however it is cut into reads.
func FuzzReply(f *testing.F) {
	for _, s := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n1\r\na\r\n0\r\nX: y\r\n\r\n",
		"HTTP/1.0 404 x\n\nab", "HTTP/1.1 204 OK\r\n\r\nab",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		read := func(r io.Reader) (status int, body []byte, err error) {
			resp, err := newConn(pipe{nil, r}, New(&http.Client{}), "").exchange(request(t, t.Context(), "http://a",
				""))
			if err != nil {
				return 0, nil, err
			}
			body, err = io.ReadAll(resp.Body)
			return resp.StatusCode, body, err
		}
		status, body, err := read(bytes.NewReader(stream))
		status2, body2, err2 := read(iotest.OneByteReader(bytes.NewReader(stream)))
		if status != status2 || !bytes.Equal(body, body2) || (err == nil) != (err2 == nil) {
			t.Fatalf("whole %d %q %v, byte by byte %d %q %v", status, body, err, status2, body2, err2)
		}
	})
}

// roundTrip sends a request of any kind and reads the whole reply.
func roundTrip(t *testing.T, c *Client, method, url string, body io.Reader) (*http.Response, string, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Own", "1")
	resp, err := c.RoundTrip(r)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp, string(text), err
}

// Requests of any method pass over one connection, with headers and trailers;
// those with a body that can be read once only are left to the http.Client.
func TestRoundTrip(t *testing.T) {
	s, conns := counted(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Query().Has("after") {
			w.Header().Set("Trailer", "X-After")
		}
		w.Header().Set("X-Method", r.Method+r.Header.Get("X-Own"))
		switch r.URL.Path {
		case "/none":
			w.WriteHeader(http.StatusNoContent)
			return
		case "/early":
			w.WriteHeader(http.StatusEarlyHints)
		}
		io.WriteString(w, r.URL.RawQuery+string(body))
		w.(http.Flusher).Flush()
		if r.URL.Query().Has("after") {
			w.Header().Set("X-After", "end")
		}
	})
	c := newClient(t)
	for _, q := range []struct {
		method, uri, body, want, after string
		status                         int
	}{
		{"GET", "/?a=b", "", "a=b", "", 200}, {"POST", "/", "body", "body", "", 200}, {"HEAD", "/", "", "", "", 200},
		{"DELETE", "/none", "", "", "", 204}, {"PUT", "/early", "x", "x", "", 200},
		{"POST", "/?after", "x", "afterx", "end", 200},
	} {
		resp, text, err := roundTrip(t, c, q.method, s.URL+q.uri, strings.NewReader(q.body))
		if err != nil || resp.StatusCode != q.status || text != q.want || resp.Header.Get("X-Method") != q.method+"1" ||
			resp.Trailer.Get("X-After") != q.after {
			t.Errorf("%s %s: %+v %q, %v", q.method, q.uri, resp, text, err)
		}
	}
	if n := conns.Load(); n != 1 {
		t.Errorf("%d connections, expected 1", n)
	}
	for _, body := range []io.Reader{io.MultiReader(strings.NewReader("once")),
		strings.NewReader(strings.Repeat("x", maxWhole+1))} {
		if _, text, err := roundTrip(t, c, "POST", s.URL, body); err != nil || text != "once" &&
			len(text) != maxWhole+1 {
			t.Errorf("%q, %v", text, err)
		}
	}
	if n := conns.Load(); n != 2 {
		t.Errorf("%d connections, expected one more, the http.Client's", n)
	}
}
