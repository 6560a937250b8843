package live

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"syscall"
	"time"

	"lorasim/bench/live/fleet"
	"lorasim/bench/live/wire"
	"lorasim/internal/record"
	"lorasim/trace"
)

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

// attempt sends what is left of a request to a worker and follows it there.
func (c *client) attempt(j *job, w int) outcome {
	ctx, cancel := context.WithCancelCause(c.stop)
	defer cancel(nil)
	rid := j.enter(w, cancel)
	out := c.try(ctx, cancel, j, w, rid)
	if to := j.leave(); to >= 0 && out.kind != ended {
		return outcome{kind: movedOn, to: to}
	}
	return out
}

// try is attempt without the moves. Time limits end this attempt through its own
// cancel: the next one may have begun when they strike.
func (c *client) try(ctx context.Context, cancel context.CancelCauseFunc, j *job, w int, rid string) outcome {
	if !j.deadline.IsZero() {
		t := time.AfterFunc(time.Until(j.deadline), func() { cancel(errTotal) })
		defer t.Stop()
	}
	before := time.Now()
	if err := c.cfg.Fleet.Ensure(ctx, w, j.req.Adapter); err != nil {
		j.last = time.Now()
		if cause := context.Cause(ctx); cause != nil {
			return c.interrupted(w, cause)
		}
		if isRefused(err) {
			c.cfg.Fleet.Suspect(w, err, true)
		}
		return outcome{kind: again, reason: shorten(err)}
	}
	if wait := time.Since(before); wait > coldLoad {
		j.rec.ColdLoad += wait.Seconds() * c.cfg.Clock.speed
	}
	s := &reading{c: c, j: j, before: j.n, textBefore: len(j.text), cancel: cancel}
	defer s.stop()
	reply, err := c.post(ctx, s, w, rid)
	if err != nil {
		j.last = time.Now()
		if cause := context.Cause(ctx); cause != nil {
			return c.interrupted(w, cause)
		}
		c.cfg.Fleet.Suspect(w, err, isRefused(err))
		return outcome{kind: again, reason: shorten(err)}
	}
	defer reply.Close()
	if reply.Status != http.StatusOK {
		return c.refused(j, w, reply)
	}
	return c.read(ctx, s, w, reply)
}

// coldLoad is the wait above which a request counts as having waited for its
// adapter: one that is loaded is found at once.
const coldLoad = time.Millisecond

// post sends the request; the time limit for the first byte runs from here.
func (c *client) post(ctx context.Context, s *reading, w int, rid string) (*wire.Reply, error) {
	j := s.j
	a := ask{rid: rid, model: c.model, prompt: prompt(c.cfg.Seed, j.req.ID, j.req.Prompt, c.cfg.Vocabulary),
		maxNew: int(j.rec.Requested) - j.n, stream: !c.cfg.NoStream, ignoreEOS: !c.cfg.HonourEOS, extra: c.cfg.Extra}
	a.prompt = append(a.prompt, j.tokens...)
	if j.req.Adapter != trace.BaseModel {
		a.adapter = c.cfg.Source.Adapters()[j.req.Adapter].Name
	}
	body := c.cfg.Backend.body(make([]byte, 0, 256+8*len(a.prompt)), &a)
	j.mu.Lock()
	j.posted = true
	j.mu.Unlock()
	s.limit(c.cfg.FirstToken)
	return c.wire.Post(ctx, c.targets[w], body)
}

// refused judges an answer that is no success.
func (c *client) refused(j *job, w int, reply *wire.Reply) outcome {
	body, _ := io.ReadAll(io.LimitReader(reply, 1<<16)) // what is there of it is good enough for a message
	j.last = time.Now()
	reason := fmt.Sprintf("status %d: %s", reply.Status, fleet.ErrorText(body))
	switch code := reply.Status; {
	case j.req.Adapter >= 0 && (code == http.StatusNotFound || fleet.IsNotLoaded(reason)):
		c.cfg.Fleet.Forget(w, j.req.Adapter)
		return outcome{kind: again, reason: reason}
	case code == http.StatusTooManyRequests || code >= 500:
		return outcome{kind: again, reason: reason}
	}
	return failed(record.Rejected, reason)
}

func isRefused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

// interrupted judges an attempt that the client itself has given up before
// anything came.
func (c *client) interrupted(w int, cause error) outcome {
	switch {
	case errors.Is(cause, errMoved):
		return outcome{kind: broken, reason: errMoved.Error()}
	case errors.Is(cause, errFirstToken), errors.Is(cause, errIdle):
		c.cfg.Fleet.Suspect(w, cause, false)
		return outcome{kind: again, reason: cause.Error()}
	case errors.Is(cause, errTotal):
		return failed(record.Failed, cause.Error())
	}
	return failed(record.Aborted, errStopped.Error())
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
	*eventReader
	parser
}

var receivers = sync.Pool{New: func() any { return &receiver{eventReader: newEventReader(nil, nil)} }}

// read follows the reply to its end.
func (c *client) read(ctx context.Context, s *reading, w int, body io.Reader) outcome {
	if c.cfg.NoStream {
		s.stop()
		return c.readWhole(ctx, s, w, body)
	}
	if c.cfg.FirstToken == 0 {
		s.limit(c.cfg.Idle)
	}
	j := s.j
	e := receivers.Get().(*receiver)
	e.reset(body, s.seen)
	e.keepText = c.cfg.Text != nil
	defer func() { e.reset(nil, nil); receivers.Put(e) }()
	for {
		data, err := e.next()
		if err != nil {
			j.last = time.Now()
			return c.cutOff(ctx, s, w, err)
		}
		j.last = e.at
		p, err := e.parse(c.cfg.Backend, data)
		if err != nil {
			return failed(record.Failed, err.Error())
		}
		if p.done {
			io.Copy(io.Discard, io.LimitReader(body, 4096)) // to its end, so that the connection can serve again
			return c.complete(s)
		}
		if p.fail != "" {
			return c.errorEvent(j, w, s, p.fail)
		}
		s.take(p, e.at)
	}
}

// readWhole reads a reply that is not streamed.
func (c *client) readWhole(ctx context.Context, s *reading, w int, body io.Reader) outcome {
	data, err := io.ReadAll(body)
	s.j.last = time.Now()
	if err != nil {
		return c.cutOff(ctx, s, w, err)
	}
	whole := parser{keepText: c.cfg.Text != nil}
	p, err := whole.parse(c.cfg.Backend, data)
	if err != nil {
		return failed(record.Failed, err.Error())
	}
	if p.fail != "" {
		return c.errorEvent(s.j, w, s, p.fail)
	}
	s.take(p, s.j.last)
	return c.complete(s)
}

// errorEvent judges an error within a reply of status 200: the request has
// failed, unless all it says is that the adapter has gone, which a load mends.
func (c *client) errorEvent(j *job, w int, s *reading, reason string) outcome {
	if j.req.Adapter >= 0 && j.n == s.before && fleet.IsNotLoaded(reason) {
		c.cfg.Fleet.Forget(w, j.req.Adapter)
		return outcome{kind: again, reason: reason}
	}
	return failed(record.Failed, reason)
}

// cutOff judges a stream that broke off.
func (c *client) cutOff(ctx context.Context, s *reading, w int, err error) outcome {
	cause := context.Cause(ctx)
	got := s.j.n > s.before
	switch {
	case s.finish != "" && s.finish != "abort":
		return c.complete(s) // all but the end marker
	case cause != nil && (errors.Is(cause, errStopped) || errors.Is(cause, errTotal) || errors.Is(cause, errFirstToken) && !got):
		return c.interrupted(w, cause)
	case errors.Is(cause, errMoved):
		return c.resume(s, cause.Error())
	case cause != nil:
		err = cause
	case errors.Is(err, io.EOF):
		err = errors.New("the stream ended early")
	}
	c.cfg.Fleet.Suspect(w, err, false)
	if !got && !s.any.Load() {
		return outcome{kind: again, reason: err.Error()}
	}
	return c.resume(s, shorten(err))
}

// resume says that a request goes on elsewhere with its tokens, if their ids are
// known.
func (c *client) resume(s *reading, reason string) outcome {
	if !s.j.known {
		return failed(record.Failed, reason)
	}
	if s.j.n >= int(s.j.rec.Requested) { // only the end of the stream was lost
		return succeeded()
	}
	return outcome{kind: broken, reason: reason}
}

// complete judges a reply that has come to its end.
func (c *client) complete(s *reading) outcome {
	switch {
	case s.finish == "abort":
		return c.resume(s, "aborted by the worker")
	case s.finish == "error":
		return failed(record.Failed, "the worker reports an error")
	case s.finish == "" && s.j.n < int(s.j.rec.Requested):
		return c.resume(s, "the stream ended early")
	}
	return succeeded()
}
