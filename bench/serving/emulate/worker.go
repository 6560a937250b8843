// Package emulate implements a worker without a GPU. A [Worker] runs the simulator's engine in real or scaled time
// behind the HTTP interfaces of sglang and vLLM. It supports streaming, adapters that take time to load, limits,
// metrics, aborts, and errors in the form of the engines.
//
// It makes live runs testable without a GPU. It also checks the simulator: a workload takes the same time in the
// simulator and on emulated workers.
//
//	w, err := emulate.New(emulate.Config{Costs: costs, API: emulate.SGLang})
//	defer w.Close()
//	err = http.Serve(listener, w)
//
// The generated tokens are a function of the prompt ([Tokens]), so that a client can detect lost and repeated tokens.
package emulate

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"time"

	"lorasim/bench/serving/bearer"
	"lorasim/internal/suggest"
	"lorasim/router"
	"lorasim/sim"
	"lorasim/sim/profile"
	"lorasim/trace"
)

// API is the name of the engine whose interface a worker has.
type API string

// Interfaces of emulated workers.
const (
	SGLang API = "sglang"
	VLLM   API = "vllm"
)

// ParseAPI returns the interface with the given name.
func ParseAPI(s string) (API, error) {
	return API(s), suggest.Among("worker interface", s, []string{string(SGLang), string(VLLM)})
}

// A Config configures a [Worker].
type Config struct {
	Costs *profile.Costs // costs of steps and loads, with their profile
	API   API
	// Speed is the worker's time divided by wall-clock time, above 0 and at most 1e6; 0: 1.
	Speed float64
	// ModelName is the name of the base model; "": the profile's.
	ModelName string
	// Adapters are loaded from the start.
	Adapters []Adapter
	// MaxAdapters is the largest number of adapter names that the worker remembers; 0: 4096. The number of adapters
	// loaded at the same time is limited by the profile's max_loaded_loras.
	MaxAdapters int
	Home        router.Tier // tier from which adapters are loaded: disk or remote
	// EOSEvery is the mean number of tokens after which a reply ends, unless its request ignores EOS. 0: replies
	// always have the requested number of tokens.
	EOSEvery int
	// StreamInterval is the number of tokens per streamed event; 0: 1.
	StreamInterval int
	// StreamOutput makes each event contain only the new tokens, as sglang's --stream-output does. If it is false,
	// each event contains the whole reply so far.
	StreamOutput bool
	APIKey       string // key that clients must send as a bearer token; "": none
}

// A Worker is an emulated worker. It is an http.Handler.
type Worker struct {
	cfg      Config
	profile  *profile.Profile
	eng      *engine
	adapters map[string]*row // by name; guarded by the engine's lock
	seen     trace.Lately    // the same
	mux      *http.ServeMux
	keys     bearer.Keys
}

const (
	defaultMaxAdapters = 4096
	maxBody            = 64 << 20 // bytes of a request
)

// New returns a running worker. The caller must close it.
func New(cfg Config) (*Worker, error) {
	if cfg.Speed = cmp.Or(cfg.Speed, 1); !(cfg.Speed > 0 && cfg.Speed <= 1e6) {
		return nil, fmt.Errorf("emulate: speed is %v, expected a number above 0, at most 1e6", cfg.Speed)
	}
	cfg.API = cmp.Or(cfg.API, SGLang)
	cfg.StreamInterval = cmp.Or(cfg.StreamInterval, 1)
	cfg.MaxAdapters = cmp.Or(cfg.MaxAdapters, defaultMaxAdapters)
	cfg.ModelName = cmp.Or(cfg.ModelName, cfg.Costs.Profile().Name)
	if cfg.StreamInterval < 0 || cfg.MaxAdapters < 0 || cfg.EOSEvery < 0 {
		return nil, fmt.Errorf("emulate: the stream interval (%d), the number of adapters (%d) and the EOS interval (%d) must not be negative",
			cfg.StreamInterval, cfg.MaxAdapters, cfg.EOSEvery)
	}
	eng, err := newEngine(sim.ServerConfig{Costs: cfg.Costs, MaxAdapters: cfg.MaxAdapters, Home: cfg.Home}, cfg.Speed,
		boundsOf(&cfg))
	if err != nil {
		return nil, err
	}
	w := &Worker{cfg: cfg, profile: cfg.Costs.Profile(), eng: eng, adapters: map[string]*row{}, mux: http.NewServeMux()}
	for _, a := range cfg.Adapters {
		if eng.do(func() { err = w.preload(a) }); err != nil {
			eng.close()
			return nil, fmt.Errorf("emulate: %w", err)
		}
	}
	if cfg.APIKey != "" {
		w.keys = bearer.New(cfg.APIKey)
	}
	for pattern, h := range w.routes() {
		w.mux.HandleFunc(pattern, h)
	}
	return w, nil
}

// boundsOf returns the bounds of the histograms of the emulated engine.
func boundsOf(cfg *Config) bounds {
	if p := cfg.Costs.Profile(); cfg.API == VLLM {
		return boundsVLLM(cmp.Or(p.Engine.ContextLength, int(min(p.Memory.KVTokens, math.MaxInt32))))
	}
	return boundsSGLang()
}

// Close stops the worker. Requests in flight end when their connections do.
func (w *Worker) Close() { w.eng.close() }

// Running returns the number of requests that have not ended yet.
func (w *Worker) Running() int {
	w.eng.mu.Lock()
	defer w.eng.mu.Unlock()
	return len(w.eng.streams)
}

// ServeHTTP implements http.Handler.
func (w *Worker) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if !(r.URL.Path == "/health" && r.Method == http.MethodGet) && !w.keys.Accept(r) {
		writeJSON(rw, http.StatusUnauthorized, object{"error": "Unauthorized"})
		return
	}
	r.Body = http.MaxBytesReader(rw, r.Body, maxBody)
	w.mux.ServeHTTP(rw, r)
}

func (w *Worker) routes() map[string]http.HandlerFunc {
	ok := func(http.ResponseWriter, *http.Request) {}
	own := map[string]http.HandlerFunc{
		"GET /health_generate": ok, "POST /generate": reading(w.generate), "POST /abort_request": reading(w.abort),
		"POST /load_lora_adapter": w.lora(true), "POST /unload_lora_adapter": w.lora(false),
		"POST /flush_cache": w.flushCache, "GET /flush_cache": w.flushCache,
		"GET /get_server_info": answering(w.serverInfo), "GET /server_info": answering(w.serverInfo),
		"GET /get_model_info": answering(w.modelInfo), "GET /model_info": answering(w.modelInfo),
		"GET /get_load": answering(w.olderLoads), "GET /v1/loads": answering(w.loads),
	}
	if w.cfg.API == VLLM {
		own = map[string]http.HandlerFunc{
			"POST /reset_prefix_cache":   func(http.ResponseWriter, *http.Request) { w.eng.do(w.eng.srv.FlushCache) },
			"GET /version":               answering(func() any { return object{"version": "emulated"} }),
			"POST /v1/load_lora_adapter": w.lora(true), "POST /v1/unload_lora_adapter": w.lora(false),
		}
	}
	maps.Copy(own, map[string]http.HandlerFunc{
		"GET /health": ok, "GET /v1/models": answering(w.models), "GET /metrics": w.metrics,
		"POST /v1/completions": w.completions(false), "POST /v1/chat/completions": w.completions(true),
	})
	return own
}

// answering returns a handler that serves the result of tell as JSON.
func answering(tell func() any) http.HandlerFunc {
	return func(rw http.ResponseWriter, _ *http.Request) { writeJSON(rw, http.StatusOK, tell()) }
}

// signals is the load of a worker at one instant.
type signals struct {
	router.Worker
	measures
	preemptions int64 // requests that lost their KV cache
	loaded      []loadedAdapter
	listed      loraInfo // its series
}

// loadedAdapter is an adapter that requests may use.
type loadedAdapter struct {
	router.AdapterState
	name string
}

func (w *Worker) signals() signals {
	var s signals
	w.eng.do(func() {
		s.Worker = *w.eng.srv.View()
		s.measures, s.preemptions = w.eng.measures.clone(), w.eng.srv.Stats().Preemptions
		for _, name := range slices.Sorted(maps.Keys(w.adapters)) {
			if r := w.adapters[name]; r.loaded {
				s.loaded = append(s.loaded, loadedAdapter{s.Adapters[r.index], name})
			}
		}
		s.listed.series = slices.Clone(w.eng.lora.series)
		s.Adapters = nil // the engine changes them
	})
	return s
}

func (s *signals) usage() float64 { return float64(s.KVUsed) / float64(s.KVCapacity) }

// olderLoads returns sglang's older load signal.
func (w *Worker) olderLoads() any {
	s := w.signals()
	return []any{object{"dp_rank": 0, "num_reqs": s.Running + s.Queued, "num_waiting_reqs": s.Queued,
		"num_tokens": s.KVUsed}}
}

// loads returns sglang's newer load signal.
func (w *Worker) loads() any {
	s := w.signals()
	return object{
		"timestamp": time.Now().Format(time.RFC3339Nano), "dp_rank_count": 1,
		"loads": []any{object{
			"dp_rank": 0, "num_running_reqs": s.Running, "num_waiting_reqs": s.Queued,
			"num_total_reqs":  s.Running + s.Queued,
			"num_used_tokens": s.KVUsed, "max_total_num_tokens": s.KVCapacity, "token_usage": s.usage(),
			"max_running_requests": w.profile.Engine.MaxRunningRequests,
			"lora":                 object{"slots_used": s.SlotsUsed, "slots_total": s.Slots},
		}},
	}
}

func (w *Worker) serverInfo() any {
	e, s := w.profile.Engine, w.signals()
	info := object{
		"model_path": w.cfg.ModelName, "served_model_name": w.cfg.ModelName, "enable_lora": true, "version": "emulated",
		"max_running_requests": e.MaxRunningRequests, "max_loras_per_batch": e.MaxLorasPerBatch,
		"max_loaded_loras": nil, "max_lora_rank": e.MaxLoraRank,
		"context_length": e.ContextLength, "chunked_prefill_size": e.ChunkedPrefillSize,
		"max_total_num_tokens": s.KVCapacity, "time_scale": w.cfg.Speed,
	}
	if n := e.MaxLoadedLoras; n > 0 {
		info["max_loaded_loras"] = n
	}
	return info
}

func (w *Worker) modelInfo() any {
	return object{
		"model_path": w.cfg.ModelName, "tokenizer_path": w.cfg.ModelName, "is_generation": true,
		"preferred_sampling_params": nil, "vocab_size": Vocabulary,
	}
}
