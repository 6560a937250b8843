package profile

import (
	"errors"
	"fmt"
	"slices"
)

// engineTimes is the times of an engine in a step, ms, besides those of kernels. Times of the host pass while the GPU
// works, if the engine schedules asynchronously.
type engineTimes struct {
	name      string
	scheduler string // whose rules the engine follows
	fittedOn  string

	step, request     float64 // of a step, and of each running request in it
	host, hostRequest float64 // the host's, of a step and of each running request
	prompts           float64 // of a step with prompts, whose kernels start without a CUDA graph
}

// trtllm is the engine TensorRT-LLM, whose scheduler is simulated by the rules of vLLM.
const trtllm = "trtllm"

// engineList has the engines whose times are known. They were fitted to the TPOT of measured points of NVIDIA
// AIConfigurator (lab/docs/computed-profiles.md has the errors, also with groups of points left out). sglang and
// TensorRT-LLM ran with asynchronous schedulers, vLLM without: the part of its times that is above those of the other
// two is taken to be the host's. The host's time of sglang without the overlap schedule is not from these points, but
// from single-stream rates.
var engineList = []engineTimes{
	{name: SchedulerSGLang, scheduler: SchedulerSGLang, fittedOn: "sglang 0.5.1 and 0.5.6",
		step: 1.35, request: 0.024, host: 0.7, prompts: 8},
	{name: SchedulerVLLM, scheduler: SchedulerVLLM, fittedOn: "vLLM of October 2025",
		step: 0.5, request: 0.024, host: 0.6, hostRequest: 0.026, prompts: 1.5},
	{name: trtllm, scheduler: SchedulerVLLM, fittedOn: "TensorRT-LLM 1.0.0rc3",
		step: 1.1, request: 0.015, prompts: 3},
}

// Engines lists the engines of computed profiles.
func Engines() []string { return names(engineList, func(e *engineTimes) string { return e.name }) }

// engineOf returns the engine with the given name, or nil.
func engineOf(name string) *engineTimes {
	if i := slices.IndexFunc(engineList, func(e engineTimes) bool { return e.name == name }); i >= 0 {
		return &engineList[i]
	}
	return nil
}

// kernels returns the LoRA backend of the engine. Kernels of TensorRT-LLM are not measured, and taken to be vLLM's.
func (e *engineTimes) kernels() string {
	if e.scheduler == SchedulerSGLang {
		return BackendCSGMV
	}
	return BackendPunica
}

// computed is what a computed profile remembers, so that it can follow another scheduler and another LoRA backend.
type computed struct {
	engine *engineTimes
	start  float64 // time of a step that the engine's adds to, ms
	model  *Architecture
	tp     float64 // GPUs
	card   *GPU
}

// Times of an adapter load from host memory to an H100, by bench/fidelity/fit/testdata/kit. vLLM copies each matrix of
// each layer from pinned memory, sglang pins and copies the matrices of each product.
const (
	vllmLoadMs, vllmLoadGBPerS     = 0.22, 65 // a layer
	sglangLoadMs, sglangLoadGBPerS = 0.24, 27
)

// follow sets the engine's times and LoRA kernels in a computed profile.
func (p *Profile) follow(c *computed) {
	l, e := &p.Latency, c.engine
	l.StepMs, l.StepPerRequestMs = Round4(c.start+e.step), e.request
	l.HostMs, l.HostPerRequestMs = e.host, e.hostRequest
	l.Prefill.MixedMs = e.prompts
	l.LoRA.Backend, l.LoRA.Kernels = e.kernels(), ""
	if e.scheduler == SchedulerVLLM {
		l.LoRA.Kernels = kernelsLoRASteps
	}
	l.LoRA.KernelTimes = kernelTimes(l.LoRA.Backend, c.model, c.tp)
	if c.card.PCIe >= 5 {
		ms, rate := vllmLoadMs, float64(vllmLoadGBPerS)
		if e.scheduler == SchedulerSGLang {
			ms, rate = sglangLoadMs, sglangLoadGBPerS
		}
		p.Adapters.HostToGPU = Stage{LatencyMs: Round4(ms * c.model.Layers), GBPerS: rate * c.tp}
	}
	p.computed = c
}

// FollowScheduler sets the step times of a computed profile to those of the engine whose scheduler it has. A profile
// from a file stays as it is. S-LoRA has no times of its own.
func (p *Profile) FollowScheduler() {
	c := p.computed
	if c == nil || c.engine.scheduler == p.Engine.Scheduler {
		return
	}
	for i := range engineList {
		if e := &engineList[i]; e.scheduler == p.Engine.Scheduler {
			of := *c
			of.engine = e
			p.follow(&of)
			return
		}
	}
}

// FollowBackend sets the LoRA kernels of a computed profile to those of its backend, if that is one of the two of its
// engine, sglang.
func (p *Profile) FollowBackend() {
	l, c := &p.Latency.LoRA, p.computed
	if c != nil && p.Engine.Scheduler == SchedulerSGLang && l.Backend != l.KernelTimes.Of &&
		(l.Backend == BackendCSGMV || l.Backend == BackendTriton) {
		l.KernelTimes = kernelTimes(l.Backend, c.model, c.tp)
	}
}

// TakesVersions returns why the engine cannot load new versions of adapters at run time; nil: it can.
func (p *Profile) TakesVersions() error {
	switch backend := p.Latency.LoRA.Backend; {
	case p.Engine.Scheduler == SchedulerSLoRA:
		return errors.New("S-LoRA loads no adapters at run time, expected sglang or vllm")
	case backend == BackendMerged || backend == BackendDLoRA:
		return fmt.Errorf("the LoRA backend %s merges adapters into the weights, expected another", backend)
	}
	return nil
}
