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
)

// vllm is the interface of vLLM 0.32 and 0.33.
type vllm struct{ w *Worker }

// versionVLLM is the version that the emulated worker states, with a mark that it is no real engine.
const versionVLLM = "0.32.0+emulated"

func (v vllm) routes() map[string]http.HandlerFunc {
	w := v.w
	ok := func(http.ResponseWriter, *http.Request) {}
	return map[string]http.HandlerFunc{
		"GET /health": ok, "GET /ping": ok, "POST /ping": ok,
		"GET /version":                 answering(func() any { return object{"version": versionVLLM} }),
		"GET /load":                    answering(func() any { return object{"server_load": w.Running()} }),
		"GET /v1/models":               answering(v.models),
		"POST /reset_prefix_cache":     func(http.ResponseWriter, *http.Request) { w.eng.do(w.eng.srv.FlushCache) },
		"GET /v1/responses/":           v.noResponse,
		"POST /v1/load_lora_adapter":   w.lora(true),
		"POST /v1/unload_lora_adapter": w.lora(false),
	}
}

// open reports whether a path needs no key (AuthenticationMiddleware in serve/middleware/authenticate.py).
func (v vllm) open(path string) bool {
	return !slices.ContainsFunc([]string{"/v1", "/v2", "/inference", "/cohere"}, func(p string) bool {
		return strings.HasPrefix(path, p)
	})
}

// adapter returns the adapter that a model names and the name of the model in replies. The empty name is the base
// model (BaseServing._check_model).
func (v vllm) adapter(model, _ string) (adapter, name string, err error) {
	base := v.w.cfg.ModelName
	if model == "" || model == base {
		return "", base, nil
	}
	if _, ok := v.w.lookup(model); !ok {
		return "", "", errUnknownAdapter{model}
	}
	return model, model, nil
}

// check refuses values that are not allowed (protocol.py of each endpoint, SamplingParams in sampling_params.py).
func (v vllm) check(c *completion) error {
	q := c.q
	const mostLogprobs = 20 // --max-logprobs
	prompt := strings.TrimSpace(string(q.Prompt))
	refuse := func(param, format string, args ...any) error { return errValue{param, fmt.Sprintf(format, args...)} }
	switch {
	case c.chat && q.Messages == nil:
		return missing("messages")
	case q.StreamOptions != nil && !q.Stream:
		return refuse("stream_options", "Stream options can only be defined when `stream=True`.")
	case !c.chat && (prompt == "" || prompt == "null" || prompt == `""`):
		return refuse("prompt", "Either prompt or prompt_embeds must be provided and non-empty.")
	case c.top < 0:
		return refuse("logprobs", "`logprobs` must be a positive value or -1.")
	case q.TopLogprobs > 0 && !c.logs:
		return refuse("top_logprobs", "when using `top_logprobs`, `logprobs` must be set to true.")
	case c.top > mostLogprobs:
		return refuse("logprobs", "Requested sample logprobs of %d, which is greater than max allowed: %d", c.top,
			mostLogprobs)
	case q.N != nil && *q.N < 1:
		return refuse("", "n must be at least 1, got %d.", *q.N)
	case q.Temperature != nil && *q.Temperature < 0:
		return refuse("temperature", "temperature must be non-negative, got %v.", *q.Temperature)
	case q.TopP != nil && (*q.TopP <= 0 || *q.TopP > 1):
		return refuse("top_p", "top_p must be in (0, 1], got %v.", *q.TopP)
	}
	for i, m := range q.Messages {
		switch {
		case m.Role == "":
			return errBody{errMissing("role"), fmt.Sprintf("messages.%d.ChatCompletionDeveloperMessageParam.role", i)}
		case m.Content == nil:
			return refuse("", "a message has no content")
		}
	}
	return nil
}

// checkPrompt refuses a prompt before the engine sees it (TokenizeParams in renderers/params.py). If only the prompt
// and the budget together exceed the context, the budget is reduced.
func (v vllm) checkPrompt(ids []int32, param string, budget int) (int, error) {
	longest := v.w.context()
	for i, t := range ids {
		switch {
		case t < 0:
			return 0, errBody{errors.New("input should be greater than or equal to 0"), fmt.Sprint("prompt.", i)}
		case t >= Vocabulary:
			return 0, errValue{"", fmt.Sprintf("Token id %d is out of vocabulary", t)}
		}
	}
	switch {
	case budget > longest:
		return 0, errMaxTokens{param, budget, longest}
	case budget < 1:
		return 0, errValue{"max_tokens", fmt.Sprintf("max_tokens must be at least 1, got %d.", budget)}
	case len(ids) >= longest:
		return 0, errValue{"input_tokens",
			fmt.Sprintf("This model's maximum context length is %d tokens. However, your prompt "+
				"contains %d input tokens, which exceeds this limit even without any output tokens. Please reduce the length of "+
				"the input prompt. (parameter=input_tokens, value=%[2]d)", longest, len(ids))}
	}
	return min(budget, longest-len(ids)), nil
}

func (v vllm) refusal(err error) *refusal {
	r := &refusal{status: http.StatusBadRequest, kind: "BadRequestError", text: err.Error()}
	switch e := err.(type) {
	case errContentType:
		r.kind = "Bad Request"
	case errBody: // validation_exception_handler
		if r.kind, r.param = "Bad Request", "body"; e.at != "" {
			r.param = "body." + e.at
		}
	case errUnknownAdapter:
		r.status, r.kind, r.param = http.StatusNotFound, "NotFoundError", "model"
		r.text = fmt.Sprintf("The model `%s` does not exist. Valid aliases: %s.", e.name, v.w.cfg.ModelName)
	case errFull: // QueueOverflowError in exceptions.py
		r.status, r.kind = http.StatusServiceUnavailable, "Service Unavailable"
		r.text = "The engine is currently busy and cannot accept new requests. " +
			"Please try again later or on a different instance."
	case errMaxTokens:
		r.text = fmt.Sprintf("%v. Please request fewer output tokens. (parameter=%s, value=%d)", err, e.param, e.budget)
		r.param = e.param
	case errValue:
		if e.param != "" {
			r.param = e.param
		}
	case errGone:
		r.status, r.kind = http.StatusInternalServerError, "InternalServerError"
	}
	return r
}

func (v vllm) refuse(rw http.ResponseWriter, err error) {
	if _, ok := errors.AsType[errEncoding](err); ok {
		writeJSON(rw, http.StatusBadRequest, object{"detail": "There was an error parsing the body"})
		return
	}
	r := v.refusal(err)
	writeJSON(rw, r.status, object{"error": r.plain()})
}

func (v vllm) badBody(rw http.ResponseWriter, err error) { v.refuse(rw, err) }

// guard answers a request without the key.
func (v vllm) guard(rw http.ResponseWriter) {
	writeJSON(rw, http.StatusUnauthorized, object{"error": "Unauthorized"})
}

// broken is the event of an error in a stream.
func (v vllm) broken(b []byte, err error) []byte {
	return append(appendEvent(b, object{"error": v.refusal(err).plain()}), done...)
}

// form sends a stream's header before its first token: the engine is asked when the body is read.
func (v vllm) form(rw http.ResponseWriter, c *completion) form {
	return form{early: true, refuse: func(err error) { v.refuse(rw, err) }, broken: v.broken,
		event: func(b []byte, j *job, fresh []int32) []byte { return v.appendChunk(b, c, j, fresh) },
		end:   func(b []byte, jobs []*job) []byte { return v.appendEnd(b, c, jobs) },
		whole: func(b []byte, jobs []*job) []byte { return appendJSON(b, v.body(c, jobs)) },
	}
}

func (v vllm) usage(c *completion, jobs []*job) object {
	p, n, cached := c.tokens(jobs)
	u := object{"prompt_tokens": p, "completion_tokens": n, "total_tokens": p + n}
	if v.w.profile.Engine.PrefixCache { // --enable-prompt-tokens-details
		u["prompt_tokens_details"] = object{"cached_tokens": cached}
	}
	return u
}

func (v vllm) fingerprint() string { return "vllm-" + versionVLLM }

// choice is what whole replies and events have of a choice.
func (v vllm) choice(c *completion, j *job, tokens []int32, offset int) object {
	ch := object{"index": j.index, "logprobs": nil, "finish_reason": nil}
	if j.ended() {
		ch["finish_reason"] = j.finish()
	}
	switch {
	case c.logs && c.chat:
		ch["logprobs"] = c.chatLogprobs(tokens)
	case c.logs:
		ch["logprobs"] = c.logprobs(tokens, offset)
	}
	return ch
}

// ids returns tokens if the request asks for ids, else nil.
func (c *completion) ids(tokens []int32) any {
	if c.q.ReturnTokenIDs {
		return tokens
	}
	return nil
}

func (v vllm) body(c *completion, jobs []*job) object {
	var choices []any
	for _, j := range jobs {
		ch := v.choice(c, j, j.out, 0)
		ch["stop_reason"], ch["routed_experts"], ch["token_ids"] = nil, nil, c.ids(j.out)
		if c.chat {
			ch["message"] = object{"role": "assistant", "content": Text(j.out), "refusal": nil, "annotations": nil,
				"audio": nil, "function_call": nil, "reasoning": nil}
		} else {
			ch["text"], ch["prompt_logprobs"], ch["prompt_token_ids"] = c.echo(j)+Text(j.out), nil, c.ids(j.ids)
		}
		choices = append(choices, ch)
	}
	b := c.head(false, choices)
	u := v.usage(c, jobs)
	for _, name := range []string{"prompt_tokens_details", "completion_tokens_details"} {
		u[name] = cmp.Or(u[name], nil)
	}
	b["usage"], b["system_fingerprint"] = u, v.fingerprint()
	for _, name := range []string{"service_tier", "kv_transfer_params", "ec_transfer_params", "metrics"} {
		b[name] = nil
	}
	if c.chat {
		b["prompt_logprobs"], b["prompt_text"], b["prompt_token_ids"] = nil, nil, c.ids(jobs[0].ids)
	}
	return b
}

// echo returns the text of the prompt if the request asks for it.
func (c *completion) echo(j *job) string {
	if c.q.Echo {
		return Text(j.ids)
	}
	return ""
}

func (v vllm) appendChunk(b []byte, c *completion, j *job, fresh []int32) []byte {
	first := !c.first[j.index]
	c.first[j.index] = true
	if first && !c.chat && len(fresh) == 0 { // aborted (completion_stream_generator in openai/completion/serving.py)
		return b
	}
	if first && c.chat {
		role := c.head(true, []any{object{"index": j.index, "logprobs": nil, "finish_reason": nil,
			"delta": object{"role": "assistant", "content": ""}}})
		role["prompt_token_ids"], role["prompt_text"] = c.ids(j.ids), nil
		b = appendEvent(b, role)
	}
	ch := v.choice(c, j, fresh, 0)
	ch["token_ids"] = c.ids(fresh)
	switch {
	case c.chat:
		ch["delta"] = object{"content": Text(fresh)}
		if j.ended() {
			ch["stop_reason"] = nil
		}
	default:
		ch["text"], ch["stop_reason"], ch["prompt_token_ids"] = Text(fresh), nil, nil
		if first {
			ch["text"], ch["prompt_token_ids"] = c.echo(j)+Text(fresh), c.ids(j.ids)
		}
	}
	chunk := c.head(true, []any{ch})
	o := cmp.Or(c.q.StreamOptions, &streamOptions{})
	if j.ended() && !o.IncludeUsage {
		chunk["system_fingerprint"] = v.fingerprint()
	}
	if o.IncludeUsage && o.ContinuousUsage {
		chunk["usage"] = object{"prompt_tokens": j.prompt, "completion_tokens": len(j.out),
			"total_tokens": j.prompt + len(j.out)}
	}
	return appendEvent(b, chunk)
}

func (v vllm) appendEnd(b []byte, c *completion, jobs []*job) []byte {
	if o := c.q.StreamOptions; o != nil && o.IncludeUsage {
		chunk := c.head(true, []any{})
		chunk["usage"], chunk["system_fingerprint"] = v.usage(c, jobs), v.fingerprint()
		b = appendEvent(b, chunk)
	}
	return append(b, done...)
}

// models lists the base model and the loaded adapters, whose parent it is and whose root is where they were loaded from
// (OpenAIServingModels.show_available_models in openai/models/serving.py).
func (v vllm) models() any {
	list := []any{}
	for _, m := range v.w.listed("vllm") {
		m["permission"] = []any{object{"id": "modelperm-" + newID(), "object": "model_permission",
			"created": time.Now().Unix(), "allow_create_engine": false, "allow_sampling": true, "allow_logprobs": true,
			"allow_search_indices": false, "allow_view": true, "allow_fine_tuning": false, "organization": "*",
			"group": nil, "is_blocking": false}}
		list = append(list, m)
	}
	return object{"object": "list", "data": list}
}

// listed returns the entries of the list of models.
func (w *Worker) listed(owner string) []object {
	entry := func(id, root string, parent, longest any) object {
		return object{"id": id, "object": "model", "created": time.Now().Unix(), "owned_by": owner, "root": root,
			"parent": parent, "max_model_len": longest}
	}
	list := []object{entry(w.cfg.ModelName, cmp.Or(w.cfg.ModelPath, w.cfg.ModelName), nil,
		w.profile.Engine.ContextLength)}
	loaded := w.loadedAdapters()
	for _, name := range slices.Sorted(maps.Keys(loaded)) {
		list = append(list, entry(name, loaded[name], w.cfg.ModelName, nil))
	}
	return list
}

// loaded answers a load or an unload (OpenAIServingModels).
func (v vllm) loaded(rw http.ResponseWriter, name, verb string, err error) {
	if err == nil {
		done := map[string]string{"load": "added", "unload": "removed"}[verb]
		rw.Header()["Content-Type"] = nil // it has none
		writeBody(rw, fmt.Appendf(nil, "Success: LoRA adapter '%s' %s successfully.", name, done))
		return
	}
	if _, ok := errors.AsType[errBody](err); ok {
		v.refuse(rw, err)
		return
	}
	r := refusal{status: http.StatusBadRequest, kind: "InvalidUserInput", text: err.Error()}
	switch e := err.(type) {
	case errUnknownAdapter:
		r.status, r.kind = http.StatusNotFound, "NotFoundError"
		r.text = fmt.Sprintf("The lora adapter '%s' cannot be found.", e.name)
	case errNoAdapter:
		r.status, r.kind = http.StatusNotFound, "NotFoundError"
		r.text = fmt.Sprintf("Loading lora %s failed: No adapter found for %s", e.Name, e.Path)
	case errAlreadyLoaded:
		r.text = fmt.Sprintf("The lora adapter '%s' has already been loaded. If you want to load the adapter in place, set "+
			"'load_inplace' to True.", e.name)
	case errUnnamed:
		r.text = "Both 'lora_name' and 'lora_path' must be provided."
		if verb == "unload" {
			r.text = "'lora_name' needs to be provided to unload a LoRA adapter."
		}
	case errBaseName:
		r.text = fmt.Sprintf("The lora adapter '%s' conflicts with a served base model.", string(e))
	case refusedLoad:
		r.status, r.kind = http.StatusInternalServerError, "InternalServerError"
	}
	writeJSON(rw, r.status, object{"error": r.plain()})
}
