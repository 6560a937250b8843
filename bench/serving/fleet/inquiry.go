package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"lorasim/trace"
)

// inquirer asks a worker for its identity when a connection to it is new: another process may have taken the address
// since the latest probe. An answer holds for all connections that were opened before the question, because a process
// that has ended does not come back.
type inquirer struct {
	cfg       *Config
	tasks     *tasks
	table     *table
	discovery *discovery

	mu sync.Mutex
	// next has the inquiries that have not begun, at most one for each worker. Requests that wait for an
	// answer share it.
	// Invariant: each has a goroutine, which begins it once asked[k], the one before, has ended.
	next  map[*worker]*inquiry
	asked map[*worker]*inquiry // those that have begun
}

// inquiry is one question to a worker.
type inquiry struct {
	done chan struct{} // closed at the end
	err  error         // valid then
}

// confirm returns nil if the worker says, from now on, that it is the process that the fleet knows. An answer without
// an identity, such as status 404, is no error: a process that serves a model can name the model.
func (q *inquirer) confirm(ctx context.Context, k *worker) error {
	q.mu.Lock()
	n := q.next[k]
	if n == nil {
		n = &inquiry{done: make(chan struct{})}
		q.next[k] = n
		q.tasks.Go(func() { q.run(k, n) })
	}
	q.mu.Unlock()
	select {
	case <-n.done:
		return n.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// run carries out an inquiry after the one before it.
func (q *inquirer) run(k *worker, n *inquiry) {
	q.mu.Lock()
	before := q.asked[k]
	q.mu.Unlock()
	if before != nil {
		<-before.done
	}
	q.mu.Lock()
	delete(q.next, k)
	q.asked[k] = n
	q.mu.Unlock()
	ctx, cancel := context.WithTimeout(q.tasks.ctx, q.cfg.Timeout)
	defer cancel()
	n.err = q.table.guard(k.index, func() error { return q.discovery.askWho(ctx, k) })
	if silent(n.err) {
		n.err = nil
	}
	q.mu.Lock()
	if q.asked[k] == n {
		delete(q.asked, k)
	}
	q.mu.Unlock()
	close(n.done)
}

// silent reports whether an error is an answer without an identity.
func silent(err error) bool {
	_, status := errors.AsType[*statusError](err)
	_, form := errors.AsType[*formError](err)
	return status || form
}

// A Process is the process of a worker for which a request is meant.
type Process struct {
	ID int64 // number of the process, from 1
	Info
}

// Process returns the process on which a request is booked. The error says that it has ended, or that it has lost the
// request's adapter: the request must go elsewhere.
func (q *Requests) Process(r *Request) (p Process, err error) {
	defer q.table.lock()()
	k := r.on
	switch {
	case k.gone:
		return p, k.cause
	case r.Adapter != trace.BaseModel && !k.loras.rows[r.Adapter].held:
		return p, fmt.Errorf("%w: worker %d has lost adapter %s", ErrChanged, k.index, q.catalog.name(r.Adapter))
	}
	return Process{k.id, k.health.info}, nil
}

// Confirm asks the worker on which a request is booked for its identity, for a new connection to the worker. The errors
// are those of [Requests.Process]; or the worker does not answer.
func (q *Requests) Confirm(ctx context.Context, r *Request) error {
	if err := q.inquirer.confirm(ctx, r.on); err != nil {
		return err
	}
	_, err := q.Process(r)
	return err
}

// Server notes the header Server of a reply. Another one than before casts doubt on the worker.
func (q *Requests) Server(r *Request, name string) {
	was := r.on.server.Load()
	if was != nil && *was == name {
		return
	}
	if kept := name; r.on.server.CompareAndSwap(was, &kept) && was != nil {
		r.on.doubt()
	}
}

// Doubt notes that a reply of the worker on which a request is booked contradicts what is known of the worker. The
// fleet asks the worker again soon.
func (q *Requests) Doubt(r *Request) { r.on.doubt() }
