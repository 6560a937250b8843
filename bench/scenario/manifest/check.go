package manifest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"lorasim/sim/profile"
)

// A Finding is what is wrong with a manifest, or what its owner should know.
type Finding struct {
	Place Place  `json:"place"`
	Fault bool   `json:"fault"` // false: a note
	Text  string `json:"text"`
}

func (f Finding) String() string {
	kind := "note"
	if f.Fault {
		kind = "fault"
	}
	return fmt.Sprintf("%s: %s: %s", f.Place, kind, f.Text)
}

const (
	// mostRoutes is how many adapters KServe's controller can give a rule of their own: an HTTPRoute has 16 rules at
	// most, of which each model takes two and the base model's two come first.
	mostRoutes = 7
	// mostSlotShare is the share of the memory beside the weights above which slots leave too little for the KV cache.
	mostSlotShare = 0.5
)

// vllmRanks are the values of vLLM's max_lora_rank (vllm/config/lora.py, MaxLoRARanks).
var vllmRanks = []int{1, 8, 16, 32, 64, 128, 256, 320, 512}

// Check finds faults in what the manifests describe, in the order of their places.
func (f *Fleet) Check() (list []Finding) {
	fault := func(p Place, format string, args ...any) {
		list = append(list, Finding{p, true, fmt.Sprintf(format, args...)})
	}
	note := func(p Place, format string, args ...any) {
		list = append(list, Finding{p, false, fmt.Sprintf(format, args...)})
	}
	for _, s := range f.Servers {
		own := f.of(s)
		s.check(own, fault)
		s.checkReplicas(own, fault, note)
	}
	f.checkAdapters(fault)
	slices.SortStableFunc(list, func(a, b Finding) int {
		if a.Place.File != b.Place.File {
			return strings.Compare(a.Place.File, b.Place.File)
		}
		return a.Place.Line - b.Place.Line
	})
	return list
}

// of lists the adapters of a server.
func (f *Fleet) of(s *Server) (list []*Adapter) {
	for _, a := range f.Adapters {
		if a.server == s {
			list = append(list, a)
		}
	}
	return list
}

type report func(p Place, format string, args ...any)

// where is the place of a flag, or that of the server.
func (s *Server) where(names ...string) Place {
	if n := s.at(names...); n != nil {
		return n.place
	}
	return s.Place
}

// check checks the settings of a server against each other and against its adapters.
func (s *Server) check(own []*Adapter, fault report) {
	sets := s.slots != nil || s.at("max-lora-rank", "max-cpu-loras", "max-loaded-loras") != nil
	switch {
	case !s.LoRA && len(own) > 0:
		fault(s.Place, "%s has %d adapters, but the engine starts without LoRA: add --enable-lora", s.Name, len(own))
	case !s.LoRA && sets:
		fault(s.Place, "%s limits adapters, but the engine starts without LoRA: add --enable-lora", s.Name)
	}
	if !s.LoRA {
		return
	}
	if s.Slots < 1 {
		fault(s.where("max-loras", "max-loras-per-batch"), "%d adapter slots, expected at least 1", s.Slots)
	}
	if s.Host > 0 && s.Host < s.Slots {
		fault(s.where("max-cpu-loras", "max-loaded-loras"),
			"%d adapters in host memory are fewer than %d slots: the engine does not start", s.Host, s.Slots)
	}
	// check_lora_server_args in srt/arg_groups/lora_hook.py
	if s.Engine == sglang && s.on(overlapLoading) && (s.Host == 0 || s.Host > 2*s.Slots) {
		fault(s.where(overlapLoading),
			"--%s needs --max-loaded-loras of at most twice --max-loras-per-batch (%d): the engine does not start",
			overlapLoading, 2*s.Slots)
	}
	if s.Engine == vllm && !slices.Contains(vllmRanks, s.MaxRank) {
		fault(s.where("max-lora-rank"), "max_lora_rank %d is not one that vLLM takes: %s", s.MaxRank, listed(vllmRanks))
	}
	for _, a := range own {
		if a.Rank > s.MaxRank && s.MaxRank > 0 {
			fault(a.Place, "adapter %s has rank %d, but %s takes ranks up to %d: its load fails", a.Name, a.Rank,
				s.Name,
				s.MaxRank)
		}
	}
	if i := slices.IndexFunc(own, func(a *Adapter) bool { return a.atRun }); i >= 0 && s.Engine == vllm && !s.RunTime {
		fault(own[i].Place,
			"adapter %s is loaded at run time, but %s has no VLLM_ALLOW_RUNTIME_LORA_UPDATING=True: its load is refused",
			own[i].Name, s.Name)
	}
	if s.routed && len(own) > mostRoutes {
		fault(s.Place, "%s routes %d adapters; KServe's route holds %d: requests to the others fail", s.Name, len(own),
			mostRoutes)
	}
	if s.Engine == sglang {
		for _, name := range s.Served {
			if strings.Contains(name, ":") {
				fault(s.where("served-model-name"), "sglang takes what follows the colon in %q for an adapter", name)
			}
		}
	}
	s.checkMemory(fault)
}

// checkMemory finds slots that leave too little memory for the KV cache. It knows that only of models and GPUs that
// profiles are computed for.
func (s *Server) checkMemory(fault report) {
	model, gpu := modelName(s.Model), gpuName(s.GPU)
	if model == "" || gpu == "" || s.MaxRank == 0 {
		return
	}
	var a *profile.Architecture
	var g *profile.GPU
	for i := range profile.Architectures() {
		if profile.Architectures()[i].Name == model {
			a = &profile.Architectures()[i]
		}
	}
	for i := range profile.GPUs() {
		if profile.GPUs()[i].Name == gpu {
			g = &profile.GPUs()[i]
		}
	}
	share, err := strconv.ParseFloat(s.value("gpu-memory-utilization", "mem-fraction-static"), 64)
	if err != nil {
		share = 0.9
	}
	bytes := 2.0
	if bits := bitsOf(s); bits > 0 {
		bytes = float64(bits) / 8
	}
	tp := float64(s.number(1, "tensor-parallel-size", "tp", "tp-size"))
	free := share*g.MemoryGiB*(1<<30) - a.Parameters()*bytes/tp
	slots := float64(s.Slots*s.MaxRank) * a.LoRABytesPerRank() / tp
	if slots > mostSlotShare*free {
		fault(s.where("max-loras", "max-loras-per-batch"),
			"%d slots of rank %d take %.1f of the %.1f GiB that the weights leave: little is left for the KV cache",
			s.Slots,
			s.MaxRank, slots/(1<<30), max(free, 0)/(1<<30))
	}
}

// checkReplicas checks numbers of workers, GPUs, and who holds the adapters.
func (s *Server) checkReplicas(own []*Adapter, fault, note report) {
	if s.Replicas == 0 {
		fault(s.Place, "%s has no replica", s.Name)
	}
	tp := s.number(1, "tensor-parallel-size", "tp", "tp-size") * s.number(1, "pipeline-parallel-size")
	if s.GPUs > 0 && tp > s.GPUs {
		fault(s.where("tensor-parallel-size", "tp", "tp-size"), "%s uses %d GPUs, but asks for %d", s.Name, tp, s.GPUs)
	}
	copies, all := 0, false
	for _, a := range own {
		if a.Copies == 0 {
			all = true
		}
		copies += max(a.Copies, 0)
	}
	if len(own) > 0 && !all && copies < s.Replicas {
		note(s.Place, "%d of %d replicas of %s hold no adapter", s.Replicas-copies, s.Replicas, s.Name)
	}
	if s.LoRA && len(own) > s.Slots && s.Slots > 0 {
		note(s.where("max-loras", "max-loras-per-batch"),
			"%d adapters share %d slots: lorasim explain LOG --cluster %s says whether requests wait for one", len(own),
			s.Slots, s.Place.File)
	}
}

func (f *Fleet) checkAdapters(fault report) {
	seen := map[string]*Adapter{}
	for _, a := range f.Adapters {
		if a.Kind == modelAdapter && a.Copies != 0 && a.Copies != 1 {
			fault(a.Place, "adapter %s: replicas is neither 1 nor absent, which AIBrix refuses", a.Name)
		}
		if a.Name == "" {
			fault(a.Place, "an adapter without a name")
			continue
		}
		if a.server == nil {
			if len(f.Servers) > 0 {
				fault(a.Place, "adapter %s matches no workers: its base model is %q%s", a.Name, a.Base, selectorText(a))
			}
			continue
		}
		if slices.Contains(a.server.Served, a.Name) {
			fault(a.Place, "adapter %s has the name of its base model", a.Name)
		}
		key := a.server.Name + "\x00" + a.Name
		if first := seen[key]; first != nil {
			fault(a.Place, "adapter %s is named twice, first in %s", a.Name, first.Place)
			continue
		}
		seen[key] = a
	}
}

func selectorText(a *Adapter) string {
	if a.Kind != modelAdapter || len(a.selector) == 0 {
		return ""
	}
	parts := make([]string, 0, len(a.selector))
	for k, v := range a.selector {
		parts = append(parts, k+"="+v)
	}
	slices.Sort(parts)
	return ", its selector " + strings.Join(parts, ", ")
}

func listed(ns []int) string {
	parts := make([]string, len(ns))
	for i, n := range ns {
		parts[i] = strconv.Itoa(n)
	}
	return strings.Join(parts, ", ")
}
