package httpapi

import (
	"bytes"
	"strings"
)

// An AbortMark finds in a reply that its worker has aborted the request: a field of JSON and its value, after a name
// of the event. The zero value finds nothing.
//
// vLLM aborts its requests when it ends (SIGTERM, without --shutdown-timeout), sleeps or pauses. It answers them with
// status 200: a reply, or the end of a stream, with the tokens so far and the finish reason "abort"; or a stream of
// nothing but [DONE]. A client that does not look at the finish reason takes such a reply for whole.
//
// sglang aborts a single request, at the wish of an operator (/abort_request): the client gets its answer.
type AbortMark struct{ after, field, value string }

// AbortMarkOf returns the mark in replies of an engine to requests of a path.
func AbortMarkOf(api Kind, path string, stream bool) AbortMark {
	switch {
	case api != VLLM:
	case strings.HasSuffix(path, "/completions"):
		return AbortMark{"", `"finish_reason"`, `"abort"`}
	case strings.HasSuffix(path, "/messages") && stream: // Anthropic's interface has no name for it
		return AbortMark{"message_delta", `"stop_reason"`, "null"}
	case strings.HasSuffix(path, "/messages"):
		return AbortMark{"", `"stop_reason"`, "null"}
	}
	return AbortMark{}
}

// None reports whether the mark is the zero value.
func (m AbortMark) None() bool { return m.value == "" }

// In returns the place of the mark in a text, or -1.
func (m AbortMark) In(text []byte) int {
	if m.None() {
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
