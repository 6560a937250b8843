// Package httpapi has what the HTTP interfaces of sglang and vLLM share: which of the two a worker has, where a request
// and a reply name the model, and the token counts that a reply states.
package httpapi

import "lorasim/internal/suggest"

// Kind is the HTTP interface of a worker.
type Kind string

// The interfaces.
const (
	Auto   Kind = "auto" // to be detected
	SGLang Kind = "sglang"
	VLLM   Kind = "vllm"
)

// Parse returns the interface with the given name, one of some.
func Parse(s string, kinds ...Kind) (Kind, error) {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = string(k)
	}
	return Kind(s), suggest.Among("worker interface", s, names)
}
