// Package halfclose lets clients of an http.Server close their side of the connection after the request
// (shutdown(SHUT_WR)) and still get the response.
//
//	srv := &http.Server{Handler: halfclose.Handler(h), ConnContext: halfclose.ConnContext}
//	srv.Serve(halfclose.Listener(l))
//
// TCP sends the same FIN for a client that closes its side and for a client that is gone, and net/http treats both
// as gone. This package hides the end of the input from net/http while a request is served, until the connection
// turns out to be dead. A client that is gone answers data with a reset, so each part of the response is a probe. If
// none was sent for a moment, the interim response "100 Continue" is the probe (RFC 9110, 15.2: a client must be
// able to skip it).
package halfclose

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"lorasim/internal/direct"
)

// Listener returns a listener whose TCP connections survive the end of their input.
func Listener(l net.Listener) net.Listener { return listener{l} }

type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if tc, ok := nc.(*net.TCPConn); ok && err == nil {
		return &conn{Conn: direct.New(tc), wake: make(chan struct{}, 1)}, nil
	}
	return nc, err
}

type contextKey struct{}

// ConnContext is the ConnContext function of the http.Server.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	if c, ok := c.(*conn); ok {
		return context.WithValue(ctx, contextKey{}, c)
	}
	return ctx
}

// Handler returns a handler that calls h and records which requests may get an interim response.
func Handler(h http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(contextKey{}).(*conn); ok {
			c.begin(r)
		}
		h.ServeHTTP(rw, r)
	})
}

// States of the request that a connection serves.
const (
	unknown  = iota // the handler has not begun
	silent          // no part of the response was sent
	answered        // part of the response was sent
	tooOld          // HTTP/1.0 has no interim responses: a client that closes its side counts as gone
)

type conn struct {
	*direct.Conn
	wake  chan struct{} // cap 1: the deadline has changed, or the connection was closed
	state atomic.Int32  // written with mu held

	mu       sync.Mutex // held while something is written
	deadline time.Time  // of reads
	closed   bool
}

func (c *conn) begin(r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.Store(silent); !r.ProtoAtLeast(1, 1) {
		c.state.Store(tooOld)
	}
}

// Read reads from the connection. While net/http serves a request whose body was read, it reads a single byte to
// notice that the client is gone. Read hides the end of the input in this case only. (If a later net/http changes
// this, such clients count as gone again.)
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if len(p) == 1 && errors.Is(err, io.EOF) {
		return 0, c.outlive()
	}
	return n, err
}

func (c *conn) Write(p []byte) (int, error) {
	c.answer()
	return c.Conn.Write(p)
}

func (c *conn) ReadFrom(r io.Reader) (int64, error) {
	c.answer()
	return c.TCPConn.ReadFrom(r)
}

// answer records that part of the response follows. It waits until a probe in progress is sent.
func (c *conn) answer() {
	if c.state.Load() == silent {
		c.mu.Lock()
		c.state.CompareAndSwap(silent, answered)
		c.mu.Unlock()
	}
}

// Delay of the first probe of a silent connection after the end of the input, interval of further probes, and time
// for which the state of the connection is trusted.
const (
	firstProbe = 500 * time.Millisecond
	nextProbe  = 15 * time.Second
	firstLook  = 5 * time.Millisecond
	maxLook    = 100 * time.Millisecond
)

// outlive waits after the end of the input. It returns the error that ends the wait.
func (c *conn) outlive() error {
	look, probe := firstLook, time.Now().Add(firstProbe)
	timer := time.NewTimer(look)
	defer timer.Stop()
	for {
		select {
		case <-c.wake:
		case <-timer.C:
		}
		c.mu.Lock()
		deadline, closed := c.deadline, c.closed
		c.mu.Unlock()
		now := time.Now()
		switch {
		case closed:
			return net.ErrClosed
		case !deadline.IsZero() && !now.Before(deadline):
			return os.ErrDeadlineExceeded
		case c.state.Load() == tooOld || c.dead():
			return io.EOF
		}
		if !now.Before(probe) {
			c.probe()
			probe, look = now.Add(nextProbe), firstLook
		}
		timer.Reset(look)
		look = min(2*look, maxLook)
	}
}

// probe sends an interim response, unless the response has begun.
func (c *conn) probe() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.Load() == silent {
		io.WriteString(c.Conn, "HTTP/1.1 100 Continue\r\n\r\n") // what fails is seen by dead
	}
}

// dead reports whether the other end has sent a reset.
func (c *conn) dead() bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	var errno int
	cerr := raw.Control(func(fd uintptr) {
		errno, err = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET,
			syscall.SO_ERROR)
	})
	return cerr != nil || err != nil || errno != 0
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.note(t)
	return c.TCPConn.SetReadDeadline(t)
}

func (c *conn) SetDeadline(t time.Time) error {
	c.note(t)
	return c.TCPConn.SetDeadline(t)
}

func (c *conn) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.signal()
	return c.TCPConn.Close()
}

func (c *conn) note(deadline time.Time) {
	c.mu.Lock()
	c.deadline = deadline
	c.mu.Unlock()
	c.signal()
}

func (c *conn) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}
