package wire

import (
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
)

// A Process is the process at an address for which a request is meant. After a restart, another one answers there,
// which may take the request for another model.
type Process struct {
	// ID identifies the process. A connection that was opened for one process serves no request for another one.
	ID int64
	// Confirm is called when a connection is new, before anything is written. An error fails the request, which is
	// [Unsent] then.
	Confirm func(ctx context.Context) error
}

type processKey struct{}

// For returns a context for requests that are meant for a process.
func For(ctx context.Context, p *Process) context.Context {
	return context.WithValue(ctx, processKey{}, p)
}

// processOf returns the process for which a request is meant. The zero value means any.
func processOf(ctx context.Context) *Process {
	if p, ok := ctx.Value(processKey{}).(*Process); ok {
		return p
	}
	return &Process{}
}

// confirm asks whether a new connection leads to the process.
func (p *Process) confirm(ctx context.Context) error {
	if p.Confirm == nil {
		return nil
	}
	return p.Confirm(ctx)
}

// gate is the body of a request. It breaks off before its first byte if the connection leads to another process: a
// server executes no request whose body is missing.
type gate struct {
	io.ReadCloser
	err *atomic.Pointer[error]
}

func (g *gate) Read(p []byte) (int, error) {
	if err := g.err.Load(); err != nil {
		return 0, *err
	}
	return g.ReadCloser.Read(p)
}

// confirmed makes http.Transport confirm a new connection that it takes for a request.
func confirmed(r *http.Request, p *Process) *http.Request {
	if p.Confirm == nil || r.Body == nil || r.Body == http.NoBody {
		return r
	}
	ctx := r.Context()
	var other atomic.Pointer[error]
	r = r.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) {
		if c.Reused {
			return
		}
		if err := p.confirm(ctx); err != nil {
			other.Store(&err)
		}
	}}))
	r.Body = &gate{r.Body, &other}
	return r
}
