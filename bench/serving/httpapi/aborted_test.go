package httpapi

import (
	"strings"
	"testing"
)

// TestAbortedWhole: which replies that are no stream tell of an abort, and whether they have tokens.
func TestAbortedWhole(t *testing.T) {
	const completions, responses = "/v1/completions", "/v1/responses"
	const usage = `"usage":{"input_tokens":3,"output_tokens":5,"output_tokens_details":{"reasoning_tokens":0}}}`
	for _, c := range []struct {
		api             Kind
		path, reply     string
		aborted, tokens bool
	}{
		{VLLM, "/v1/completions", `{"choices":[{"finish_reason":"abort"}],"usage":{"completion_tokens":5}}`, true, true},
		{VLLM, "/v1/completions", `{"choices":[{"finish_reason":"abort"}],"usage":{"completion_tokens":0}}`, true, false},
		{VLLM, "/v1/completions", `{"choices":[{"finish_reason":"stop"}],"usage":{"completion_tokens":5}}`, false, true},
		{SGLang, "/v1/completions", `{"choices":[{"finish_reason":"abort"}]}`, false, true},
		{VLLM, "/v1/responses", `{"service_tier":"auto","status":"completed",` + usage, false, true},
		{VLLM, "/v1/responses", `{"service_tier":"auto","status":"incomplete",` + usage, false, true},
		{VLLM, "/v1/responses", `{"service_tier":"auto","status":"cancelled",` + usage, true, true},
		{VLLM, "/v1/responses", `{"status":"completed","usage":{"output_tokens":0}}`, true, false},
		{VLLM, "/v1/responses", `{"status":"incomplete","usage":{"output_tokens":0}}`, true, false},
		{VLLM, "/v1/responses", `{"status":"queued","usage":null}`, false, true},
		{VLLM, "/v1/responses", `{"metadata":{"status":"cancelled"},"status":"completed",` + usage, false, true},
		{VLLM, "/v1/responses", `{"output":["` + strings.Repeat("a", 100) + `"],"service_tier":"priority","status":"cancelled"`,
			true, true}, // without its end
		{VLLM, "/v1/responses", `{"metadata":{"status":"cancelled"},"output":["`, false, true},
		{VLLM, "/v1/responses", `{"service_tier":"auto","status":"completed","text":{"examples":[{"status":"cancelled"}`,
			false, true},
		{SGLang, "/v1/responses", `{"status":"completed","usage":{"output_tokens":0}}`, false, true},
	} {
		aborted, tokens := AbortMarkOf(c.api, c.path, false).InWhole([]byte(c.reply))
		if aborted != c.aborted || tokens != c.tokens {
			t.Errorf("%s %s %s: aborted %v, tokens %v", c.api, c.path, c.reply, aborted, tokens)
		}
	}
}
