package live

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"lorasim/bench/serving/fleet"
	"lorasim/sim/record"
	"lorasim/trace"
)

// outcome is how an attempt ended.
type outcome struct {
	kind   outcomeKind
	status record.Status // of ended
	reason string
	to     int           // of movedOn
	lost   bool          // the worker may have executed the request, and failed it
	failed bool          // the worker has failed: with --no-failover the request fails with it
	after  time.Duration // pause that the worker asks for
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

func retry(reason string) outcome { return outcome{kind: again, reason: reason} }

var errEarly = errors.New("the stream ended early")

// unsent judges an attempt without a reply.
func (a *attempt) unsent(err error) outcome {
	a.j.last = time.Now()
	if cause := a.cause(); cause != nil {
		return a.interrupted(cause)
	}
	return retry(shorten(err))
}

// interrupted judges an attempt that the client itself ended before any byte came.
func (a *attempt) interrupted(cause error) outcome {
	switch {
	case errors.Is(cause, errMoved):
		return outcome{kind: broken, reason: errMoved.Error()}
	case errors.Is(cause, errFirstToken), errors.Is(cause, errIdle), fleet.IsHang(cause):
		a.c.cfg.Fleet.Requests.Failed(&a.j.fr, a.w, cause)
		return outcome{kind: again, reason: cause.Error(), lost: true}
	case errors.Is(cause, errTotal):
		return failed(record.Failed, cause.Error())
	}
	return failed(record.Aborted, errStopped.Error())
}

// refused judges a response that is no success.
func (a *attempt) refused(reply *http.Response) outcome {
	body, _ := io.ReadAll(io.LimitReader(reply.Body, 1<<16)) // what is there of it is good enough for a message
	a.j.last = time.Now()
	reason := fmt.Sprintf("status %d: %s", reply.StatusCode, fleet.ErrorText(body))
	switch code := reply.StatusCode; {
	case a.j.req.Adapter >= 0 && (code == http.StatusNotFound || fleet.IsNotLoaded(reason)):
		a.c.cfg.Fleet.LoRAs.Forget(a.w, a.j.req.Adapter)
		return retry(reason)
	case code == http.StatusTooManyRequests || code >= 500 || code == http.StatusUnauthorized && a.hasKey():
		if fleet.IsFailure(code, reply.Header, reason) || code == http.StatusUnauthorized {
			a.c.cfg.Fleet.Requests.Failed(&a.j.fr, a.w, errors.New(reason))
		}
		return a.retryStatus(code, reason, fleet.RetryAfter(reply.Header, time.Now()))
	}
	return failed(record.Rejected, reason)
}

// retryStatus judges an error for which another worker may help, with the pause that the worker asks for.
func (a *attempt) retryStatus(code int, reason string, after time.Duration) outcome {
	out := outcome{kind: again, reason: reason}
	switch code {
	case http.StatusUnauthorized:
		if !a.c.cfg.Fleet.Requests.Takes(&a.j.fr, a.w) {
			return failed(record.Rejected, reason)
		}
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if out.after = after; after > 0 {
			a.c.cfg.Fleet.Requests.Postpone(a.w, after)
		}
	default:
		out.lost = true
	}
	return out
}

// hasKey reports whether the client sends a key, so that the worker is at fault if it does not accept the key.
func (a *attempt) hasKey() bool { return a.c.targets[a.w].Header.Get("Authorization") != "" }

// shorten removes addresses and URLs from an error, so that equal failures count as one reason.
func shorten(err error) string {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Op + ": " + op.Err.Error()
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err.Error()
	}
	return err.Error()
}

// receiver has the buffers for reading a reply. Replies use it in turn.
type receiver struct {
	eventReader
	parser
}

var receivers = sync.Pool{New: func() any { return new(receiver) }}

// read reads the reply to its end. A whole reply is treated as the only event of a stream.
func (a *attempt) read(body io.Reader) outcome {
	c, j := a.c, a.j
	e := receivers.Get().(*receiver)
	defer func() { e.reset(nil, nil); receivers.Put(e) }()
	e.keepText = c.cfg.Text != nil
	a.asked = c.asked(int(j.rec.Requested) - a.before)
	e.most = c.longestEvent(a.asked + int(j.req.Prompt))
	if c.cfg.NoStream {
		a.limit(0)
		e.reset(body, nil)
	} else {
		if c.cfg.FirstToken == 0 {
			a.limit(c.cfg.Idle)
		}
		e.reset(body, a.seen)
	}
	cached := 0 // prompt tokens that the worker found in its prefix cache
	defer func() {
		if a.before > 0 && j.n > a.before { // what earlier attempts sent and received, but the latest token
			c.mu.Lock()
			c.workers[a.w].RepeatedTokens += max(0, int64(j.req.Prompt)+int64(a.before-1-cached))
			c.mu.Unlock()
		}
	}()
	for events := 0; ; events++ {
		data, err := e.next(c.cfg.NoStream)
		if err == nil && events > maxEvents(a.asked) {
			err = fmt.Errorf("more than %d events for at most %d tokens", maxEvents(a.asked), a.asked)
		}
		if err != nil {
			j.last = time.Now()
			return a.cutOff(err)
		}
		j.last = e.at
		if events == 0 {
			if other := a.names.Contradicted(data); other != "" {
				return a.otherModel(other)
			}
		}
		p, err := e.parse(c.cfg.Backend, data)
		switch {
		case err != nil:
			c.cfg.Fleet.Requests.Failed(&j.fr, a.w, err)
			return failed(record.Failed, err.Error())
		case p.done:
			io.Copy(io.Discard, io.LimitReader(body, 4096)) // to its end, so that the connection can serve again
			return a.ended()
		case p.fail != "":
			return a.errorEvent(&p)
		}
		if err := a.bound(&p); err != nil {
			return failed(record.Failed, err.Error())
		}
		cached = max(cached, p.cached)
		if a.take(p, e.at); len(j.text) > e.most {
			return failed(record.Failed, fmt.Sprintf("the text of the reply is longer than %d bytes", e.most))
		}
		if c.cfg.NoStream {
			return a.ended()
		}
	}
}

// otherModel judges a reply that names another model than the request: another process answers there, or the worker
// has served the base model in place of the adapter.
func (a *attempt) otherModel(name string) outcome {
	requests := a.c.cfg.Fleet.Requests
	requests.Doubt(&a.j.fr)
	if k := a.j.req.Adapter; k != trace.BaseModel {
		a.c.cfg.Fleet.LoRAs.Forget(a.w, k)
	}
	err := fmt.Errorf("a reply of model %q, asked for %q", name, a.names.Sent)
	requests.Failed(&a.j.fr, a.w, err)
	return outcome{kind: again, reason: "the worker answered with another model", lost: true}
}

// ended judges a reply that has ended, and notifies the fleet if it is incomplete.
func (a *attempt) ended() outcome {
	out := a.complete()
	if out.reason == errEarly.Error() {
		a.c.cfg.Fleet.Requests.Failed(&a.j.fr, a.w, errEarly)
	}
	return out
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
	} else if !c.cfg.NoFailover || j.fr.Move != nil || c.cfg.Output != nil ||
		j.req.Reply != nil { // they are needed later
		j.tokens = append(j.tokens, ids...)
	}
	c.cfg.Fleet.Requests.Tokens(&j.fr, fresh, have == 0)
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

// errorEvent judges an error in a reply of status 200. The request has failed, unless no token has come and another
// attempt may help: the adapter is not loaded, or the worker is at fault.
func (a *attempt) errorEvent(p *chunk) outcome {
	reason := p.fail
	switch {
	case a.j.n > a.before && p.failStatus >= http.StatusInternalServerError: // as a connection that breaks
		a.c.cfg.Fleet.Requests.Failed(&a.j.fr, a.w, errors.New(reason))
		out := a.resume(reason)
		out.lost = out.kind == broken
		return out
	case a.j.n > a.before:
	case a.j.req.Adapter >= 0 && fleet.IsNotLoaded(reason):
		a.c.cfg.Fleet.LoRAs.Forget(a.w, a.j.req.Adapter)
		return retry(reason)
	case p.failStatus == http.StatusTooManyRequests,
		p.failStatus >= http.StatusInternalServerError && p.failStatus != http.StatusNotImplemented:
		if fleet.IsFailure(p.failStatus, nil, reason) {
			a.c.cfg.Fleet.Requests.Failed(&a.j.fr, a.w, errors.New(reason))
		}
		return a.retryStatus(p.failStatus, reason, 0)
	}
	return failed(record.Failed, reason)
}

// cutOff judges a stream that broke off.
func (a *attempt) cutOff(err error) outcome {
	cause := a.cause()
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
		err = errEarly
	}
	a.c.cfg.Fleet.Requests.Failed(&a.j.fr, a.w, err)
	if !got {
		return outcome{kind: again, reason: err.Error(), lost: true, failed: true}
	}
	out := a.resume(shorten(err))
	out.lost = out.kind == broken
	return out
}

// resume lets a request continue on another worker with its tokens, if their ids are known.
func (a *attempt) resume(reason string) outcome {
	switch {
	case !a.j.known:
		return failed(record.Failed, reason)
	case a.j.n >= int(a.j.rec.Requested): // only the end of the stream was lost
		return succeeded()
	}
	return outcome{kind: broken, reason: reason, failed: true}
}

// complete judges a reply that has come to its end.
func (a *attempt) complete() outcome {
	switch {
	case a.finish == "abort":
		return a.resume("aborted by the worker")
	case a.finish == "error":
		return failed(record.Failed, "the worker reports an error")
	case a.finish == "" && a.j.n < int(a.j.rec.Requested):
		return a.resume(errEarly.Error())
	}
	return succeeded()
}
