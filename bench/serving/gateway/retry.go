package gateway

import (
	"errors"
	"net/http"

	"lorasim/bench/serving/fleet"
	"lorasim/bench/serving/wire"
)

// fault is why a worker brought no answer to pass on. Its reason is a label of
// lorasim_gateway_retries_total if another worker is asked.
type fault struct {
	reason string
	text   string // for the client
	lost   bool   // the worker may have executed the request
}

// The reasons.
const (
	notLoaded  = "load"     // the adapter could not be loaded; nothing was sent
	notSent    = "connect"  // no connection, or nothing was written
	noReply    = "no_reply" // the connection ended after the request was sent
	noAnswer   = "timeout"  // no first byte in time
	busy       = "refused"  // status 429 or 503: not executed
	notFound   = "not_found"
	badStatus  = "status" // 500 or more, other than 501 and 503
	noAnswerIs = "the worker did not answer"
)

// unanswered returns the fault of a request whose sending ended with an error.
func unanswered(err error) *fault {
	switch {
	case wire.Unsent(err):
		return &fault{notSent, noAnswerIs, false}
	case errors.Is(err, errFirstByte), errors.Is(err, fleet.ErrHung), errors.Is(err, fleet.ErrStalled):
		return &fault{noAnswer, noAnswerIs, true}
	}
	return &fault{noReply, noAnswerIs, true}
}

// answered returns the fault of an answer with a status for which another worker may help.
func answered(status int, text string) *fault {
	switch status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return &fault{busy, text, false}
	case http.StatusNotFound:
		return &fault{notFound, text, false}
	}
	return &fault{badStatus, text, true}
}

// mayLose reports whether one more worker may get the request and fail.
func (d *dispatch) mayLose() bool { return d.lost+1 < fleet.MaxLost }
