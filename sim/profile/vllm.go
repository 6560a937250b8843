package profile

import (
	"strconv"
	"strings"
)

// vllmDefault is the minor version of vLLM whose rules hold where a profile names none.
const vllmDefault = 32

// vllmMinor is the minor version of vLLM whose rules hold, -1 if vllm_version is none.
func (e *Engine) vllmMinor() int {
	if e.VLLMVersion == "" {
		return vllmDefault
	}
	minor, ok := strings.CutPrefix(e.VLLMVersion, "0.")
	minor, _, _ = strings.Cut(minor, ".")
	n, err := strconv.ParseUint(minor, 10, 16)
	if !ok || err != nil {
		return -1
	}
	return int(n)
}

// VLLMAtLeast says whether the rules are those of version 0.minor of vLLM, or of a later one.
func (e *Engine) VLLMAtLeast(minor int) bool { return e.vllmMinor() >= minor }
