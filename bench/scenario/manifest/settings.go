package manifest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"lorasim/sim/profile"
)

// A Setting is a setting of a scenario that a manifest states.
type Setting struct {
	Key, Value string
	Place      Place
}

// Flags of LoRA without a value, of vLLM since 0.16 and of sglang (sgl-project/sglang#15512).
const specialize, overlapLoading = "specialize-active-lora", "enable-lora-overlap-loading"

// ErrNoProfile says that a manifest states too little to choose the profile of its workers.
var ErrNoProfile = errors.New("give --profile")

// Settings returns the settings of a scenario with the workers and adapters of a server, by its name; "": of the only
// one. If the profile is unknown, the error wraps [ErrNoProfile] and comes with the other settings.
func (f *Fleet) Settings(name string) (list []Setting, err error) {
	s, err := f.server(name)
	if err != nil {
		return nil, err
	}
	add := func(key, value string, at Place) { list = append(list, Setting{key, value, at}) }
	add("scheduler", s.Engine, s.Place)
	add("num_workers", strconv.Itoa(s.Replicas), s.Place)
	if s.LoRA {
		add("max_loras_per_batch", strconv.Itoa(s.Slots), s.where("max-loras", "max-loras-per-batch"))
		if s.MaxRank > 0 {
			add("max_lora_rank", strconv.Itoa(s.MaxRank), s.where("max-lora-rank"))
		}
		if s.Host > 0 {
			add("max_loaded_loras", strconv.Itoa(s.Host), s.where("max-cpu-loras", "max-loaded-loras"))
		}
		switch {
		case s.Engine == vllm && s.on(specialize):
			add("specialize_active_lora", "true", s.where(specialize))
		case s.Engine == sglang && s.on(overlapLoading):
			add("adapter_loading", profile.LoadOverlapped, s.where(overlapLoading))
		}
	}
	for _, v := range carried {
		if n := s.number(0, v.flags...); n > 0 && (v.engine == "" || v.engine == s.Engine) {
			add(v.key, strconv.Itoa(n), s.where(v.flags...))
		}
	}
	if own := f.of(s); len(own) > 0 {
		names, ranks := make([]string, len(own)), []string{}
		for i, a := range own {
			if names[i] = a.Name; a.Rank > 0 {
				ranks = append(ranks, strconv.Itoa(a.Rank))
			}
		}
		add("num_adapters", strconv.Itoa(len(own)), own[0].Place)
		add("lora_names", strings.Join(names, ","), own[0].Place)
		if len(ranks) == len(own) {
			add("lora_ranks", strings.Join(ranks, ","), own[0].Place)
		}
		// No router can send requests to a worker without the adapter.
		if s.Replicas > 1 && !slices.ContainsFunc(own, func(a *Adapter) bool { return a.Copies != 1 }) {
			add("policy", "static", own[0].Place)
		}
	}
	text, err := s.profile()
	if err == nil {
		add("profile", text, s.Place)
	}
	return list, err
}

// carried are flags whose values become settings as they are.
var carried = []struct {
	key, engine string
	flags       []string
}{
	{"max_running_requests", "", []string{"max-num-seqs", "max-running-requests"}},
	{"max_num_batched_tokens", vllm, []string{"max-num-batched-tokens"}},
	{"chunked_prefill_size", sglang, []string{"chunked-prefill-size"}},
	{"max_prefill_tokens", sglang, []string{"max-prefill-tokens"}},
	{"context_length", "", []string{"max-model-len", "context-length"}},
	{"kv_tokens", sglang, []string{"max-total-tokens"}},
}

// server returns a server by its name.
func (f *Fleet) server(name string) (*Server, error) {
	names := make([]string, len(f.Servers))
	for i, s := range f.Servers {
		if names[i] = s.Name; s.Name == name && name != "" {
			return s, nil
		}
	}
	switch {
	case len(f.Servers) == 0:
		return nil, errors.New("adapters alone, no workers: give the manifest of the workers, too")
	case name != "":
		return nil, fmt.Errorf("no workers %q, expected %s", name, strings.Join(names, ", "))
	case len(f.Servers) > 1:
		return nil, fmt.Errorf("%d groups of workers, expected one: add #NAME to the file, with NAME %s",
			len(f.Servers),
			strings.Join(names, " or "))
	}
	return f.Servers[0], nil
}

// profile returns the computed profile of a server.
func (s *Server) profile() (string, error) {
	model, gpu := modelName(s.Model), gpuName(s.GPU)
	switch {
	case model == "":
		return "", fmt.Errorf("%s: no profile can be computed for model %q: %w", s.Place, s.Model, ErrNoProfile)
	case s.GPU == "":
		return "", fmt.Errorf("%s: %s does not state its GPU: %w, such as analytic:%s,h100", s.Place, s.Name,
			ErrNoProfile,
			model)
	case gpu == "":
		return "", fmt.Errorf("%s: no profile can be computed for GPU %q: %w", s.Place, s.GPU, ErrNoProfile)
	}
	text := profile.AnalyticPrefix + model + "," + gpu
	if tp := s.number(1, "tensor-parallel-size", "tp", "tp-size"); tp > 1 {
		text += fmt.Sprintf(",tp=%d", tp)
	}
	if bits := bitsOf(s); bits > 0 {
		text += fmt.Sprintf(",bits=%d", bits)
	}
	return text, nil
}

// bitsOf returns the bits of a quantized server's weights; 0: not quantized.
func bitsOf(s *Server) int {
	text := strings.ToLower(s.Model + " " + s.value("quantization"))
	switch {
	case strings.Contains(text, "fp8"), strings.Contains(text, "w8a8"), strings.Contains(text, "int8"):
		return 8
	case strings.Contains(text, "awq"), strings.Contains(text, "gptq"), strings.Contains(text, "int4"),
		strings.Contains(text, "w4a16"):
		return 4
	}
	return 0
}

// modelName returns the name that profiles have for a model, such as llama-3.1-8b for
// meta-llama/Meta-Llama-3.1-8B-Instruct-FP8; "": there is none.
func modelName(model string) string {
	text := strings.ToLower(model[strings.LastIndexByte(model, '/')+1:])
	text = strings.TrimPrefix(text, "meta-")
	best := ""
	for _, a := range profile.Architectures() {
		rest, ok := strings.CutPrefix(text, a.Name)
		if ok && len(a.Name) > len(best) && suffixes(rest) {
			best = a.Name
		}
	}
	return best
}

// suffixes reports whether the rest of a model's name says nothing about its size.
func suffixes(rest string) bool {
	known := []string{"", "instruct", "chat", "hf", "base", "it", "fp8", "awq", "gptq", "int4", "int8", "quantized",
		"w8a8",
		"w4a16", "dynamic", "2507"}
	for part := range strings.SplitSeq(rest, "-") {
		part, _, _ = strings.Cut(part, ".")
		if !slices.Contains(known, part) {
			return false
		}
	}
	return true
}

// gpuName returns the name that profiles have for a GPU, such as h100 for NVIDIA-H100-80GB-HBM3; "": there is none.
func gpuName(product string) string {
	text := strings.NewReplacer("-", "", "_", "", " ", "").Replace(strings.ToLower(product))
	best := ""
	for _, g := range profile.GPUs() {
		name := strings.ReplaceAll(g.Name, "-", "")
		if card, memory, ok := strings.Cut(g.Name, "-"); ok && strings.HasSuffix(memory, "gb") {
			if strings.Contains(text, card) && strings.Contains(text, memory) && len(g.Name) > len(best) {
				best = g.Name
			}
			continue
		}
		if strings.Contains(text, name) && len(g.Name) > len(best) || name == "rtx4090" && strings.Contains(text,
			"4090") {
			best = g.Name
		}
	}
	return best
}
