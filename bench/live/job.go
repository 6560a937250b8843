package live

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"lorasim/bench/live/fleet"
	"lorasim/internal/record"
	"lorasim/router"
	"lorasim/trace"
)

// Why an attempt is given up by the client itself.
var (
	errMoved      = errors.New("moved to another worker")
	errStopped    = errors.New("the run was stopped")
	errFirstToken = errors.New("timeout: no first token")
	errIdle       = errors.New("timeout: the stream is idle")
	errTotal      = errors.New("timeout: the request takes too long")
)

// job is one request on its way. One goroutine serves it; others may only ask
// it to move.
type job struct {
	c      *client
	req    trace.Request
	fr     fleet.Request
	rec    record.Request
	silent bool // warm-up: leaves no record

	n        int       // tokens so far, of all attempts
	tokens   []int32   // the same, as far as their ids are known
	text     []byte    // what they read as, where Config.Text asks for it
	last     time.Time // of the latest bytes
	token    time.Time // of the latest token
	begun    time.Time // first token of the latest attempt
	attempts int
	deadline time.Time // Config.Total

	mu     sync.Mutex // guards what follows, which moves look at
	worker int
	rid    string
	posted bool // a worker may have the request
	target int  // where it is to move, -1: nowhere
	known  bool // the ids of all tokens so far
	cancel context.CancelCauseFunc
}

func (c *client) newJob(r trace.Request) *job {
	j := &job{c: c, req: r, worker: -1, target: -1, known: true}
	maxNew := r.Output
	if c.cfg.HonourEOS {
		maxNew = r.Budget()
	}
	j.rec = record.Request{ID: r.ID, Adapter: r.Adapter, Arrival: r.Arrival, Sent: r.Arrival, FirstToken: math.NaN(), Prompt: r.Prompt,
		Requested: maxNew, WorkerFirst: -1, WorkerLast: -1, Streamed: record.StreamingIf(!c.cfg.NoStream)}
	if r.Adapter >= 0 {
		j.rec.Rank = int32(c.cfg.Source.Adapters()[r.Adapter].Rank)
	}
	j.fr = fleet.Request{ID: r.ID, Adapter: r.Adapter, Prompt: r.Prompt, MaxNew: r.Budget(), Sent: c.cfg.Clock.Now()}
	if c.cfg.KnownOutputs {
		j.fr.Output = r.Output
	}
	if c.cfg.Move != router.MoveNone {
		j.fr.Move = j.move
	}
	return j
}

// serve follows a request to its end, beginning on worker w, where it is booked
// already.
func (c *client) serve(j *job, w int) {
	now := time.Now()
	j.last = now
	j.rec.Sent = max(c.cfg.Clock.at(now)-c.start, j.rec.Arrival)
	if c.cfg.Total > 0 {
		j.deadline = now.Add(c.cfg.Total)
	}
	retries := 0
	reason := "no worker available"
	for w != router.None {
		j.rec.WorkerLast = int32(w)
		if j.rec.WorkerFirst < 0 {
			j.rec.WorkerFirst = int32(w)
		}
		out := c.attempt(j, w)
		c.cfg.Fleet.Left(&j.fr)
		reason = out.reason
		switch out.kind {
		case ended:
			c.finish(j, out.status, out.reason)
			if out.status == record.OK {
				c.cfg.Fleet.Finished(&j.fr, w, c.cfg.Clock.at(j.last)-c.cfg.Clock.at(j.begun))
			}
			return
		case movedOn:
			c.moved.Add(1)
			j.rec.Migrations++
			w = c.cfg.Fleet.BookOr(&j.fr, out.to)
			continue
		case again:
			if retries++; retries > c.cfg.Retries {
				c.finish(j, record.Failed, reason)
				return
			}
			c.retries.Add(1)
		case broken:
			if c.cfg.NoFailover || retries >= c.cfg.Retries {
				c.finish(j, record.Failed, reason)
				return
			}
			retries++
			c.failovers.Add(1)
		}
		if !c.pause(retries) {
			c.finish(j, record.Aborted, errStopped.Error())
			return
		}
		w = c.cfg.Fleet.Route(&j.fr, w)
	}
	status := record.Failed
	if j.rec.WorkerFirst < 0 {
		status = record.Rejected
	}
	c.finish(j, status, reason)
}

// pause waits a little before another attempt; false if the run was stopped.
func (c *client) pause(retries int) bool {
	wait := min(10*time.Millisecond<<min(retries-1, 10), time.Second)
	t := time.NewTimer(time.Duration(float64(wait) / c.cfg.Clock.speed))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.stop.Done():
		return false
	}
}

// enter makes an attempt the one that moves act on.
func (j *job) enter(w int, cancel context.CancelCauseFunc) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.attempts++
	// of fixed length: workers abort by prefix
	j.rid = fmt.Sprintf("lorasim-%08x-%016x-%04x", j.c.runID, uint64(j.req.ID), j.attempts&0xffff)
	j.worker, j.target, j.posted, j.cancel = w, -1, false, cancel
	return j.rid
}

// leave ends an attempt; it returns where the request is to move, -1: nowhere.
func (j *job) leave() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.worker = -1
	return j.target
}

func (j *job) cancelWith(cause error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.cancel != nil {
		j.cancel(cause)
	}
}

// move asks the request to go to another worker; see fleet.Request. If it is at
// a worker, that is asked to abort it, and the request goes on elsewhere when its
// stream has ended, never before.
func (j *job) move(from, to int) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.worker != from || j.target >= 0 || !j.known || j.c.cfg.Move == router.MoveQueued && j.fr.Generated() > 0 {
		return false
	}
	j.target = to
	if !j.posted {
		j.cancel(errMoved)
		return true
	}
	rid, cancel := j.rid, j.cancel
	j.c.wg.Go(func() { j.abort(from, rid, cancel) })
	return true
}

// abortPatience is how long a stream may go on after its worker has agreed to
// abort it.
const abortPatience = 5 * time.Second

// abort asks a worker to abort the attempt. If it will not, the request stays
// where it is.
func (j *job) abort(w int, rid string, cancel context.CancelCauseFunc) {
	err := j.c.cfg.Fleet.Abort(j.c.stop, w, rid)
	j.mu.Lock()
	current := j.worker == w && j.rid == rid
	if err != nil && !errors.Is(err, fleet.ErrNoAbort) {
		if current {
			j.target = -1
			j.c.moves.Add(1)
		}
		j.mu.Unlock()
		j.c.cfg.Log("request %d stays on worker %d: %v", j.req.ID, w, err)
		return
	}
	j.mu.Unlock()
	if !current {
		return
	}
	if err != nil { // closing the connection aborts
		cancel(errMoved)
		return
	}
	time.AfterFunc(abortPatience, func() { cancel(errMoved) }) // of no effect on an attempt that is over
}
