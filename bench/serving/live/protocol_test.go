package live

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

func readAll(r io.Reader) (list []string, err error) {
	var e eventReader
	e.reset(r, nil)
	for {
		data, err := e.next(false)
		if err != nil {
			return list, err
		}
		list = append(list, string(data))
	}
}

func TestEventReader(t *testing.T) {
	for _, c := range []struct {
		stream string
		want   []string
	}{
		{"data: a\n\ndata: b\n\n", []string{"a", "b"}},
		{"data:a\r\n\r\n", []string{"a"}},
		{": comment\nevent: x\nid: 1\ndata: {\"a\": \"data: b\"}\n\n", []string{`{"a": "data: b"}`}},
		{"data: whole\n\ndata: cut off", []string{"whole"}},
		{"", nil},
	} {
		got, err := readAll(strings.NewReader(c.stream))
		if !errors.Is(err, io.EOF) || !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, %v; expected %q", c.stream, got, err, c.want)
		}
	}
}

// Events are the same however the bytes are cut into reads.
func TestEventReaderCuts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOf(rapid.StringMatching(`[a-z{}:" ]{0,40}[a-z]`)).Draw(t, "events")
		if len(want) > 0 && rapid.Bool().Draw(t, "long") {
			want[0] = strings.Repeat("x", rapid.IntRange(4000, 20000).Draw(t, "length"))
		}
		var stream strings.Builder
		for i := range want {
			want[i] = strings.TrimSpace(want[i])
			stream.WriteString("data: " + want[i] + "\n\n")
		}
		got, err := readAll(&chopped{strings.NewReader(stream.String()),
			rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))})
		if !errors.Is(err, io.EOF) || !slices.Equal(got, want) {
			t.Fatalf("%d events, %v; expected %d", len(got), err, len(want))
		}
	})
	if got, err := readAll(iotest.OneByteReader(strings.NewReader("data: a\n\n"))); len(got) != 1 ||
		!errors.Is(err, io.EOF) {
		t.Errorf("byte by byte: %q %v", got, err)
	}
}

type chopped struct {
	r   io.Reader
	rng *rand.Rand
}

func (c *chopped) Read(b []byte) (int, error) {
	return c.r.Read(b[:1+c.rng.IntN(len(b))])
}

func TestBodies(t *testing.T) {
	a := payload{rid: "r", model: "base", adapter: `ad"apter`, prompt: []int32{1, 2}, maxNew: 5, stream: true,
		ignoreEOS: true, extra: []byte(`"top_p": 0.5`)}
	for _, name := range backends {
		b := Backend(name)
		var v map[string]any
		if err := json.Unmarshal(b.body(nil, &a), &v); err != nil {
			t.Fatalf("%s: %v in %s", b, err, b.body(nil, &a))
		}
		if v["stream"] != true || v["top_p"] != 0.5 {
			t.Errorf("%s: %v", b, v)
		}
		want := map[Backend]string{SGLangOAI: `base:ad"apter`, SGLangOAIChat: `base:ad"apter`, VLLM: `ad"apter`,
			VLLMChat: `ad"apter`}[b]
		if b == SGLang && v["lora_path"] != `ad"apter` || b != SGLang && v["model"] != want {
			t.Errorf("%s: adapter in %v", b, v)
		}
	}
}

// The forms that replies come in, and what the client makes of them.
func TestParse(t *testing.T) {
	for _, c := range []struct {
		name    string
		backend Backend
		data    string
		want    chunk
		wrong   bool
	}{
		{"sglang", SGLang, `{"text":"a","output_ids":[5],"meta_info":{"id":"x","finish_reason":null,"completion_tokens":1}}`, chunk{text: true, total: 1, ids: []int32{5}}, false},
		{"sglang, older, no ids", SGLang, `{"text":"a","meta_info":{"finish_reason":{"type":"stop"},"completion_tokens":3}}`, chunk{text: true, total: 3, finish: "stop"}, false},
		{"sglang, no text yet", SGLang, `{"text":"","meta_info":{"completion_tokens":0}}`, chunk{}, false},
		{"sglang, error", SGLang, `{"error":{"message":"too long"}}`, chunk{total: -1, fail: "too long"}, false},
		{"sglang, error text", SGLang, `{"error":"bad"}`, chunk{total: -1, fail: "bad"}, false},
		{"sglang, other object", SGLang, `{}`, chunk{}, true},
		{"sglang, negative", SGLang, `{"meta_info":{"completion_tokens":-1}}`, chunk{}, true},
		{"no JSON", SGLang, `{"text":`, chunk{}, true},
		{"the end", SGLang, `[DONE]`, chunk{done: true, total: -1}, false},
		{"completion", SGLangOAI, `{"choices":[{"text":"a","finish_reason":null}]}`, chunk{text: true, total: -1},
			false},
		{"completion, ids", VLLM, `{"choices":[{"text":"a","token_ids":[7],"finish_reason":"length"}]}`,
			chunk{text: true, total: -1, ids: []int32{7}, finish: "length"}, false},
		{"usage", VLLM, `{"choices":[],"usage":{"completion_tokens":9}}`, chunk{total: 9}, false},
		{"chat", VLLMChat, `{"choices":[{"delta":{"content":"a"}}]}`, chunk{text: true, total: -1}, false},
		{"chat, role alone", VLLMChat, `{"choices":[{"delta":{"role":"assistant","content":""}}]}`, chunk{total: -1},
			false},
		{"error", VLLM, `{"error":{"message":"no"}}`, chunk{total: -1, fail: "no"}, false},
		{"error, vLLM's older form", VLLM, `{"object":"error","message":"no"}`, chunk{}, true},
	} {
		got, err := new(parser).parse(c.backend, []byte(c.data))
		if (err != nil) != c.wrong {
			t.Errorf("%s: error %v", c.name, err)
			continue
		}
		if !c.wrong && (got.text != c.want.text || got.total != c.want.total || !slices.Equal(got.ids, c.want.ids) ||
			got.finish != c.want.finish || got.fail != c.want.fail || got.done != c.want.done) {
			t.Errorf("%s: %+v, expected %+v", c.name, got, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("data: {\"text\":\"a\",\"output_ids\":[5],\"meta_info\":{\"finish_reason\":{\"type\":\"abort\"},\"completion_tokens\":1}}\n\ndata: [DONE]\n\n"))
	f.Add([]byte("data: {\"choices\":[{\"text\":\"a\",\"token_ids\":[1],\"finish_reason\":\"x\"}],\"usage\":{\"completion_tokens\":1}}\r\n"))
	f.Add([]byte("event: x\n\n:\ndata: {\"error\":[]}\n"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		whole, err := readAll(bytes.NewReader(stream))
		if !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		cut, _ := readAll(iotest.OneByteReader(bytes.NewReader(stream)))
		if !slices.Equal(whole, cut) {
			t.Fatalf("whole %q, byte by byte %q", whole, cut)
		}
		var r parser
		for _, data := range whole {
			for _, b := range backends {
				if p, err := r.parse(Backend(b), []byte(data)); err == nil && p.total < -1 {
					t.Fatalf("%s: %+v", data, p)
				}
			}
		}
	})
}

// A prompt is a function of seed and id, in the vocabulary's range.
func TestPrompt(t *testing.T) {
	a := prompt(1, 5, 1000, 50)
	if !slices.Equal(a, prompt(1, 5, 1000, 50)) || slices.Equal(a, prompt(2, 5, 1000, 50)) ||
		slices.Equal(a, prompt(1, 6, 1000, 50)) {
		t.Error("the prompt is not a function of seed and id alone")
	}
	if slices.Min(a) < lowestToken || slices.Max(a) >= 50 {
		t.Errorf("tokens from %d to %d", slices.Min(a), slices.Max(a))
	}
}

func BenchmarkEvents(b *testing.B) {
	event := "data: {\"text\": \" t10673 t17117\", \"output_ids\": [10673, 17117], \"meta_info\": {\"id\": \"x\", \"finish_reason\": null, \"prompt_tokens\": 2, \"completion_tokens\": 2, \"cached_tokens\": 0}}\n\n"
	var r parser
	var e eventReader
	e.reset(&endless{[]byte(event), 0}, nil)
	b.SetBytes(int64(len(event)))
	b.ReportAllocs()
	for range b.N {
		data, err := e.next(false)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := r.parse(SGLang, data); err != nil {
			b.Fatal(err)
		}
	}
}

// endless repeats a text.
type endless struct {
	text []byte
	at   int
}

func (e *endless) Read(b []byte) (int, error) {
	n := copy(b, e.text[e.at:])
	e.at = (e.at + n) % len(e.text)
	return n, nil
}
