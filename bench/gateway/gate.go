package gateway

import "sync"

// gate lets requests in until it is closed, and tells when the last has left.
type gate struct {
	mu     sync.Mutex
	closed bool
	inside int
	empty  chan struct{} // closed once the gate is closed and nobody is inside
}

func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.inside++
	return true
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside--; g.closed && g.inside == 0 {
		close(g.empty)
	}
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		if g.closed = true; g.inside == 0 {
			close(g.empty)
		}
	}
}

func (g *gate) isClosed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

// Drain makes the gateway take no new requests: they, and /health, are answered
// with status 503, while those in flight go on. The channel is closed once the
// last of them has ended and is in the access log.
func (g *Gateway) Drain() <-chan struct{} {
	g.gate.close()
	return g.gate.empty
}
