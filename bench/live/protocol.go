package live

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"lorasim/bench/live/fleet"
	"lorasim/internal/suggest"
	"lorasim/trace"
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

var backends = []string{string(SGLang), string(SGLangOAI), string(SGLangOAIChat), string(VLLM), string(VLLMChat)}

// ParseBackend reads the name of a backend.
func ParseBackend(s string) (Backend, error) {
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

// payload is what one attempt asks a worker for.
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
		d = append(d, `{"input_ids": `...)
		d = appendInts(d, p.prompt)
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
		d = fmt.Appendf(d, `, "temperature": 0, "max_tokens": %d, "ignore_eos": %t, "stream": %t`, p.maxNew, p.ignoreEOS, p.stream)
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

// model names base model and adapter: "base:adapter" for sglang, the adapter
// alone for vLLM.
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

// chunk is what one event of a stream, or a whole reply, says.
type chunk struct {
	text   bool    // it has some new text, or token ids
	said   []byte  // the text, where the parser was told to keep it: all so far, or what is new
	total  int     // tokens of the attempt so far, as the worker counts; -1: it does not say
	cached int     // tokens of the prompt that the worker had in its prefix cache
	ids    []int32 // the tokens so far, or those that are new; nil: it does not say
	finish string  // "": not finished
	fail   string  // why the request failed
	done   bool    // the end marker
}

// fresh is the number of tokens of a chunk that are new where the attempt has so
// many, and their ids where the worker tells them. Workers repeat all ids of the
// reply in each event, or send only the new ones; where they tell neither ids nor
// a count, a chunk with text is one token.
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

// openAIReply is an event, or the whole, of a reply of the OpenAI endpoints.
type openAIReply struct {
	Choices []struct {
		Text  jsontext.Value `json:"text"`
		Delta struct {
			Content   jsontext.Value `json:"content"`
			Reasoning jsontext.Value `json:"reasoning_content"`
		} `json:"delta"`
		Message struct {
			Content   jsontext.Value `json:"content"`
			Reasoning jsontext.Value `json:"reasoning_content"`
		} `json:"message"`
		TokenIDs     []int32 `json:"token_ids"`
		FinishReason *string `json:"finish_reason"`
	} `json:"choices"`
	Usage *struct {
		CompletionTokens int `json:"completion_tokens"`
		Prompt           *struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	} `json:"usage"`
	Error  jsontext.Value `json:"error"`
	Object string         `json:"object"`
}

// parser reads events. What it returns is valid until its next call: it uses its
// memory again.
type parser struct {
	from bytes.Buffer // of dec, which reads it in place
	dec  jsontext.Decoder
	key  []byte // the name of the member that is read
	ids  []int32

	keepText bool
	said     []byte
}

// say keeps the text of a JSON string.
func (r *parser) say(raw jsontext.Value) {
	if r.keepText && hasText(raw) {
		r.said, _ = jsontext.AppendUnquote(r.said, raw) // what is no string has no text
	}
}

// lenient takes what the engines' own JSON may have beyond the letter.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// parse reads the data of an event.
func (p *parser) parse(b Backend, data []byte) (chunk, error) {
	if bytes.Equal(data, doneMarker) {
		return chunk{done: true, total: -1}, nil
	}
	p.said = p.said[:0]
	if b == SGLang {
		return p.parseGenerate(data)
	}
	return p.parseOpenAI(data)
}

var errNoJSON = errors.New("the reply is not the JSON that was expected")

// parseGenerate reads an event of sglang's /generate, which repeats the reply so
// far, value by value: into a struct it takes three times as long.
func (r *parser) parseGenerate(data []byte) (chunk, error) {
	r.from = *bytes.NewBuffer(data)
	r.dec.Reset(&r.from, lenient)
	r.ids = r.ids[:0]
	p := chunk{total: -1}
	meta := false
	err := r.members(func() error {
		if string(r.key) == `"meta_info"` && r.dec.PeekKind() == '{' {
			meta = true
			return r.members(func() error { return r.metaInfo(&p) })
		}
		v, err := r.dec.ReadValue()
		if err != nil {
			return err
		}
		switch string(r.key) {
		case `"text"`:
			p.text = hasText(v)
			r.say(v)
		case `"output_ids"`:
			r.ids, err = appendIDs(r.ids, v)
		case `"error"`:
			p.fail = failureOf(v)
		}
		return err
	})
	if err == nil {
		if _, end := r.dec.ReadToken(); end != io.EOF {
			err = errors.New("something follows the object")
		}
	}
	switch {
	case err != nil:
		return chunk{}, fmt.Errorf("%w: %v", errNoJSON, err)
	case p.fail != "":
		return chunk{total: -1, fail: p.fail}, nil
	case !meta:
		return p, fmt.Errorf("%w: no meta_info", errNoJSON)
	}
	p.text = p.text || len(r.ids) > 0
	p.ids, p.said = r.ids, r.said
	return p, nil
}

// members calls f for each member of the object that comes next, with its name, as
// it stands there, in key; f reads its value.
func (r *parser) members(f func() error) error {
	if t, err := r.dec.ReadToken(); err != nil {
		return err
	} else if t.Kind() != '{' {
		return fmt.Errorf("%v, expected an object", t)
	}
	for r.dec.PeekKind() != '}' {
		name, err := r.dec.ReadValue()
		if err != nil {
			return err
		}
		r.key = append(r.key[:0], name...)
		if err := f(); err != nil {
			return err
		}
	}
	_, err := r.dec.ReadToken()
	return err
}

// metaInfo reads a member of meta_info.
func (r *parser) metaInfo(p *chunk) error {
	v, err := r.dec.ReadValue()
	if err != nil || bytes.Equal(v, nullText) {
		return err
	}
	switch string(r.key) {
	case `"completion_tokens"`, `"cached_tokens"`:
		n, err := strconv.ParseUint(string(v), 10, 31)
		if err != nil {
			return fmt.Errorf("%s is %.20s", bytes.Trim(r.key, `"`), v)
		}
		if string(r.key) == `"cached_tokens"` {
			p.cached = int(n)
		} else {
			p.total = int(n)
		}
	case `"finish_reason"`:
		reason := struct {
			Type string `json:"type"`
		}{}
		if err := json.Unmarshal(v, &reason, lenient); err != nil {
			return err
		}
		p.finish = cmp.Or(reason.Type, "unknown")
	}
	return nil
}

// appendIDs appends the token ids of a JSON array.
func appendIDs(ids []int32, array jsontext.Value) ([]int32, error) {
	if bytes.Equal(array, nullText) {
		return ids, nil
	}
	id, digits := int64(0), 0
	for _, b := range array {
		switch {
		case b >= '0' && b <= '9':
			id = min(id*10+int64(b-'0'), math.MaxInt32+1)
			digits++
		case b == ',' || b == ']':
			if id > math.MaxInt32 {
				return nil, fmt.Errorf("a token id above %d", math.MaxInt32)
			}
			if digits > 0 {
				ids = append(ids, int32(id))
			}
			id, digits = 0, 0
		case b != '[' && b != ' ' && b != '\n' && b != '\t' && b != '\r':
			return nil, fmt.Errorf("token ids %.40s, expected a list of numbers", array)
		}
	}
	return ids, nil
}

func (r *parser) parseOpenAI(data []byte) (chunk, error) {
	var o openAIReply
	if err := json.Unmarshal(data, &o, lenient); err != nil {
		return chunk{}, fmt.Errorf("%w: %v", errNoJSON, err)
	}
	p := chunk{total: -1}
	if fail := failureOf(o.Error); fail != "" {
		p.fail = fail
		return p, nil
	}
	if o.Choices == nil && o.Usage == nil {
		return p, fmt.Errorf("%w: no choices", errNoJSON)
	}
	for _, c := range o.Choices {
		p.text = p.text || len(c.TokenIDs) > 0
		for _, v := range []jsontext.Value{c.Text, c.Delta.Reasoning, c.Delta.Content, c.Message.Reasoning, c.Message.Content} {
			p.text = p.text || hasText(v)
			r.say(v)
		}
		p.ids = append(p.ids, c.TokenIDs...)
		if c.FinishReason != nil {
			p.finish = *c.FinishReason
		}
	}
	if o.Usage != nil {
		if p.total = o.Usage.CompletionTokens; o.Usage.Prompt != nil {
			p.cached = o.Usage.Prompt.Cached
		}
	}
	p.said = r.said
	return p, nil
}

func hasText(raw jsontext.Value) bool {
	return len(raw) > 0 && !bytes.Equal(raw, nullText) && !bytes.Equal(raw, emptyText)
}

// failureOf is the message of an error in a reply, "" if there is none.
func failureOf(raw jsontext.Value) string {
	if len(raw) == 0 || bytes.Equal(raw, nullText) {
		return ""
	}
	return cmp.Or(fleet.MessageOf(raw), string(raw))
}

// lowestToken leaves out the special tokens at the beginning of vocabularies.
const lowestToken = 10

// prompt returns the token ids of a request's prompt: drawn from the vocabulary
// with the seed and the request's id, so that they are the same whenever they
// are asked for.
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

// reply is tokens that follow the first ones of a text.
type reply struct {
	from   int32
	tokens []int32
}

// promptText is a prompt for chat endpoints, which take no token ids: a word
// for each. How many tokens that is depends on the worker's tokenizer.
func promptText(ids []int32) string {
	var b []byte
	for i, t := range ids {
		if i > 0 {
			b = append(b, ' ')
		}
		b = strconv.AppendInt(append(b, 't'), int64(t), 10)
	}
	return string(b)
}

// eventReader splits a stream of server-sent events into the data of its
// events, and knows when the bytes of each arrived.
type eventReader struct {
	r     io.Reader
	lines *bufio.Scanner
	buf   []byte
	at    time.Time // when the bytes read last arrived
	seen  func()    // called after each read that brought bytes
}

// maxEvent limits the length of one line.
const maxEvent = 16 << 20

var (
	errLongEvent = errors.New("an event of the stream is longer than 16 MiB")
	dataPrefix   = []byte("data:")
)

// reset makes the reader read another stream; nil: let go of the one it has.
func (e *eventReader) reset(r io.Reader, seen func()) {
	if e.buf == nil {
		e.buf = make([]byte, 4096)
	}
	if e.r, e.seen, e.lines = r, seen, nil; r == nil {
		return
	}
	e.lines = bufio.NewScanner(e)
	e.lines.Buffer(e.buf, maxEvent)
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

// next returns the data of the next event, without "data:" and the space after
// it, valid until the next call; io.EOF at the end of the stream. Other fields
// of events (event:, id:, comments) are skipped. The engines send one line of
// data per event.
func (e *eventReader) next() ([]byte, error) {
	for e.lines.Scan() {
		if data, ok := bytes.CutPrefix(e.lines.Bytes(), dataPrefix); ok {
			return bytes.TrimSpace(data), nil
		}
	}
	if errors.Is(e.lines.Err(), bufio.ErrTooLong) {
		return nil, errLongEvent
	}
	return nil, cmp.Or(e.lines.Err(), io.EOF)
}
