package live

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"lorasim/internal/suggest"
)

// Backend says which interface requests are sent to; the names are those of the
// serving benchmarks.
type Backend string

// The backends.
const (
	SGLang        Backend = "sglang"          // /generate
	SGLangOAI     Backend = "sglang-oai"      // /v1/completions
	SGLangOAIChat Backend = "sglang-oai-chat" // /v1/chat/completions
	VLLM          Backend = "vllm"            // /v1/completions
	VLLMChat      Backend = "vllm-chat"       // /v1/chat/completions
)

// Backends lists the backends.
func Backends() []Backend { return []Backend{SGLang, SGLangOAI, SGLangOAIChat, VLLM, VLLMChat} }

// ParseBackend reads the name of a backend.
func ParseBackend(s string) (Backend, error) {
	var names []string
	for _, b := range Backends() {
		if s == string(b) {
			return b, nil
		}
		names = append(names, string(b))
	}
	return "", suggest.Unknown("backend", s, names)
}

func (b Backend) chat() bool { return b == SGLangOAIChat || b == VLLMChat }
func (b Backend) vllm() bool { return b == VLLM || b == VLLMChat }

func (b Backend) path() string {
	switch {
	case b == SGLang:
		return "/generate"
	case b.chat():
		return "/v1/chat/completions"
	}
	return "/v1/completions"
}

// ask is what one attempt asks a worker for.
type ask struct {
	rid       string
	model     string // base model, for the OpenAI endpoints
	adapter   string // "": none
	prompt    []int32
	maxNew    int
	stream    bool
	ignoreEOS bool
	extra     []byte // further fields of the body: `"a": 1, "b": 2`; may be empty
}

// body is the JSON body of a request.
func (b Backend) body(a *ask) []byte {
	var d []byte
	if b == SGLang {
		d = append(d, `{"input_ids": `...)
		d = appendInts(d, a.prompt)
		d = fmt.Appendf(d, `, "sampling_params": {"temperature": 0, "max_new_tokens": %d, "ignore_eos": %t}, "stream": %t, "rid": %s`,
			a.maxNew, a.ignoreEOS, a.stream, quote(a.rid))
		if a.adapter != "" {
			d = append(append(d, `, "lora_path": `...), quote(a.adapter)...)
		}
	} else {
		d = append(append(d, `{"model": `...), quote(b.model(a))...)
		if b.chat() {
			d = append(d, `, "messages": [{"role": "user", "content": `...)
			d = append(append(d, quote(promptText(a.prompt))...), `}]`...)
		} else {
			d = appendInts(append(d, `, "prompt": `...), a.prompt)
		}
		d = fmt.Appendf(d, `, "temperature": 0, "max_tokens": %d, "ignore_eos": %t, "stream": %t`, a.maxNew, a.ignoreEOS, a.stream)
		if a.stream {
			d = append(d, `, "stream_options": {"include_usage": true}`...)
		}
		if b == VLLM {
			d = append(d, `, "return_token_ids": true`...)
		}
		if !b.vllm() {
			d = append(append(d, `, "rid": `...), quote(a.rid)...)
		}
	}
	if len(a.extra) > 0 {
		d = append(append(d, ", "...), a.extra...)
	}
	return append(d, '}')
}

// model names base model and adapter: "base:adapter" for sglang, the adapter
// alone for vLLM.
func (b Backend) model(a *ask) string {
	switch {
	case a.adapter == "":
		return a.model
	case b.vllm():
		return a.adapter
	}
	return a.model + ":" + a.adapter
}

func quote(s string) []byte {
	q, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string
	}
	return q
}

func appendInts(d []byte, xs []int32) []byte {
	d = append(d, '[')
	for i, x := range xs {
		if i > 0 {
			d = append(d, ',')
		}
		d = strconv.AppendInt(d, int64(x), 10)
	}
	return append(d, ']')
}

// piece is what one event of a stream, or a whole reply, says.
type piece struct {
	text   bool    // it has some new text, or tokens
	total  int     // tokens of the attempt so far, as the worker counts; -1: it does not say
	ids    []int32 // the tokens so far, or those that are new; nil: it does not say
	finish string  // "": not finished
	fail   string  // why the request failed
	done   bool    // the end marker
}

var (
	doneMarker = []byte("[DONE]")
	nullText   = []byte("null")
	emptyText  = []byte(`""`)
)

// generateReply is an event of sglang's /generate.
type generateReply struct {
	Text      json.RawMessage `json:"text"`
	OutputIDs []int32         `json:"output_ids"`
	MetaInfo  *struct {
		FinishReason     *finishReason `json:"finish_reason"`
		CompletionTokens *int          `json:"completion_tokens"`
	} `json:"meta_info"`
	Error json.RawMessage `json:"error"`
}

type finishReason struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

// openAIReply is an event, or the whole, of a reply of the OpenAI endpoints.
type openAIReply struct {
	Choices []struct {
		Text  json.RawMessage `json:"text"`
		Delta struct {
			Content   json.RawMessage `json:"content"`
			Reasoning json.RawMessage `json:"reasoning_content"`
		} `json:"delta"`
		Message struct {
			Content json.RawMessage `json:"content"`
		} `json:"message"`
		TokenIDs     []int32 `json:"token_ids"`
		FinishReason *string `json:"finish_reason"`
	} `json:"choices"`
	Usage *struct {
		CompletionTokens int `json:"completion_tokens"`
	} `json:"usage"`
	Error  json.RawMessage `json:"error"`
	Object string          `json:"object"`
}

// parse reads the data of an event.
func (b Backend) parse(data []byte) (piece, error) {
	if bytes.Equal(data, doneMarker) {
		return piece{done: true, total: -1}, nil
	}
	if b == SGLang {
		return parseGenerate(data)
	}
	return parseOpenAI(data)
}

var errNoJSON = errors.New("the reply is not the JSON that was expected")

func parseGenerate(data []byte) (piece, error) {
	var g generateReply
	if err := json.Unmarshal(data, &g); err != nil {
		return piece{}, fmt.Errorf("%w: %v", errNoJSON, err)
	}
	p := piece{total: -1}
	if fail := failureOf(g.Error); fail != "" {
		p.fail = fail
		return p, nil
	}
	if g.MetaInfo == nil {
		return p, fmt.Errorf("%w: no meta_info", errNoJSON)
	}
	p.text = hasText(g.Text) || len(g.OutputIDs) > 0
	p.ids = g.OutputIDs
	if n := g.MetaInfo.CompletionTokens; n != nil {
		if *n < 0 {
			return p, fmt.Errorf("%w: completion_tokens is %d", errNoJSON, *n)
		}
		p.total = *n
	}
	if r := g.MetaInfo.FinishReason; r != nil {
		if p.finish = r.Type; p.finish == "" {
			p.finish = "unknown"
		}
	}
	return p, nil
}

func parseOpenAI(data []byte) (piece, error) {
	var o openAIReply
	if err := json.Unmarshal(data, &o); err != nil {
		return piece{}, fmt.Errorf("%w: %v", errNoJSON, err)
	}
	p := piece{total: -1}
	if fail := failureOf(o.Error); fail != "" {
		p.fail = fail
		return p, nil
	}
	if o.Choices == nil && o.Usage == nil {
		return p, fmt.Errorf("%w: no choices", errNoJSON)
	}
	for _, c := range o.Choices {
		p.text = p.text || hasText(c.Text) || hasText(c.Delta.Content) || hasText(c.Delta.Reasoning) || hasText(c.Message.Content)
		p.ids = append(p.ids, c.TokenIDs...)
		if c.FinishReason != nil {
			p.finish = *c.FinishReason
		}
	}
	if o.Usage != nil {
		p.total = o.Usage.CompletionTokens
	}
	return p, nil
}

func hasText(raw json.RawMessage) bool {
	return len(raw) > 0 && !bytes.Equal(raw, nullText) && !bytes.Equal(raw, emptyText)
}

// failureOf is the message of an error in a reply, "" if there is none.
func failureOf(raw json.RawMessage) string {
	if len(raw) == 0 || bytes.Equal(raw, nullText) {
		return ""
	}
	var e struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(raw, &e) == nil && e.Message != "" {
		return e.Message
	}
	var text string
	if json.Unmarshal(raw, &text) == nil && text != "" {
		return text
	}
	return string(raw)
}
