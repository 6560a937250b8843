package profile

import (
	"fmt"
	"strconv"
	"strings"
)

// vllmDefault is the minor version of vLLM for profiles without engine.vllm_version.
const vllmDefault = 32

// vllmMinor returns the minor version of vLLM whose rules apply, or -1 if vllm_version is invalid.
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

// VLLMAtLeast reports whether the rules of vLLM 0.minor or a later version apply.
func (e *Engine) VLLMAtLeast(minor int) bool { return e.vllmMinor() >= minor }

// Rules describes the scheduler, its version, and how it forms steps.
func (e *Engine) Rules() string {
	switch e.Scheduler {
	case SchedulerVLLM:
		how := "step by step"
		if e.AsyncScheduling {
			how = "asynchronous scheduling"
		}
		return fmt.Sprintf("vLLM 0.%d, %s, %d tokens a step", e.vllmMinor(), how, e.MaxNumBatchedTokens)
	case SchedulerSGLang:
		how := "no overlap schedule"
		if e.OverlapSchedule {
			how = "overlap schedule"
		}
		return fmt.Sprintf("sglang, %s, %d prompt tokens a step", how, e.ChunkedPrefillSize)
	}
	return e.Scheduler
}
