package httpapi

import (
	"strings"
	"testing"
)

// TestAbortedWhole: which replies that are no stream tell of an abort, and whether they have tokens.
func TestAbortedWhole(t *testing.T) {
	const texts, responses = "/v1/completions", "/v1/responses"
	const usage = `"usage":{"input_tokens":3,"output_tokens":5,"output_tokens_details":{"reasoning_tokens":0}}}`
	for _, c := range []struct {
		api             Kind
		path, reply     string
		aborted, tokens bool
	}{
		{VLLM, texts, `{"finish_reason":"abort","usage":{"completion_tokens":5}}`, true, true},
		{VLLM, texts, `{"finish_reason":"abort","usage":{"completion_tokens":0}}`, true, false},
		{VLLM, texts, `{"finish_reason":"stop","usage":{"completion_tokens":5}}`, false, true},
		{SGLang, texts, `{"choices":[{"finish_reason":"abort"}]}`, false, true},
		{VLLM, responses, `{"service_tier":"auto","status":"completed",` + usage, false, true},
		{VLLM, responses, `{"service_tier":"auto","status":"incomplete",` + usage, false, true},
		{VLLM, responses, `{"service_tier":"auto","status":"cancelled",` + usage, true, true},
		{VLLM, responses, `{"status":"completed","usage":{"output_tokens":0}}`, true, false},
		{VLLM, responses, `{"status":"incomplete","usage":{"output_tokens":0}}`, true, false},
		{VLLM, responses, `{"status":"queued","usage":null}`, false, true},
		{VLLM, responses, `{"metadata":{"status":"cancelled"},"status":"completed",` + usage, false, true},
		{VLLM, responses, `{"output":["` + strings.Repeat("a", 100) + // without its end
			`"],"service_tier":"priority","status":"cancelled"`, true, true},
		{VLLM, responses, `{"metadata":{"status":"cancelled"},"output":["`, false, true},
		{VLLM, responses, `{"service_tier":"auto","status":"completed","text":{"x":[{"status":"cancelled"}`, false, true},
		{SGLang, responses, `{"status":"completed","usage":{"output_tokens":0}}`, false, true},
	} {
		aborted, tokens := AbortMarkOf(c.api, c.path, false).InWhole([]byte(c.reply))
		if aborted != c.aborted || tokens != c.tokens {
			t.Errorf("%s %s %s: aborted %v, tokens %v", c.api, c.path, c.reply, aborted, tokens)
		}
	}
}
