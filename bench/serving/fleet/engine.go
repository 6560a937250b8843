package fleet

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"lorasim/bench/serving/httpapi"
)

// ParseURL returns the base URL of a worker in its canonical form. The scheme may be omitted.
func ParseURL(s string) (string, error) {
	text := s
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil {
		return "", fmt.Errorf("worker URL %q: %w", s, err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" ||
		u.User != nil || strings.ContainsAny(u.Host, ", ") {
		return "", fmt.Errorf("worker URL %q, expected http(s)://HOST:PORT", s)
	}
	if n, err := strconv.ParseUint(u.Port(), 10, 16); u.Port() != "" && (err != nil || n == 0) {
		return "", fmt.Errorf("worker URL %q: port %s, expected 1 to 65535", s, u.Port())
	}
	path := strings.TrimSuffix(strings.TrimSuffix(u.Path, "/"), "/v1") // clients of OpenAI's interface have it
	return strings.TrimSuffix(u.Scheme+"://"+u.Host+path, "/"), nil
}

// A Switch states whether a worker has a feature enabled. "": unknown.
type Switch string

// Values of a Switch.
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

// Info is the information that a worker reports about itself. Values that it does not report are zero.
type Info struct {
	API     httpapi.Kind `json:"api"`              // administrative interface
	Version string       `json:"version"`          // version of the engine
	Model   string       `json:"model"`            // name of the base model
	Root    string       `json:"root"`             // where the base model lies
	LoRA    Switch       `json:"lora"`             // LoRA is enabled
	RunTime Switch       `json:"run_time_loading"` // loads and unloads adapters at run time
	Limits
	MaxRank       int `json:"max_lora_rank"`  // largest rank of an adapter
	ContextLength int `json:"context_length"` // most tokens of prompt and output
	// Started is the time at which the worker's process started, by its own clock, s since 1970.
	Started float64 `json:"started,omitempty"`
}

// whyFixed returns the reason for which a worker loads no adapters at run time, and the remedy.
func (in *Info) whyFixed() string {
	switch {
	case in.LoRA == Off:
		return "LoRA is disabled; start the server with --enable-lora"
	case in.API == httpapi.VLLM:
		return "dynamic loading is disabled; start the server with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True in its environment"
	}
	return "dynamic loading is disabled; start the server with --enable-lora and one data-parallel replica"
}

// statusError is the error of a response without success.
type statusError struct {
	code int
	text string
}

func (e *statusError) Error() string {
	text := strings.TrimSuffix(fmt.Sprintf("status %d: %s", e.code, e.text), ": ")
	if e.code == http.StatusUnauthorized {
		text += "; the worker needs a key, or another one (--api-key-file, $LORASIM_WORKER_KEY)"
	}
	return text
}

// formError is the error of an answer that is not of the expected form.
type formError struct{ error }

func (e *formError) Unwrap() error { return e.error }

// isStatus reports whether an error is a response with the given status.
func isStatus(err error, code int) bool {
	s, ok := errors.AsType[*statusError](err)
	return ok && s.code == code
}

// engine speaks one worker's administrative interface.
type engine struct {
	url     string
	base    *url.URL // the same
	client  *http.Client
	header  http.Header
	asked   httpapi.Kind // interface that the user states, or httpapi.Auto
	api     atomic.Value // httpapi.Kind; httpapi.Auto until known
	signal  atomic.Int32 // of the names of load signals, the first that is there
	found   atomic.Bool  // the load signal has been read before
	unready atomic.Bool  // the worker has no /ready
}

func newEngine(c *Connection, host string) *engine {
	base, err := url.Parse(host)
	if err != nil { // requests will say so
		base = &url.URL{}
	}
	e := &engine{url: host, base: base, client: c.Client, header: c.Header, asked: cmp.Or(c.API, httpapi.Auto)}
	e.api.Store(e.asked)
	return e
}

func (e *engine) kind() httpapi.Kind { return e.api.Load().(httpapi.Kind) }

var errTooLong = errors.New("the answer is too long")

// call sends a request and returns the body of the answer.
func (e *engine) call(ctx context.Context, method, path string, body any) (answer []byte, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s %s: %w", method, path, err)
		}
	}()
	var data []byte
	if body != nil {
		if data, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, e.url+path, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, e.header)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := e.client.Do(req)
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err // without method and URL
	}
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	most := maxAnswer
	if path == "/metrics" {
		most = maxMetrics
	}
	answer, err = io.ReadAll(io.LimitReader(resp.Body, int64(most)+1))
	if len(answer) > most {
		return nil, fmt.Errorf("%w: more than %d bytes", errTooLong, most)
	}
	if err == nil && resp.StatusCode/100 != 2 {
		err = &statusError{resp.StatusCode, ErrorText(answer)}
	}
	return answer, err
}

func (e *engine) get(ctx context.Context, path string, v any) error {
	data, err := e.call(ctx, http.MethodGet, path, nil)
	if err == nil {
		if err = json.Unmarshal(data, v); err != nil {
			err = fmt.Errorf("GET %s: %w", path, &formError{plainJSON(err)})
		}
	}
	return err
}

// plainJSON returns an error of package json without the names of Go types.
func plainJSON(err error) error {
	if t, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("%s: unexpected %s", cmp.Or(t.Field, "the answer"), t.Value)
	}
	if _, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("%w: the answer is not JSON, expected a server of sglang or vLLM", err)
	}
	return err
}

// ErrorText returns the message in the body of an error response. It reads all forms that the engines use, and returns
// other bodies shortened.
func ErrorText(body []byte) string {
	var b struct {
		Error        json.RawMessage `json:"error"`
		Message      string          `json:"message"`
		ErrorMessage string          `json:"error_message"`
		Detail       json.RawMessage `json:"detail"`
	}
	if json.Unmarshal(body, &b) == nil {
		if text := cmp.Or(MessageOf(b.Error), b.ErrorMessage, b.Message, string(b.Detail)); text != "" {
			return clean(text, maxMessage)
		}
	}
	s := strings.Join(strings.Fields(string(body[:min(len(body), 4*maxMessage)])), " ") // one line
	if strings.HasPrefix(s, "<") {
		return "an HTML page, expected JSON: is this the URL of an engine?"
	}
	return clean(s, 200)
}

// MessageOf returns the message in the "error" field of a response, which is an object or a string. It returns "" if
// there is none.
func MessageOf(raw []byte) (text string) {
	var inner struct {
		Message string `json:"message"`
	}
	json.Unmarshal(raw, &inner) // whichever of the two it is
	json.Unmarshal(raw, &text)
	return clean(cmp.Or(inner.Message, text), maxMessage)
}

// statusOfType are the types of errors of Anthropic's interface that speak of the server, with their status. The second
// and the third are vLLM's.
var statusOfType = map[string]int{"api_error": 500, "internal_error": 500, "InternalServerError": 500,
	"overloaded_error": 503, "rate_limit_error": 429}

// StatusOf returns the status in the "error" field of a response, or that of its type. It returns 0 if there is none.
func StatusOf(raw []byte) int {
	var inner struct {
		Code json.Number `json:"code"`
		Type string      `json:"type"`
	}
	json.Unmarshal(raw, &inner) // of another form: without a status
	code, _ := inner.Code.Int64()
	return cmp.Or(int(code), statusOfType[inner.Type])
}

// discover determines the worker's interface and reads its information. What it found before does not count: another
// engine may be there now.
func (e *engine) discover(ctx context.Context) (in Info, err error) {
	k := e.asked
	if k != httpapi.VLLM {
		if in, err = e.discoverSGLang(ctx); err == nil || k == httpapi.SGLang || !isStatus(err, http.StatusNotFound) {
			k = httpapi.SGLang
		} else {
			k = httpapi.VLLM
		}
	}
	if k == httpapi.VLLM {
		in, err = e.discoverVLLM(ctx)
	}
	if err == nil {
		e.api.Store(k)
	}
	return in, err
}

func (e *engine) discoverSGLang(ctx context.Context) (Info, error) {
	var s struct {
		Version            string          `json:"version"`
		ModelPath          string          `json:"model_path"`
		ServedModelName    string          `json:"served_model_name"`
		EnableLoRA         *bool           `json:"enable_lora"`
		LoraPaths          json.RawMessage `json:"lora_paths"` // a list or an object
		DPSize             int             `json:"dp_size"`
		MaxRunningRequests int             `json:"max_running_requests"`
		MaxLorasPerBatch   int             `json:"max_loras_per_batch"`
		MaxLoadedLoras     int             `json:"max_loaded_loras"`
		MaxLoraRank        int             `json:"max_lora_rank"`
		MaxTotalNumTokens  int64           `json:"max_total_num_tokens"`
		ContextLength      int             `json:"context_length"`

		VLLM json.RawMessage `json:"vllm_config"` // vLLM in its development mode has the path, too
	}
	err := e.get(ctx, "/server_info", &s)
	if s.VLLM != nil {
		return Info{}, &statusError{http.StatusNotFound, "vLLM"}
	}
	if isStatus(err, http.StatusNotFound) {
		err = e.get(ctx, "/get_server_info", &s)
	}
	if err == nil && s.ServedModelName == "" && s.ModelPath == "" && e.asked != httpapi.SGLang {
		err = &statusError{http.StatusNotFound, "it names no model"} // another server has the path, too
	}
	if err != nil {
		return Info{}, err
	}
	in := Info{API: httpapi.SGLang, Root: clean(s.ModelPath, maxPath), Version: clean(s.Version, maxVersion),
		MaxRank:       within(s.MaxLoraRank, maxRank),
		ContextLength: within(s.ContextLength, maxContext),
		Limits: Limits{MaxRunning: s.MaxRunningRequests, Slots: s.MaxLorasPerBatch, KVCapacity: s.MaxTotalNumTokens,
			MaxLoaded: s.MaxLoadedLoras}.bounded()}
	if m := cmp.Or(s.ServedModelName, s.ModelPath); isName(m, maxName) {
		in.Model = m
	}
	if s.EnableLoRA != nil {
		in.LoRA = switchOf(*s.EnableLoRA || len(s.LoraPaths) > 2 && !bytes.Equal(s.LoraPaths, []byte("null")))
		in.RunTime = switchOf(in.LoRA == On && s.DPSize <= 1) // it refuses with data-parallel replicas
	}
	if in.LoRA == Off {
		in.Slots = 0
	}
	return in, nil
}

// discoverVLLM reads the information that vLLM offers. Metrics contain some of its limits (the adapter slots from the
// first request on).
func (e *engine) discoverVLLM(ctx context.Context) (Info, error) {
	in := Info{API: httpapi.VLLM}
	var v struct {
		Version string `json:"version"`
	}
	if err := e.get(ctx, "/version", &v); err != nil && !isStatus(err, http.StatusNotFound) {
		return in, err
	}
	in.Version = clean(v.Version, maxVersion)
	list, err := e.models(ctx)
	if err != nil && !errors.Is(err, errTooLong) {
		return in, err
	}
	for _, m := range list {
		if m.Parent == "" {
			in.Model, in.Root, in.ContextLength = m.ID, clean(m.Root, maxPath), within(m.MaxModelLen, maxContext)
			break
		}
	}
	if l, err := e.loadsVLLM(ctx); err == nil {
		if in.Limits, in.Started = l.Limits, l.started; l.VLLM { // else of a gateway before it, or switched off
			in.LoRA = switchOf(l.Busy != nil)
		}
	} else if !isStatus(err, http.StatusNotFound) {
		return in, err
	}
	// what loads adapters is only for POST; asked for by GET, a server says so, or
	// that there is none
	_, err = e.call(ctx, http.MethodGet, "/v1/load_lora_adapter", nil)
	switch {
	case in.LoRA == Off, isStatus(err, http.StatusNotFound):
		in.RunTime = Off
	case isStatus(err, http.StatusMethodNotAllowed):
		in.RunTime = On
	}
	return in, nil
}

// model is an entry of /v1/models. Adapters have a parent.
type model struct {
	ID          string `json:"id"`
	Parent      string `json:"parent"`
	Root        string `json:"root"` // where the model or adapter lies
	OwnedBy     string `json:"owned_by"`
	MaxModelLen int    `json:"max_model_len"`
	Created     int64  `json:"created"` // when the list was made, s
}

// models returns the models and adapters that a worker lists, except those with invalid names.
func (e *engine) models(ctx context.Context) ([]model, error) {
	var all struct {
		Data list[model] `json:"data"`
	}
	err := e.get(ctx, "/v1/models", &all)
	return slices.DeleteFunc(all.Data, func(m model) bool {
		return !isName(m.ID, maxName) || m.Parent != "" && m.Root != "" && !isName(m.Root, maxPath)
	}), err
}

// loadAdapter loads an adapter on the worker. An adapter that is loaded already is no error; the same holds for
// unloadAdapter and an adapter that is not there. Both read the worker's list first, because other clients change it,
// too, and so does sglang itself, which drops and reloads adapters.
func (e *engine) loadAdapter(ctx context.Context, name, path string) error {
	err := e.change(ctx, "load", name, map[string]any{"lora_name": name, "lora_path": path})
	if err != nil && mentions(err.Error(), "already") {
		return nil
	}
	return err
}

func (e *engine) unloadAdapter(ctx context.Context, name string) error {
	err := e.change(ctx, "unload", name, map[string]any{"lora_name": name})
	if err != nil && (isStatus(err, http.StatusNotFound) || IsNotLoaded(err.Error())) {
		return nil
	}
	return err
}

func (e *engine) change(ctx context.Context, verb, name string, body any) error {
	list, err := e.models(ctx)
	held := slices.ContainsFunc(list, func(m model) bool { return m.ID == name && m.Parent != "" })
	if err == nil && held == (verb == "load") {
		return nil
	}
	path := "/" + verb + "_lora_adapter"
	if e.kind() == httpapi.VLLM {
		path = "/v1" + path
	}
	_, err = e.call(ctx, http.MethodPost, path, body)
	return err
}

// IsNotLoaded reports whether an engine's error message says that the adapter is not loaded.
func IsNotLoaded(text string) bool {
	return mentions(text, "not loaded", "never been loaded", "does not exist", "cannot be found")
}

func mentions(text string, words ...string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
}

// ErrNoAbort is the error of [Fleet.Abort] for an interface without an abort call. Closing the connection aborts the
// request.
var ErrNoAbort = errors.New("the worker cannot abort requests")

func (e *engine) abort(ctx context.Context, rid string) error {
	if e.kind() == httpapi.VLLM {
		return ErrNoAbort
	}
	_, err := e.call(ctx, http.MethodPost, "/abort_request", map[string]any{"rid": rid})
	return err
}
