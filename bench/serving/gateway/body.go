package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

// keep is the largest size of a body that is read whole, so that it can be sent to another worker.
const keep = 1 << 20

const (
	firstBuffer = 16 << 10 // of a body whose client may have announced more than it sends
	// inMemory is the longest body that stays in memory until its request has ended:
	// the wire client sends it in one piece.
	inMemory = 64 << 10
)

// Errors of a request's body, each with a status of its own.
var (
	errNoModel  = errors.New("request body too large") // too long to look for its model any further
	errNoMemory = errors.New("the gateway holds too many request bodies; try again later")
	errSlowBody = errors.New("the request body arrives too slowly")
)

// statusOf returns the status for an error of a request's body.
func statusOf(err error) int {
	switch {
	case errors.Is(err, errNoModel):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, errNoMemory):
		return http.StatusServiceUnavailable
	case errors.Is(err, errSlowBody):
		return http.StatusRequestTimeout
	}
	return http.StatusBadRequest
}

// bodyMemory bounds the memory of all request bodies together, in bytes. A body
// that is no longer than keep takes memory as its bytes arrive, and is refused if
// there is none. A longer one waits, in the order of arrival, until all that it may
// need is free: if it took memory piece by piece, two bodies could wait for each
// other.
//
// Invariant: small and large together are the limit, and no body needs more than large.
type bodyMemory struct {
	small, large *semaphore.Weighted
}

// newBodyMemory returns a limit for bodies, of which the gateway reads at most
// longest bytes each.
func newBodyMemory(limit, longest int64) (*bodyMemory, error) {
	small := limit / 4
	if limit < 4*longest {
		return nil, fmt.Errorf("gateway: %d bytes for request bodies, expected at least %d, 4 times the longest that is searched for its model",
			limit, 4*longest)
	}
	return &bodyMemory{semaphore.NewWeighted(small), semaphore.NewWeighted(limit - small)}, nil
}

// claim returns the memory that a long body may need if most bytes of it are read. A body of unknown length is copied
// as its buffer grows.
func claim(most, length int64) int64 {
	if length >= 0 {
		return min(most, length)
	}
	return 2 * most
}

// requestBody is the part of a client's body that the gateway has read.
type requestBody struct {
	from   io.Reader
	length int64 // of the whole body; -1: unknown
	memory *bodyMemory
	due    time.Time // when the wait for memory ends; zero: no limit
	data   []byte
	whole  bool // data is the whole body

	small, large int64       // bytes taken of memory
	sent         atomic.Bool // a reader has given all of it
}

// fill reads until data has n bytes, or the body ends.
func (b *requestBody) fill(n int64) error {
	for int64(len(b.data)) < n && !b.whole {
		if len(b.data) == cap(b.data) {
			if err := b.grow(n); err != nil {
				return err
			}
		}
		space := b.data[len(b.data):min(int64(cap(b.data)), n)]
		got, err := b.from.Read(space)
		b.data = b.data[:len(b.data)+got]
		b.whole = errors.Is(err, io.EOF) || int64(len(b.data)) == b.length
		switch {
		case b.whole, err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			return errSlowBody
		default:
			return err
		}
	}
	return nil
}

// grow makes room for more, but for at most n bytes: twice as much as has come.
func (b *requestBody) grow(n int64) error {
	room := max(2*int64(cap(b.data)), firstBuffer)
	switch {
	case b.length >= 0 && b.large > 0:
		room = b.length // paid for already
	case b.length >= 0:
		room = min(room, b.length)
	}
	room = min(room, n)
	if b.large == 0 {
		more := room - b.small
		if !b.memory.small.TryAcquire(more) {
			return errNoMemory
		}
		b.small += more
	}
	data := make([]byte, len(b.data), room)
	copy(data, b.data)
	b.data = data
	return nil
}

// reserve waits for the memory of a long body, of which most bytes are read.
func (b *requestBody) reserve(ctx context.Context, most int64) error {
	if !b.due.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, b.due)
		defer cancel()
	}
	need := claim(most, b.length)
	if err := b.memory.large.Acquire(ctx, need); err != nil {
		return errNoMemory
	}
	b.memory.small.Release(b.small)
	b.small, b.large = 0, need
	return nil
}

// release frees the memory of the body. The data must not be used afterwards.
func (b *requestBody) release() {
	if b.memory == nil {
		return
	}
	b.memory.small.Release(b.small)
	b.memory.large.Release(b.large)
	b.small, b.large, b.data = 0, 0, nil
}

// segments reads a long body to send. It drops the parts that have been sent, so that the body does not stay in memory
// until its reply ends.
type segments struct {
	of   *requestBody
	left net.Buffers
}

func (s *segments) Read(p []byte) (int, error) {
	n, err := s.left.Read(p)
	if len(s.left) == 0 {
		s.of.sent.Store(true)
	}
	return n, err
}

func (s *segments) Close() error { return nil }

// pacedBody reads a client's body. It fails with os.ErrDeadlineExceeded unless the
// body arrives at slowestBody, after the patience that each body has.
type pacedBody struct {
	io.ReadCloser
	conn *http.ResponseController
	due  time.Time
}

// slowestBody is the rate at which a body must arrive, bytes per second.
const slowestBody = 64 << 10

// paced limits the time that the body of a request may take. The first deadline is the
// server's, if Limit has set that: to set it again would cost each request some 5 us.
func (g *Gateway) paced(rw http.ResponseWriter, body io.ReadCloser) io.ReadCloser {
	due := time.Now().Add(g.cfg.ClientTimeout)
	p := &pacedBody{ReadCloser: body, conn: http.NewResponseController(rw), due: due}
	if !g.limited {
		p.conn.SetReadDeadline(p.due) // a connection without deadlines has no limit
	}
	return p
}

// Limit sets the time for which a server for clients waits for a request. It must be called before the server serves.
func (g *Gateway) Limit(srv *http.Server) {
	srv.ReadTimeout = g.cfg.ClientTimeout
	g.limited = true
}

func (p *pacedBody) Read(b []byte) (int, error) {
	n, err := p.ReadCloser.Read(b)
	if err == nil { // else the server has the connection back
		p.due = p.due.Add(time.Duration(n) * time.Second / slowestBody)
		p.conn.SetReadDeadline(p.due)
	}
	return n, err
}
