package wire

import (
	"errors"
	"io"
	"slices"
	"sort"
	"syscall"
	"time"

	"lorasim/internal/direct"
)

// When a connection serves again. A reply to another request must not be taken for
// the reply to the next one, and the server must not have closed the connection.
const (
	// idleLimit is below the keep-alive timeouts of servers: uvicorn, which is under
	// vLLM and sglang, closes after 5 s.
	idleLimit = 3 * time.Second
	// rest is how long a connection stays idle at least: a second reply that comes
	// within it is seen. It takes more connections, 10 at 1000 requests/s, but not
	// more than maxResting: beyond 3200 requests/s to one server they rest less.
	rest       = 10 * time.Millisecond
	maxResting = 32
	// maxIdle is how many idle connections to one server are kept.
	maxIdle = 1024
	// suspicion is how long no connection to a server serves twice after it has sent
	// bytes that no request asked for.
	suspicion = time.Minute
)

// Stats has counts of connections.
type Stats struct {
	Opened  int64
	Stale   int64 // connections that the server closed while they were idle
	Unasked int64 // connections closed because of bytes that belong to no request
	Expired int64 // connections closed after a long idle time, or because too many were idle
}

// Stats returns the counts so far.
func (c *Client) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// pool has the idle connections to one address, the latest used one at the end.
type pool struct {
	idle      []*conn
	suspected time.Time // the server has sent what nobody asked for; zero: it has not
}

// rested returns the number of connections of a pool that were released before a time.
func (p *pool) rested(before time.Time) int {
	return sort.Search(len(p.idle), func(i int) bool { return p.idle[i].since.After(before) })
}

// take returns the latest used connection that has rested. If too many connections rest, it returns the one that has
// rested longest. It returns nil if there is none, or if it was
// opened for another process than the given one; 0: any.
func (c *Client) take(addr string, process int64) *conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.pools[addr]
	if p == nil {
		return nil
	}
	now := time.Now()
	i := p.rested(now.Add(-c.rest)) - 1
	if i < 0 && len(p.idle) > maxResting {
		i = 0
	}
	if i < 0 || now.Sub(p.idle[i].since) >= idleLimit { // the reaper sees to it
		return nil
	}
	idle := p.idle[i]
	if process != 0 && idle.process != process {
		closeAll(p.dropOthers(process))
		return nil
	}
	p.idle = slices.Delete(p.idle, i, i+1)
	return idle
}

// dropOthers removes the connections to other processes, and returns them.
func (p *pool) dropOthers(process int64) (others []*conn) {
	p.idle = slices.DeleteFunc(p.idle, func(k *conn) bool {
		if k.process != process {
			others = append(others, k)
		}
		return k.process != process
	})
	return others
}

// put keeps a connection for another request, or closes it.
func (c *Client) put(k *conn) {
	if !c.keep(k) {
		k.Close()
	}
}

func (c *Client) keep(k *conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.pools[k.addr]
	if p == nil {
		p = new(pool)
		c.pools[k.addr] = p
	}
	k.since = time.Now() // under the lock, so that the list is in the order of time
	switch {
	case c.closed:
		return false
	case len(p.idle) >= maxIdle:
		c.stats.Expired++
		return false
	case !p.suspected.IsZero() && k.since.Sub(p.suspected) < suspicion:
		return false
	}
	p.idle = append(p.idle, k)
	if !c.reaping {
		c.reaping = true
		c.reaper = time.AfterFunc(idleLimit, c.reap)
	}
	return true
}

// reap closes the connections that have been idle for too long. It runs as long as there are idle ones.
func (c *Client) reap() {
	c.mu.Lock()
	var old []*conn
	left := 0
	for addr, p := range c.pools {
		n := p.rested(time.Now().Add(-idleLimit))
		old = append(old, p.idle[:n]...)
		p.idle = slices.Delete(p.idle, 0, n)
		if left += len(p.idle); len(p.idle) == 0 && time.Since(p.suspected) >= suspicion {
			delete(c.pools, addr)
		}
	}
	c.stats.Expired += int64(len(old))
	if c.reaping = left > 0 && !c.closed; c.reaping {
		c.reaper.Reset(idleLimit / 4)
	}
	c.mu.Unlock()
	closeAll(old)
}

func closeAll(list []*conn) {
	for _, k := range list {
		k.Close()
	}
}

// suspect notes that a server has sent bytes that belong to no request. Further bytes on a kept connection to it may
// be a reply to another request.
func (c *Client) suspect(addr string) {
	c.mu.Lock()
	c.stats.Unasked++
	var list []*conn
	if p := c.pools[addr]; p != nil { // it had a connection once
		p.suspected = time.Now()
		list, p.idle = p.idle, nil
	} else {
		c.pools[addr] = &pool{suspected: time.Now()}
	}
	c.mu.Unlock()
	closeAll(list)
}

// CloseIdle closes the idle connections.
func (c *Client) CloseIdle() {
	c.mu.Lock()
	var list []*conn
	for _, p := range c.pools {
		list = append(list, p.idle...)
		p.idle = nil
	}
	if c.reaping {
		c.reaper.Stop()
		c.reaping = false
	}
	c.mu.Unlock()
	closeAll(list)
}

// Close closes the idle connections. From now on the client keeps no connection after its request.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.CloseIdle()
}

var (
	errStale   = errors.New("the server has closed the connection")
	errUnasked = errors.New("the server has sent bytes that no request asked for")
)

// check returns an error if a connection is closed or has received bytes. It does not wait. It cannot check a
// connection that is no socket.
func (k *conn) check() error {
	if k.raw == nil {
		return nil
	}
	if err := k.raw.Read(k.look); err != nil {
		return errStale
	}
	switch {
	case errors.Is(k.looked, syscall.EAGAIN):
		return nil
	case k.looked == nil: // a byte has come
		return errUnasked
	}
	return errStale
}

// watch prepares looks at a connection.
func (k *conn) watch() {
	sc, ok := k.Conn.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return
	}
	var b [1]byte // whatever comes, the connection is closed
	k.raw = raw
	k.look = func(fd uintptr) bool {
		n, err := direct.Receive(fd, b[:])
		if k.looked = err; n == 0 && err == nil {
			k.looked = io.EOF
		}
		return true // do not wait
	}
}
