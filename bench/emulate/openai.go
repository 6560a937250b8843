package emulate

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// completionRequest is the body of /v1/completions and /v1/chat/completions.
type completionRequest struct {
	Model     string         `json:"model"`
	Prompt    jsontext.Value `json:"prompt"`
	Messages  []message      `json:"messages"`
	MaxTokens *int           `json:"max_tokens"`
	// MaxCompletionTokens is the chat endpoint's newer name of MaxTokens.
	MaxCompletionTokens *int    `json:"max_completion_tokens"`
	N                   *int    `json:"n"`
	Stream              bool    `json:"stream"`
	IgnoreEOS           bool    `json:"ignore_eos"`
	LoraPath            *string `json:"lora_path"` // sglang
	RID                 string  `json:"rid"`       // sglang
	ReturnTokenIDs      bool    `json:"return_token_ids"`
	StreamOptions       struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

func (w *Worker) completions(rw http.ResponseWriter, r *http.Request) { w.openAI(rw, r, false) }
func (w *Worker) chat(rw http.ResponseWriter, r *http.Request)        { w.openAI(rw, r, true) }

func (w *Worker) openAI(rw http.ResponseWriter, r *http.Request, chat bool) {
	var q completionRequest
	if !readJSON(rw, r, &q) {
		return
	}
	o, err := w.completionOrder(&q, chat)
	var j *job
	if err == nil {
		j, err = w.start(o)
	}
	if err != nil {
		w.refuseOpenAI(rw, err)
		return
	}
	reply := &completion{w: w, j: j, q: &q, chat: chat, id: fmt.Sprintf("cmpl-%d", j.stream.id), created: time.Now().Unix()}
	if q.Stream {
		reply.stream(rw, r)
		return
	}
	for !j.ended() {
		if !j.await(r.Context(), o.budget+1) {
			return
		}
	}
	if reason := j.failure(); reason != "" {
		w.refuseOpenAI(rw, errors.New(reason))
		return
	}
	writeJSON(rw, http.StatusOK, reply.whole())
}

// completionOrder turns an OpenAI request into an order.
func (w *Worker) completionOrder(q *completionRequest, chat bool) (order, error) {
	o := order{rid: q.RID, budget: 16, ignoreEOS: q.IgnoreEOS} // OpenAI's default
	if q.N != nil && *q.N != 1 {
		return o, errors.New("n must be 1")
	}
	if q.MaxCompletionTokens != nil {
		q.MaxTokens = q.MaxCompletionTokens
	}
	if q.MaxTokens != nil {
		o.budget = *q.MaxTokens
	}
	var err error
	if o.adapter, err = w.adapterOf(q); err != nil {
		return o, err
	}
	if chat {
		for _, m := range q.Messages {
			o.prompt = append(o.prompt, Tokenize(m.Role+" "+m.Content)...)
		}
		return o, nil
	}
	var text string
	if json.Unmarshal(q.Prompt, &text) == nil {
		o.prompt = Tokenize(text)
		return o, nil
	}
	if err := json.Unmarshal(q.Prompt, &o.prompt); err != nil {
		return o, errors.New("prompt: expected a string or a list of token ids")
	}
	return o, nil
}

// adapterOf is the adapter that a request names: sglang's "base:adapter" or
// lora_path, vLLM's model.
func (w *Worker) adapterOf(q *completionRequest) (string, error) {
	if w.cfg.API == VLLM {
		if q.Model == w.cfg.ModelName || q.Model == "" {
			return "", nil
		}
		return q.Model, nil
	}
	if _, adapter, ok := strings.Cut(q.Model, ":"); ok {
		return adapter, nil
	}
	if q.LoraPath != nil {
		return *q.LoraPath, nil
	}
	return "", nil
}

// refuseOpenAI answers a request that never came to run.
func (w *Worker) refuseOpenAI(rw http.ResponseWriter, err error) {
	status, kind, text := http.StatusBadRequest, "BadRequestError", err.Error()
	var unknown errUnknownAdapter
	if w.cfg.API == VLLM && errors.As(err, &unknown) {
		status, kind = http.StatusNotFound, "NotFoundError"
		text = fmt.Sprintf("The model `%s` does not exist.", unknown.name)
	}
	writeJSON(rw, status, map[string]any{"object": "error", "message": text, "type": kind, "param": nil, "code": status,
		"error": map[string]any{"message": text, "type": kind, "param": nil, "code": status}})
}

// completion is a reply under way.
type completion struct {
	w       *Worker
	j       *job
	q       *completionRequest
	chat    bool
	id      string
	created int64
}

func (c *completion) object(chunk bool) string {
	switch {
	case !c.chat:
		return "text_completion"
	case chunk:
		return "chat.completion.chunk"
	}
	return "chat.completion"
}

func (c *completion) usage() map[string]any {
	return map[string]any{"prompt_tokens": c.j.prompt, "completion_tokens": len(c.j.out), "total_tokens": c.j.prompt + len(c.j.out)}
}

// choice is the one choice of a reply, with the given new tokens.
func (c *completion) choice(tokens []int32, chunk bool) map[string]any {
	ch := map[string]any{"index": 0, "logprobs": nil, "finish_reason": nil}
	if c.j.ended() {
		ch["finish_reason"] = c.j.finish()
	}
	switch text := Text(tokens); {
	case !c.chat:
		ch["text"] = text
	case chunk:
		ch["delta"] = map[string]any{"role": "assistant", "content": text}
	default:
		ch["message"] = map[string]any{"role": "assistant", "content": text}
	}
	if c.q.ReturnTokenIDs && c.w.cfg.API == VLLM {
		ch["token_ids"] = tokens
	}
	return ch
}

func (c *completion) body(choices []any, chunk bool) map[string]any {
	return map[string]any{"id": c.id, "object": c.object(chunk), "created": c.created, "model": c.q.Model, "choices": choices}
}

func (c *completion) whole() map[string]any {
	b := c.body([]any{c.choice(c.j.out, false)}, false)
	b["usage"] = c.usage()
	return b
}

func (c *completion) stream(rw http.ResponseWriter, r *http.Request) {
	seen, begun := 0, false
	for {
		if !c.j.await(r.Context(), c.w.cfg.StreamInterval) {
			return
		}
		reason := c.j.failure()
		if reason != "" && !begun {
			c.w.refuseOpenAI(rw, errors.New(reason))
			return
		}
		if !begun {
			events(rw)
			begun = true
		}
		if reason != "" {
			send(rw, errorEvent(reason), true)
			return
		}
		data := event(c.body([]any{c.choice(c.j.out[seen:], true)}, true))
		seen = len(c.j.out)
		if c.j.ended() {
			if c.q.StreamOptions.IncludeUsage {
				last := c.body([]any{}, true)
				last["usage"] = c.usage()
				data = append(data, event(last)...)
			}
			data = append(data, done...)
		}
		if !send(rw, data, c.j.ended()) {
			c.w.eng.cancelOne(c.j.stream)
			return
		}
		if c.j.ended() {
			return
		}
	}
}

func event(v any) []byte {
	data, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		panic(err) // maps, strings and numbers
	}
	return append(append([]byte("data: "), data...), "\n\n"...)
}

// models lists the base model and the loaded adapters, whose parent it is and
// whose root is where they were loaded from (sglang: available_models in
// http_server.py; vLLM: show_available_models in models/serving.py).
func (w *Worker) models(rw http.ResponseWriter, _ *http.Request) {
	entry := func(id, root string, parent any) map[string]any {
		return map[string]any{"id": id, "object": "model", "created": time.Now().Unix(), "owned_by": string(w.cfg.API),
			"root": root, "parent": parent, "max_model_len": nil}
	}
	base := entry(w.cfg.ModelName, w.cfg.ModelName, nil)
	base["max_model_len"] = w.cfg.Costs.Profile().Engine.ContextLength
	list := []any{base}
	loaded := w.loadedAdapters()
	for _, name := range sortedNames(loaded) {
		list = append(list, entry(name, loaded[name], w.cfg.ModelName))
	}
	writeJSON(rw, http.StatusOK, map[string]any{"object": "list", "data": list})
}

func (w *Worker) loadVLLM(rw http.ResponseWriter, r *http.Request) {
	var q loraRequest
	if !readJSON(rw, r, &q) {
		return
	}
	if err := w.load(Adapter{Name: q.Name, Path: q.Path}, false); err != nil {
		w.refuseOpenAI(rw, err)
		return
	}
	fmt.Fprintf(rw, "Success: LoRA adapter '%s' added successfully.", q.Name)
}

func (w *Worker) unloadVLLM(rw http.ResponseWriter, r *http.Request) {
	var q loraRequest
	if !readJSON(rw, r, &q) {
		return
	}
	if err := w.unload(q.Name, false); err != nil {
		w.refuseOpenAI(rw, errUnknownAdapter{q.Name})
		return
	}
	fmt.Fprintf(rw, "Success: LoRA adapter '%s' removed successfully.", q.Name)
}
