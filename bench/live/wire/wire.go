// Package wire is the HTTP client of a load generator: it posts many requests to
// few servers. A request is written, and its reply read, by the goroutine that
// asks for it, on a connection that it has to itself, so that a streamed token
// wakes one goroutine; [http.Transport] wakes two, and spends more on headers
// than the rest of such a request takes.
//
//	c := wire.New(httpClient)
//	defer c.CloseIdle()
//	t, err := c.Target("http://gpu0:30000/generate", header)
//	reply, err := c.Post(ctx, t, body)
//	defer reply.Close()
//
// It speaks plain HTTP/1.1. What else there is (https, proxies, passwords in
// URLs) it leaves to the http.Client. As there, a connection serves again once
// its reply was read to the end, and the end of the context cuts a request off,
// at any time. A request whose connection breaks is never sent again: whether it
// may be is for the caller to say.
package wire

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Client posts requests.
type Client struct {
	base *http.Client
	dial func(ctx context.Context, network, addr string) (net.Conn, error)

	mu   sync.Mutex
	idle map[string][]*conn // by address; the last was used last
}

// New returns a client that connects as base's http.Transport does. With another
// kind of transport all is left to base.
func New(base *http.Client) *Client {
	c := &Client{base: base, idle: map[string][]*conn{}}
	if t, ok := base.Transport.(*http.Transport); ok {
		if c.dial = t.DialContext; c.dial == nil {
			c.dial = new(net.Dialer).DialContext
		}
	}
	return c
}

// Target is what requests are posted to.
type Target struct {
	url    string
	header http.Header
	addr   string // to connect to
	head   []byte // of the request up to the length of its body; nil: it is left to the http.Client
}

// Target returns the target with the given URL. The header is sent with every
// request.
func (c *Client) Target(rawURL string, header http.Header) (*Target, error) {
	req, err := http.NewRequest(http.MethodPost, rawURL, nil)
	if err != nil {
		return nil, err
	}
	t := &Target{url: rawURL, header: header.Clone(), addr: hostPort(req.URL)}
	if !c.plain(req) {
		return t, nil
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "POST %s HTTP/1.1\r\nHost: %s\r\n", req.URL.RequestURI(), req.URL.Host)
	if err := header.WriteSubset(&b, map[string]bool{"Host": true, "Content-Length": true, "Transfer-Encoding": true}); err != nil {
		return nil, err
	}
	b.WriteString("Content-Length: ")
	t.head = b.Bytes()
	return t, nil
}

func hostPort(u *url.URL) string { return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "80")) }

// plain says whether the client can do a request itself. Its host must be fit to
// be sent as it stands in the URL: a name in ASCII, or an address without a zone.
func (c *Client) plain(req *http.Request) bool {
	unfit := func(r rune) bool { return r <= ' ' || r > '~' || r == '%' }
	if u := req.URL; c.dial == nil || u.Scheme != "http" || u.User != nil || u.Host == "" || strings.ContainsFunc(u.Host, unfit) {
		return false
	}
	proxy := c.base.Transport.(*http.Transport).Proxy
	if proxy == nil {
		return true
	}
	by, err := proxy(req)
	return by == nil && err == nil
}

var bodies = sync.Pool{New: func() any { return new([]byte) }}

// Post sends a body to a target. It returns once the head of the reply is there.
func (c *Client) Post(ctx context.Context, t *Target, body []byte) (*Reply, error) {
	if t.head == nil {
		return c.viaBase(ctx, t, body)
	}
	if ctx.Err() != nil { // nothing is sent then
		return nil, context.Cause(ctx)
	}
	_, r, err := c.exchange(ctx, t.addr, nil, func(conn *conn) error {
		buf := bodies.Get().(*[]byte)
		defer bodies.Put(buf)
		*buf = strconv.AppendInt(append((*buf)[:0], t.head...), int64(len(body)), 10)
		*buf = append(append(*buf, "\r\n\r\n"...), body...)
		_, err := conn.Write(*buf)
		return err
	})
	return r, err
}

func (c *Client) viaBase(ctx context.Context, t *Target, body []byte) (*Reply, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, t.header)
	resp, err := c.base.Do(req)
	if err != nil {
		return nil, err
	}
	return &Reply{Status: resp.StatusCode, ctx: ctx, body: resp.Body}, nil
}

// maxWhole is the longest body that is written before the answer is read: a server
// that does not take it in would block both.
const maxWhole = 64 << 10

var writers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, bufferSize) }}

// RoundTrip implements http.RoundTripper as Post does it, for any method and
// header. A body that is long, or can be read only once, it leaves to the
// http.Client, and so a change of protocols. A kept connection that turns out to
// be closed is replaced once, as http.Transport does it.
func (c *Client) RoundTrip(r *http.Request) (*http.Response, error) {
	none := r.Body == nil || r.Body == http.NoBody
	if !c.plain(r) || !none && (r.GetBody == nil || r.ContentLength > maxWhole) || r.Header["Upgrade"] != nil {
		return cmp.Or(c.base.Transport, http.DefaultTransport).RoundTrip(r)
	}
	ctx, addr := r.Context(), hostPort(r.URL)
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		kept := false
		resp, reply, err := c.exchange(ctx, addr, r, func(conn *conn) error {
			kept = !conn.since.IsZero()
			w := writers.Get().(*bufio.Writer)
			defer writers.Put(w)
			w.Reset(conn)
			defer w.Reset(nil)
			if err := r.Write(w); err != nil {
				return err
			}
			return w.Flush()
		})
		if err == nil {
			if resp.Body != http.NoBody {
				resp.Body = reply
			}
			return resp, nil
		}
		closed := errors.Is(err, errNoReply) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
		if !kept || !closed || ctx.Err() != nil {
			return nil, err
		}
		for idle := c.take(addr); idle != nil; idle = c.take(addr) {
			idle.Close() // they are as old
		}
		if !none {
			again := *r
			if again.Body, err = r.GetBody(); err != nil {
				return nil, err
			}
			r = &again
		}
	}
}

// exchange sends a request by write and reads the head of its reply, which of a
// failure is the context's cause if that has ended.
func (c *Client) exchange(ctx context.Context, addr string, req *http.Request, write func(*conn) error) (*http.Response, *Reply, error) {
	conn, err := c.connect(ctx, addr)
	if err == nil {
		r := &Reply{c: conn, ctx: ctx, stop: context.AfterFunc(ctx, conn.expire)}
		var resp *http.Response
		if resp, err = conn.exchange(req, write, r); err == nil {
			return resp, r, nil
		}
		r.release(false)
	}
	return nil, nil, cmp.Or(context.Cause(ctx), err)
}

// connect returns a connection: an idle one, or a new one.
func (c *Client) connect(ctx context.Context, addr string) (*conn, error) {
	for idle := c.take(addr); idle != nil; idle = c.take(addr) {
		if idle.usable() {
			return idle, nil
		}
		idle.Close()
	}
	nc, err := c.dial(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return newConn(nc, c, addr), nil
}

func (c *Client) take(addr string) *conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := c.idle[addr]
	if len(list) == 0 {
		return nil
	}
	last := len(list) - 1
	idle := list[last]
	c.idle[addr] = slices.Delete(list, last, last+1)
	return idle
}

// CloseIdle closes the connections that no request uses.
func (c *Client) CloseIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, list := range c.idle {
		for _, idle := range list {
			idle.Close()
		}
	}
	clear(c.idle)
}

// conn is a connection, which one request at a time has to itself.
type conn struct {
	net.Conn
	of    *Client
	addr  string
	in    *bufio.Reader
	head  int       // bytes that a head or trailer may still have; -1: none is read
	since time.Time // when it became idle
}

const (
	bufferSize = 4096
	maxHead    = 1 << 20 // bytes of a reply before its body
)

var (
	errNoReply  = errors.New("the connection was closed before a reply came")
	errLongHead = fmt.Errorf("the head of the reply is longer than %d bytes", maxHead)
)

func newConn(nc net.Conn, of *Client, addr string) *conn {
	c := &conn{Conn: nc, of: of, addr: addr}
	c.in = bufio.NewReaderSize(c, bufferSize)
	return c
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.head >= 0 {
		if c.head -= n; c.head < 0 {
			return 0, errLongHead
		}
	}
	return n, err
}

// expire ends what waits for the connection.
func (c *conn) expire() { c.SetDeadline(time.Unix(1, 0)) }

// freshness is how long an idle connection is taken to be open without a look:
// servers close those that are idle for seconds.
const freshness = 100 * time.Millisecond

// usable says whether an idle connection can serve again: its server has not
// closed it, and has sent nothing that nobody asked for.
func (c *conn) usable() bool {
	sc, ok := c.Conn.(syscall.Conn)
	if !ok || time.Since(c.since) < freshness {
		return true
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	var b [1]byte
	var rerr error
	err = raw.Read(func(fd uintptr) bool {
		_, rerr = syscall.Read(int(fd), b[:])
		return true // do not wait
	})
	return err == nil && errors.Is(rerr, syscall.EAGAIN)
}

// exchange sends a request and reads the head of its reply, even if the request
// could not be sent: a server may refuse it, and close, before it has read it.
// Without req it makes no response, which costs most of what http.Transport does.
func (c *conn) exchange(req *http.Request, write func(*conn) error, r *Reply) (resp *http.Response, err error) {
	werr := write(c)
	c.head = maxHead
	if _, err := c.in.Peek(1); err == io.EOF {
		return nil, cmp.Or(werr, errNoReply)
	} else if err != nil {
		return nil, cmp.Or(werr, err)
	}
	for r.Status < 200 && (req == nil || r.Status != http.StatusSwitchingProtocols) { // provisional ones first
		if req == nil {
			err = c.readHead(r)
		} else if resp, err = http.ReadResponse(c.in, req); err == nil {
			r.Status, r.body, r.keep = resp.StatusCode, resp.Body, !resp.Close && resp.StatusCode >= 200
		}
		if err != nil {
			return nil, err
		}
	}
	c.head = -1
	r.keep = r.keep && werr == nil
	if r.body == http.NoBody {
		r.release(true)
	}
	return resp, nil
}

// readHead reads the head of a reply (RFC 9112, sections 4 to 6).
func (c *conn) readHead(r *Reply) error {
	line, err := c.line()
	if err != nil {
		return err
	}
	version, rest, _ := bytes.Cut(line, []byte(" ")) // as in HTTP/1.1 200 OK
	code, _, _ := bytes.Cut(rest, []byte(" "))
	status, err := strconv.ParseUint(string(code), 10, 16)
	if err != nil || len(code) != 3 || status < 100 || !bytes.HasPrefix(version, []byte("HTTP/1.")) {
		return fmt.Errorf("the reply begins with %.40q, expected the status line of HTTP/1.1", line)
	}
	r.Status, r.keep = int(status), string(version) != "HTTP/1.0"
	length := int64(-1) // not known
	for {
		if line, err = c.line(); err != nil {
			return err
		}
		if len(line) == 0 {
			break
		}
		name, value, ok := bytes.Cut(line, []byte(":"))
		if !ok && line[0] != ' ' && line[0] != '\t' { // else it goes on with the one before, which are not those that matter
			return fmt.Errorf("the header of the reply has the line %.40q, expected NAME: VALUE", line)
		}
		value = bytes.TrimSpace(value)
		switch {
		case is(name, "content-length"):
			n, err := strconv.ParseUint(string(value), 10, 62)
			if err != nil || length >= 0 && length != int64(n) {
				return fmt.Errorf("the reply's Content-Length is %.40q, expected one number", value)
			}
			length = int64(n)
		case is(name, "transfer-encoding"):
			if r.chunked || !is(value, "chunked") {
				return fmt.Errorf("the reply's Transfer-Encoding is %.40q, expected chunked", value)
			}
			r.chunked = true
		case is(name, "connection"):
			for option := range bytes.SplitSeq(value, []byte(",")) {
				r.keep = r.keep && !is(bytes.TrimSpace(option), "close")
			}
		}
	}
	switch {
	case status < 200, status == http.StatusNoContent, status == http.StatusNotModified:
		r.body, r.chunked = http.NoBody, false
	case r.chunked:
		r.body = httputil.NewChunkedReader(c.in)
	case length >= 0:
		r.sized = io.LimitedReader{R: c.in, N: length}
		r.body = &r.sized
	default: // to the end of the connection
		r.body, r.keep = c.in, false
	}
	return nil
}

func is(text []byte, lower string) bool {
	return len(text) == len(lower) && bytes.EqualFold(text, []byte(lower))
}

// line reads a line without its end. Of one that is longer than the buffer it
// returns the beginning. It is valid until the next read.
func (c *conn) line() ([]byte, error) {
	line, err := c.in.ReadSlice('\n')
	if err == bufio.ErrBufferFull {
		line = bytes.Clone(line)
		for err == bufio.ErrBufferFull {
			_, err = c.in.ReadSlice('\n')
		}
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return bytes.TrimRight(line, "\r\n"), err
}

// trailer reads what follows the chunks of a body.
func (c *conn) trailer() error {
	c.head = maxHead
	for {
		if line, err := c.line(); err != nil {
			return err
		} else if len(line) == 0 {
			return io.EOF
		}
	}
}

// Reply is the answer to a request. Its body is read from it, by one goroutine at
// a time; Close may be called from any.
type Reply struct {
	Status int

	ctx  context.Context
	body io.Reader

	sized    io.LimitedReader // body of a known length
	chunked  bool
	c        *conn       // nil: body is the http.Client's
	stop     func() bool // ends the watch over ctx
	keep     bool        // the connection can serve again after this reply
	released sync.Once
	err      error // of the read that ended it
}

// Read reads from the body. Its error is the context's cause if that has ended.
func (r *Reply) Read(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	n, err := r.body.Read(p)
	switch {
	case err == nil:
		return n, nil
	case err == io.EOF && r.sized.N > 0:
		err = io.ErrUnexpectedEOF
	case err == io.EOF && r.chunked:
		err = r.c.trailer()
	}
	if err != io.EOF {
		err = cmp.Or(context.Cause(r.ctx), err)
	}
	r.err = err
	if r.c != nil {
		r.release(err == io.EOF)
	}
	return n, err
}

// Close gives up what was not read.
func (r *Reply) Close() error {
	if r.c == nil {
		return r.body.(io.Closer).Close()
	}
	r.release(false)
	return nil
}

// release ends the use of the connection.
func (r *Reply) release(whole bool) {
	r.released.Do(func() {
		watched := r.stop()
		if !watched || !whole || !r.keep || r.c.in.Buffered() > 0 {
			r.c.Close()
			return
		}
		r.c.since = time.Now()
		r.c.of.mu.Lock()
		defer r.c.of.mu.Unlock()
		r.c.of.idle[r.c.addr] = append(r.c.of.idle[r.c.addr], r.c)
	})
}
