// Package wire implements the HTTP client of a load generator, which sends many requests to few servers. The goroutine
// that calls RoundTrip writes the request and reads the reply itself, on a connection of its own. So a streamed token
// wakes one goroutine; with [http.Transport] it wakes two.
//
//	c := wire.New(httpClient)
//	defer c.CloseIdle()
//	resp, err := c.RoundTrip(request)
//	defer resp.Body.Close()
//
// The client speaks plain HTTP/1.1. It leaves all other requests (https, proxies, passwords in URLs) to the
// http.Client. The end of the context cuts a request off, at any time.
//
// The client never sends a request twice. It retries, on another connection, only if no byte of the request was written
// ([Unsent]); the caller decides on other retries. A connection is used again only if its reply was read to the end, no
// byte came after it, and it has been idle for at least 10 ms and less than 3 s.
package wire

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"

	"lorasim/internal/direct"
)

// A Client is an http.RoundTripper.
type Client struct {
	base http.RoundTripper
	dial func(ctx context.Context, network, addr string) (net.Conn, error)
	rest time.Duration // see the constant

	mu      sync.Mutex // guards what follows
	pools   map[string]*pool
	reaper  *time.Timer
	reaping bool
	closed  bool
	stats   Stats
}

// New returns a client that connects as base's http.Transport does. If base has another kind of transport, the client
// leaves all requests to base.
func New(base *http.Client) *Client {
	c := &Client{base: cmp.Or(base.Transport, http.DefaultTransport), rest: rest, pools: map[string]*pool{}}
	if t, ok := base.Transport.(*http.Transport); ok {
		if c.dial = t.DialContext; c.dial == nil {
			c.dial = new(net.Dialer).DialContext
		}
	}
	return c
}

func hostPort(u *url.URL) string {
	if u.Port() != "" {
		return u.Host
	}
	return net.JoinHostPort(u.Hostname(), "80")
}

// plain reports whether the client can do a request itself. The host must be valid as it stands in the URL: a name in
// ASCII, or an address without a zone.
func (c *Client) plain(req *http.Request) bool {
	unfit := func(r rune) bool { return r <= ' ' || r > '~' || r == '%' }
	if u := req.URL; c.dial == nil || u.Scheme != "http" || u.User != nil || u.Host == "" ||
		strings.ContainsFunc(u.Host, unfit) {
		return false
	}
	proxy := c.base.(*http.Transport).Proxy
	if proxy == nil {
		return true
	}
	by, err := proxy(req)
	return by == nil && err == nil
}

// maxWhole is the longest body that is written before the answer is read: a server
// that does not take it in would block both.
const maxWhole = 64 << 10

var writers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, 4*bufferSize) }}

// readers are shared, so that connections at rest cost no memory and no cache.
var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, bufferSize) }}

// unsent is the error of a request of which nothing was written.
type unsent struct{ error }

func (e *unsent) Unwrap() error { return e.error }

// Unsent reports whether err is the error of a request that failed before any byte of it was written. No server can
// have executed such a request.
func Unsent(err error) bool {
	_, ok := errors.AsType[*unsent](err)
	return ok
}

// NotSent marks the error of a request that its sender gave up before it was written, so that [Unsent] reports it.
func NotSent(err error) error { return &unsent{err} }

// RoundTrip implements http.RoundTripper. It leaves requests to the http.Client if their body is long or can be read
// only once, or if they change the protocol. If the context has ended, the error is the context's cause.
func (c *Client) RoundTrip(r *http.Request) (*http.Response, error) {
	none := r.Body == nil || r.Body == http.NoBody
	if !c.plain(r) || !none && (r.GetBody == nil || r.ContentLength > maxWhole) || r.Header["Upgrade"] != nil {
		return c.leave(r)
	}
	ctx, addr := r.Context(), hostPort(r.URL)
	process := processOf(ctx)
	for {
		if ctx.Err() != nil { // nothing is sent then
			return nil, context.Cause(ctx)
		}
		conn := c.take(addr, process.ID)
		kept := conn != nil
		if !kept {
			nc, err := c.dial(ctx, "tcp", addr)
			if err != nil {
				return nil, cmp.Or(context.Cause(ctx), error(&unsent{err}))
			}
			if err := process.confirm(ctx); err != nil {
				nc.Close()
				return nil, cmp.Or(context.Cause(ctx), error(&unsent{err}))
			}
			conn = newConn(nc, c, addr)
			conn.process = process.ID
			c.opened()
		}
		conn.kept = kept
		resp, err := conn.exchange(r)
		if err == nil {
			return resp, nil
		}
		if !kept || !Unsent(err) || ctx.Err() != nil {
			return nil, cmp.Or(context.Cause(ctx), err)
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

func (c *Client) opened() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Opened++
}

// conn is a connection, which one request at a time has to itself.
type conn struct {
	net.Conn
	of    *Client
	addr  string
	in    *bufio.Reader // nil while it is idle: there is nothing in it
	head  int           // bytes that a head may still have; -1: none is read
	since time.Time     // when it became idle
	kept  bool          // it has served before

	process int64 // for which it was opened; 0: any
	wrote   bool  // some of the present request
	unfit   error // why the latest write did not take place; net/http does not hand it on as it is

	raw    syscall.RawConn // nil: it is no socket
	look   func(fd uintptr) bool
	looked error // of the latest look
}

const (
	bufferSize = 4096
	maxHead    = 64 << 10 // bytes of a reply before its body; Envoy's default is 60 KiB
	maxEarly   = 5        // replies of status 1xx before the reply; as in http.Transport
)

var (
	errNoReply  = errors.New("the connection was closed before a reply came")
	errLongHead = fmt.Errorf("the head of the reply is longer than %d bytes", maxHead)
	errEarly    = fmt.Errorf("more than %d replies of status 1xx", maxEarly)
)

func newConn(nc net.Conn, of *Client, addr string) *conn {
	if tc, ok := nc.(*net.TCPConn); ok {
		nc = direct.New(tc)
	}
	c := &conn{Conn: nc, of: of, addr: addr}
	c.watch()
	return c
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.head >= 0 {
		if c.head -= n; c.head < 0 {
			c.head = 0 // and again, whoever passes over the error
			return 0, errLongHead
		}
	}
	return n, err
}

// expire ends all waits for the connection.
func (c *conn) expire() { c.SetDeadline(time.Unix(1, 0)) }

// Write implements io.Writer. On a connection that has served before, it checks right before each write for bytes that
// have come: bytes that come before the whole request was written are no reply to it.
func (c *conn) Write(p []byte) (int, error) {
	if c.kept {
		if c.unfit = c.check(); c.unfit != nil {
			return 0, c.unfit
		}
	}
	n, err := c.Conn.Write(p)
	c.wrote = c.wrote || n > 0
	return n, err
}

// exchange sends a request and reads the head of its reply. It reads the head even if the request could not be sent: a
// server may refuse a request, and close the connection, before it has read it.
func (c *conn) exchange(r *http.Request) (resp *http.Response, err error) {
	b := &body{c: c, ctx: r.Context(), stop: context.AfterFunc(r.Context(), c.expire)}
	defer func() {
		if err != nil {
			b.release(false)
		}
	}()
	c.wrote, c.unfit = false, nil
	werr := c.send(r)
	c.in = readers.Get().(*bufio.Reader)
	c.in.Reset(c)
	switch {
	case werr != nil && !c.wrote:
		c.noteUnfit()
		return nil, &unsent{werr}
	case c.unfit != nil:
		return nil, c.unfit
	}
	c.head = maxHead
	var twoLengths bool
	for early := 0; resp == nil; {
		if _, err := c.in.Peek(1); err == io.EOF {
			return nil, cmp.Or(werr, errNoReply)
		} else if err != nil {
			return nil, cmp.Or(werr, err)
		}
		twoLengths = c.twoLengths()
		if resp, err = http.ReadResponse(c.in, r); err != nil {
			return nil, err
		}
		switch code := resp.StatusCode; {
		case code < 100 || code == http.StatusSwitchingProtocols: // nobody asked for another protocol
			return nil, fmt.Errorf("a reply of status %d", code)
		case code < 200: // a provisional one
			if early++; early > maxEarly {
				return nil, errEarly
			}
			resp = nil
		}
	}
	c.head = -1
	chunked := len(resp.TransferEncoding) > 0
	b.of, b.resp, b.keep = resp.Body, resp, werr == nil && !resp.Close && !(chunked && twoLengths)
	if resp.Body == http.NoBody {
		b.release(true)
	} else {
		resp.Body = b
	}
	return resp, nil
}

// noteUnfit counts a connection that could not serve again.
func (c *conn) noteUnfit() {
	switch c.unfit {
	case nil: // it was fit
	case errUnasked:
		c.of.suspect(c.addr)
	default:
		c.of.mu.Lock()
		c.of.stats.Stale++
		c.of.mu.Unlock()
	}
}

var lengthField = []byte("content-length")

// twoLengths reports whether the next head has a Content-Length, or may have one because not all of it has come.
// Beside chunks the two contradict each other (RFC 9112, 6.3), so that the end of the reply is not certain.
func (c *conn) twoLengths() bool {
	head, _ := c.in.Peek(c.in.Buffered())
	for len(head) > 0 {
		end := bytes.IndexByte(head, '\n')
		if end < 0 {
			break
		}
		line := bytes.TrimRight(head[:end], "\r")
		if len(line) == 0 {
			return false // the end of the head
		}
		if name, _, ok := bytes.Cut(line, []byte{':'}); ok && bytes.EqualFold(bytes.TrimSpace(name), lengthField) {
			return true
		}
		head = head[end+1:]
	}
	return true
}

func (c *conn) send(r *http.Request) error {
	w := writers.Get().(*bufio.Writer)
	defer writers.Put(w)
	w.Reset(c)
	defer w.Reset(nil)
	if err := r.Write(w); err != nil {
		return err
	}
	return w.Flush()
}

// body is that of a reply. It is read by one goroutine at a time; Close may be
// called from any.
type body struct {
	ctx      context.Context
	of       io.Reader
	resp     *http.Response
	c        *conn
	stop     func() bool // ends the watch over ctx
	keep     bool        // the connection can serve again after this reply
	released sync.Once
	err      error // of the read that ended it
}

// Read implements io.Reader. Its error is the context's cause if that has ended.
func (b *body) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.of.Read(p)
	if err == nil {
		return n, nil
	}
	if b.err = err; err != io.EOF {
		b.err = cmp.Or(context.Cause(b.ctx), err)
	}
	b.release(err == io.EOF)
	return n, b.err
}

// Close discards the rest of the body.
func (b *body) Close() error {
	b.release(false)
	return nil
}

// release ends the use of the connection. The connection can serve again if the reply was read to its end, without
// trailers, and no byte came after it.
func (b *body) release(whole bool) {
	b.released.Do(func() {
		c := b.c
		watched := b.stop()
		unasked := whole && c.in.Buffered() > 0
		if unasked {
			c.of.suspect(c.addr)
		}
		if !watched || !whole || unasked || !b.keep || len(b.resp.Trailer) > 0 {
			c.Close()
			return
		}
		in := c.in
		c.in = nil
		in.Reset(nil)
		readers.Put(in)
		c.of.put(c)
	})
}
