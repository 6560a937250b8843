// Package emulate is a worker without a GPU: the simulator's engine in real (or
// scaled) time behind the HTTP interfaces of sglang and vLLM, with streaming,
// adapters that take time to load, limits, metrics, aborts, and errors of the
// same form. It makes live runs testable on a laptop, and closes the loop: the
// same workload, simulated and sent to emulated workers, takes the same time.
//
//	w, err := emulate.New(emulate.Config{Costs: costs, API: emulate.SGLang})
//	defer w.Close()
//	err = http.Serve(listener, w)
//
// The tokens it generates are a function of the prompt ([Tokens]), so that a
// client can tell whether one was lost or repeated.
package emulate

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"

	"lorasim/internal/suggest"
	"lorasim/router"
	"lorasim/sim"
	"lorasim/sim/profile"
)

// API says which server's interface a worker has.
type API string

// The interfaces.
const (
	SGLang API = "sglang"
	VLLM   API = "vllm"
)

// ParseAPI reads the name of an interface.
func ParseAPI(s string) (API, error) {
	switch a := API(s); a {
	case SGLang, VLLM:
		return a, nil
	}
	return "", suggest.Unknown("worker interface", s, []string{string(SGLang), string(VLLM)})
}

// Config describes a worker.
type Config struct {
	Costs *profile.Costs
	API   API
	// Speed is how much faster than the wall clock the worker's time passes; 0: 1.
	Speed float64
	// ModelName is the name of the base model; "": the profile's.
	ModelName string
	// Adapters are loaded from the start.
	Adapters []Adapter
	// MaxAdapters limits the names of adapters that the worker can remember;
	// 0: 4096. How many may be loaded at a time is the profile's max_loaded_loras.
	MaxAdapters int
	Home        router.Tier // where adapters are loaded from: disk or remote
	// EOSEvery makes replies that do not ignore EOS end after so many tokens on
	// average; 0: never before their budget.
	EOSEvery int
	// StreamInterval is the number of tokens per streamed event; 0: 1.
	StreamInterval int
	// StreamOutput streams only what is new, as sglang's --stream-output does,
	// instead of the whole reply so far in each event.
	StreamOutput bool
	APIKey       string // that clients must send as a bearer token; "": none
}

// Worker is an emulated worker. It is an http.Handler.
type Worker struct {
	cfg      Config
	eng      *engine
	adapters registry // guarded by the engine's lock
	mux      http.Handler
}

const (
	defaultMaxAdapters = 4096
	maxBody            = 64 << 20 // bytes of a request
)

// New starts a worker.
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
	eng, err := newEngine(sim.ServerConfig{Costs: cfg.Costs, MaxAdapters: cfg.MaxAdapters, Home: cfg.Home}, cfg.Speed)
	if err != nil {
		return nil, err
	}
	w := &Worker{cfg: cfg, eng: eng,
		adapters: registry{max: cfg.Costs.Profile().Engine.MaxLoadedLoras, rows: map[string]*row{}}}
	for _, a := range cfg.Adapters {
		var err error
		eng.do(func() { err = w.preload(a) })
		if err != nil {
			eng.close()
			return nil, fmt.Errorf("emulate: %w", err)
		}
	}
	w.mux = w.routes()
	return w, nil
}

// Close stops the worker; requests in flight end with their connections.
func (w *Worker) Close() { w.eng.close() }

// Running is the number of requests that the worker has not ended yet.
func (w *Worker) Running() int {
	w.eng.mu.Lock()
	defer w.eng.mu.Unlock()
	return len(w.eng.streams)
}

// ServeHTTP implements http.Handler.
func (w *Worker) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if k := w.cfg.APIKey; k != "" && r.URL.Path != "/health" && r.Header.Get("Authorization") != "Bearer "+k {
		writeJSON(rw, http.StatusUnauthorized, object{"error": "Unauthorized"})
		return
	}
	r.Body = http.MaxBytesReader(rw, r.Body, maxBody)
	w.mux.ServeHTTP(rw, r)
}

func (w *Worker) routes() http.Handler {
	m := http.NewServeMux()
	ok := func(http.ResponseWriter, *http.Request) {}
	routes := map[string]http.HandlerFunc{
		"GET /health": ok, "GET /v1/models": w.models, "GET /metrics": w.metrics,
		"POST /v1/completions": w.completions, "POST /v1/chat/completions": w.chat,
	}
	own := map[string]http.HandlerFunc{
		"GET /health_generate": ok, "POST /generate": w.generate, "POST /abort_request": w.abort,
		"POST /load_lora_adapter": lora(w.loadSGLang), "POST /unload_lora_adapter": lora(w.unloadSGLang),
		"POST /flush_cache": w.flushCache, "GET /flush_cache": w.flushCache,
		"GET /get_server_info": w.serverInfo, "GET /server_info": w.serverInfo,
		"GET /get_model_info": w.modelInfo, "GET /model_info": w.modelInfo,
		"GET /get_load": w.getLoad, "GET /v1/loads": w.loads,
	}
	if w.cfg.API == VLLM {
		own = map[string]http.HandlerFunc{
			"GET /version": func(rw http.ResponseWriter, _ *http.Request) {
				writeJSON(rw, http.StatusOK, object{"version": "emulated"})
			},
			"POST /v1/load_lora_adapter": lora(w.loadVLLM), "POST /v1/unload_lora_adapter": lora(w.unloadVLLM),
		}
	}
	maps.Copy(routes, own)
	for pattern, h := range routes {
		m.HandleFunc(pattern, h)
	}
	return m
}
