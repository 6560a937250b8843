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

// vllmActive is the minor version of vLLM that has specialize_active_lora.
const vllmActive = 16

// SpecializeActiveLoRA sets [kernelsActive] (specialize_active_lora of vLLM). It returns an error if the version of
// vLLM does not have it.
func (p *Profile) SpecializeActiveLoRA() error {
	if !p.Engine.VLLMAtLeast(vllmActive) {
		return fmt.Errorf("specialize_active_lora needs vLLM 0.%d or later, and the engine is vLLM 0.%d", vllmActive,
			p.Engine.vllmMinor())
	}
	p.Latency.LoRA.Kernels = kernelsActive
	return nil
}

// LoRASteps describes in which steps LoRA takes time.
func (l *Latency) LoRASteps() string {
	backend := l.LoRA.Backend
	switch {
	case backend == BackendNone:
		return "no time"
	case l.LoRA.Measured() && l.LoRA.Kernels == kernelsEveryStep:
		return "measured kernels, by the adapters and tokens of a step; all slots also in steps without adapters"
	case l.LoRA.Measured():
		return "measured kernels, by the adapters and tokens of a step; none in steps without adapters"
	case backend == BackendPunica || backend == BackendNative:
		switch l.LoRA.Kernels {
		case kernelsActive:
			return "by the adapters of a step and that many slots; none in steps without adapters"
		case kernelsLoRASteps:
			return "by the adapters of a step and all slots; none in steps without adapters"
		}
		return "by the adapters of a step and all slots; all slots also in steps without adapters"
	case backend == BackendMBGMV:
		return "by the adapters and tokens of a step; none in steps without adapters"
	}
	return "by backend " + backend + "; none in steps without adapters"
}
