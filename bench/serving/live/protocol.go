package live

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"lorasim/bench/serving/fleet"
	"lorasim/internal/suggest"
	"lorasim/trace"
)

// A Backend is the interface to which requests are sent. The names are those of the engines' serving benchmarks.
type Backend string

// The backends, with their paths.
const (
	SGLang        Backend = "sglang"          // /generate
	SGLangOAI     Backend = "sglang-oai"      // /v1/completions
	SGLangOAIChat Backend = "sglang-oai-chat" // /v1/chat/completions
	VLLM          Backend = "vllm"            // /v1/completions
	VLLMChat      Backend = "vllm-chat"       // /v1/chat/completions
)

var backends = []string{string(SGLang), string(SGLangOAI), string(SGLangOAIChat), string(VLLM), string(VLLMChat)}

// ParseBackend returns the backend with the given name. As in vLLM's benchmark, openai is the same as vllm, and
// openai-chat the same as vllm-chat.
func ParseBackend(s string) (Backend, error) {
	switch s {
	case "openai":
		return VLLM, nil
	case "openai-chat":
		return VLLMChat, nil
	}
	return Backend(s), suggest.Among("backend", s, backends)
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

// payload has the contents of the request body of one attempt.
type payload struct {
	rid       string
	model     string // base model, for the OpenAI endpoints
	adapter   string // "": none
	prompt    []int32
	maxNew    int
	stream    bool
	ignoreEOS bool
	extra     []byte // further fields of the body: `"a": 1, "b": 2`; may be empty
}

// body appends the JSON body of a request to d.
func (b Backend) body(d []byte, p *payload) []byte {
	if b == SGLang {
		d = appendInts(append(d, `{"input_ids": `...), p.prompt)
		d = fmt.Appendf(d, `, "sampling_params": {"temperature": 0, "max_new_tokens": %d, "ignore_eos": %t}, "stream": %t, "rid": `,
			p.maxNew, p.ignoreEOS, p.stream)
		d = appendQuote(d, p.rid)
		if p.adapter != "" {
			d = appendQuote(append(d, `, "lora_path": `...), p.adapter)
		}
	} else {
		d = appendQuote(append(d, `{"model": `...), b.model(p))
		if b.chat() {
			d = append(d, `, "messages": [{"role": "user", "content": `...)
			d = append(appendQuote(d, promptText(p.prompt)), `}]`...)
		} else {
			d = appendInts(append(d, `, "prompt": `...), p.prompt)
		}
		d = fmt.Appendf(d, `, "temperature": 0, "max_tokens": %d, "ignore_eos": %t, "stream": %t`, p.maxNew,
			p.ignoreEOS, p.stream)
		if p.stream {
			d = append(d, `, "stream_options": {"include_usage": true}`...)
		}
		if b == VLLM {
			d = append(d, `, "return_token_ids": true`...)
		}
		if !b.vllm() {
			d = appendQuote(append(d, `, "rid": `...), p.rid)
		}
	}
	if len(p.extra) > 0 {
		d = append(append(d, ", "...), p.extra...)
	}
	return append(d, '}')
}

// model returns the name of the model in a request: "base:adapter" for sglang, the adapter alone for vLLM.
func (b Backend) model(p *payload) string {
	switch {
	case p.adapter == "":
		return p.model
	case b.vllm():
		return p.adapter
	}
	return p.model + ":" + p.adapter
}

func appendQuote(d []byte, s string) []byte {
	d, _ = jsontext.AppendQuote(d, s) // an error tells of invalid UTF-8, which is replaced
	return d
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

// chunk has the contents of one event of a stream, or of a whole reply.
type chunk struct {
	text   bool    // it has some new text, or token ids
	said   []byte  // the text, where the parser was told to keep it: all so far, or what is new
	total  int     // tokens of the attempt so far, as the worker counts; -1: it does not say
	cached int     // tokens of the prompt that the worker had in its prefix cache
	ids    []int32 // the tokens so far, or those that are new; nil: it does not say
	finish string  // "": not finished
	fail   string  // why the request failed
	// failStatus is the status that an error names; 0: none
	failStatus int
	done       bool // the end marker
}

// fresh returns the number of new tokens in a chunk, and their ids if the worker reports them. The attempt has had the
// given number of tokens before. Some workers repeat all ids of the reply in each event, others send only the new
// ones. Without ids and a count, a chunk with text is one token.
func (p *chunk) fresh(have int) (ids []int32, n int) {
	switch {
	case p.total < 0 && len(p.ids) > 0:
		return p.ids, len(p.ids)
	case p.total < 0 && p.text:
		return nil, 1
	case p.total < 0:
		return nil, 0
	case have+len(p.ids) == p.total:
		return p.ids, len(p.ids)
	case len(p.ids) == p.total && have <= p.total:
		return p.ids[have:], p.total - have
	}
	return nil, p.total - have
}

var (
	doneMarker = []byte("[DONE]")
	nullText   = []byte("null")
	emptyText  = []byte(`""`)
)

// event is an event of a stream, or a whole reply.
type event struct {
	// of sglang's /generate
	Text jsontext.Value `json:"text"`
	IDs  tokenIDs       `json:"output_ids"`
	Meta *struct {
		Tokens *uint32 `json:"completion_tokens"`
		Cached uint32  `json:"cached_tokens"`
		Finish *struct {
			Type string `json:"type"`
		} `json:"finish_reason"`
	} `json:"meta_info"`
	// of the OpenAI endpoints
	Choices []struct {
		Text    jsontext.Value `json:"text"`
		Delta   message        `json:"delta"`
		Message message        `json:"message"`
		IDs     tokenIDs       `json:"token_ids"`
		Finish  *string        `json:"finish_reason"`
	} `json:"choices"`
	Usage *struct {
		Tokens uint32 `json:"completion_tokens"`
		Prompt struct {
			Cached uint32 `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	} `json:"usage"`

	Error jsontext.Value `json:"error"`
}

type message struct {
	Reasoning jsontext.Value `json:"reasoning_content"`
	Content   jsontext.Value `json:"content"`
}

// tokenIDs are read by hand: engines repeat all those of a reply in each event.
type tokenIDs []int32

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (ids *tokenIDs) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	array, err := d.ReadValue()
	if err != nil || bytes.Equal(array, nullText) {
		return err
	}
	id, digits := int64(0), 0
	for _, b := range array {
		switch {
		case b >= '0' && b <= '9':
			id = min(id*10+int64(b-'0'), maxTokenID+1)
			digits++
		case b == ',' || b == ']':
			if id > maxTokenID {
				return fmt.Errorf("a token id above %d", maxTokenID)
			}
			if digits > 0 {
				*ids = append(*ids, int32(id))
			}
			id, digits = 0, 0
		case b != '[' && b != ' ' && b != '\n' && b != '\t' && b != '\r':
			return fmt.Errorf("token ids %.40s, expected a list of numbers", array)
		}
	}
	return nil
}

// parser reads events. Its results are valid until its next call, which reuses the memory.
type parser struct {
	event
	keepText bool
	said     []byte
}

// lenient takes what the engines' own JSON may have beyond the letter.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

var errNoJSON = errors.New("the reply is not the JSON that was expected")

// parse reads the data of an event.
func (r *parser) parse(b Backend, data []byte) (chunk, error) {
	p := chunk{total: -1}
	if bytes.Equal(data, doneMarker) {
		p.done = true
		return p, nil
	}
	e := &r.event
	*e = event{Text: e.Text[:0], IDs: e.IDs[:0]}
	r.said = r.said[:0]
	if err := json.Unmarshal(data, e, lenient); err != nil {
		return p, fmt.Errorf("%w: %v", errNoJSON, err)
	}
	if p.fail = failureOf(e.Error); p.fail != "" {
		p.failStatus = fleet.StatusOf(e.Error)
		return p, nil
	}
	if b == SGLang {
		m := e.Meta
		if m == nil {
			return p, fmt.Errorf("%w: no meta_info", errNoJSON)
		}
		if p.ids, p.cached = e.IDs, int(m.Cached); m.Tokens != nil {
			p.total = int(*m.Tokens)
		}
		if m.Finish != nil {
			p.finish = cmp.Or(m.Finish.Type, "unknown")
		}
		r.take(&p, e.Text)
	} else {
		if e.Choices == nil && e.Usage == nil {
			return p, fmt.Errorf("%w: no choices", errNoJSON)
		}
		for i := range e.Choices {
			c := &e.Choices[i]
			p.ids = append(p.ids, c.IDs...)
			r.take(&p, c.Text, c.Delta.Reasoning, c.Delta.Content, c.Message.Reasoning, c.Message.Content)
			if c.Finish != nil {
				p.finish = *c.Finish
			}
		}
		if e.Usage != nil {
			p.total, p.cached = int(e.Usage.Tokens), int(e.Usage.Prompt.Cached)
		}
	}
	p.text, p.said = p.text || len(p.ids) > 0, r.said
	return p, nil
}

// take notes texts, which are JSON; what is no string has none.
func (r *parser) take(p *chunk, texts ...jsontext.Value) {
	for _, t := range texts {
		if hasText(t) {
			p.text = true
			if r.keepText {
				r.said, _ = jsontext.AppendUnquote(r.said, t)
			}
		}
	}
}

func hasText(raw jsontext.Value) bool {
	return len(raw) > 0 && !bytes.Equal(raw, nullText) && !bytes.Equal(raw, emptyText)
}

// failureOf returns the message of an error in a reply, or "" if there is none.
func failureOf(raw jsontext.Value) string {
	if len(raw) == 0 || bytes.Equal(raw, nullText) {
		return ""
	}
	return cmp.Or(fleet.MessageOf(raw), fleet.ErrorText(raw))
}

// lowestToken is the lowest token id of prompts. It excludes the special tokens at the start of vocabularies.
const lowestToken = 10

// prompt returns the token ids of a request's prompt. They are drawn from the vocabulary with the seed and the
// request's id, so that every call returns the same ones.
func prompt(seed uint64, id int64, n int32, vocabulary int) []int32 {
	rng := rand.New(rand.NewPCG(seed, uint64(id)))
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = lowestToken + rng.Int32N(int32(vocabulary-lowestToken))
	}
	return ids
}

// prompt returns the token ids of a request's prompt. As far as its text goes, each
// is a function of that, so that prompts are equal where their texts are; where a
// prompt repeats a reply, of what the worker replied, if it told.
func (c *client) prompt(r *trace.Request) []int32 {
	ids := prompt(c.cfg.Seed, r.ID, r.Prompt, c.cfg.Vocabulary)
	if r.Text == nil {
		return ids
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	end := r.Text.Known(r.Prompt)
	for t := r.Text; t != nil; t = t.Parent {
		if t.Start >= end {
			continue
		}
		copy(ids[t.Start:end], prompt(c.cfg.Seed, int64(t.Hash(t.Start+1)), end-t.Start, c.cfg.Vocabulary))
		for _, s := range c.replies[t] {
			if s.from < end {
				copy(ids[s.from:end], s.tokens)
			}
		}
		end = t.Start
	}
	return ids
}

// reply has the tokens that follow the first ones of a text.
type reply struct {
	from   int32
	tokens []int32
}

// promptText returns a prompt for chat endpoints, which take no token ids: one word for each token. The resulting
// number of tokens depends on the worker's tokenizer.
func promptText(ids []int32) string {
	return "t" + strings.ReplaceAll(strings.Trim(string(appendInts(nil, ids)), "[]"), ",", " t")
}

// eventReader splits a stream of server-sent events into the data of its events, and records when the bytes of each
// arrived.
type eventReader struct {
	r     io.Reader
	lines *bufio.Scanner
	buf   []byte
	at    time.Time // when the bytes read last arrived
	seen  func()    // called after each read that brought bytes
	most  int       // bytes of an event, or of a whole reply
	lead  int       // lines since the latest event
}

var (
	errManyLines = fmt.Errorf("more than %d lines of the stream without an event", maxLines)
	dataPrefix   = []byte("data:")
)

func (e *eventReader) tooLong() error {
	return fmt.Errorf("an event of the reply is longer than %d bytes", e.most)
}

// reset makes the reader read another stream; nil: release the present one.
func (e *eventReader) reset(r io.Reader, seen func()) {
	if e.buf == nil {
		e.buf = make([]byte, 4096)
	}
	if e.r, e.seen, e.lines, e.at = r, seen, nil, time.Now(); r == nil {
		return
	}
	e.lead, e.most = 0, cmp.Or(e.most, maxEvent)
	e.lines = bufio.NewScanner(e)
	e.lines.Buffer(e.buf, e.most)
	e.lines.Split(func(data []byte, atEOF bool) (int, []byte, error) {
		if k := bytes.IndexByte(data, '\n'); k >= 0 {
			return k + 1, data[:k], nil
		}
		if atEOF { // a last line without an end was cut off
			return len(data), nil, nil
		}
		return 0, nil, nil
	})
}

// Read implements io.Reader, for the lines.
func (e *eventReader) Read(p []byte) (int, error) {
	n, err := e.r.Read(p)
	if n > 0 {
		e.at = time.Now()
		if e.seen != nil {
			e.seen()
		}
	}
	return n, err
}

// next returns the data of the next event, without "data:" and the space after it. The data is valid until the next
// call. At the end of the stream the error is io.EOF. Other fields of events (event:, id:, comments) are skipped. The
// engines send one line of data per event. If whole is true, the reply is no stream, and next returns all of it.
func (e *eventReader) next(whole bool) ([]byte, error) {
	if whole {
		data, err := io.ReadAll(io.LimitReader(e, int64(e.most)+1))
		if err == nil && len(data) > e.most {
			err = e.tooLong()
		}
		return data, err
	}
	for e.lines.Scan() {
		if data, ok := bytes.CutPrefix(e.lines.Bytes(), dataPrefix); ok {
			e.lead = 0
			return bytes.TrimSpace(data), nil
		}
		if e.lead++; e.lead > maxLines {
			return nil, errManyLines
		}
	}
	if errors.Is(e.lines.Err(), bufio.ErrTooLong) {
		return nil, e.tooLong()
	}
	return nil, cmp.Or(e.lines.Err(), io.EOF)
}
