package emulate

import (
	"cmp"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"lorasim/bench/serving/httpapi"
)

// completionRequest is the body of /v1/completions and /v1/chat/completions.
type completionRequest struct {
	Model    *string        `json:"model"`
	Prompt   jsontext.Value `json:"prompt"`
	Messages []message      `json:"messages"`
	// MaxTokens is a value, since null is something else than a number that is left out.
	MaxTokens jsontext.Value `json:"max_tokens"`
	// MaxCompletionTokens is the chat endpoint's newer name of MaxTokens.
	MaxCompletionTokens *int           `json:"max_completion_tokens"`
	N                   *int           `json:"n"`
	Logprobs            jsontext.Value `json:"logprobs"` // a number, in chats a boolean
	TopLogprobs         int            `json:"top_logprobs"`
	Echo                bool           `json:"echo"`
	Temperature         *float64       `json:"temperature"`
	TopP                *float64       `json:"top_p"`
	Stream              bool           `json:"stream"`
	IgnoreEOS           bool           `json:"ignore_eos"`
	LoraPath            string         `json:"lora_path"` // sglang
	RID                 string         `json:"rid"`       // sglang
	RequestID           string         `json:"request_id"`
	Priority            int            `json:"priority"`
	ReturnTokenIDs      bool           `json:"return_token_ids"`
	StreamOptions       *streamOptions `json:"stream_options"`
}

type streamOptions struct {
	IncludeUsage    bool `json:"include_usage"`
	ContinuousUsage bool `json:"continuous_usage_stats"`
}

// message is one message of a chat. Its content is a text or a list of parts with texts.
type message struct {
	Role    string         `json:"role"`
	Content jsontext.Value `json:"content"`
}

func (m *message) text() (text string) {
	if json.Unmarshal(m.Content, &text) == nil {
		return text
	}
	var parts []struct {
		Text string `json:"text"`
	}
	json.Unmarshal(m.Content, &parts)
	for _, p := range parts {
		text += " " + p.Text
	}
	return text
}

// tokens returns the prompt of a chat.
func chatTokens(messages []message) (ids []int32) {
	for _, m := range messages {
		ids = append(ids, Tokenize(m.Role+" "+m.text())...)
	}
	return ids
}

// prompts returns the prompts of a completion: a text, a list of token ids, or a list of either.
func (q *completionRequest) prompts() ([][]int32, error) {
	var text string
	var texts []string
	var ids []int32
	var lists [][]int32
	switch p := q.Prompt; {
	case json.Unmarshal(p, &text) == nil:
		return [][]int32{Tokenize(text)}, nil
	case json.Unmarshal(p, &ids) == nil:
		return [][]int32{ids}, nil
	case json.Unmarshal(p, &texts) == nil:
		for _, t := range texts {
			lists = append(lists, Tokenize(t))
		}
		return lists, nil
	case json.Unmarshal(p, &lists) == nil:
		return lists, nil
	}
	return nil, errBody{errors.New("expected a string, a list of token ids, or a list of either"), "prompt"}
}

const defaultMaxTokens = 16 // OpenAI's

// budget returns the number of tokens that a request asks for, and the name of the parameter. unlimited is the number
// if the parameter is null.
func (q *completionRequest) budget(unlimited int) (string, int, error) {
	if q.MaxCompletionTokens != nil {
		return "max_completion_tokens", *q.MaxCompletionTokens, nil
	}
	n := defaultMaxTokens
	if q.Messages != nil {
		n = unlimited
	}
	switch q.MaxTokens.Kind() {
	case 0:
	case 'n':
		n = unlimited
	default:
		if err := json.Unmarshal(q.MaxTokens, &n); err != nil {
			return "max_tokens", 0, errBody{err, "max_tokens"}
		}
	}
	return "max_tokens", n, nil
}

// completions serves both endpoints of OpenAI.
func (w *Worker) completions(chat bool) http.HandlerFunc {
	return reading(w.say.badBody, func(rw http.ResponseWriter, r *http.Request, q *completionRequest) {
		c := &completion{w: w, q: q, chat: chat, created: time.Now().Unix(), id: newID()}
		refuse := func(err error) { w.say.refuse(rw, err) }
		orders, err := c.orders()
		if err != nil {
			refuse(err)
			return
		}
		w.serve(rw, r, orders, q.Stream, w.say.form(rw, c))
	})
}

// newID returns a random id as the engines' uuids.
func newID() string {
	var b [16]byte
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return hex.EncodeToString(b[:])
}

// completion is the answer to a completion or a chat.
type completion struct {
	w       *Worker
	q       *completionRequest
	chat    bool
	created int64
	id      string
	adapter string
	model   string // in the reply
	logs    bool   // with logprobs
	top     int    // of each token
	n       int    // choices for a prompt
	first   []bool // choices whose first event has been sent
}

// orders turns a request into orders: n for each prompt.
func (c *completion) orders() ([]order, error) {
	q, w := c.q, c.w
	if err := c.readLogprobs(); err != nil {
		return nil, err
	}
	if err := w.say.check(c); err != nil {
		return nil, err
	}
	var err error
	if c.adapter, c.model, err = w.say.adapter(*cmp.Or(q.Model, new("")), q.LoraPath); err != nil {
		return nil, err
	}
	if err := w.admit(*cmp.Or(q.N, new(1))); err != nil {
		return nil, err
	}
	prompts := [][]int32{chatTokens(q.Messages)}
	if !c.chat {
		if prompts, err = q.prompts(); err != nil {
			return nil, err
		}
	}
	var orders []order
	c.n = *cmp.Or(q.N, new(1))
	for _, p := range prompts {
		param, budget, err := q.budget(max(1, w.context()-len(p)))
		if err != nil {
			return nil, err
		}
		if budget, err = w.say.checkPrompt(p, param, budget); err != nil {
			return nil, err
		}
		for range c.n {
			orders = append(orders, order{rid: q.RID, adapter: c.adapter, prompt: p, budget: budget,
				ignoreEOS: q.IgnoreEOS})
		}
	}
	c.first = make([]bool, len(orders))
	return orders, nil
}

// readLogprobs reads logprobs, which is a number, and in chats a boolean beside the number top_logprobs.
func (c *completion) readLogprobs() error {
	given := c.q.Logprobs
	if given.Kind() == 0 || given.Kind() == 'n' {
		return nil
	}
	var err error
	if c.chat {
		err, c.top = json.Unmarshal(given, &c.logs), c.q.TopLogprobs
	} else {
		err, c.logs = json.Unmarshal(given, &c.top), true
	}
	if err != nil {
		return errBody{err, "logprobs"}
	}
	return nil
}

// context is the context length.
func (w *Worker) context() int {
	return cmp.Or(w.profile.Engine.ContextLength, int(min(w.profile.Memory.KVTokens, 1<<30)))
}

// kind is the "object" of a reply.
func (c *completion) kind(chunk bool) string {
	switch {
	case !c.chat:
		return "text_completion"
	case chunk:
		return "chat.completion.chunk"
	}
	return "chat.completion"
}

// head is what all bodies have.
func (c *completion) head(chunk bool, choices []any) object {
	return object{"id": c.id, "object": c.kind(chunk), "created": c.created, "model": c.model, "choices": choices}
}

// tokens returns the numbers of prompt and generated tokens.
func (c *completion) tokens(jobs []*job) (prompt, generated, cached int) {
	for _, j := range jobs {
		if j.index%c.n == 0 {
			prompt += j.prompt
			cached += int(j.cached)
		}
		generated += len(j.out)
	}
	return prompt, generated, cached
}

// logprob is the logarithm of the probability that replies state for every token.
const logprob = -1.0

// logprobs returns the logarithms of tokens in the form of completions.
func (c *completion) logprobs(tokens []int32, offset int) object {
	texts, probs, tops, offsets := []any{}, []any{}, []any{}, []any{}
	for _, t := range tokens {
		text := Text([]int32{t})
		texts, probs, offsets = append(texts, text), append(probs, logprob), append(offsets, offset)
		if c.top > 0 || c.w.cfg.API == httpapi.VLLM { // with 0, vLLM tells that of the token itself
			tops = append(tops, object{text: logprob})
		}
		offset += len(text)
	}
	return object{"tokens": texts, "token_logprobs": probs, "top_logprobs": tops, "text_offset": offsets}
}

// chatLogprobs returns the logarithms of tokens in the form of chats.
func (c *completion) chatLogprobs(tokens []int32) object {
	list := []any{}
	for _, t := range tokens {
		text := Text([]int32{t})
		bytes := []any{}
		for _, b := range []byte(text) {
			bytes = append(bytes, int(b))
		}
		one := func() object { return object{"token": text, "logprob": logprob, "bytes": bytes} }
		o := one()
		tops := []any{}
		for range c.top {
			tops = append(tops, one())
		}
		o["top_logprobs"] = tops
		list = append(list, o)
	}
	return object{"content": list}
}
