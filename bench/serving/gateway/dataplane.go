package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"

	"lorasim/internal/format"
)

// dataPlane lists the endpoints of workers that clients may use: those that run the model for the client, and facts
// about the model. It is an allowlist: a path that is neither listed here nor in Config.Allow never reaches a worker.
// Left out on purpose:
//
//   - endpoints that change a worker or other clients' requests: weights, adapters, caches,
//     profiles, logging, sleep, pause, abort, sessions;
//   - endpoints that reveal keys, others' load or others' answers: /server_info, /metrics,
//     /v1/loads, stored responses (GET /v1/responses/{id}, POST .../cancel);
//   - /invocations (SageMaker) and /vertex_generate: they take the adapter from a
//     header or a nested field, which the gateway does not read, and sessions;
//   - WebSockets (/v1/realtime).
//
// The files testdata/routes-*.txt have the routes of the engines; a test compares this list with them.
var dataPlane = map[string][]string{
	http.MethodPost: {
		// generate
		"/generate", "/v1/completions", "/v1/chat/completions", "/v1/chat/completions/batch", "/v1/responses",
		"/v1/messages",
		"/api/chat", "/api/generate", "/cohere/v2/chat", "/inference/v1/generate",
		"/v1/audio/transcriptions", "/v1/audio/translations", "/v1/audio/speech",
		// embed, score, classify
		"/v1/embeddings", "/v2/embed", "/encode", "/pooling", "/classify", "/v1/classify", "/score", "/v1/score",
		"/generative_scoring",
		"/rerank", "/v1/rerank", "/v2/rerank", "/v1/decisions", "/v1/systemone",
		// tokenize, render templates, parse replies: functions of the request alone
		"/tokenize", "/v1/tokenize", "/detokenize", "/v1/detokenize", "/v1/messages/count_tokens",
		"/v1/completions/render", "/v1/chat/completions/render", "/v1/messages/render", "/v1/responses/render",
		"/cohere/v2/chat/render",
		"/v1/completions/derender", "/v1/chat/completions/derender", "/parse_function_call", "/separate_reasoning",
		"/api/show",
	},
	http.MethodGet: {"/model_info", "/get_model_info", "/tokenizer_info", "/version", "/api/tags"},
}

// everyWorker lists calls that benchmarks make to a server between runs. The gateway sends them to every worker. They
// are below /admin; clients may use those in Config.Allow only.
var everyWorker = []string{"/flush_cache", "/reset_prefix_cache", "/reset_mm_cache", "/reset_encoder_cache",
	"/start_profile", "/stop_profile"}

// endpoint is the meaning of a path on the data listener.
type endpoint struct {
	methods []string
	serve   http.HandlerFunc
	pattern *regexp.Regexp // of the path, where it has {name} segments; else nil
}

func (e *endpoint) takes(method string) bool {
	return slices.Contains(e.methods, method) || method == http.MethodHead && slices.Contains(e.methods, http.MethodGet)
}

// allowlist has all endpoints of the data listener.
type allowlist struct {
	exact    map[string]*endpoint
	patterns []*endpoint
}

// newAllowlist returns the allowlist: the gateway's own endpoints, the data plane of the engines, and Config.Allow.
func (g *Gateway) newAllowlist(allow []string) (*allowlist, error) {
	a := &allowlist{exact: map[string]*endpoint{}}
	a.add(&endpoint{methods: []string{http.MethodGet}, serve: g.health}, "/health", "/health_generate")
	a.add(&endpoint{methods: []string{http.MethodGet}, serve: g.ready}, "/ready")
	a.add(&endpoint{methods: []string{http.MethodGet}, serve: g.models}, "/v1/models")
	a.patterns = append(a.patterns, &endpoint{methods: []string{http.MethodGet}, serve: g.model, pattern: modelPath})
	for method, paths := range dataPlane {
		a.add(&endpoint{methods: []string{method}, serve: g.proxy}, paths...)
	}
	for _, text := range allow {
		methods, p, err := ParseAllow(text)
		if err != nil {
			return nil, err
		}
		if known := a.exact[p]; known != nil {
			methods = append(methods, known.methods...)
		}
		e := &endpoint{methods: methods, serve: g.proxy}
		switch {
		case p == "/metrics":
			e.serve = g.metrics.Handler().ServeHTTP
		case p == "/abort_request":
			e.serve = g.abort
		case slices.Contains(everyWorker, p):
			e.serve = g.all(p)
		case strings.Contains(p, "{"):
			e.pattern, e.serve = patternOf(p), g.proxySearching
			same := func(k *endpoint) bool { return k.pattern.String() == e.pattern.String() }
			if i := slices.IndexFunc(a.patterns, same); i >= 0 {
				a.patterns[i].methods = append(a.patterns[i].methods, methods...)
			} else {
				a.patterns = append(a.patterns, e)
			}
			continue
		}
		a.exact[p] = e
	}
	return a, nil
}

func (a *allowlist) add(e *endpoint, paths ...string) {
	for _, p := range paths {
		a.exact[p] = e
	}
}

// modelPath is the path of one model, whose name may have slashes.
var modelPath = regexp.MustCompile(`^/v1/models/(.+)$`)

// A segment of a path without anything that servers or proxies read in more than
// one way: no percent signs, semicolons, backslashes.
const segment = `[A-Za-z0-9_~@:-][A-Za-z0-9_~@:.-]*`

var (
	plainPath    = regexp.MustCompile(`^(/` + segment + `)+$`)
	wildcard     = regexp.MustCompile(`\{[a-z_]+\}`)
	allowMethods = []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodOptions}
)

func patternOf(p string) *regexp.Regexp {
	parts := wildcard.Split(p, -1)
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile("^" + strings.Join(parts, segment) + "$")
}

// ParseAllow parses an item of Config.Allow, "[METHOD ]PATH". Without a method, GET and POST are allowed. A segment of
// the path may be {name}, which matches any segment. An invalid item is an error.
func ParseAllow(text string) (methods []string, p string, err error) {
	methods, p = []string{http.MethodGet, http.MethodPost}, text
	if method, rest, ok := strings.Cut(text, " "); ok {
		if !slices.Contains(allowMethods, method) {
			return nil, "", fmt.Errorf("%q: method %q, expected one of %s", text, method,
				strings.Join(allowMethods, ", "))
		}
		methods, p = []string{method}, rest
	}
	if example := wildcard.ReplaceAllString(p, "x"); !plainPath.MatchString(example) || path.Clean(example) != example {
		return nil, "", fmt.Errorf("%q: expected [METHOD ]PATH with a PATH such as /v1/responses/{id}: no query, no %%, no //, no trailing /", text)
	}
	first, _, _ := strings.Cut(p[1:], "/")
	switch {
	case first == "admin":
		return nil, "", fmt.Errorf("%q: /admin is only on the admin listener (--admin-listen)", text)
	case p == "/health" || p == "/health_generate" || p == "/ready" || p == "/v1/models":
		return nil, "", fmt.Errorf("%q: the gateway answers this path itself", text)
	case p == "/metrics" && !slices.Contains(methods, http.MethodGet):
		return nil, "", fmt.Errorf("%q: /metrics takes GET", text)
	case p == "/metrics":
		methods = []string{http.MethodGet}
	case strings.Contains(p, "load_lora_adapter") || first == "adapters":
		return nil, "", fmt.Errorf("%q: the gateway loads and unloads adapters itself: POST /admin/load or /admin/unload on the admin listener", text)
	}
	return methods, p, nil
}

// find returns the endpoint of a request, or the status and error to answer. A path
// counts as it is written: one that a server might read in another way than the
// gateway (percent-encoded, with //, /./, a trailing slash, ...) is not on the list.
func (a *allowlist) find(r *http.Request) (*endpoint, int, error) {
	e := a.exact[r.URL.Path]
	if e == nil {
		if i := slices.IndexFunc(a.patterns,
			func(e *endpoint) bool { return e.pattern.MatchString(r.URL.Path) }); i >= 0 {
			e = a.patterns[i]
		}
	}
	written := r.URL.RawPath == "" && r.URL.EscapedPath() == r.URL.Path
	switch {
	case e == nil || !written && e.pattern != modelPath:
		return nil, http.StatusNotFound, fmt.Errorf("%s is not served to clients; --allow adds paths, /admin and /metrics are on the admin listener",
			format.Clip(r.URL.Path, 100))
	case !e.takes(r.Method):
		return e, http.StatusMethodNotAllowed, fmt.Errorf("%s %s is not served to clients, expected %s",
			format.Clip(r.Method, 20), r.URL.Path, strings.Join(e.methods, " or "))
	}
	return e, 0, nil
}

// data serves what is on the allowlist to clients that have a key.
func (g *Gateway) data(rw http.ResponseWriter, r *http.Request) {
	open := (r.URL.Path == "/health" || r.URL.Path == "/ready") && r.URL.RawPath == "" &&
		(r.Method == http.MethodGet || r.Method == http.MethodHead)
	if !open && !g.cfg.Keys.Accept(r) && !g.cfg.Keys.AcceptKey(r.Header.Get("X-Api-Key")) { // Anthropic's clients
		g.refuseKey(rw)
		return
	}
	e, status, err := g.allowed.find(r)
	if status == http.StatusMethodNotAllowed {
		rw.Header().Set("Allow", strings.Join(e.methods, ", "))
	}
	if err == nil && !identity(r.Header["Content-Encoding"]) {
		status, err = http.StatusUnsupportedMediaType,
			errors.New("the body is compressed, which hides the adapter it names: send it without Content-Encoding")
	}
	if err != nil {
		g.reject(rw, status, err.Error(), http.StatusText(status))
		return
	}
	e.serve(rw, r)
}

func (g *Gateway) refuseKey(rw http.ResponseWriter) {
	rw.Header().Set("WWW-Authenticate", "Bearer")
	g.reject(rw, http.StatusUnauthorized, "the API key is missing or wrong", http.StatusText(http.StatusUnauthorized))
}

// identity reports whether a body is sent without a content coding.
func identity(codings []string) bool {
	return !slices.ContainsFunc(codings, func(coding string) bool {
		return coding != "" &&
			!strings.EqualFold(coding, "identity")
	})
}

// instructions are headers with which a proxy tells a server what to do with a
// request: another method or path, sglang's X-Override-*, SageMaker's sessions and
// adapters. Clients have no say in that.
var instructions = regexp.MustCompile(`^(X-Http-Method(-Override)?|X-Method-Override|X-Original-(Url|Method|Uri)|X-Rewrite-Url|X-Override-.*|X-Amzn-Sagemaker-.*)$`)

// dropInstructions removes the headers that match instructions. Header names must be in their canonical form.
func dropInstructions(h http.Header) {
	for name := range h {
		if strings.HasPrefix(name, "X-") && instructions.MatchString(name) {
			delete(h, name)
		}
	}
}

// unknown returns the error for a name that is neither an adapter nor a model.
func (g *Gateway) unknown(name string) error {
	const most, longest = 20, 100
	known, more := g.names(), ""
	if n := len(known); n > most {
		known, more = known[:most], fmt.Sprintf(" and %d more (GET /v1/models)", n-most)
	}
	for i, k := range known {
		known[i] = format.Clip(k, longest)
	}
	return fmt.Errorf("unknown adapter or model %q; known: %s%s", format.Clip(name, longest), strings.Join(known, ", "),
		more)
}

// model serves GET /v1/models/NAME.
func (g *Gateway) model(rw http.ResponseWriter, r *http.Request) {
	name := modelPath.FindStringSubmatch(r.URL.Path)[1]
	for _, m := range g.modelList() {
		if m.ID == name {
			writeJSON(rw, http.StatusOK, m)
			return
		}
	}
	g.reject(rw, http.StatusNotFound, g.unknown(name).Error(), http.StatusText(http.StatusNotFound))
}
