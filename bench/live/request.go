package live

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"lorasim/bench/live/fleet"
	"lorasim/bench/live/wire"
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
	now    *attempt   // nil: none
	posted bool       // its worker may have the request
	target int        // where it is to move, -1: nowhere
	known  bool       // the ids of all tokens so far
}

// attempt is a request at a worker, and what came of it so far.
type attempt struct {
	c      *client
	j      *job
	w      int
	rid    string
	ctx    context.Context
	cancel context.CancelCauseFunc

	before     int         // tokens that earlier attempts brought
	textBefore int         // bytes of text of theirs
	finish     string      // the finish reason, "" before
	any        atomic.Bool // some bytes have come
	timer      *time.Timer // of the time limit that runs; nil: none yet
}

// outcome is how an attempt ended.
type outcome struct {
	kind   outcomeKind
	status record.Status // of ended
	reason string
	to     int // of movedOn
}

type outcomeKind uint8

const (
	ended   outcomeKind = iota // the request is over
	movedOn                    // it is to go on elsewhere
	again                      // nothing came: try again
	broken                     // it broke off: go on elsewhere with what came
)

func succeeded() outcome { return outcome{kind: ended, status: record.OK} }

// failed ends a request with a status that is not OK.
func failed(status record.Status, reason string) outcome {
	return outcome{kind: ended, status: status, reason: reason}
}

func (c *client) newJob(r trace.Request) *job {
	j := &job{c: c, req: r, target: -1, known: true}
	j.rec = record.Request{ID: r.ID, Adapter: r.Adapter, Arrival: r.Arrival, Sent: r.Arrival, FirstToken: math.NaN(), Prompt: r.Prompt,
		Requested: r.Output, WorkerFirst: -1, WorkerLast: -1, Streamed: record.StreamingIf(!c.cfg.NoStream)}
	if c.cfg.HonourEOS {
		j.rec.Requested = r.Budget()
	}
	if r.Adapter >= 0 {
		j.rec.Rank = int32(c.cfg.Source.Adapters()[r.Adapter].Rank)
	}
	j.fr = fleet.Request{Request: router.Request{ID: r.ID, Adapter: r.Adapter, Prompt: r.Prompt, MaxNew: r.Budget()}, Sent: c.cfg.Clock.Now()}
	if r.Text != nil {
		j.fr.Text, j.fr.Known = r.Text, r.Text.Known(r.Prompt)
	}
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
	j.last = time.Now()
	j.rec.Sent = max(c.cfg.Clock.at(j.last)-c.start, j.rec.Arrival)
	if c.cfg.Total > 0 {
		j.deadline = j.last.Add(c.cfg.Total)
	}
	out := failed(record.Rejected, "no worker available")
	for retries := 0; w != router.None; {
		j.rec.WorkerLast = int32(w)
		if j.rec.WorkerFirst < 0 {
			j.rec.WorkerFirst = int32(w)
		}
		out = c.attempt(j, w)
		c.cfg.Fleet.Left(&j.fr)
		if out.kind == movedOn {
			c.moved.Add(1)
			j.rec.Migrations++
			w = c.cfg.Fleet.BookOr(&j.fr, out.to)
			out = failed(record.Failed, out.reason)
			continue
		}
		counted := &c.retries
		if out.kind == broken {
			counted = &c.failovers
		}
		if out.kind == ended || retries >= c.cfg.Retries || out.kind == broken && c.cfg.NoFailover {
			break
		}
		retries++
		counted.Add(1)
		if !c.pause(retries) {
			out = failed(record.Aborted, errStopped.Error())
			break
		}
		w = c.cfg.Fleet.Route(&j.fr, w)
	}
	if out.kind != ended {
		out.status = record.Failed
	}
	c.finish(j, out.status, out.reason)
	if out.status == record.OK {
		c.cfg.Fleet.Finished(&j.fr, w, c.cfg.Clock.at(j.last)-c.cfg.Clock.at(j.begun))
	}
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

// attempt sends what is left of a request to a worker and follows it there.
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
	out := a.run()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.now = nil
	if j.target >= 0 && out.kind != ended {
		return outcome{kind: movedOn, to: j.target}
	}
	return out
}

// run is attempt without the moves. Time limits end this attempt through its own
// cancel: the next one may have begun when they strike.
func (a *attempt) run() outcome {
	j := a.j
	if !j.deadline.IsZero() {
		t := time.AfterFunc(time.Until(j.deadline), func() { a.cancel(errTotal) })
		defer t.Stop()
	}
	before := time.Now()
	if err := a.c.cfg.Fleet.Ensure(a.ctx, a.w, j.req.Adapter); err != nil {
		return a.unsent(err)
	}
	if wait := time.Since(before); wait > coldLoad {
		j.rec.ColdLoad += wait.Seconds() * a.c.cfg.Clock.speed
	}
	defer a.stop()
	reply, err := a.post()
	if err != nil {
		if a.ctx.Err() == nil {
			a.c.cfg.Fleet.Suspect(a.w, err)
		}
		return a.unsent(err)
	}
	defer reply.Close()
	switch {
	case reply.Status != http.StatusOK:
		return a.refused(reply)
	case a.c.cfg.NoStream:
		a.stop()
		return a.readWhole(reply)
	}
	return a.readStream(reply)
}

// coldLoad is the wait above which a request counts as having waited for its
// adapter: one that is loaded is found at once.
const coldLoad = time.Millisecond

// post sends the request; the time limit for the first byte runs from here.
func (a *attempt) post() (*wire.Reply, error) {
	c, j := a.c, a.j
	p := payload{rid: a.rid, model: c.model, prompt: c.prompt(&j.req),
		maxNew: int(j.rec.Requested) - j.n, stream: !c.cfg.NoStream, ignoreEOS: !c.cfg.HonourEOS, extra: c.cfg.Extra}
	p.prompt = append(p.prompt, j.tokens...)
	if j.req.Adapter != trace.BaseModel {
		p.adapter = c.cfg.Source.Adapters()[j.req.Adapter].Name
	}
	body := c.cfg.Backend.body(make([]byte, 0, 256+8*len(p.prompt)), &p)
	j.mu.Lock()
	j.posted = true
	j.mu.Unlock()
	a.limit(c.cfg.FirstToken)
	return c.wire.Post(a.ctx, c.targets[a.w], body)
}

// limit starts a time limit for the next bytes; 0: none.
func (a *attempt) limit(d time.Duration) {
	if d > 0 {
		a.timer = time.AfterFunc(d, func() {
			if a.any.Load() || a.c.cfg.FirstToken == 0 {
				a.cancel(errIdle)
			} else {
				a.cancel(errFirstToken)
			}
		})
	}
}

// seen notes that bytes have come.
func (a *attempt) seen() {
	a.any.Store(true)
	switch {
	case a.timer == nil:
	case a.c.cfg.Idle > 0:
		a.timer.Reset(a.c.cfg.Idle)
	default:
		a.timer.Stop()
	}
}

// stop ends the time limit.
func (a *attempt) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}

// unsent judges an attempt that has brought no reply.
func (a *attempt) unsent(err error) outcome {
	a.j.last = time.Now()
	if cause := context.Cause(a.ctx); cause != nil {
		return a.interrupted(cause)
	}
	return outcome{kind: again, reason: shorten(err)}
}

// interrupted judges an attempt that the client itself has given up before
// anything came.
func (a *attempt) interrupted(cause error) outcome {
	switch {
	case errors.Is(cause, errMoved):
		return outcome{kind: broken, reason: errMoved.Error()}
	case errors.Is(cause, errFirstToken), errors.Is(cause, errIdle):
		a.c.cfg.Fleet.Suspect(a.w, cause)
		return outcome{kind: again, reason: cause.Error()}
	case errors.Is(cause, errTotal):
		return failed(record.Failed, cause.Error())
	}
	return failed(record.Aborted, errStopped.Error())
}

// refused judges an answer that is no success.
func (a *attempt) refused(reply *wire.Reply) outcome {
	body, _ := io.ReadAll(io.LimitReader(reply, 1<<16)) // what is there of it is good enough for a message
	a.j.last = time.Now()
	reason := fmt.Sprintf("status %d: %s", reply.Status, fleet.ErrorText(body))
	switch code := reply.Status; {
	case a.j.req.Adapter >= 0 && (code == http.StatusNotFound || fleet.IsNotLoaded(reason)):
		a.c.cfg.Fleet.Forget(a.w, a.j.req.Adapter)
		return outcome{kind: again, reason: reason}
	case code == http.StatusTooManyRequests || code >= 500:
		return outcome{kind: again, reason: reason}
	}
	return failed(record.Rejected, reason)
}

// shorten drops addresses and URLs from an error, so that equal failures count as
// one reason.
func shorten(err error) string {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Op + ": " + op.Err.Error()
	}
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err.Error()
	}
	return err.Error()
}

// receiver is what reading a reply needs; replies use it in turn.
type receiver struct {
	eventReader
	parser
}

var receivers = sync.Pool{New: func() any { return new(receiver) }}

// readStream follows the reply to its end.
func (a *attempt) readStream(body io.Reader) outcome {
	if a.c.cfg.FirstToken == 0 {
		a.limit(a.c.cfg.Idle)
	}
	e := receivers.Get().(*receiver)
	e.reset(body, a.seen)
	e.keepText = a.c.cfg.Text != nil
	defer func() { e.reset(nil, nil); receivers.Put(e) }()
	for {
		data, err := e.next()
		if err != nil {
			a.j.last = time.Now()
			return a.cutOff(err)
		}
		a.j.last = e.at
		p, err := e.parse(a.c.cfg.Backend, data)
		switch {
		case err != nil:
			return failed(record.Failed, err.Error())
		case p.done:
			io.Copy(io.Discard, io.LimitReader(body, 4096)) // to its end, so that the connection can serve again
			return a.complete()
		case p.fail != "":
			return a.errorEvent(p.fail)
		}
		a.take(p, e.at)
	}
}

// readWhole reads a reply that is not streamed.
func (a *attempt) readWhole(body io.Reader) outcome {
	data, err := io.ReadAll(body)
	a.j.last = time.Now()
	if err != nil {
		return a.cutOff(err)
	}
	whole := parser{keepText: a.c.cfg.Text != nil}
	p, err := whole.parse(a.c.cfg.Backend, data)
	switch {
	case err != nil:
		return failed(record.Failed, err.Error())
	case p.fail != "":
		return a.errorEvent(p.fail)
	}
	a.take(p, a.j.last)
	return a.complete()
}

// take enters the tokens of a chunk that arrived at the given time. As in the
// reference benchmark, the gap since the latest token is spread over all tokens
// of a chunk, and the tokens that come with the first one leave no gap.
func (a *attempt) take(p chunk, at time.Time) {
	c, j := a.c, a.j
	have := j.n - a.before
	ids, fresh := p.fresh(have)
	if c.cfg.Text != nil && len(p.said) > 0 {
		// that of sglang's own interface repeats the reply so far, unless its ids are only those that are new
		if c.cfg.Backend == SGLang && (len(p.ids) == 0 || len(p.ids) == p.total) {
			j.text = j.text[:a.textBefore]
		}
		j.text = append(j.text, p.said...)
	}
	if p.finish != "" {
		a.finish = p.finish
	}
	if a.before == 0 && p.cached > 0 {
		j.rec.Cached = int32(min(p.cached, int(j.req.Prompt)))
	}
	if fresh <= 0 {
		return
	}
	if len(ids) != fresh {
		j.mu.Lock()
		j.known = false
		j.mu.Unlock()
	} else if !c.cfg.NoFailover || j.fr.Move != nil || c.cfg.Output != nil || j.req.Reply != nil { // they are needed later
		j.tokens = append(j.tokens, ids...)
	}
	c.cfg.Fleet.Tokens(&j.fr, fresh, have == 0)
	if have == 0 {
		j.begun = at
	}
	if !p.text && j.n > 0 { // the count at the end, of tokens that came with others or read as nothing
		j.n += fresh
		return
	}
	if j.n == 0 {
		j.rec.FirstToken = c.cfg.Clock.at(at) - c.start
	} else if !c.cfg.NoStream {
		gap := at.Sub(j.token).Seconds() * c.cfg.Clock.speed / float64(fresh)
		for range fresh {
			j.rec.Gaps = append(j.rec.Gaps, gap)
		}
	}
	j.n += fresh
	j.token = at
}

// errorEvent judges an error within a reply of status 200: the request has
// failed, unless all it says is that the adapter has gone, which a load mends.
func (a *attempt) errorEvent(reason string) outcome {
	if a.j.req.Adapter >= 0 && a.j.n == a.before && fleet.IsNotLoaded(reason) {
		a.c.cfg.Fleet.Forget(a.w, a.j.req.Adapter)
		return outcome{kind: again, reason: reason}
	}
	return failed(record.Failed, reason)
}

// cutOff judges a stream that broke off.
func (a *attempt) cutOff(err error) outcome {
	cause := context.Cause(a.ctx)
	got := a.j.n > a.before
	switch {
	case a.finish != "" && a.finish != "abort":
		return a.complete() // all but the end marker
	case errors.Is(cause, errStopped), errors.Is(cause, errTotal), errors.Is(cause, errFirstToken) && !got:
		return a.interrupted(cause)
	case errors.Is(cause, errMoved):
		return a.resume(cause.Error())
	case cause != nil:
		err = cause
	case errors.Is(err, io.EOF):
		err = errors.New("the stream ended early")
	}
	a.c.cfg.Fleet.Suspect(a.w, err)
	if !got && !a.any.Load() {
		return outcome{kind: again, reason: err.Error()}
	}
	return a.resume(shorten(err))
}

// resume says that a request goes on elsewhere with its tokens, if their ids are
// known.
func (a *attempt) resume(reason string) outcome {
	switch {
	case !a.j.known:
		return failed(record.Failed, reason)
	case a.j.n >= int(a.j.rec.Requested): // only the end of the stream was lost
		return succeeded()
	}
	return outcome{kind: broken, reason: reason}
}

// complete judges a reply that has come to its end.
func (a *attempt) complete() outcome {
	switch {
	case a.finish == "abort":
		return a.resume("aborted by the worker")
	case a.finish == "error":
		return failed(record.Failed, "the worker reports an error")
	case a.finish == "" && a.j.n < int(a.j.rec.Requested):
		return a.resume("the stream ended early")
	}
	return succeeded()
}

// move asks the request to go to another worker; see fleet.Request. If it is at
// a worker, that is asked to abort it, and the request goes on elsewhere when its
// stream has ended, never before.
func (j *job) move(from, to int) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	a := j.now
	if a == nil || a.w != from || j.target >= 0 || !j.known || j.c.cfg.Move == router.MoveQueued && j.fr.Generated() > 0 {
		return false
	}
	j.target = to
	if j.posted {
		j.c.wg.Go(a.abort)
	} else {
		a.cancel(errMoved)
	}
	return true
}

// abortPatience is how long a stream may go on after its worker has agreed to
// abort it.
const abortPatience = 5 * time.Second

// abort asks the worker to abort the attempt. If it will not, the request stays
// where it is.
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
