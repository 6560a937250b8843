package emulate

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
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
	c := &completion{w: w, j: j, q: &q, chat: chat, id: fmt.Sprintf("cmpl-%d", j.stream.id), created: time.Now().Unix()}
	refuse := func(reason string) { w.refuseOpenAI(rw, errors.New(reason)) }
	if q.Stream {
		j.sendEvents(rw, r, refuse, c.appendEvents)
		return
	}
	if !j.whole(r.Context()) {
		return
	}
	if reason := j.failure(); reason != "" {
		refuse(reason)
		return
	}
	writeJSON(rw, http.StatusOK, c.body(false, []any{c.choice(j.out, false)}, true))
}

// completionOrder turns an OpenAI request into an order.
func (w *Worker) completionOrder(q *completionRequest, chat bool) (order, error) {
	o := order{rid: q.RID, budget: 16, ignoreEOS: q.IgnoreEOS} // OpenAI's default
	if q.N != nil && *q.N != 1 {
		return o, errors.New("n must be 1")
	}
	if budget := cmp.Or(q.MaxCompletionTokens, q.MaxTokens); budget != nil {
		o.budget = *budget
	}
	o.adapter = w.adapterOf(q)
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
func (w *Worker) adapterOf(q *completionRequest) string {
	if w.cfg.API == VLLM {
		if q.Model == w.cfg.ModelName {
			return ""
		}
		return q.Model
	}
	_, adapter, ok := strings.Cut(q.Model, ":")
	if !ok && q.LoraPath != nil {
		adapter = *q.LoraPath
	}
	return adapter
}

// refuseOpenAI answers a request that never came to run.
func (w *Worker) refuseOpenAI(rw http.ResponseWriter, err error) {
	status, kind, text := http.StatusBadRequest, "BadRequestError", err.Error()
	var unknown errUnknownAdapter
	if w.cfg.API == VLLM && errors.As(err, &unknown) {
		status, kind = http.StatusNotFound, "NotFoundError"
		text = fmt.Sprintf("The model `%s` does not exist.", unknown.name)
	}
	writeJSON(rw, status, object{"object": "error", "message": text, "type": kind, "param": nil, "code": status,
		"error": object{"message": text, "type": kind, "param": nil, "code": status}})
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

// choice is the one choice of a reply, with the given new tokens.
func (c *completion) choice(tokens []int32, chunk bool) object {
	ch := object{"index": 0, "logprobs": nil, "finish_reason": nil}
	if c.j.ended() {
		ch["finish_reason"] = c.j.finish()
	}
	switch text := Text(tokens); {
	case !c.chat:
		ch["text"] = text
	case chunk:
		ch["delta"] = object{"role": "assistant", "content": text}
	default:
		ch["message"] = object{"role": "assistant", "content": text}
	}
	if c.q.ReturnTokenIDs && c.w.cfg.API == VLLM {
		ch["token_ids"] = tokens
	}
	return ch
}

func (c *completion) body(chunk bool, choices []any, usage bool) object {
	b := object{"id": c.id, "object": c.object(chunk), "created": c.created, "model": c.q.Model, "choices": choices}
	if usage {
		u := object{"prompt_tokens": c.j.prompt, "completion_tokens": len(c.j.out), "total_tokens": c.j.prompt + len(c.j.out)}
		if c.w.cfg.Costs.Profile().Engine.PrefixCache {
			u["prompt_tokens_details"] = object{"cached_tokens": c.j.cached}
		}
		b["usage"] = u
	}
	return b
}

func (c *completion) appendEvents(b []byte, seen int) []byte {
	b = appendEvent(b, c.body(true, []any{c.choice(c.j.out[seen:], true)}, false))
	if c.j.ended() && c.q.StreamOptions.IncludeUsage {
		b = appendEvent(b, c.body(true, []any{}, true))
	}
	return b
}

// models lists the base model and the loaded adapters, whose parent it is and
// whose root is where they were loaded from (sglang: available_models in
// http_server.py; vLLM: show_available_models in models/serving.py).
func (w *Worker) models(rw http.ResponseWriter, _ *http.Request) {
	entry := func(id, root string, parent any) object {
		return object{"id": id, "object": "model", "created": time.Now().Unix(), "owned_by": string(w.cfg.API),
			"root": root, "parent": parent, "max_model_len": nil}
	}
	base := entry(w.cfg.ModelName, w.cfg.ModelName, nil)
	base["max_model_len"] = w.cfg.Costs.Profile().Engine.ContextLength
	list := []any{base}
	loaded := w.loadedAdapters()
	for _, name := range slices.Sorted(maps.Keys(loaded)) {
		list = append(list, entry(name, loaded[name], w.cfg.ModelName))
	}
	writeJSON(rw, http.StatusOK, object{"object": "list", "data": list})
}

func (w *Worker) loadVLLM(rw http.ResponseWriter, q *loraRequest) {
	if err := w.load(Adapter{Name: q.Name, Path: q.Path}, false); err != nil {
		w.refuseOpenAI(rw, err)
		return
	}
	fmt.Fprintf(rw, "Success: LoRA adapter '%s' added successfully.", q.Name)
}

func (w *Worker) unloadVLLM(rw http.ResponseWriter, q *loraRequest) {
	if err := w.unload(q.Name, false); err != nil {
		w.refuseOpenAI(rw, errUnknownAdapter{q.Name})
		return
	}
	fmt.Fprintf(rw, "Success: LoRA adapter '%s' removed successfully.", q.Name)
}
