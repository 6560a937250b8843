package emulate

import (
	"net/http"

	"lorasim/bench/serving/httpapi"
)

// loraRequest is a request to load or unload an adapter.
type loraRequest struct {
	Name    *string `json:"lora_name"`
	Path    *string `json:"lora_path"`
	Pinned  bool    `json:"pinned"`       // sglang
	InPlace bool    `json:"load_inplace"` // vLLM: replace the adapter of that name
}

// lora serves loads or unloads of adapters. sglang's unload returns when the adapter has been unloaded, vLLM's at once.
func (w *Worker) lora(load bool) http.HandlerFunc {
	return reading(w.say.badBody, func(rw http.ResponseWriter, r *http.Request, q *loraRequest) {
		isVLLM := w.cfg.API == httpapi.VLLM
		switch {
		case q.Name == nil:
			w.say.badBody(rw, missing("lora_name"))
		case load && q.Path == nil:
			w.say.badBody(rw, missing("lora_path"))
		case isVLLM && (*q.Name == "" || load && *q.Path == ""):
			w.say.loaded(rw, "", "load", errUnnamed{})
		case !load:
			w.say.loaded(rw, *q.Name, "unload", w.unload(*q.Name, !isVLLM))
		case isVLLM && q.InPlace && w.replace(*q.Name, *q.Path):
			w.say.loaded(rw, *q.Name, "load", nil)
		default:
			err := w.load(r.Context(), Adapter{Name: *q.Name, Path: *q.Path}, q.Pinned && !isVLLM)
			w.say.loaded(rw, *q.Name, "load", err)
		}
	})
}

// replace gives a loaded adapter another path. It reports whether the adapter is loaded.
func (w *Worker) replace(name, path string) (ok bool) {
	w.eng.do(func() {
		if r := w.adapters[name]; r != nil && r.loaded {
			r.path, ok = path, true
		}
	})
	return ok
}
