// Package direct reads and writes TCP connections with less processor time than net does.
//
// Before each system call of net, Go's scheduler prepares for a call that blocks. If the program was idle, the first
// call wakes the scheduler's monitor thread. That thread then wakes every 20 us until the program is idle again. A
// proxy of streams is idle between any two tokens. The calls of this package never block, so the scheduler does not
// learn of them.
//
// On systems other than Linux on amd64 and arm64, and under the race detector, a Conn is its [net.TCPConn].
package direct

import (
	"net"
	"os"
	"sync"
	"syscall"
)

// A Conn is a TCP connection. Its methods do what those of [net.TCPConn] do, and return the same errors.
type Conn struct {
	*net.TCPConn
	reading, writing transfer
}

// New returns a connection that takes c over.
func New(c *net.TCPConn) *Conn {
	k := &Conn{TCPConn: c}
	if raw, err := c.SyscallConn(); isDirect && err == nil {
		k.reading.raw, k.writing.raw = raw, raw
		k.reading.step, k.writing.step = k.reading.receive, k.writing.send
	}
	return k
}

// transfer is a read or a write under way.
type transfer struct {
	mu   sync.Mutex // one read and one write at a time
	raw  syscall.RawConn
	step func(fd uintptr) (done bool)
	p    []byte
	n    int // bytes of p that are done
	err  error
}

// run moves the bytes of p.
func (t *transfer) run(wait func(func(uintptr) bool) error, p []byte) (n int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.p, t.n, t.err = p, 0, nil
	err = wait(t.step) // of a connection that is closed, or whose deadline has passed
	t.p = nil          // the caller's
	if err == nil {
		err = t.err
	}
	return t.n, err
}

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	t := &c.reading
	if t.raw == nil || len(p) == 0 {
		return c.TCPConn.Read(p)
	}
	n, err := t.run(t.raw.Read, p)
	return n, c.named("read", err)
}

// Write implements net.Conn.
func (c *Conn) Write(p []byte) (int, error) {
	t := &c.writing
	if t.raw == nil || len(p) == 0 {
		return c.TCPConn.Write(p)
	}
	n, err := t.run(t.raw.Write, p)
	return n, c.named("write", err)
}

// named returns the error that net returns for an operation.
func (c *Conn) named(op string, err error) error {
	switch e := err.(type) {
	case *net.OpError: // of the wait
		err = e.Err
	case syscall.Errno:
		err = os.NewSyscallError(op, e)
	default: // nil, or the end of the input
		return err
	}
	return &net.OpError{Op: op, Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}
