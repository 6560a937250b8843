package wire

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
)

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
		next := c.base.Transport
		if next == nil {
			next = http.DefaultTransport
		}
		return next.RoundTrip(r)
	}
	addr := r.URL.Host
	if r.URL.Port() == "" {
		addr = net.JoinHostPort(r.URL.Hostname(), "80")
	}
	for {
		if err := r.Context().Err(); err != nil {
			return nil, context.Cause(r.Context())
		}
		conn, err := c.connect(r.Context(), addr)
		if err != nil {
			return nil, because(r.Context(), err)
		}
		reply := &Reply{c: conn, ctx: r.Context(), stop: context.AfterFunc(r.Context(), conn.expire)}
		resp, err := conn.roundTrip(r, reply)
		if err == nil {
			return resp, nil
		}
		reply.release(false)
		if conn.since.IsZero() || !closedIdle(err) || r.Context().Err() != nil {
			return nil, because(r.Context(), err)
		}
		c.dropIdle(addr) // they are as old
		if !none {
			again := *r
			if again.Body, err = r.GetBody(); err != nil {
				return nil, err
			}
			r = &again
		}
	}
}

// closedIdle says whether a connection had been closed before the request came.
func closedIdle(err error) bool {
	return errors.Is(err, errNoReply) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// roundTrip sends a request and reads the head of its reply.
func (c *conn) roundTrip(r *http.Request, reply *Reply) (*http.Response, error) {
	w := writers.Get().(*bufio.Writer)
	w.Reset(c)
	werr := r.Write(w)
	if werr == nil {
		werr = w.Flush()
	}
	w.Reset(nil)
	writers.Put(w)
	if _, err := c.in.Peek(1); err != nil {
		switch {
		case werr != nil:
			err = werr
		case err == io.EOF:
			err = errNoReply
		}
		return nil, err
	}
	for {
		resp, err := http.ReadResponse(c.in, r)
		if err != nil {
			return nil, unexpected(err)
		}
		if resp.StatusCode < 200 && resp.StatusCode != http.StatusSwitchingProtocols {
			continue
		}
		reply.keep = !resp.Close && werr == nil && resp.StatusCode >= 200
		if reply.body = resp.Body; resp.Body == http.NoBody {
			reply.release(true)
			return resp, nil
		}
		resp.Body = reply
		return resp, nil
	}
}

// dropIdle closes the idle connections to an address.
func (c *Client) dropIdle(addr string) {
	for idle := c.take(addr); idle != nil; idle = c.take(addr) {
		idle.Close()
	}
}
