package httpapi

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		text           string
		prompt, output int64
	}{
		{`{"usage":{"prompt_tokens":12,"total_tokens":15,"completion_tokens":3,"prompt_tokens_details":null}}`, 12, 3},
		{`{"usage": {"input_tokens": 7, "output_tokens" : 1234567}}`, 7, 1234567},
		{`data: {"meta_info":{"prompt_tokens":4,"completion_tokens":1,"cached_tokens":2}}` + "\n\n" +
			`data: {"meta_info":{"prompt_tokens":4,"completion_tokens":2,"cached_tokens":2}}` + "\n\ndata: [DONE]\n\n", 4, 2},
		{`{"text":"say \"completion_tokens\": 5 or \"prompt_tokens\":6"}`, -1, -1},
		{`{"completion_tokens":null,"prompt_tokens":-5,"reasoning_tokens":9}`, -1, -1},
		{`{"completion_tokens":99999999999999999999999}`, -1, -1},
		{`{"completion_tokens`, -1, -1}, {``, -1, -1}, {`_tokens":3 "output_tokens":`, -1, -1},
	} {
		u := NewCounts()
		if u.Note([]byte(c.text)); u.Prompt != c.prompt || u.Output != c.output {
			t.Errorf("%s: %d, %d, expected %d, %d", c.text, u.Prompt, u.Output, c.prompt, c.output)
		}
	}
}

// However an answer is cut into parts, the counts are the same.
func TestUsageInParts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pieces := rapid.SliceOf(rapid.SampledFrom([]string{`"prompt_tokens": 12`, `"completion_tokens":3456789`, `,`,
			` `, `x`, `"output_tokens":7,`, strings.Repeat("y", 50), "\n\ndata: "})).Draw(t, "pieces")
		text := strings.Join(append(pieces, "}"), "")
		whole, parts := NewCounts(), NewCounts()
		whole.Note([]byte(text))
		for rest := text; rest != ""; {
			n := min(rapid.IntRange(1, 60).Draw(t, "part"), len(rest))
			parts.Note([]byte(rest[:n]))
			rest = rest[n:]
		}
		if whole.Prompt != parts.Prompt || whole.Output != parts.Output {
			t.Fatalf("%q: %d, %d whole, %d, %d in parts", text, whole.Prompt, whole.Output, parts.Prompt, parts.Output)
		}
	})
}

func BenchmarkUsage(b *testing.B) {
	part := []byte(`data: {"text":"` + strings.Repeat("word ", 60) +
		`","meta_info":{"id":"1","prompt_tokens":400,"completion_tokens":60,"cached_tokens":0}}` + "\n\n")
	b.ReportAllocs()
	b.SetBytes(int64(len(part)))
	u := NewCounts()
	for b.Loop() {
		u.Note(part)
	}
}
