package emulate

import (
	"maps"
	"net/http"
)

// The forms of chats beside OpenAI's chat completions, as sglang answers them.

func (s sglang) early() bool { return false }

func (s sglang) refuseMessages(rw http.ResponseWriter, err error) {
	r := s.refusal(err)
	writeJSON(rw, r.status, object{"type": "error", "error": object{"type": anthropicKinds[r.status],
		"message": r.text}})
}

// refuseResponses answers with status 400 also if the queue is full.
func (s sglang) refuseResponses(rw http.ResponseWriter, err error) {
	r := s.refusal(err)
	if r.kind != "Bad Request" {
		r.kind = "invalid_request_error"
	}
	if r.status == http.StatusServiceUnavailable {
		r.status = http.StatusBadRequest
	}
	writeJSON(rw, r.status, object{"error": r.plain()})
}

func (s sglang) message(o object) object { return o }

func (s sglang) messageStart(b []byte, m *messageReply, j *job) []byte {
	return named(b, "message_start", object{"message": object{"id": m.id, "type": "message", "role": "assistant",
		"content": []any{},
		"model":   m.model, "usage": object{"input_tokens": j.prompt, "output_tokens": 0}}})
}

func (s sglang) messageDelta(b []byte, m *messageReply, j *job) []byte {
	return named(b, "message_delta", object{"delta": object{"stop_reason": m.stop(j)},
		"usage": object{"output_tokens": len(j.out)}})
}

func (s sglang) count(tokens int) object { return object{"input_tokens": tokens} }

// response adds what the reply has beside its text.
func (s sglang) response(o object) object {
	for _, name := range []string{"error", "instructions", "previous_response_id", "top_p", "user", "text"} {
		o[name] = nil
	}
	if o["status"] != "in_progress" {
		o["text"] = object{"format": object{"type": "text"}}
	}
	maps.Copy(o, object{"parallel_tool_calls": true, "tool_choice": "auto", "tools": []any{}, "store": true,
		"temperature": 1.0,
		"truncation":  "disabled", "metadata": object{}, "reasoning": object{"effort": nil, "summary": nil}})
	return o
}

func (s sglang) responseUsage(j *job) object {
	return object{"input_tokens": j.prompt, "output_tokens": len(j.out), "total_tokens": j.prompt + len(j.out),
		"input_tokens_details":  object{"cached_tokens": j.cached, "cache_write_tokens": 0},
		"output_tokens_details": object{"reasoning_tokens": 0}}
}

func (s sglang) responsesEnd(b []byte) []byte { return b }

// noResponse answers /v1/responses/ID, whose ids begin with resp_.
func (s sglang) noResponse(rw http.ResponseWriter, r *http.Request) {
	writeJSON(rw, http.StatusBadRequest, object{"error": (&refusal{http.StatusBadRequest, "invalid_request_error",
		"Invalid 'response_id'", "response_id"}).plain()})
}

func (s sglang) tokenized(rw http.ResponseWriter, _ *tokenizeRequest, ids []int32) {
	writeJSON(rw, http.StatusOK, object{"count": len(ids), "max_model_len": s.w.context(), "tokens": ids})
}

func (s sglang) detokenized(text string) object { return object{"text": text} }

func (s sglang) phase() any { return "final_answer" }

// checkResponses refuses names of no model, which other forms take for the base model.
func (s sglang) checkResponses(model, adapter string) error {
	_, loaded := s.w.lookup(model)
	if model == "" || model == s.w.cfg.ModelName || adapter != "" || loaded {
		return nil
	}
	return errNoModel(model)
}
