package gateway

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"lorasim/bench/serving/fleet"
	"lorasim/bench/serving/wire"
	"lorasim/router"
)

// fault is why a worker brought no answer to pass on. Its reason is a label of
// lorasim_gateway_retries_total if another worker is asked.
type fault struct {
	reason string
	text   string // for the client
	lost   bool   // the worker may have executed the request
	other  bool   // only another worker can help
	err    error  // what speaks against the worker; nil: nothing, or it has been noted
}

// The reasons.
const (
	notLoaded  = "load"     // the adapter could not be loaded; nothing was sent
	notSent    = "connect"  // no connection, or nothing was written
	noReply    = "no_reply" // the connection ended before the first content of the reply
	noAnswer   = "timeout"  // no content in time
	busy       = "refused"  // status 429 or 503: not executed
	keyRefused = "key"      // status 401 to the gateway's own key: not executed
	notFound   = "not_found"
	changed    = "changed" // another process is at the worker's URL, or it lacks the adapter; nothing was sent
	wrongModel = "model"   // the reply names another model than the request
	abortedIs  = "aborted" // vLLM aborted the request, with status 200
	badStatus  = "status"  // 500 or more, other than 501 and 503
	noAnswerIs = "the worker did not answer"
	noKeyIs    = "the worker does not accept the key of the gateway"
)

// unanswered notes an error of a request that was sent to a worker, and returns its fault.
func (d *dispatch) unanswered(a *answer, err error) *fault {
	if errors.Is(err, fleet.ErrChanged) {
		return &fault{reason: changed, text: err.Error()}
	}
	if d.r.Context().Err() == nil && d.parsed.failed() == nil {
		d.fault(a.w, err)
		d.g.workers.Log("worker %d (%s): %v", a.w, d.g.cfg.Fleet.URL(a.w), err)
	}
	f := &fault{reason: noReply, text: noAnswerIs, lost: true, other: true}
	switch {
	case wire.Unsent(err):
		return &fault{reason: notSent, text: noAnswerIs}
	case errors.Is(err, errFirstByte), errors.Is(err, errIdle), fleet.IsHang(err):
		f.reason = noAnswer
	}
	return f
}

// answered returns the fault of an answer with a status for which another worker may help.
func answered(status int, text string) *fault {
	switch status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return &fault{reason: busy, text: text}
	case http.StatusUnauthorized:
		return &fault{reason: keyRefused, text: noKeyIs, other: true}
	case http.StatusNotFound:
		return &fault{reason: notFound, text: text}
	}
	return &fault{reason: badStatus, text: text, lost: true, other: true}
}

// goesOn reports whether a request goes on after one more fault: to a worker that has not been tried, or back to one
// that has not executed it and has not asked for a pause.
func (d *dispatch) goesOn(f *fault) bool {
	if f.lost && d.lost+1 >= fleet.MaxLost {
		return false
	}
	return d.another() || !f.other && !d.postponed
}

// another reports whether a worker that has not been tried can take the request.
func (d *dispatch) another() bool {
	if d.booked {
		return d.g.cfg.Fleet.Requests.Takes(&d.fr, d.tried...)
	}
	return d.next() != router.None
}

// The pauses before a request goes back to a worker: up to firstPause at random, then twice as long each time. They are
// those of Envoy's retries.
const (
	firstPause = 25 * time.Millisecond
	mostPause  = 250 * time.Millisecond
)

// pause waits before the request goes back to a worker, or until its client has gone.
func (d *dispatch) pause() {
	t := time.NewTimer(rand.N(min(firstPause<<min(len(d.tried)-1, 10), mostPause)))
	defer t.Stop()
	select {
	case <-t.C:
	case <-d.r.Context().Done():
	}
}

// postpone notes the time for which a worker that is busy asks for no requests.
func (d *dispatch) postpone(w int, resp *http.Response) {
	if code := resp.StatusCode; code != http.StatusTooManyRequests && code != http.StatusServiceUnavailable {
		return
	}
	after := fleet.RetryAfter(resp.Header, time.Now())
	if d.postponed = after > 0; d.postponed {
		d.g.cfg.Fleet.Requests.Postpone(w, after)
	}
}

// keyRefused reports whether a status means that a worker does not accept the key of the gateway. Without such a key,
// the client's own goes to the worker.
func (d *dispatch) keyRefused(status int) bool {
	return status == http.StatusUnauthorized && d.g.sendsKey()
}

// sendsKey reports whether the gateway has a key for workers.
func (g *Gateway) sendsKey() bool { return g.workers.Header.Get("Authorization") != "" }
