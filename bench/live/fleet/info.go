package fleet

import (
	"context"
	"net/http"
)

// Switch says whether a worker has something on; "": it does not tell.
type Switch string

// The positions.
const (
	On  Switch = "on"
	Off Switch = "off"
)

func switchOf(on bool) Switch {
	if on {
		return On
	}
	return Off
}

// Info is what a worker tells of itself; zero where it does not.
type Info struct {
	API     API    `json:"api"`
	Version string `json:"version"`
	Model   string `json:"model"`
	LoRA    Switch `json:"lora"`
	RunTime Switch `json:"run_time_loading"` // loads and unloads adapters while it runs
	Limits
	MaxRank       int `json:"max_lora_rank"`
	ContextLength int `json:"context_length"`
}

// discover finds out which interface the worker has and what it tells.
func (e *endpoint) discover(ctx context.Context) (Info, error) {
	if k := e.kind(); k != VLLM {
		in, err := e.discoverSGLang(ctx)
		if err == nil {
			e.api.Store(SGLang)
			return in, nil
		}
		if k == SGLang || !isStatus(err, http.StatusNotFound) {
			return in, err
		}
	}
	in, err := e.discoverVLLM(ctx)
	if err == nil {
		e.api.Store(VLLM)
	}
	return in, err
}

func (e *endpoint) discoverSGLang(ctx context.Context) (Info, error) {
	var s struct {
		Version            string `json:"version"`
		ModelPath          string `json:"model_path"`
		ServedModelName    string `json:"served_model_name"`
		EnableLoRA         *bool  `json:"enable_lora"`
		LoraPaths          []any  `json:"lora_paths"`
		DPSize             int    `json:"dp_size"`
		MaxRunningRequests int    `json:"max_running_requests"`
		MaxLorasPerBatch   int    `json:"max_loras_per_batch"`
		MaxLoadedLoras     int    `json:"max_loaded_loras"`
		MaxLoraRank        int    `json:"max_lora_rank"`
		MaxTotalNumTokens  int64  `json:"max_total_num_tokens"`
		ContextLength      int    `json:"context_length"`
	}
	err := e.get(ctx, "/server_info", &s)
	if isStatus(err, http.StatusNotFound) {
		err = e.get(ctx, "/get_server_info", &s)
	}
	if err != nil {
		return Info{}, err
	}
	in := Info{API: SGLang, Version: s.Version, Model: s.ServedModelName, Limits: Limits{s.MaxRunningRequests, s.MaxLorasPerBatch, s.MaxTotalNumTokens, s.MaxLoadedLoras},
		MaxRank: s.MaxLoraRank, ContextLength: s.ContextLength}
	if in.Model == "" {
		in.Model = s.ModelPath
	}
	if s.EnableLoRA != nil {
		in.LoRA = switchOf(*s.EnableLoRA || len(s.LoraPaths) > 0)
		in.RunTime = switchOf(in.LoRA == On && s.DPSize <= 1) // it refuses with data-parallel replicas
	}
	if in.LoRA == Off {
		in.Slots = 0
	}
	return in, nil
}

// discoverVLLM asks what there is to ask of vLLM: of its limits, metrics tell
// some (the adapter slots from the first request on).
func (e *endpoint) discoverVLLM(ctx context.Context) (Info, error) {
	in := Info{API: VLLM}
	var v struct {
		Version string `json:"version"`
	}
	if err := e.get(ctx, "/version", &v); err != nil && !isStatus(err, http.StatusNotFound) {
		return in, err
	}
	in.Version = v.Version
	list, err := e.models(ctx)
	if err != nil {
		return in, err
	}
	for _, m := range list {
		if m.Parent == "" {
			in.Model, in.ContextLength = m.ID, m.MaxModelLen
			break
		}
	}
	if l, err := e.loadsVLLM(ctx); err == nil {
		if in.Limits = l.Limits; l.VLLM { // else of a gateway before it, or switched off
			in.LoRA = switchOf(l.Busy != nil)
		}
	} else if !isStatus(err, http.StatusNotFound) {
		return in, err
	}
	in.RunTime = e.takesLoads(ctx)
	if in.LoRA == Off {
		in.RunTime = Off
	}
	return in, nil
}

// takesLoads says whether the endpoint that loads adapters is there. It is only
// for POST; asked for it by GET, a server says so, or that there is none.
func (e *endpoint) takesLoads(ctx context.Context) Switch {
	_, err := e.call(ctx, http.MethodGet, "/v1/load_lora_adapter", nil)
	switch {
	case isStatus(err, http.StatusMethodNotAllowed):
		return On
	case isStatus(err, http.StatusNotFound):
		return Off
	}
	return ""
}

// model is an entry of /v1/models; adapters have a parent.
type model struct {
	ID, Parent  string
	Root        string // where an adapter lies
	MaxModelLen int
	Created     int64 // when the list was made, s
}

func (e *endpoint) models(ctx context.Context) ([]model, error) {
	var list struct {
		Data []struct {
			ID          string  `json:"id"`
			Parent      *string `json:"parent"`
			Root        string  `json:"root"`
			MaxModelLen int     `json:"max_model_len"`
			Created     int64   `json:"created"`
		} `json:"data"`
	}
	if err := e.get(ctx, "/v1/models", &list); err != nil {
		return nil, err
	}
	var ms []model
	for _, d := range list.Data {
		m := model{ID: d.ID, Root: d.Root, MaxModelLen: d.MaxModelLen, Created: d.Created}
		if d.Parent != nil {
			m.Parent = *d.Parent
		}
		ms = append(ms, m)
	}
	return ms, nil
}

// whyFixed says why a worker takes no adapters while it runs, and what helps.
func (in *Info) whyFixed() string {
	switch {
	case in.LoRA == Off:
		return "serves no adapters: start it with --enable-lora"
	case in.API == VLLM:
		return "takes none while it runs: start it with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True in its environment"
	}
	return "takes none while it runs: start it with --enable-lora and one data-parallel replica"
}
