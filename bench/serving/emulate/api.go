package emulate

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// generateRequest is the body of sglang's /generate.
type generateRequest struct {
	Text           *string `json:"text"`
	InputIDs       []int32 `json:"input_ids"`
	SamplingParams struct {
		MaxNewTokens *int `json:"max_new_tokens"`
		IgnoreEOS    bool `json:"ignore_eos"`
	} `json:"sampling_params"`
	Stream   bool   `json:"stream"`
	LoraPath string `json:"lora_path"`
	RID      string `json:"rid"`
}

const defaultMaxNewTokens = 128 // sglang's

// generate serves /generate. Like sglang, it reports an invalid request in the stream, with status 200, if the client
// requested a stream.
func (w *Worker) generate(rw http.ResponseWriter, r *http.Request, g *generateRequest) {
	o := order{rid: g.RID, prompt: g.InputIDs, adapter: g.LoraPath,
		budget: *cmp.Or(g.SamplingParams.MaxNewTokens, new(defaultMaxNewTokens)), ignoreEOS: g.SamplingParams.IgnoreEOS}
	if o.rid == "" {
		o.rid = fmt.Sprintf("emulated-%p", g)
	}
	if g.Text != nil {
		o.prompt = Tokenize(*g.Text)
	}
	rid := appendJSON(nil, o.rid)
	var text strings.Builder // all of it is repeated in every event, unless StreamOutput
	w.serve(rw, r, o, g.Stream, wording{
		refuse: func(err error) {
			if !g.Stream {
				badRequest(rw, err)
				return
			}
			events(rw)
			send(rw, errorEvent(err), true)
		},
		event: func(b []byte, j *job, fresh []int32) []byte {
			ids := j.out
			if w.cfg.StreamOutput {
				ids = fresh
				text.Reset()
			}
			text.WriteString(Text(fresh))
			return append(appendGenerate(append(b, "data: "...), j, rid, text.String(), ids), "\n\n"...)
		},
		whole: func(b []byte, j *job) []byte { return append(appendGenerate(b, j, rid, Text(j.out), j.out), '\n') },
	})
}

// appendGenerate appends the JSON object of /generate as of now, with the given
// text, which is of a kind that needs no escaping, and token ids.
func appendGenerate(b []byte, j *job, rid []byte, text string, ids []int32) []byte {
	b = append(append(append(b, `{"text": "`...), text...), `", "output_ids": [`...)
	for i, t := range ids {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = strconv.AppendInt(b, int64(t), 10)
	}
	reason := "null"
	switch {
	case !j.ended():
	case j.finish() == "length":
		reason = fmt.Sprintf(`{"type": "length", "length": %d}`, len(j.out))
	case j.finish() == "stop":
		reason = fmt.Sprintf(`{"type": "stop", "matched": %d}`, EOS)
	default:
		reason = `{"type": "abort", "message": "Aborted"}`
	}
	return fmt.Appendf(b, `], "meta_info": {"id": %s, "finish_reason": %s, "prompt_tokens": %d, "completion_tokens": %d, "cached_tokens": %d}}`,
		rid, reason, j.prompt, len(j.out), j.cached)
}

type abortRequest struct {
	RID      string `json:"rid"`
	AbortAll bool   `json:"abort_all"`
}

// abort serves /abort_request: every request whose rid begins with the given one.
func (w *Worker) abort(rw http.ResponseWriter, _ *http.Request, q *abortRequest) {
	if q.RID == "" && !q.AbortAll {
		badRequest(rw, errors.New("rid is missing"))
		return
	}
	w.eng.cancel(func(s *stream) bool { return q.AbortAll || strings.HasPrefix(s.rid, q.RID) })
}

// loraRequest is a request to load or unload an adapter.
type loraRequest struct {
	Name   string `json:"lora_name"`
	Path   string `json:"lora_path"`
	Pinned bool   `json:"pinned"`
}

// lora serves loads or unloads of adapters. sglang's unload returns when the adapter has been unloaded, vLLM's at
// once.
func (w *Worker) lora(load bool) http.HandlerFunc {
	return reading(func(rw http.ResponseWriter, _ *http.Request, q *loraRequest) {
		var err error
		vllm, done := w.cfg.API == VLLM, "added"
		switch {
		case load && vllm && (q.Name == "" || q.Path == ""):
			err = errLoRAUnnamed
		case load:
			err = w.load(Adapter{Name: q.Name, Path: q.Path}, q.Pinned && !vllm)
		default:
			done, err = "removed", w.unload(q.Name, !vllm)
		}
		switch {
		case vllm && err != nil:
			refuseLoRA(rw, err)
		case vllm:
			fmt.Fprintf(rw, "Success: LoRA adapter '%s' %s successfully.", q.Name, done)
		default:
			status, text := http.StatusOK, ""
			if err != nil {
				status, text = http.StatusBadRequest, err.Error()
			}
			if _, ok := errors.AsType[errUnknownAdapter](err); ok {
				text = fmt.Sprintf("LoRA with name %s does not exist.", q.Name)
			}
			writeJSON(rw, status, object{"rid": nil, "success": err == nil, "error_message": text,
				"loaded_adapters": w.loadedAdapters()})
		}
	})
}

// errLoRAUnnamed is vLLM's answer to a load without a name or path (_check_load_lora_adapter_request).
var errLoRAUnnamed = errors.New("both 'lora_name' and 'lora_path' must be provided")

// refuseLoRA answers a load or an unload that failed, as vLLM 0.32 does (OpenAIServingModels).
func refuseLoRA(rw http.ResponseWriter, err error) {
	status, kind, text := http.StatusBadRequest, "BadRequestError", err.Error()
	if e, ok := errors.AsType[errUnknownAdapter](err); ok {
		status, kind = http.StatusNotFound, "NotFoundError"
		text = fmt.Sprintf("The lora adapter '%s' cannot be found.", e.name)
	}
	if errors.Is(err, errLoRAUnnamed) {
		kind, text = "InvalidUserInput", "Both 'lora_name' and 'lora_path' must be provided."
	}
	if e, ok := errors.AsType[errAlreadyLoaded](err); ok {
		kind = "InvalidUserInput"
		text = fmt.Sprintf("The lora adapter '%s' has already been loaded. If you want to load the adapter in place, set "+
			"'load_inplace' to True.", e.name)
	}
	writeJSON(rw, status, object{"error": object{"message": text, "type": kind, "param": nil, "code": status}})
}

func (w *Worker) flushCache(rw http.ResponseWriter, _ *http.Request) {
	if n := w.Running(); n > 0 {
		rw.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(rw, "Cache not flushed: %d requests are in flight.\n", n)
		return
	}
	w.eng.do(w.eng.srv.FlushCache)
	fmt.Fprintln(rw, "Cache flushed.")
}

// completionRequest is the body of /v1/completions and /v1/chat/completions.
type completionRequest struct {
	Model    string         `json:"model"`
	Prompt   jsontext.Value `json:"prompt"`
	Messages []struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	} `json:"messages"`
	MaxTokens *int `json:"max_tokens"`
	// MaxCompletionTokens is the chat endpoint's newer name of MaxTokens.
	MaxCompletionTokens *int   `json:"max_completion_tokens"`
	N                   *int   `json:"n"`
	Stream              bool   `json:"stream"`
	IgnoreEOS           bool   `json:"ignore_eos"`
	LoraPath            string `json:"lora_path"` // sglang
	RID                 string `json:"rid"`       // sglang
	ReturnTokenIDs      bool   `json:"return_token_ids"`
	StreamOptions       struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

const defaultMaxTokens = 16 // OpenAI's

// completions serves both endpoints of OpenAI.
func (w *Worker) completions(chat bool) http.HandlerFunc {
	return reading(func(rw http.ResponseWriter, r *http.Request, q *completionRequest) {
		refuse := func(err error) { w.refuseOpenAI(rw, err) }
		o, err := w.completionOrder(q, chat)
		if err != nil {
			refuse(err)
			return
		}
		c := &completion{w: w, q: q, chat: chat, created: time.Now().Unix()}
		w.serve(rw, r, o, q.Stream, wording{refuse: refuse, event: c.appendEvents,
			whole: func(b []byte, j *job) []byte {
				return appendJSON(b, c.body(j, false, []any{c.choice(j, j.out, false)}, true))
			}})
	})
}

// completionOrder turns an OpenAI request into an order.
func (w *Worker) completionOrder(q *completionRequest, chat bool) (order, error) {
	o := order{rid: q.RID, adapter: w.adapterOf(q), budget: *cmp.Or(q.MaxCompletionTokens, q.MaxTokens,
		new(defaultMaxTokens)), ignoreEOS: q.IgnoreEOS}
	var text string
	switch {
	case q.N != nil && *q.N != 1:
		return o, errors.New("n must be 1")
	case w.cfg.API == VLLM && o.budget > w.profile.Engine.ContextLength:
		param := "max_tokens"
		if q.MaxCompletionTokens != nil {
			param = "max_completion_tokens"
		}
		return o, errMaxTokens{param, o.budget, w.profile.Engine.ContextLength}
	case chat:
		for _, m := range q.Messages {
			o.prompt = append(o.prompt, Tokenize(m.Role+" "+m.Content)...)
		}
	case json.Unmarshal(q.Prompt, &text) == nil:
		o.prompt = Tokenize(text)
	case json.Unmarshal(q.Prompt, &o.prompt) != nil:
		return o, errors.New("prompt: expected a string or a list of token ids")
	}
	return o, nil
}

// errMaxTokens refuses a request for more tokens than the context length. vLLM 0.32 refuses it (TokenizeParams in
// renderers/params.py). If only the prompt and max_tokens together exceed the context, it reduces max_tokens.
type errMaxTokens struct {
	param           string
	budget, context int
}

func (e errMaxTokens) Error() string {
	return fmt.Sprintf("%s=%d cannot be greater than max_model_len=%d", e.param, e.budget, e.context)
}

// adapterOf returns the adapter that a request names: with sglang in "base:adapter" or lora_path, with vLLM in model.
func (w *Worker) adapterOf(q *completionRequest) string {
	_, adapter, ok := strings.Cut(q.Model, ":")
	switch {
	case w.cfg.API == VLLM && q.Model == w.cfg.ModelName:
		return ""
	case w.cfg.API == VLLM:
		return q.Model
	case !ok:
		return q.LoraPath
	}
	return adapter
}

// refuseOpenAI answers a request that did not begin to run.
func (w *Worker) refuseOpenAI(rw http.ResponseWriter, err error) {
	said := object{"message": err.Error(), "type": "BadRequestError", "param": nil, "code": http.StatusBadRequest}
	if w.cfg.API != VLLM {
		said["object"] = "error"
		writeJSON(rw, http.StatusBadRequest, said)
		return
	}
	status := http.StatusBadRequest
	if unknown, ok := errors.AsType[errUnknownAdapter](err); ok {
		status = http.StatusNotFound
		said["message"] = fmt.Sprintf("The model `%s` does not exist. Valid aliases: %s.", unknown.name,
			w.cfg.ModelName)
		said["type"], said["param"], said["code"] = "NotFoundError", "model", status
	}
	if most, ok := errors.AsType[errMaxTokens](err); ok {
		said["message"] = fmt.Sprintf("%v. Please request fewer output tokens. (parameter=%s, value=%d)", err,
			most.param, most.budget)
		said["param"] = most.param
	}
	writeJSON(rw, status, object{"error": said})
}

// completion is a reply of OpenAI's interface.
type completion struct {
	w       *Worker
	q       *completionRequest
	chat    bool
	created int64
}

// choice is the one choice of a reply, with the given new tokens.
func (c *completion) choice(j *job, tokens []int32, chunk bool) object {
	ch := object{"index": 0, "logprobs": nil, "finish_reason": nil}
	if j.ended() {
		ch["finish_reason"] = j.finish()
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

func (c *completion) body(j *job, chunk bool, choices []any, usage bool) object {
	kind := "text_completion"
	if c.chat {
		kind = map[bool]string{true: "chat.completion.chunk", false: "chat.completion"}[chunk]
	}
	b := object{"id": fmt.Sprintf("cmpl-%d", j.stream.id), "object": kind, "created": c.created, "model": c.q.Model,
		"choices": choices}
	if usage {
		u := object{"prompt_tokens": j.prompt, "completion_tokens": len(j.out), "total_tokens": j.prompt + len(j.out)}
		if c.w.profile.Engine.PrefixCache {
			u["prompt_tokens_details"] = object{"cached_tokens": j.cached}
		}
		b["usage"] = u
	}
	return b
}

func (c *completion) appendEvents(b []byte, j *job, fresh []int32) []byte {
	b = appendEvent(b, c.body(j, true, []any{c.choice(j, fresh, true)}, false))
	if j.ended() && c.q.StreamOptions.IncludeUsage {
		b = appendEvent(b, c.body(j, true, []any{}, true))
	}
	return b
}

// models lists the base model and the loaded adapters, whose parent it is and
// whose root is where they were loaded from (sglang: available_models in
// http_server.py; vLLM: show_available_models in models/serving.py).
func (w *Worker) models() any {
	entry := func(id, root string, parent, longest any) object {
		return object{"id": id, "object": "model", "created": time.Now().Unix(), "owned_by": string(w.cfg.API),
			"root": root, "parent": parent, "max_model_len": longest}
	}
	list := []any{entry(w.cfg.ModelName, w.cfg.ModelName, nil, w.profile.Engine.ContextLength)}
	loaded := w.loadedAdapters()
	for _, name := range slices.Sorted(maps.Keys(loaded)) {
		list = append(list, entry(name, loaded[name], w.cfg.ModelName, nil))
	}
	return object{"object": "list", "data": list}
}
