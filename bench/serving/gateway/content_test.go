package gateway

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// verdicts are events of the engines' interfaces.
var verdicts = []struct {
	data string
	want verdict
}{
	// completions and chat: vLLM 0.32, sglang 0.5.23
	{`{"id":"c","choices":[{"index":0,"text":" t1","logprobs":null,"finish_reason":null}]}`, content},
	{`{"id":"c","choices":[{"index":0,"text":"","logprobs":null,"finish_reason":null}],"usage":null}`, empty},
	{`{"id":"c","choices":[{"index":0,"text":"","finish_reason":"stop"}]}`, content},
	{`{"id":"c","choices":[{"index":0,"text":"","token_ids":[5],"finish_reason":null}]}`, content},
	{`{"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}`, empty},
	{`{"choices":[{"index":0,"delta":{"role":"assistant","content":null,"tool_calls":[]},"finish_reason":null}]}`, empty},
	{`{"choices": [{"index": 0, "delta": {"role": "assistant", "content": "Hi"}}]}`, content},
	{`{"choices":[{"index":0,"delta":{"reasoning_content":"Hm","content":""}}]}`, content},
	{`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"type":"function","function":{"name":"f"}}]}}]}`, content},
	{`{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":0}}`, empty},
	// sglang's /generate
	{`{"text":"","output_ids":[],"meta_info":{"id":"x","finish_reason":null}}`, empty},
	{`{"text":"","output_ids":[7],"meta_info":{"id":"x","finish_reason":null}}`, content},
	{`{"text":" a","output_ids":[7],"meta_info":{"id":"x","finish_reason":null}}`, content},
	// messages
	{`{"type":"message_start","message":{"id":"m","content":[],"model":"l1"}}`, empty},
	{`{"type":"ping"}`, empty},
	{`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`, empty},
	{`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","name":"f","input":{}}}`, content},
	{`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}`, content},
	{`{"type":"message_stop"}`, content},
	{`{"type":"error","error":{"type":"overloaded_error","message":"full"}}`, refused},
	// responses
	{`{"type":"response.created","response":{"id":"r","instructions":"x","text":{"format":{"type":"text"}}}}`, empty},
	{`{"type":"response.output_item.added","item":{"type":"message","content":[]}}`, empty},
	{`{"type":"response.output_item.added","item":{"type":"function_call","name":"f"}}`, content},
	{`{"type":"response.output_text.delta","delta":"Hi"}`, content},
	{`{"type":"response.failed","response":{}}`, content},
	{`{"type":"response.completed","response":{"status":"completed","usage":{"output_tokens":1}}}`, content},
	{`{"type":"response.completed","response":{"status":"incomplete","usage":{"output_tokens":1}}}`, content},
	{`{"type":"response.completed","response":{"status":"completed","usage":null}}`, content},
	{`{"type":"response.completed","response":{"status":"completed","usage":{"output_tokens":0}}}`, aborted},
	{`{"type":"response.completed","response":{"status":"cancelled","usage":{"output_tokens":9}}}`, aborted},
	// errors, the end, and what is unknown
	{`{"error":{"message":"EngineCore encountered an issue.","code":500}}`, refused},
	{`{"error":"a text"}`, refused},
	{`{"error":null,"choices":[{"delta":{"role":"assistant"}}]}`, empty},
	{`{"choices":[{"index":0,"text":"","finish_reason":"abort"}]}`, aborted},
	{`{"choices":[{"index":0,"text":"a","finish_reason":"abort"}]}`, aborted},
	{`{"choices":[{"index":0,"delta":{"content":""},"finish_reason":"abort"}]}`, aborted},
	{`{"choices":[{"index":0,"text":"\"abort\"","finish_reason":null}]}`, content},
	{`{"type":"message_delta","delta":{"stop_reason":null,"stop_sequence":null}}`, aborted},
	{`{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null}}`, content},
	{`{"text":"","output_ids":[],"meta_info":{"finish_reason":{"type":"abort","message":"full","status_code":503}}}`,
		refused},
	{`{"text":"","output_ids":[],"meta_info":{"finish_reason":{"type":"abort","message":"Aborted"}}}`, content},
	{`[DONE]`, ended},
	{`1`, content},
	{`{"something":"else"}`, content},
}

// What of a stream is content.
func TestJudge(t *testing.T) {
	for _, c := range verdicts {
		if got := judge([]byte(c.data)); got != c.want {
			t.Errorf("%s: %d, expected %d", c.data, got, c.want)
		}
	}
}

// A stream is judged by its first event that is not empty, wherever it is cut and however its lines end.
func TestScan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		end := rapid.SampledFrom([]string{"\n", "\r\n", "\r"}).Draw(t, "end")
		var stream strings.Builder
		want, at := empty, -1
		for i := range rapid.IntRange(0, 8).Draw(t, "events") {
			if rapid.IntRange(0, 3).Draw(t, "comment") == 0 {
				stream.WriteString(": still here" + end + end)
			}
			e := rapid.SampledFrom(verdicts).Draw(t, "event")
			stream.WriteString("event: x" + end + "data: " + e.data + end + end)
			if want == empty {
				want, at = e.want, i
			}
		}
		text := []byte(stream.String() + "id: 1") // so that the last \r is known to be no \r\n
		lines, got := eventLines{}, empty
		for from := 0; from < len(text) && got == empty; {
			from += rapid.IntRange(1, 40).Draw(t, "piece")
			got = lines.scan(text[:min(from, len(text))])
		}
		if got != want {
			t.Fatalf("%d, expected %d by event %d of %q", got, want, at, text)
		}
	})
}

// Without its comments a stream is the same stream.
func TestTakeComments(t *testing.T) {
	stream := []byte(": one\n\nevent: x\n: two\r\ndata: {\"choices\":[]}\n\n:three\ndata: {\"cho")
	lines := eventLines{}
	if v := lines.scan(stream); v != empty {
		t.Fatal(v)
	}
	rest, comments := lines.takeComments(stream)
	if want := "\nevent: x\ndata: {\"choices\":[]}\n\ndata: {\"cho"; string(rest) != want {
		t.Errorf("%q, expected %q", rest, want)
	}
	if want := ": one\n\n: two\n\n:three\n\n"; string(comments) != want {
		t.Errorf("comments %q, expected %q", comments, want)
	}
	if v := lines.scan(append(rest, "ices\":[{\"text\":\"a\"}]}\n"...)); v != content || !bytes.Contains(lines.data,
		[]byte(`"text"`)) {
		t.Errorf("the next event: %d, %q", v, lines.data)
	}
}

func BenchmarkJudge(b *testing.B) {
	for _, data := range []string{verdicts[0].data, verdicts[4].data, verdicts[17].data} {
		b.Run(data[:20], func(b *testing.B) {
			for b.Loop() {
				judge([]byte(data))
			}
		})
	}
}
