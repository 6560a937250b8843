package live

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"lorasim/bench/serving/fleet"
	"lorasim/bench/serving/httpapi"
	"lorasim/bench/serving/wire"
	"lorasim/router"
	"lorasim/sim/record"
	"lorasim/trace"
)

// Why an attempt is given up by the client itself.
var (
	errMoved      = errors.New("moved to another worker")
	errStopped    = errors.New("the run was stopped")
	errLate       = errors.New("timeout") // one of the next two
	errFirstToken = errors.New("timeout: no first token")
	errIdle       = errors.New("timeout: the stream is idle")
	errTotal      = errors.New("timeout: the request takes too long")
)

// job is one request in flight. One goroutine serves it; other goroutines may only request a move.
type job struct {
	c      *client
	req    trace.Request
	fr     fleet.Request
	rec    record.Request
	silent bool // warm-up: leaves no record

	refused string // why the router did not take it, "": it did

	prompt   []int32   // as it was sent first; nil: it was not
	n        int       // tokens so far, of all attempts
	tokens   []int32   // the same, as far as their ids are known
	text     []byte    // what they read as, where Config.Text asks for it
	last     time.Time // of the latest bytes
	token    time.Time // of the latest token
	begun    time.Time // first token of the latest attempt
	attempts int
	deadline time.Time // Config.Total
	begin    time.Time // of the first attempt

	mu     sync.Mutex // guards what follows, which moves look at
	now    *attempt   // nil: none
	posted bool       // its worker may have the request
	target int        // where it is to move, -1: nowhere
	known  bool       // the ids of all tokens so far
}

// attempt is one attempt of a request on a worker, with its results so far.
type attempt struct {
	c   *client
	j   *job
	w   int
	rid string
	// adapter is its name on the worker; "": none.
	adapter string
	ctx     context.Context
	cancel  context.CancelCauseFunc

	names      httpapi.ModelNames // in the reply
	asked      int                // tokens that the reply may have
	before     int                // tokens that earlier attempts brought
	textBefore int                // bytes of text of theirs
	finish     string             // the finish reason, "" before
	any        bool               // some bytes have come
	timer      *time.Timer        // of the time limit that runs; nil: none
}

func (c *client) newJob(r trace.Request) *job {
	j := &job{c: c, req: r, target: -1, known: true}
	j.rec = record.Request{ID: r.ID, Adapter: r.Adapter, Arrival: r.Arrival, Sent: r.Arrival, FirstToken: math.NaN(),
		Prompt:    r.Prompt,
		Requested: r.Output, WorkerFirst: -1, WorkerLast: -1, Streamed: record.StreamingIf(!c.cfg.NoStream)}
	if c.cfg.HonourEOS {
		j.rec.Requested = r.Budget()
	}
	if r.Adapter >= 0 {
		j.rec.Rank = int32(c.cfg.Source.Adapters()[r.Adapter].Rank)
	}
	j.fr = fleet.Request{Request: router.Request{ID: r.ID, Adapter: r.Adapter, Prompt: r.Prompt, MaxNew: r.Budget()},
		Sent: c.cfg.Clock.Now()}
	if r.Text != nil {
		j.fr.Text, j.fr.Known = r.Text, r.Text.Known(r.Prompt)
	}
	if c.cfg.KnownOutputs {
		j.fr.Output = r.Output
	}
	j.fr.Owner, j.fr.Streams = j, !c.cfg.NoStream
	if c.cfg.Move != router.MoveNone {
		j.fr.Move = j.move
	}
	return j
}

// serve follows a request to its end. It starts on worker w, where the request is already booked.
func (c *client) serve(j *job, w int) {
	j.last = time.Now()
	j.begin = j.last
	j.rec.Sent = max(c.cfg.Clock.at(j.last)-c.start, j.rec.Arrival)
	if c.cfg.Total > 0 {
		j.deadline = j.last.Add(c.cfg.Total)
	}
	out, lost := failed(record.Rejected, cmp.Or(j.refused, "no worker available")), 0
	var tried []int
	for retries := 0; w != router.None; {
		j.rec.WorkerLast = int32(w)
		if j.rec.WorkerFirst < 0 {
			j.rec.WorkerFirst = int32(w)
		}
		out = c.attempt(j, w)
		c.cfg.Fleet.Requests.Left(&j.fr)
		if out.lost {
			lost++
		}
		if out.kind == movedOn && lost < fleet.MaxLost {
			c.moved.Add(1)
			j.rec.Migrations++
			w = c.cfg.Fleet.Requests.MoveTo(&j.fr, out.to)
			out = failed(record.Failed, out.reason)
			continue
		}
		counted := &c.retries
		if out.kind == broken {
			counted = &c.failovers
		}
		if out.kind == ended || retries >= c.cfg.Retries || out.failed && c.cfg.NoFailover || lost >= fleet.MaxLost {
			break
		}
		tried = append(tried, w)
		others := c.cfg.Fleet.Requests.Takes(&j.fr, tried...)
		if out.kind == again && out.lost && !others {
			break
		}
		retries++
		counted.Add(1)
		if out.kind == again && out.lost {
			c.maybeExecuted.Add(1)
		}
		var least time.Duration
		if !others {
			least = out.after
		}
		if !c.pause(retries, least) {
			out = failed(record.Aborted, errStopped.Error())
			break
		}
		w = c.cfg.Fleet.Requests.Route(&j.fr, tried...)
	}
	if out.kind != ended {
		out.status = record.Failed
	}
	c.finish(j, out.status, out.reason)
	if out.status == record.OK {
		reply, exec := j.took()
		c.cfg.Fleet.Requests.Finished(&j.fr, w, reply, exec)
	}
}

// took returns the times from the first token of all, and from the first token on the last worker, to the end, s.
func (j *job) took() (reply, exec float64) {
	if j.n == 0 {
		return 0, 0
	}
	clock := j.c.cfg.Clock
	end := clock.at(j.last)
	return end - j.c.start - j.rec.FirstToken, end - clock.at(j.begun)
}

// pause waits before another attempt: for a random time whose limit doubles with each retry, and for the least time. It
// returns false if the run was stopped.
func (c *client) pause(retries int, least time.Duration) bool {
	wait := min(10*time.Millisecond<<min(retries-1, 10), time.Second)
	wait = time.Duration(float64(wait) / c.cfg.Clock.speed)
	t := time.NewTimer(min(least, longestPause) + wait/2 + rand.N(wait/2+1))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.stop.Done():
		return false
	}
}

// longestPause bounds the pause that a worker can ask for.
const longestPause = time.Minute

// attempt sends the rest of a request to a worker and follows it there.
func (c *client) attempt(j *job, w int) outcome {
	a := &attempt{c: c, j: j, w: w, before: j.n, textBefore: len(j.text)}
	a.ctx, a.cancel = context.WithCancelCause(c.stop)
	defer a.cancel(nil)
	j.attempts++
	// of fixed length: workers abort by prefix
	a.rid = fmt.Sprintf("lorasim-%08x-%016x-%04x", c.runID, uint64(j.req.ID), j.attempts&0xffff)
	j.mu.Lock()
	j.now, j.target, j.posted = a, -1, false
	j.mu.Unlock()
	var out outcome
	if err := c.cfg.Fleet.Guard(w, func() error { out = a.run(); return nil }); err != nil {
		j.last = time.Now()
		out = failed(record.Failed, err.Error())
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.now = nil
	if j.target >= 0 && out.kind != ended {
		return outcome{kind: movedOn, to: j.target, reason: out.reason, lost: out.lost}
	}
	return out
}

// run is attempt without the moves. Time limits end this attempt through its own
// cancel: the next one may have begun when they strike.
func (a *attempt) run() outcome {
	c, j := a.c, a.j
	if !j.deadline.IsZero() {
		t := time.AfterFunc(time.Until(j.deadline), func() { a.cancel(errTotal) })
		defer t.Stop()
	}
	before := time.Now()
	wait := fleet.Wait{Since: j.begin}
	if limit := c.cfg.FirstToken; limit > 0 {
		wait.Until = before.Add(limit)
	}
	var err error
	if a.adapter, err = c.cfg.Fleet.LoRAs.Serve(a.ctx, a.w, &j.fr, j.fr.Adapter, wait); err != nil {
		return a.unsent(err)
	}
	v := &j.fr.Admission
	j.rec.Version, j.rec.Behind, j.rec.VersionAge = v.Version, v.Behind, v.Age
	j.rec.VersionWait += v.Waited.Seconds() * c.cfg.Clock.speed
	if wait := time.Since(before) - v.Waited; wait > coldLoad {
		j.rec.ColdLoad += wait.Seconds() * c.cfg.Clock.speed
	}
	defer a.limit(0)
	reply, err := a.post()
	if err != nil {
		if a.ctx.Err() == nil {
			c.cfg.Fleet.Requests.Failed(&j.fr, a.w, err)
		}
		out := a.unsent(err)
		if out.kind == again && !wire.Unsent(err) {
			out.lost, out.failed = true, true
		}
		return out
	}
	defer reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		return a.refused(reply)
	}
	return a.read(reply.Body)
}

// coldLoad is the wait above which a request counts as having waited for its
// adapter: one that is loaded is found at once.
const coldLoad = time.Millisecond

// post sends the request; the time limit for the first byte runs from here.
func (a *attempt) post() (*http.Response, error) {
	c, j := a.c, a.j
	if j.prompt == nil {
		j.prompt = c.prompt(&j.req)
	}
	p := payload{rid: a.rid, model: c.model, prompt: append(slices.Clip(j.prompt), j.tokens...),
		maxNew: int(j.rec.Requested) - j.n, adapter: a.adapter,
		stream: !c.cfg.NoStream, ignoreEOS: !c.cfg.HonourEOS, extra: c.cfg.Extra}
	body := c.cfg.Backend.body(make([]byte, 0, 256+8*len(p.prompt)), &p)
	j.mu.Lock()
	j.posted = true
	j.mu.Unlock()
	a.limit(c.cfg.FirstToken)
	process, err := c.cfg.Fleet.Requests.Process(&j.fr)
	if err != nil {
		return nil, wire.NotSent(err)
	}
	if c.cfg.Backend != SGLang {
		// vLLM answers by the first name of its base model, whichever was asked for
		a.names = httpapi.ModelNames{Sent: c.cfg.Backend.model(&p), Adapter: p.adapter, Base: process.Model,
			Root: process.Root}
	}
	r := c.targets[a.w].WithContext(wire.For(a.ctx, &wire.Process{ID: process.ID,
		Confirm: func(ctx context.Context) error { return c.cfg.Fleet.Requests.Confirm(ctx, &j.fr) }}))
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	r.Body, _ = r.GetBody()
	r.ContentLength = int64(len(body))
	return c.wire.RoundTrip(r)
}

// limit replaces the time limit on the next bytes; 0: no limit.
func (a *attempt) limit(d time.Duration) {
	switch {
	case a.timer == nil && d > 0:
		a.timer = time.AfterFunc(d, func() { a.cancel(errLate) })
	case d > 0:
		a.timer.Reset(d)
	case a.timer != nil:
		a.timer.Stop()
	}
}

// seen notes that bytes have come.
func (a *attempt) seen() {
	a.any = true
	a.limit(a.c.cfg.Idle)
}

// cause returns the reason for which the client itself ended the attempt, or nil.
func (a *attempt) cause() error {
	switch cause := context.Cause(a.ctx); {
	case !errors.Is(cause, errLate):
		return cause
	case a.any || a.c.cfg.FirstToken == 0:
		return errIdle
	}
	return errFirstToken
}

// move starts a move of the request to another worker; see fleet.Request. If the request is at a worker, move makes
// the worker abort it. The request continues elsewhere only after its stream has ended.
func (j *job) move(from, to int) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	a := j.now
	if a == nil || a.w != from || j.target >= 0 || !j.known || j.c.cfg.Move == router.MoveQueued &&
		j.fr.Generated() > 0 {
		return false
	}
	j.target = to
	if j.posted {
		j.c.wg.Go(func() { j.c.cfg.Fleet.Guard(a.w, func() error { a.abort(); return nil }) })
	} else {
		a.cancel(errMoved)
	}
	return true
}

// Cut aborts the attempt on a worker; see fleet.Request.
func (j *job) Cut(w int, cause error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if a := j.now; a != nil && a.w == w {
		a.cancel(cause)
	}
}

// abortPatience is the longest time for which a stream may go on after its worker has accepted an abort.
const abortPatience = 5 * time.Second

// abort makes the worker abort the attempt. If the worker refuses, the request stays where it is.
func (a *attempt) abort() {
	j := a.j
	err := a.c.cfg.Fleet.Abort(a.c.stop, a.w, a.rid)
	refused := err != nil && !errors.Is(err, fleet.ErrNoAbort)
	j.mu.Lock()
	current := j.now == a
	if refused && current {
		j.target = -1
		a.c.moves.Add(1)
	}
	j.mu.Unlock()
	switch {
	case refused:
		a.c.log("request %d stays on worker %d: %v", j.req.ID, a.w, err)
	case !current:
	case err != nil: // closing the connection aborts
		a.cancel(errMoved)
	default:
		time.AfterFunc(abortPatience, func() { a.cancel(errMoved) }) // of no effect on an attempt that is over
	}
}
