// Package memnet is a network in memory, for tests of HTTP clients and servers. Its connections are pipes, so in a
// bubble of testing/synctest all waits use the fake clock. Tests therefore behave the same on any machine.
//
//	synctest.Test(t, func(t *testing.T) {
//		n := memnet.New()
//		h := n.Serve("worker0", handler)
//		defer h.Kill()
//		client := &http.Client{Transport: n.Transport()}
//		defer client.CloseIdleConnections()
//		client.Get(h.URL)
//	})
package memnet

import (
	"context"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
)

// A Network is a set of hosts by name. Connections to unknown hosts are refused.
type Network struct {
	mu    sync.Mutex
	hosts map[string]*Host
}

// New returns a network without hosts.
func New() *Network { return &Network{hosts: map[string]*Host{}} }

// A Host is one HTTP server.
type Host struct {
	URL string

	name    string
	srv     *http.Server
	backlog chan net.Conn
	ended   chan struct{}
	end     sync.Once
	frozen  atomic.Bool
}

// Serve starts a host. The name may be the name of a killed host, which the new one replaces.
func (n *Network) Serve(name string, handler http.Handler) *Host {
	h := &Host{URL: "http://" + name, name: name, srv: &http.Server{Handler: handler}, backlog: make(chan net.Conn),
		ended: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts[name] = h
	go h.srv.Serve(listener{h})
	return h
}

// Kill ends a host as the end of its process would: its connections break, and new ones are refused.
func (h *Host) Kill() {
	listener{h}.Close()
	h.srv.Close()
}

// Shutdown ends a host as servers end on SIGTERM: it refuses connections, and returns when the replies under way have
// ended, or ctx.
func (h *Host) Shutdown(ctx context.Context) error { return h.srv.Shutdown(ctx) }

// Freeze makes a host hang as a stopped process does: it accepts connections, but sends nothing until it is killed.
func (h *Host) Freeze() { h.frozen.Store(true) }

// Transport returns an HTTP transport that connects to the hosts of the network only.
func (n *Network) Transport() *http.Transport { return &http.Transport{DialContext: n.dial} }

func (n *Network) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	name, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	h := n.hosts[name]
	n.mu.Unlock()
	refused := &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	if h == nil {
		return nil, refused
	}
	near, far := net.Pipe()
	select {
	case h.backlog <- &conn{far, h}:
		return near, nil
	case <-h.ended:
		return nil, refused
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// listener is the net.Listener of a host.
type listener struct{ *Host }

func (l listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.backlog:
		return c, nil
	case <-l.ended:
		return nil, net.ErrClosed
	}
}

func (l listener) Close() error {
	l.end.Do(func() { close(l.ended) })
	return nil
}

func (l listener) Addr() net.Addr { return l }
func (listener) Network() string  { return "memory" }
func (l listener) String() string { return l.name }

// conn is the server's end of a connection.
type conn struct {
	net.Conn
	host *Host
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.host.hang() {
		return 0, net.ErrClosed
	}
	return n, err
}

func (c *conn) Write(b []byte) (int, error) {
	if c.host.hang() {
		return 0, net.ErrClosed
	}
	return c.Conn.Write(b)
}

// hang returns false at once if the host is not frozen. Otherwise it waits until the host is killed and returns
// true.
func (h *Host) hang() bool {
	if h.frozen.Load() {
		<-h.ended
		return true
	}
	return false
}
