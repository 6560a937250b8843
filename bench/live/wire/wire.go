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
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
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
	t := &Target{url: rawURL, header: header.Clone()}
	if !c.plain(req) {
		return t, nil
	}
	if t.addr = req.URL.Host; req.URL.Port() == "" {
		t.addr = net.JoinHostPort(req.URL.Hostname(), "80")
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

// plain says whether the client can do a request itself.
func (c *Client) plain(req *http.Request) bool {
	if c.dial == nil || req.URL.Scheme != "http" || req.URL.User != nil || !plainHost(req.URL) {
		return false
	}
	proxy := c.base.Transport.(*http.Transport).Proxy
	if proxy == nil {
		return true
	}
	by, err := proxy(req)
	return by == nil && err == nil
}

// plainHost says whether the host can be sent as it stands in the URL: a name in
// ASCII, or an address without a zone.
func plainHost(u *url.URL) bool {
	return u.Host != "" && !strings.ContainsFunc(u.Host, func(r rune) bool { return r <= ' ' || r > '~' || r == '%' })
}

// Post sends a body to a target. It returns once the head of the reply is there.
func (c *Client) Post(ctx context.Context, t *Target, body []byte) (*Reply, error) {
	if t.head == nil {
		return c.viaBase(ctx, t, body)
	}
	if ctx.Err() != nil { // nothing is sent then
		return nil, context.Cause(ctx)
	}
	conn, err := c.connect(ctx, t.addr)
	if err != nil {
		return nil, because(ctx, err)
	}
	r := &Reply{c: conn, ctx: ctx, stop: context.AfterFunc(ctx, conn.expire)}
	if err := conn.exchange(t, body, r); err != nil {
		r.release(false)
		return nil, because(ctx, err)
	}
	return r, nil
}

func (c *Client) viaBase(ctx context.Context, t *Target, body []byte) (*Reply, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	for k, v := range t.header {
		req.Header[k] = v
	}
	resp, err := c.base.Do(req)
	if err != nil {
		return nil, err
	}
	return &Reply{Status: resp.StatusCode, ctx: ctx, body: resp.Body}, nil
}

// because is the cause for which the context ended, or, if it has not, err.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// connect returns a connection: an idle one, or a new one.
func (c *Client) connect(ctx context.Context, addr string) (*conn, error) {
	for {
		idle := c.take(addr)
		if idle == nil {
			break
		}
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
	list[last] = nil
	c.idle[addr] = list[:last]
	return idle
}

func (c *Client) put(idle *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	idle.since = time.Now()
	c.idle[idle.addr] = append(c.idle[idle.addr], idle)
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

// Reply is the answer to a request. Its body is read from it, by one goroutine at
// a time; Close may be called from any.
type Reply struct {
	Status int

	ctx  context.Context
	body io.Reader

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
	if err == nil {
		return n, nil
	}
	if err != io.EOF {
		err = because(r.ctx, err)
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
		r.c.of.put(r.c)
	})
}
