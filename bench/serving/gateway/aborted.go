package gateway

import (
	"bytes"
	"errors"
	"net/http"
	"strings"

	"lorasim/bench/serving/httpapi"
)

// vLLM aborts its requests when it ends (SIGTERM, without --shutdown-timeout), sleeps or pauses. It answers them with
// status 200: a reply, or the end of a stream, with the tokens so far and the finish reason "abort"; or a stream of
// nothing but [DONE]. A client that does not look at the finish reason takes such a reply for whole. The gateway
// sends the request to another worker, or ends a stream that has begun with an error.
//
// sglang aborts a single request, at the wish of an operator (/abort_request): the client gets its answer.

var errAborted = errors.New("the worker aborted the request")

// abortMark finds in a reply that its worker has aborted it: a field of JSON and its value, after a name of the event.
// The zero value finds nothing.
type abortMark struct{ after, field, value string }

// abortMarkOf returns the mark in replies of an engine to requests of a path.
func abortMarkOf(api httpapi.Kind, path string, stream bool) abortMark {
	switch {
	case api != httpapi.VLLM:
	case strings.HasSuffix(path, "/completions"):
		return abortMark{"", `"finish_reason"`, `"abort"`}
	case strings.HasSuffix(path, "/messages") && stream: // Anthropic's interface has no name for it
		return abortMark{"message_delta", `"stop_reason"`, "null"}
	case strings.HasSuffix(path, "/messages"):
		return abortMark{"", `"stop_reason"`, "null"}
	}
	return abortMark{}
}

// in returns the place of the mark in a text, or -1.
func (m abortMark) in(text []byte) int {
	if m.value == "" {
		return -1
	}
	for from := 0; ; {
		i := bytes.Index(text[from:], []byte(m.value))
		if i < 0 {
			return -1
		}
		from += i + len(m.value)
		before, ok := bytes.CutSuffix(bytes.TrimRight(text[:from-len(m.value)], " "), []byte(":"))
		if ok && bytes.HasSuffix(bytes.TrimRight(before, " "), []byte(m.field)) &&
			bytes.Contains(before, []byte(m.after)) {
			return from - len(m.value)
		}
	}
}

// abortedAt returns where the event, or the rest of a reply, begins that the client must not get, because the worker
// has aborted the request. It returns -1 if the part shows nothing of that.
func (a *answer) abortedAt(part []byte) int {
	if a.aborts.value == "" {
		return -1
	}
	if i := a.aborts.in(part); i >= 0 {
		return max(0, bytes.LastIndex(part[:i], []byte("\n\n"))+len("\n\n"))
	}
	var seam [2 * len(a.tail)]byte // the mark may lie across two parts
	n := copy(seam[:], a.tail[:])
	n += copy(seam[n:], part[:min(len(part), len(a.tail))])
	if a.aborts.in(seam[:n]) >= 0 {
		return 0
	}
	return -1
}

// aborted returns the fault of a worker that has aborted a request before the client got anything of the reply.
// Generated says that the reply had tokens.
func (a *answer) aborted(generated bool) *fault {
	a.d.g.cfg.Fleet.Requests.Doubt(&a.d.fr) // it may be about to end
	return &fault{reason: abortedIs, text: errAborted.Error(), lost: generated, other: true, err: errAborted}
}

// noTokens are what the usage of a reply states that has no token.
var noTokens = [][]byte{[]byte(`"completion_tokens":0`), []byte(`"output_tokens":0`)}

// checkAborted returns the fault of a reply that is no stream if the worker has aborted it.
func (a *answer) checkAborted(held []byte) *fault {
	if a.status != http.StatusOK || a.aborts.in(held) < 0 {
		return nil
	}
	for _, none := range noTokens {
		if bytes.Contains(held, none) {
			return a.aborted(false)
		}
	}
	return a.aborted(true)
}
