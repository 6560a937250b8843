// Package wire is the HTTP client of a load generator: it sends many requests to
// few servers. A request is written, and its reply read, by the goroutine that
// asks for it, on a connection that it has to itself, so that a streamed token
// wakes one goroutine; [http.Transport] wakes two.
//
//	c := wire.New(httpClient)
//	defer c.CloseIdle()
//	resp, err := c.RoundTrip(request)
//	defer resp.Body.Close()
//
// It speaks plain HTTP/1.1. What else there is (https, proxies, passwords in
// URLs) it leaves to the http.Client. As there, a connection serves again once
// its reply was read to the end, and the end of the context cuts a request off,
// at any time.
package wire

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Client is an http.RoundTripper.
type Client struct {
	// Resend: a request whose kept connection turns out to be closed is sent again,
	// once, as http.Transport does it; else whether it may be is for the caller to say.
	Resend bool

	base http.RoundTripper
	dial func(ctx context.Context, network, addr string) (net.Conn, error)

	mu   sync.Mutex
	idle map[string][]*conn // by address; the last was used last
}

// New returns a client that connects as base's http.Transport does. With another
// kind of transport all is left to that.
func New(base *http.Client) *Client {
	c := &Client{base: cmp.Or(base.Transport, http.DefaultTransport), idle: map[string][]*conn{}}
	if t, ok := base.Transport.(*http.Transport); ok {
		if c.dial = t.DialContext; c.dial == nil {
			c.dial = new(net.Dialer).DialContext
		}
	}
	return c
}

func hostPort(u *url.URL) string { return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "80")) }

// plain says whether the client can do a request itself. Its host must be fit to
// be sent as it stands in the URL: a name in ASCII, or an address without a zone.
func (c *Client) plain(req *http.Request) bool {
	unfit := func(r rune) bool { return r <= ' ' || r > '~' || r == '%' }
	if u := req.URL; c.dial == nil || u.Scheme != "http" || u.User != nil || u.Host == "" || strings.ContainsFunc(u.Host, unfit) {
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

var writers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, bufferSize) }}

// RoundTrip implements http.RoundTripper. A body that is long, or can be read only
// once, it leaves to the http.Client, and so a change of protocols. Errors are the
// context's cause if that has ended.
func (c *Client) RoundTrip(r *http.Request) (*http.Response, error) {
	none := r.Body == nil || r.Body == http.NoBody
	if !c.plain(r) || !none && (r.GetBody == nil || r.ContentLength > maxWhole) || r.Header["Upgrade"] != nil {
		return c.base.RoundTrip(r)
	}
	ctx, addr := r.Context(), hostPort(r.URL)
	for {
		if ctx.Err() != nil { // nothing is sent then
			return nil, context.Cause(ctx)
		}
		conn, err := c.connect(ctx, addr)
		if err != nil {
			return nil, cmp.Or(context.Cause(ctx), err)
		}
		kept := !conn.since.IsZero()
		resp, err := conn.exchange(r)
		if err == nil {
			return resp, nil
		}
		closed := errors.Is(err, errNoReply) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
		if !c.Resend || !kept || !closed || ctx.Err() != nil {
			return nil, cmp.Or(context.Cause(ctx), err)
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
	head  int       // bytes that a head may still have; -1: none is read
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
			c.head = 0 // and again, whoever passes over the error
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
func (c *conn) exchange(r *http.Request) (resp *http.Response, err error) {
	b := &body{c: c, ctx: r.Context(), stop: context.AfterFunc(r.Context(), c.expire)}
	defer func() {
		if err != nil {
			b.release(false)
		}
	}()
	werr := c.send(r)
	c.head = maxHead
	if _, err := c.in.Peek(1); err == io.EOF {
		return nil, cmp.Or(werr, errNoReply)
	} else if err != nil {
		return nil, cmp.Or(werr, err)
	}
	for resp == nil || resp.StatusCode < 200 && resp.StatusCode != http.StatusSwitchingProtocols { // provisional ones first
		if resp, err = http.ReadResponse(c.in, r); err != nil {
			return nil, err
		}
	}
	c.head = -1
	b.of, b.keep = resp.Body, werr == nil && !resp.Close && resp.StatusCode >= 200
	if resp.Body == http.NoBody {
		b.release(true)
	} else {
		resp.Body = b
	}
	return resp, nil
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

// Close gives up what was not read.
func (b *body) Close() error {
	b.release(false)
	return nil
}

// release ends the use of the connection.
func (b *body) release(whole bool) {
	b.released.Do(func() {
		c := b.c
		if watched := b.stop(); !watched || !whole || !b.keep || c.in.Buffered() > 0 {
			c.Close()
			return
		}
		c.since = time.Now()
		c.of.mu.Lock()
		defer c.of.mu.Unlock()
		c.of.idle[c.addr] = append(c.of.idle[c.addr], c)
	})
}
