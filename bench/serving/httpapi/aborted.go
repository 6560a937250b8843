package httpapi

import (
	"bytes"
	"encoding/json"
	"strings"
)

// An AbortMark finds in a reply that its worker has aborted the request: a field of JSON and its value, after another
// text. The zero value finds nothing.
//
// vLLM aborts its requests when it ends (SIGTERM, without --shutdown-timeout), sleeps or pauses. It answers them with
// status 200: a reply, or the end of a stream, with the tokens so far and the finish reason "abort"; or a stream of
// nothing but [DONE]. A client that does not look at the finish reason takes such a reply for whole.
//
// Replies of /v1/responses have no finish reason. The status of an aborted one is "cancelled" for gpt-oss, and
// "completed" for all other models (responses_full_generator in openai/responses/serving.py). The abort shows only
// in a reply without a token. A whole reply has one, even if it is only the end of the text.
//
// sglang aborts a single request, at the wish of an operator (/abort_request): the client gets its answer.
type AbortMark struct {
	after string
	near  int // the most bytes between after and the field; 0: any number
	field string
	value string
}

// AbortMarkOf returns the mark in replies of an engine to requests of a path.
func AbortMarkOf(api Kind, path string, stream bool) AbortMark {
	switch {
	case api != VLLM:
	case strings.HasSuffix(path, "/completions"):
		return AbortMark{field: `"finish_reason"`, value: `"abort"`}
	case strings.HasSuffix(path, "/messages") && stream: // Anthropic's interface has no name for it
		return AbortMark{after: "message_delta", field: `"stop_reason"`, value: "null"}
	case strings.HasSuffix(path, "/messages"):
		return AbortMark{field: `"stop_reason"`, value: "null"}
	case strings.HasSuffix(path, "/responses"): // the texts of the request in the reply may have a status, too
		return AbortMark{after: responsesField, near: len(`"priority",`), field: `"status"`, value: `"cancelled"`}
	}
	return AbortMark{}
}

// responsesField is the field before the status in vLLM's replies of /v1/responses.
const responsesField = `"service_tier":`

// A Response is what tells of an abort in a reply of /v1/responses.
type Response struct {
	Status string `json:"status"`
	Usage  *struct {
		Output *int64 `json:"output_tokens"`
	} `json:"usage"`
}

// Aborted reports whether vLLM has aborted the request, as far as the reply tells.
func (r *Response) Aborted() bool { return r.Status == "cancelled" || r.empty() }

// empty reports whether the reply is at its end and has no token.
func (r *Response) empty() bool {
	return r.Usage != nil && r.Usage.Output != nil && *r.Usage.Output == 0
}

// noTokens are what the usage of a reply states that has no token.
var noTokens = [][]byte{[]byte(`"completion_tokens":0`), []byte(`"output_tokens":0`)}

// InWhole reports whether the worker has aborted a reply that is no stream, and whether it has tokens. The end of the
// reply may be missing.
func (m AbortMark) InWhole(reply []byte) (aborted, tokens bool) {
	if m.after == responsesField {
		var r Response
		if json.Unmarshal(reply, &r) == nil {
			return r.Aborted(), !r.empty()
		}
	}
	if m.In(reply) < 0 {
		return false, true
	}
	for _, none := range noTokens {
		if bytes.Contains(reply, none) {
			return true, false
		}
	}
	return true, true
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
		before, named := bytes.CutSuffix(bytes.TrimRight(before, " "), []byte(m.field))
		if m.near > 0 {
			before = before[max(0, len(before)-m.near-len(m.after)):]
		}
		if ok && named && bytes.Contains(before, []byte(m.after)) {
			return from - len(m.value)
		}
	}
}
