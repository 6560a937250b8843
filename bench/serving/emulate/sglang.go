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

// sglang is the interface of sglang 0.5.23.
type sglang struct{ w *Worker }

// versionSGLang is the version that the emulated worker states, with a mark that it is no real engine.
const versionSGLang = "0.5.23+emulated"

func (s sglang) routes() map[string]http.HandlerFunc {
	w := s.w
	models := answering(func() any { return object{"object": "list", "data": w.listed("sglang")} })
	return map[string]http.HandlerFunc{
		"GET /health": s.health, "GET /health_generate": s.health, "GET /ping": s.health, "GET /ready": s.health,
		"GET /":               answering(func() any { return "SGLang is running" }),
		"GET /v1/models":      models,
		"GET /v1/models/":     s.model,
		"POST /v1/embeddings": s.noSuchModel, "POST /v1/score": s.noSuchModel, "POST /v1/rerank": s.noSuchModel,
		"POST /v1/audio/transcriptions": s.noForm, "POST /classify": s.noClassifier,
		"GET /v1/responses/":   s.noResponse,
		"GET /get_server_info": answering(w.serverInfo), "GET /server_info": answering(w.serverInfo),
		"GET /get_model_info": answering(w.modelInfo), "GET /model_info": answering(w.modelInfo),
		"GET /v1/loads":  answering(w.loads),
		"POST /generate": reading(s.badGenerate, w.generate), "PUT /generate": reading(s.badGenerate, w.generate),
		"POST /abort_request":       reading(s.badBody, w.abort),
		"POST /load_lora_adapter":   w.lora(true),
		"POST /unload_lora_adapter": w.lora(false),
		"POST /flush_cache":         w.flushCache, "GET /flush_cache": w.flushCache,
		"POST /v1/tokenize":   w.tokenize(),
		"POST /v1/detokenize": w.detokenize(),
	}
}

// open reports whether a path needs no key (utils/auth.py).
func (s sglang) open(path string) bool {
	return slices.ContainsFunc([]string{"/health", "/metrics"}, func(p string) bool {
		return strings.HasPrefix(path,
			p)
	})
}

// health answers /health, /health_generate, /ping and /ready: 503 while the worker drains, although it still serves all
// other requests.
func (s sglang) health(rw http.ResponseWriter, _ *http.Request) {
	if s.w.draining.Load() {
		rw.WriteHeader(http.StatusServiceUnavailable)
	}
}

// model answers /v1/models/NAME, which knows the base model alone.
func (s sglang) model(rw http.ResponseWriter, r *http.Request) {
	id := strings.TrimPrefix(r.URL.Path, "/v1/models/")
	if id != s.w.cfg.ModelName {
		writeJSON(rw, http.StatusNotFound, object{"error": object{"code": "model_not_found", "param": "model",
			"message": fmt.Sprintf("The model '%s' does not exist", id), "type": "invalid_request_error"}})
		return
	}
	writeJSON(rw, http.StatusOK, s.w.listed("sglang")[0])
}

// adapter returns the adapter that "base:adapter" or lora_path names (OpenAIServingBase._parse_model_parameter). A name
// without a colon is the base model, whatever it is. Names in replies are those of the requests.
func (s sglang) adapter(model, path string) (adapter, name string, err error) {
	base := s.w.cfg.ModelName
	if rest, ok := strings.CutPrefix(model, base+":"); ok {
		adapter = rest
	} else if model != base {
		_, adapter, _ = strings.Cut(model, ":")
	}
	adapter = cmp.Or(strings.TrimSpace(adapter), path)
	if _, ok := s.w.lookup(adapter); !ok && adapter != "" {
		return "", "", errUnknownAdapter{adapter}
	}
	return adapter, model, nil
}

// check refuses values that are not allowed (entrypoints/openai/protocol.py, SamplingParams.verify).
func (s sglang) check(c *completion) error {
	q := c.q
	switch {
	case c.chat && q.Messages == nil:
		return missing("messages")
	case c.chat && len(q.Messages) == 0:
		return errSampling("Messages cannot be empty.")
	case !c.chat && q.MaxTokens.Kind() == 'n':
		return missing("max_tokens")
	case !c.chat && (q.Prompt.Kind() == 0 || q.Prompt.Kind() == 'n'):
		return missing("prompt")
	case q.N != nil && *q.N == 0:
		return errValue{"n", "n must be at least 1"}
	case q.N != nil && *q.N < 0:
		q.N = new(1) // it is not checked
	}
	c.top = max(c.top, 0)
	for _, m := range q.Messages {
		if !slices.Contains([]string{"system", "user", "assistant", "tool", "developer", "function"}, m.Role) ||
			m.Content == nil {
			return errBody{errMissing("a known role or the content"), "messages"}
		}
	}
	return s.sampling(q.Temperature, q.TopP)
}

// sampling refuses values of sampling parameters.
func (s sglang) sampling(temperature, topP *float64) error {
	switch {
	case temperature != nil && *temperature < 0:
		return errSampling("temperature must be non-negative")
	case topP != nil && (*topP <= 0 || *topP > 1):
		return errSampling("top_p must be in (0, 1]")
	}
	return nil
}

// checkPrompt refuses budgets: of completions when the body is read, of chats later.
func (s sglang) checkPrompt(_ []int32, param string, budget int) (int, error) {
	switch {
	case budget < 1 && param == "max_tokens":
		return 0, errBody{errBudget(budget), param}
	case budget < 1:
		return 0, errBudget(budget)
	}
	return budget, nil
}

func (s sglang) refusal(err error) *refusal {
	r := &refusal{status: http.StatusBadRequest, kind: "BadRequestError", text: err.Error()}
	switch e := err.(type) {
	case errBody, errContentType, errEncoding:
		r.kind = "Bad Request"
	case errSampling:
	case errUnknownAdapter:
		r.text = fmt.Sprintf("Got LoRA adapter that has never been loaded: %s\nAll loaded adapters: dict_keys([%s]).",
			e.name,
			s.w.loadedNames())
	case errFull: // Scheduler._abort_on_queued_limit
		r.status, r.kind, r.text = http.StatusServiceUnavailable, "503", "The request queue is full."
	case errNoModel:
		r.status, r.param = http.StatusNotFound, "model"
	case errValue:
		r.kind = "BadRequest"
	}
	return r
}

// object is the body of an error.
func (s sglang) object(r *refusal) object {
	o := r.plain()
	o["object"] = "error"
	return o
}

func (s sglang) refuse(rw http.ResponseWriter, err error) {
	r := s.refusal(err)
	writeJSON(rw, r.status, s.object(r))
}

// guard answers a request without the key.
func (s sglang) guard(rw http.ResponseWriter) {
	writeJSON(rw, http.StatusUnauthorized, object{"error": "Unauthorized"})
}

func (s sglang) badBody(rw http.ResponseWriter, err error) { s.refuse(rw, err) }

// broken is the event of an error in a stream.
func (s sglang) broken(b []byte, err error) []byte {
	r := s.refusal(err)
	r.param = nil
	if r.status == http.StatusServiceUnavailable {
		r.kind = "SERVICE_UNAVAILABLE"
	}
	return append(appendEvent(b, object{"error": s.object(r)}), done...)
}

// form sends a stream's header with its first event. What the scheduler refuses, such as a request for which the queue
// has no room, is an event after a header of success (OpenAIServingCompletion._handle_streaming_request).
func (s sglang) form(rw http.ResponseWriter, c *completion) form {
	return form{
		refuse: func(err error) {
			if _, full := errors.AsType[errFull](err); full && c.q.Stream {
				events(rw)
				send(rw, s.broken(nil, err), true)
				return
			}
			s.refuse(rw, err)
		},
		broken: s.broken,
		event:  func(b []byte, j *job, fresh []int32) []byte { return s.appendChunk(b, c, j, fresh) },
		end:    func(b []byte, jobs []*job) []byte { return s.appendEnd(b, c, jobs) },
		whole:  func(b []byte, jobs []*job) []byte { return appendJSON(b, s.body(c, jobs)) },
	}
}

func (s sglang) usage(c *completion, jobs []*job) object {
	p, n, cached := c.tokens(jobs)
	u := object{"prompt_tokens": p, "completion_tokens": n, "total_tokens": p + n, "reasoning_tokens": 0,
		"prompt_tokens_details": nil, "completion_tokens_details": nil}
	if s.w.profile.Engine.PrefixCache { // --enable-cache-report
		u["prompt_tokens_details"] = object{"cached_tokens": cached}
	}
	return u
}

func (s sglang) choice(c *completion, j *job, tokens []int32) object {
	ch := object{"index": j.index, "logprobs": nil, "finish_reason": nil, "matched_stop": nil}
	if j.ended() {
		if ch["finish_reason"] = j.finish(); j.finish() == "stop" {
			ch["matched_stop"] = EOS
		}
	}
	switch {
	case c.logs && c.chat:
		ch["logprobs"] = c.chatLogprobs(tokens)
	case c.logs:
		ch["logprobs"] = c.logprobs(tokens, 0)
	}
	if c.q.ReturnTokenIDs && !c.chat {
		ch["token_ids"] = tokens
	}
	return ch
}

func (s sglang) body(c *completion, jobs []*job) object {
	var choices []any
	for _, j := range jobs {
		ch := s.choice(c, j, j.out)
		if c.chat {
			ch["message"] = object{"role": "assistant", "content": Text(j.out), "reasoning_content": nil}
			if c.q.ReturnTokenIDs {
				ch["prompt_token_ids"], ch["response_token_ids"] = j.ids, j.out
			}
		} else {
			ch["text"] = c.echo(j) + Text(j.out)
			if c.q.ReturnTokenIDs {
				ch["prompt_token_ids"] = j.ids
			}
		}
		choices = append(choices, ch)
	}
	b := c.head(false, choices)
	b["usage"] = s.usage(c, jobs)
	_, n, _ := c.tokens(jobs[:1])
	b["metadata"] = object{"weight_version": "default",
		"weight_versions": []any{object{"version": "default", "start": 0, "end": n}}}
	return b
}

func (s sglang) appendChunk(b []byte, c *completion, j *job, fresh []int32) []byte {
	first := !c.first[j.index]
	c.first[j.index] = true
	if c.chat {
		if first {
			b = s.appendDelta(b, c, object{"index": j.index, "logprobs": nil, "finish_reason": nil, "matched_stop": nil,
				"delta": object{"role": "assistant", "content": "", "reasoning_content": nil}})
		}
		ch := s.choice(c, j, fresh)
		ch["finish_reason"], ch["matched_stop"] = nil, nil // they come at the end
		ch["delta"] = object{"content": Text(fresh), "reasoning_content": nil}
		return s.appendDelta(b, c, ch)
	}
	ch := s.choice(c, j, fresh)
	if ch["text"] = Text(fresh); first {
		ch["text"] = c.echo(j) + Text(fresh)
		if c.q.ReturnTokenIDs {
			ch["prompt_token_ids"] = j.ids
		}
	}
	chunk := c.head(true, []any{ch})
	chunk["usage"] = nil
	if o := c.q.StreamOptions; o != nil && o.IncludeUsage && o.ContinuousUsage {
		chunk["usage"] = s.usage(c, []*job{j})
	}
	return appendEvent(b, chunk)
}

// appendDelta appends an event of a chat.
func (s sglang) appendDelta(b []byte, c *completion, choice object) []byte {
	return appendEvent(b, c.head(true, []any{choice}))
}

func (s sglang) appendEnd(b []byte, c *completion, jobs []*job) []byte {
	if c.chat {
		for _, j := range jobs {
			ch := s.choice(c, j, nil)
			ch["delta"], ch["logprobs"] = object{"reasoning_content": nil}, nil
			b = s.appendDelta(b, c, ch)
		}
	}
	if o := c.q.StreamOptions; o != nil && o.IncludeUsage {
		chunk, u := c.head(true, []any{}), s.usage(c, jobs)
		if !c.chat {
			maps.DeleteFunc(u, func(_ string, v any) bool { return v == nil })
		}
		chunk["usage"] = u
		b = appendEvent(b, chunk)
	}
	return append(b, done...)
}

// loaded answers a load or an unload.
func (s sglang) loaded(rw http.ResponseWriter, name, verb string, err error) {
	status, text := http.StatusOK, ""
	if err != nil {
		status, text = http.StatusBadRequest, err.Error()
	}
	switch e := err.(type) {
	case errUnknownAdapter:
		text = fmt.Sprintf("LoRA with name %s does not exist. Loaded LoRAs: odict_keys([%s])", e.name,
			s.w.loadedNames())
	case errAlreadyLoaded:
		text = fmt.Sprintf("Failed to load LoRA adapter %s because it is already loaded", e.name)
	}
	var loaded any = s.w.loadedAdapters()
	if _, unknown := errors.AsType[errUnknownAdapter](err); unknown {
		loaded = nil
	}
	writeJSON(rw, status, object{"rid": nil, "http_worker_ipc": nil, "success": err == nil, "error_message": text,
		"loaded_adapters": loaded})
}

func (w *Worker) serverInfo() any {
	e, s := w.profile.Engine, w.signals()
	info := object{
		"model_path": cmp.Or(w.cfg.ModelPath, w.cfg.ModelName), "served_model_name": w.cfg.ModelName,
		"enable_lora": true,
		"version":     versionSGLang, "max_running_requests": e.MaxRunningRequests,
		"max_loras_per_batch": e.MaxLorasPerBatch,
		"max_loaded_loras":    nil, "max_lora_rank": e.MaxLoraRank,
		"context_length": e.ContextLength, "chunked_prefill_size": e.ChunkedPrefillSize,
		"max_total_num_tokens": s.KVCapacity, "time_scale": w.cfg.Speed,
	}
	if n := e.MaxLoadedLoras; n > 0 {
		info["max_loaded_loras"] = n
	}
	return info
}

func (w *Worker) modelInfo() any {
	path := cmp.Or(w.cfg.ModelPath, w.cfg.ModelName)
	return object{
		"model_path": path, "served_model_name": w.cfg.ModelName, "tokenizer_path": path, "is_generation": true,
		"preferred_sampling_params": nil, "vocab_size": Vocabulary, "weight_version": "default",
	}
}

// loads is sglang's load signal.
func (w *Worker) loads() any {
	s := w.signals()
	return object{
		"timestamp": time.Now().Format(time.RFC3339Nano), "version": versionSGLang, "accelerator": nil,
		"num_accelerators": 1,
		"loads": []any{object{
			"dp_rank": 0, "timestamp": float64(time.Now().UnixMicro()) / 1e6,
			"num_running_reqs": s.Running, "num_waiting_reqs": s.Queued, "num_waiting_uncached_tokens": 0,
			"num_used_tokens": s.KVUsed, "num_total_tokens": s.KVUsed, "num_active_tokens": s.KVUsed,
			"num_prealloc_ready_tokens": 0, "max_total_num_tokens": s.KVCapacity, "token_usage": s.usage(),
			"gen_throughput": 0.0, "cache_hit_rate": 0.0, "utilization": 0.0, "total_prefill_uncached_tokens": 0,
			"total_prefill_busy_us": 0, "decode_moments": []any{0.0},
			"max_running_requests": w.profile.Engine.MaxRunningRequests,
			"memory": object{"weight_gb": 0.0, "kv_cache_gb": 0.0, "graph_gb": 0.0,
				"token_capacity": s.KVCapacity},
			"lora": object{"slots_used": s.SlotsUsed, "slots_total": s.Slots,
				"utilization": float64(s.SlotsUsed) / max(float64(s.Slots), 1)},
			"disaggregation": object{"mode": "null", "prefill_bootstrap_queue_reqs": 0,
				"prefill_inflight_queue_reqs": 0,
				"decode_prealloc_queue_reqs":  0, "decode_transfer_queue_reqs": 0, "decode_retracted_queue_reqs": 0,
				"kv_transfer_speed_gb_s": 0.0, "kv_transfer_latency_ms": 0.0},
			"queues": object{"waiting": s.Queued, "grammar": 0, "paused": 0, "retracted": 0, "prealloc_ready": 0},
		}},
	}
}

// noSuchModel refuses forms that need a model of another kind.
func (s sglang) noSuchModel(rw http.ResponseWriter, _ *http.Request) {
	s.refuse(rw, errSampling("the model does not support this: start an embedding model with --is-embedding"))
}

func (s sglang) noForm(rw http.ResponseWriter, _ *http.Request) { s.refuse(rw, missing("file")) }

func (s sglang) noClassifier(rw http.ResponseWriter, _ *http.Request) {
	writeJSON(rw, http.StatusBadRequest, object{"error": object{"message": "the model does not support this"}})
}
