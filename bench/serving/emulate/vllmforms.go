package emulate

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
)

// The forms of chats beside OpenAI's chat completions, as vLLM answers them.

func (v vllm) early() bool { return true }

func (v vllm) refuseMessages(rw http.ResponseWriter, err error) {
	if _, ok := errors.AsType[errBody](err); ok {
		v.refuse(rw, err)
		return
	}
	r := v.refusal(err)
	writeJSON(rw, r.status, object{"type": "error", "error": object{"type": r.kind, "message": r.text}})
}

func (v vllm) refuseResponses(rw http.ResponseWriter, err error) { v.refuse(rw, err) }

func (v vllm) message(o object) object { return o }

func (v vllm) messageStart(b []byte, m *messageReply, j *job) []byte {
	return named(b, "message_start", object{"message": object{"id": m.id, "type": "message", "role": "assistant",
		"content": []any{},
		"model":   m.model, "stop_reason": nil, "stop_sequence": nil, "usage": object{"input_tokens": j.prompt,
			"output_tokens": 0}}})
}

func (v vllm) messageDelta(b []byte, m *messageReply, j *job) []byte {
	return named(b, "message_delta", object{"delta": object{"stop_reason": m.stop(j), "stop_sequence": nil},
		"usage": object{"input_tokens": j.prompt, "output_tokens": len(j.out)}})
}

func (v vllm) count(tokens int) object {
	return object{"input_tokens": tokens, "context_management": object{"original_input_tokens": tokens}}
}

// response adds what the reply has beside its text (ResponsesResponse in openai/responses/protocol.py).
func (v vllm) response(o object) object {
	for _, name := range []string{"instructions", "metadata", "max_tool_calls", "previous_response_id", "prompt",
		"reasoning",
		"text", "top_logprobs", "user", "kv_transfer_params", "ec_transfer_params", "input_messages",
		"output_messages"} {
		o[name] = nil
	}
	maps.Copy(o, object{"parallel_tool_calls": true, "temperature": 1.0, "tool_choice": "auto", "tools": []any{},
		"top_p":      1.0,
		"background": false, "service_tier": "auto", "truncation": "disabled", "presence_penalty": 0.0,
		"frequency_penalty": 0.0})
	return o
}

func (v vllm) responseUsage(j *job) object {
	return object{"input_tokens": j.prompt, "output_tokens": len(j.out), "total_tokens": j.prompt + len(j.out),
		"input_tokens_details": object{"cached_tokens": j.cached, "cache_write_tokens": 0,
			"input_tokens_per_turn":  []any{},
			"cached_tokens_per_turn": []any{}},
		"output_tokens_details": object{"reasoning_tokens": 0, "tool_output_tokens": 0,
			"output_tokens_per_turn":      []any{},
			"tool_output_tokens_per_turn": []any{}}}
}

// noResponse answers /v1/responses/ID: no reply is kept.
func (v vllm) noResponse(rw http.ResponseWriter, r *http.Request) {
	writeJSON(rw, http.StatusNotFound, object{"error": (&refusal{http.StatusNotFound, "invalid_request_error",
		fmt.Sprintf("Response with id '%s' not found.", strings.TrimPrefix(r.URL.Path, "/v1/responses/")),
		"response_id"}).plain()})
}

func (v vllm) responsesEnd(b []byte) []byte { return b }

func (v vllm) tokenized(rw http.ResponseWriter, q *tokenizeRequest, ids []int32) {
	if _, _, err := v.adapter(q.Model, ""); err != nil {
		v.refuse(rw, err)
		return
	}
	writeJSON(rw, http.StatusOK, object{"count": len(ids), "max_model_len": v.w.context(), "tokens": ids,
		"token_strs": nil})
}

// detokenize serves /detokenize.
func (w *Worker) detokenize() http.HandlerFunc {
	return reading(w.say.badBody, func(rw http.ResponseWriter, r *http.Request, q *tokenizeRequest) {
		writeJSON(rw, http.StatusOK, w.say.detokenized(Text(q.Tokens)))
	})
}

func (v vllm) detokenized(text string) object { return object{"prompt": text} }

func (v vllm) phase() any { return nil }

func (v vllm) checkResponses(string, string) error { return nil }
