// Package emulate implements a worker without a GPU. A [Worker] runs the simulator's engine in real or scaled time
// behind the HTTP interfaces of sglang and vLLM. It supports streaming, adapters that take time to load, limits,
// metrics, aborts, and errors in the form of the engines.
//
// It makes live runs testable without a GPU. It also checks the simulator: a workload takes the same time in the
// simulator and on emulated workers.
//
//	w, err := emulate.New(emulate.Config{Costs: costs, API: httpapi.SGLang})
//	defer w.Close()
//	err = http.Serve(listener, w)
//
// The generated tokens are a function of the prompt ([Tokens]), so that a client can detect lost and repeated tokens.
package emulate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"lorasim/bench/serving/bearer"
	"lorasim/bench/serving/httpapi"
	"lorasim/internal/suggest"
	"lorasim/router"
	"lorasim/sim"
	simengine "lorasim/sim/engine"
	"lorasim/sim/profile"
	"lorasim/trace"
)

// Ending is the end of the requests of a vLLM worker on SIGTERM. The real one kills its engine core at once
// (vllm/v1/utils.py, shutdown with a timeout of 0). Its clients get one or the other, depending on which is faster, the
// core or the front end.
type Ending string

// The endings.
const (
	// Abort: the core still aborts its requests. Replies end with status 200 and the finish reason "abort".
	Abort Ending = "abort"
	// Fail: the front end notices that the core is dead. Replies end with an error.
	Fail Ending = "error"
	// Silence: it does not notice. Replies stay open, and the process does not end before its clients hang up.
	Silence Ending = "silence"
)

// ParseEnding returns the ending with the given name.
func ParseEnding(s string) (Ending, error) {
	return Ending(s), suggest.Among("end of requests", s, []string{string(Abort), string(Fail), string(Silence)})
}

// A Config configures a [Worker].
type Config struct {
	Costs *profile.Costs // costs of steps and loads, with their profile
	API   httpapi.Kind
	// Speed is the worker's time divided by wall-clock time, above 0 and at most 1e6; 0: 1.
	Speed float64
	// ModelName is the name of the base model; "": the profile's.
	ModelName string
	// ModelPath is where the base model lies, as the worker reports it; "": ModelName.
	ModelPath string
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
	Ending       Ending // of the requests of a vLLM worker; "": Abort
}

// A Worker is an emulated worker. It is an http.Handler.
type Worker struct {
	cfg      Config
	profile  *profile.Profile
	eng      *engine
	adapters map[string]*row // by name; guarded by the engine's lock
	seen     trace.Lately    // the same
	say      dialect
	paths    routes
	keys     bearer.Keys
	draining atomic.Bool
}

// dialect is the interface of an engine: its own routes, and what it answers.
type dialect interface {
	routes() map[string]http.HandlerFunc // those that the other engine lacks or answers otherwise
	open(path string) bool               // whether a path needs no key
	// adapter returns the adapter of a request, "" for the base model, and the name of the model in the reply.
	adapter(model, loraPath string) (adapter, name string, err error)
	check(c *completion) error
	// checkPrompt refuses a prompt before the engine sees it, or returns the tokens that the reply may have.
	checkPrompt(ids []int32, param string, budget int) (int, error)
	refusal(err error) *refusal
	refuse(rw http.ResponseWriter, err error)
	badBody(rw http.ResponseWriter, err error)
	form(rw http.ResponseWriter, c *completion) form
	loaded(rw http.ResponseWriter, name, verb string, err error)
	guard(rw http.ResponseWriter) // answers a request without the key

	// What follows is of chats in the forms of Anthropic and of OpenAI's responses.
	early() bool // a stream's header leaves before its first token
	broken(b []byte, err error) []byte
	refuseMessages(rw http.ResponseWriter, err error)
	refuseResponses(rw http.ResponseWriter, err error)
	message(o object) object
	messageStart(b []byte, m *messageReply, j *job) []byte
	messageDelta(b []byte, m *messageReply, j *job) []byte
	count(tokens int) object
	response(o object) object
	responseUsage(j *job) object
	phase() any // of a message
	checkResponses(model, adapter string) error
	responsesEnd(b []byte) []byte
	tokenized(rw http.ResponseWriter, q *tokenizeRequest, ids []int32)
	detokenized(text string) object
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
	cfg.API = cmp.Or(cfg.API, httpapi.SGLang)
	cfg.StreamInterval = cmp.Or(cfg.StreamInterval, 1)
	cfg.MaxAdapters = cmp.Or(cfg.MaxAdapters, defaultMaxAdapters)
	cfg.ModelName = cmp.Or(cfg.ModelName, cfg.Costs.Profile().Name)
	if cfg.StreamInterval < 0 || cfg.MaxAdapters < 0 || cfg.EOSEvery < 0 {
		return nil,
			fmt.Errorf("emulate: the stream interval (%d), the number of adapters (%d) and the EOS interval (%d) must not be negative",
				cfg.StreamInterval, cfg.MaxAdapters, cfg.EOSEvery)
	}
	eng, err := newEngine(sim.ServerConfig{Costs: cfg.Costs, MaxAdapters: cfg.MaxAdapters, Home: cfg.Home}, cfg.Speed,
		boundsOf(&cfg))
	if err != nil {
		return nil, err
	}
	w := &Worker{cfg: cfg, profile: cfg.Costs.Profile(), eng: eng, adapters: map[string]*row{}}
	w.say = sglang{w}
	if cfg.API == httpapi.VLLM {
		w.say = vllm{w}
	}
	w.paths = w.routes()
	for _, a := range cfg.Adapters {
		if eng.do(func() { err = w.preload(a) }); err != nil {
			eng.close()
			return nil, fmt.Errorf("emulate: %w", err)
		}
	}
	if cfg.APIKey != "" {
		w.keys = bearer.New(cfg.APIKey)
	}
	return w, nil
}

// boundsOf returns the bounds of the histograms of the emulated engine.
func boundsOf(cfg *Config) bounds {
	if p := cfg.Costs.Profile(); cfg.API == httpapi.VLLM {
		return boundsVLLM(cmp.Or(p.Engine.ContextLength, int(min(p.Memory.KVTokens, math.MaxInt32))))
	}
	return boundsSGLang()
}

// Close stops the worker. Requests in flight end when their connections do.
func (w *Worker) Close() { w.eng.close() }

// admit refuses a request for n replies that vLLM's front end does not take (AsyncLLM.check_admission).
func (w *Worker) admit(n int) error {
	if most := w.profile.Engine.MaxNumQueuedReqs; most > 0 && w.Running()+n > most {
		return errFull(simengine.TooManyRequests)
	}
	return nil
}

// Running returns the number of requests that have not ended yet.
func (w *Worker) Running() int {
	w.eng.mu.Lock()
	defer w.eng.mu.Unlock()
	return len(w.eng.streams)
}

// Drain makes the worker end as its engine does on SIGTERM, and returns when it may stop listening. vLLM's requests end
// as [Config.Ending] says. sglang answers them, also new ones, until there are none or the context is done; only
// /health and /ready say that the worker is going.
func (w *Worker) Drain(ctx context.Context) {
	w.draining.Store(true)
	if w.cfg.API == httpapi.VLLM {
		if w.cfg.Ending != Silence {
			w.eng.cancel(func(*stream) bool { return true })
		}
		return
	}
	idle := make(chan struct{})
	go func() {
		defer close(idle)
		w.eng.wait(func() bool { return len(w.eng.streams) == 0 })()
	}()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

// silent reports whether the worker sends no more, and leaves its connections open.
func (w *Worker) silent() bool {
	return w.cfg.Ending == Silence && w.cfg.API == httpapi.VLLM && w.draining.Load()
}

// ServeHTTP implements http.Handler.
func (w *Worker) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	rw.Header().Set("Server", "uvicorn")
	if !w.say.open(r.URL.Path) && !w.keys.Accept(r) {
		w.say.guard(rw)
		return
	}
	rw.Header().Set("Vary", "Origin")
	r.Body = http.MaxBytesReader(rw, r.Body, maxBody)
	w.paths.serve(rw, r)
}

// routes are handlers by path and method. A path that ends in a slash stands for all that begin with it.
type routes map[string]map[string]http.HandlerFunc

// routes returns the routes of both engines, and those of the worker's own.
func (w *Worker) routes() routes {
	all := routes{}
	for _, handlers := range []map[string]http.HandlerFunc{{
		"GET /metrics":                   w.metrics,
		"POST /v1/completions":           w.completions(false),
		"POST /v1/chat/completions":      w.completions(true),
		"POST /v1/responses":             w.responses(),
		"POST /v1/messages":              w.messages(),
		"POST /v1/messages/count_tokens": w.countTokens(),
		"POST /tokenize":                 w.tokenize(),
		"POST /detokenize":               w.detokenize(),
	}, w.say.routes()} {
		for route, h := range handlers {
			method, path, _ := strings.Cut(route, " ")
			if all[path] == nil {
				all[path] = map[string]http.HandlerFunc{}
			}
			all[path][method] = h
		}
	}
	return all
}

func (all routes) serve(rw http.ResponseWriter, r *http.Request) {
	methods, ok := all[r.URL.Path]
	for path, m := range all {
		if !ok && len(path) > 1 && strings.HasSuffix(path, "/") && strings.HasPrefix(r.URL.Path, path) {
			methods, ok = m, true
		}
	}
	h := methods[r.Method]
	switch {
	case h != nil:
		h(rw, r)
	case ok:
		rw.Header().Set("Allow", strings.Join(slices.Sorted(maps.Keys(methods)), ", "))
		writeJSON(rw, http.StatusMethodNotAllowed, object{"detail": "Method Not Allowed"})
	default:
		writeJSON(rw, http.StatusNotFound, object{"detail": "Not Found"})
	}
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
				s.loaded = append(s.loaded, loadedAdapter{s.Adapter(r.index), name})
			}
		}
		s.listed.series = slices.Clone(w.eng.lora.series)
		s.Adapters = nil // the engine changes them
	})
	return s
}

func (s *signals) usage() float64 { return float64(s.KVUsed) / float64(s.KVCapacity) }
