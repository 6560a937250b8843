package gateway

import (
	"bytes"
	"errors"
	"net/http"
	"time"
)

// The gateway sends a request that vLLM has aborted to another worker, or ends a stream that has begun with an error.

var errAborted = errors.New("the worker aborted the request")

// abortedAt returns where the event, or the rest of a reply, begins that the client must not get, because the worker
// has aborted the request. It returns -1 if the part shows nothing of that.
func (a *answer) abortedAt(part []byte) int {
	if a.aborts.None() {
		return -1
	}
	if i := a.aborts.In(part); i >= 0 {
		return max(0, bytes.LastIndex(part[:i], []byte("\n\n"))+len("\n\n"))
	}
	var seam [2 * len(a.tail)]byte // the mark may lie across two parts
	n := copy(seam[:], a.tail[:])
	n += copy(seam[n:], part[:min(len(part), len(a.tail))])
	if a.aborts.In(seam[:n]) >= 0 {
		return 0
	}
	return -1
}

// abortPause is how long a worker that aborts requests gets new ones only if no other worker can take them. With
// --shutdown-timeout, vLLM lets requests end after SIGTERM and aborts new ones at once, while /health answers 200.
const abortPause = 5 * time.Second

// aborted returns the fault of a worker that has aborted a request before the client got anything of the reply.
// Generated says that the reply had tokens.
func (a *answer) aborted(generated bool) *fault {
	a.d.g.cfg.Fleet.Requests.Doubt(&a.d.fr)
	a.d.g.cfg.Fleet.Requests.Postpone(a.w, abortPause)
	return &fault{reason: abortedIs, text: errAborted.Error(), lost: generated, other: true, err: errAborted}
}

// checkAborted returns the fault of a reply that is no stream if the worker has aborted it.
func (a *answer) checkAborted(held []byte) *fault {
	if a.status != http.StatusOK || a.aborts.None() {
		return nil
	}
	if aborted, tokens := a.aborts.InWhole(held); aborted {
		return a.aborted(tokens)
	}
	return nil
}
