package fleet

import (
	"strings"

	"lorasim/bench/serving/httpapi"
)

// place is where an engine reads the adapter of a request; 0: nowhere, the base model answers with status 200.
type place uint8

const (
	inModel    place = 1 << iota // in "model"
	inLoRAPath                   // in "lora_path"
)

// forms states where the engines read the adapter of a request to a path. At other paths they read it nowhere. The
// sources are vLLM 0.32.0, below vllm/entrypoints, and sglang 0.5.23, below sglang/srt.
var forms = map[string]struct{ vllm, sglang place }{
	// managers/tokenizer_manager.py: _resolve_lora_path of GenerateReqInput and EmbeddingReqInput
	"/generate": {0, inLoRAPath},
	"/encode":   {0, inLoRAPath},
	// pooling/base/serving.py: _maybe_get_adapters | http_server.py: EmbeddingReqInput as it comes
	"/classify": {inModel, inLoRAPath},
	// _maybe_get_adapters in openai/*/serving.py, chat_completion/batch_serving.py, pooling/base/serving.py
	// | entrypoints/openai: _resolve_lora_path in serving_completions, serving_chat, serving_embedding
	"/v1/completions":            {inModel, inModel | inLoRAPath},
	"/v1/chat/completions":       {inModel, inModel | inLoRAPath},
	"/v1/chat/completions/batch": {inModel, 0},
	"/v1/embeddings":             {inModel, inModel | inLoRAPath},
	// anthropic/serving.py makes a chat with the same model, in both; sglang's drops lora_path
	"/v1/messages": {inModel, inModel},
	// openai/responses/serving.py | serving_responses.py checks the name, but its GenerateReqInput has no lora_path
	"/v1/responses": {inModel, 0},
	// cohere/serving.py makes a chat; scale_out/token_in_token_out/serving.py; generate/*/serving.py
	"/cohere/v2/chat":        {inModel, 0},
	"/inference/v1/generate": {inModel, 0},
	"/generative_scoring":    {inModel, 0},
	// | systemone/serving.py: EmbeddingReqInput without lora_path
	"/v1/systemone": {inModel, 0},
	// speech_to_text/base/serving.py | serving_transcription.py: GenerateReqInput without lora_path
	"/v1/audio/transcriptions": {inModel, 0},
	"/v1/audio/translations":   {inModel, 0},
	// pooling/base/serving.py | serving_score.py, serving_rerank.py: no lora_path
	"/v2/embed":  {inModel, 0},
	"/pooling":   {inModel, 0},
	"/score":     {inModel, 0},
	"/v1/score":  {inModel, 0},
	"/rerank":    {inModel, 0},
	"/v1/rerank": {inModel, 0},
	"/v2/rerank": {inModel, 0},
}

// same lists the paths whose answer is the same for a base model and its adapters: they use the tokenizer, the template
// or the request alone.
var same = map[string]bool{
	"/tokenize": true, "/v1/tokenize": true, "/detokenize": true, "/v1/detokenize": true,
	"/v1/messages/count_tokens": true,
	"/v1/completions/render":    true, "/v1/chat/completions/render": true, "/v1/messages/render": true,
	"/v1/responses/render": true, "/cohere/v2/chat/render": true,
	"/v1/completions/derender": true, "/v1/chat/completions/derender": true,
	"/parse_function_call": true, "/separate_reasoning": true, "/api/show": true,
}

// Engines is the set of engines that may get a request. The zero value is all of them.
type Engines struct{ noVLLM, noSGLang, noOther bool }

// EnginesFor returns the engines that serve a request for an adapter at a path, and not the base model instead. The
// adapter's name may be written to "model", or stands in "lora_path", or both.
func EnginesFor(path string, model, loraPath bool) (e Engines) {
	path, _, _ = strings.Cut(path, "?")
	f, listed := forms[path]
	if i := strings.LastIndex(path, "/v1/"); i > 0 && !listed && !same[path] { // a prefix that a proxy removes
		path = path[i:]
		f = forms[path]
	}
	if same[path] {
		return e
	}
	var given place
	if model {
		given |= inModel
	}
	if loraPath {
		given |= inLoRAPath
	}
	return Engines{noVLLM: f.vllm&given == 0, noSGLang: f.sglang&given == 0, noOther: true}
}

// Has reports whether an engine is in the set.
func (e Engines) Has(api httpapi.Kind) bool {
	switch api {
	case httpapi.VLLM:
		return !e.noVLLM
	case httpapi.SGLang:
		return !e.noSGLang
	}
	return !e.noOther
}

// Serves reports whether any worker's engine is in a set, or a worker's engine is unknown yet.
func (f *Fleet) Serves(e Engines) bool {
	defer f.lock()()
	for _, k := range f.workers {
		if api := k.kind(); !k.gone && (e.Has(api) || api == httpapi.Auto) {
			return true
		}
	}
	return e == Engines{}
}

// suits reports whether all workers' engines are in a set. Called with mu held.
func (t *table) suits(e Engines) bool {
	if e == (Engines{}) {
		return true
	}
	for _, k := range t.workers {
		if !e.Has(k.kind()) {
			return false
		}
	}
	return true
}

// NoEngine is the text of the error if no worker's engine is in the set of a request.
func NoEngine(path string) string {
	return "no worker's engine serves adapters at " + path
}
