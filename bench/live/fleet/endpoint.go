package fleet

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"

	"lorasim/internal/suggest"
)

// API is the administrative interface of a worker.
type API string

// The interfaces.
const (
	Auto   API = "auto" // find out
	SGLang API = "sglang"
	VLLM   API = "vllm"
)

// ParseAPI reads the name of an interface.
func ParseAPI(s string) (API, error) {
	switch a := API(s); a {
	case Auto, SGLang, VLLM:
		return a, nil
	}
	return "", suggest.Unknown("worker interface", s, []string{string(Auto), string(SGLang), string(VLLM)})
}

// ParseURL checks the base URL of a worker; a scheme may be left out.
func ParseURL(s string) (string, error) {
	text := s
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil {
		return "", fmt.Errorf("worker URL %q: %w", s, err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil || strings.ContainsAny(u.Host, ", ") {
		return "", fmt.Errorf("worker URL %q, expected http(s)://HOST:PORT", s)
	}
	return strings.TrimSuffix(u.Scheme+"://"+u.Host+u.Path, "/"), nil
}

// StatusError is an answer that is no success.
type StatusError struct {
	Code int
	Text string
}

func (e *StatusError) Error() string {
	if e.Text == "" {
		return fmt.Sprintf("status %d", e.Code)
	}
	return fmt.Sprintf("status %d: %s", e.Code, e.Text)
}

// endpoint speaks one worker's administrative interface.
type endpoint struct {
	base   string
	client *http.Client
	header http.Header
	api    atomic.Value // API; Auto until known
	older  atomic.Bool  // sglang: only the older names of load signals are there
	silent atomic.Bool  // there are no load signals at all, as before a gateway
}

func (e *endpoint) kind() API { return e.api.Load().(API) }

const maxAnswer = 16 << 20 // bytes

// call sends a request and returns the body of the answer.
func (e *endpoint) call(ctx context.Context, method, path string, body any) ([]byte, error) {
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, e.base+path, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	for k, v := range e.header {
		req.Header[k] = v
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := e.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, bare(err))
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if resp.StatusCode/100 != 2 {
		return nil, fmt.Errorf("%s %s: %w", method, path, &StatusError{resp.StatusCode, ErrorText(answer)})
	}
	return answer, nil
}

// bare drops the method and URL that http.Client puts before an error.
func bare(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

func (e *endpoint) get(ctx context.Context, path string, v any) error {
	data, err := e.call(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("GET %s: %w", path, err)
	}
	return nil
}

// ErrorText is the message in the body of an error, in any of the forms that
// the engines use; a body of another form is shortened.
func ErrorText(body []byte) string {
	var b struct {
		Error        json.RawMessage `json:"error"`
		Message      string          `json:"message"`
		ErrorMessage string          `json:"error_message"`
		Detail       json.RawMessage `json:"detail"`
	}
	if json.Unmarshal(body, &b) == nil {
		var inner struct {
			Message string `json:"message"`
		}
		var text string
		switch {
		case json.Unmarshal(b.Error, &inner) == nil && inner.Message != "":
			return inner.Message
		case json.Unmarshal(b.Error, &text) == nil && text != "":
			return text
		case b.ErrorMessage != "":
			return b.ErrorMessage
		case b.Message != "":
			return b.Message
		case len(b.Detail) > 0:
			return string(b.Detail)
		}
	}
	const most = 200
	s := strings.Join(strings.Fields(string(body)), " ") // one line
	if strings.HasPrefix(s, "<") {
		return "a page of HTML: not an engine's server?"
	}
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}

// isStatus says whether an error is an answer with that status.
func isStatus(err error, code int) bool {
	var s *StatusError
	return errors.As(err, &s) && s.Code == code
}

// info is what a worker tells of itself; zero where it does not.
type info struct {
	Model          string
	MaxRunning     int
	Slots          int
	MaxLoaded      int
	KVCapacity     int64
	ContextLength  int
	VocabularySize int
}

// discover finds out which interface the worker has and what it tells.
func (e *endpoint) discover(ctx context.Context) (info, error) {
	var in info
	if k := e.kind(); k != VLLM {
		var s struct {
			ModelPath          string `json:"model_path"`
			ServedModelName    string `json:"served_model_name"`
			MaxRunningRequests int    `json:"max_running_requests"`
			MaxLorasPerBatch   int    `json:"max_loras_per_batch"`
			MaxLoadedLoras     int    `json:"max_loaded_loras"`
			MaxTotalNumTokens  int64  `json:"max_total_num_tokens"`
			ContextLength      int    `json:"context_length"`
		}
		err := e.get(ctx, "/server_info", &s)
		if isStatus(err, http.StatusNotFound) {
			err = e.get(ctx, "/get_server_info", &s)
		}
		if err == nil {
			e.api.Store(SGLang)
			in = info{Model: s.ServedModelName, MaxRunning: s.MaxRunningRequests, Slots: s.MaxLorasPerBatch,
				MaxLoaded: s.MaxLoadedLoras, KVCapacity: s.MaxTotalNumTokens, ContextLength: s.ContextLength}
			if in.Model == "" {
				in.Model = s.ModelPath
			}
			return in, nil
		}
		if k == SGLang || !isStatus(err, http.StatusNotFound) {
			return in, err
		}
	}
	if _, err := e.call(ctx, http.MethodGet, "/version", nil); err != nil && !isStatus(err, http.StatusNotFound) {
		return in, err
	}
	e.api.Store(VLLM)
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
	return in, nil
}

// model is an entry of /v1/models; adapters have a parent.
type model struct {
	ID, Parent  string
	Root        string // where an adapter lies
	MaxModelLen int
}

func (e *endpoint) models(ctx context.Context) ([]model, error) {
	var list struct {
		Data []struct {
			ID          string  `json:"id"`
			Parent      *string `json:"parent"`
			Root        string  `json:"root"`
			MaxModelLen int     `json:"max_model_len"`
		} `json:"data"`
	}
	if err := e.get(ctx, "/v1/models", &list); err != nil {
		return nil, err
	}
	var ms []model
	for _, d := range list.Data {
		m := model{ID: d.ID, Root: d.Root, MaxModelLen: d.MaxModelLen}
		if d.Parent != nil {
			m.Parent = *d.Parent
		}
		ms = append(ms, m)
	}
	return ms, nil
}

// load is a worker's own account of its load.
type load struct {
	Running, Queued int
	KVUsed          int64 // -1: not told
}

// loads reads the load signal: by the newer name, then the older one, which is
// remembered. A server without any is only asked for its health.
func (e *endpoint) loads(ctx context.Context) (load, error) {
	if e.silent.Load() {
		_, err := e.call(ctx, http.MethodGet, "/health", nil)
		return load{KVUsed: -1}, err
	}
	l, err := e.signals(ctx)
	if isStatus(err, http.StatusNotFound) {
		e.silent.Store(true)
		return e.loads(ctx)
	}
	return l, err
}

func (e *endpoint) signals(ctx context.Context) (load, error) {
	if e.kind() == VLLM {
		return e.loadsVLLM(ctx)
	}
	if !e.older.Load() {
		var s struct {
			Loads []struct {
				Running int   `json:"num_running_reqs"`
				Waiting int   `json:"num_waiting_reqs"`
				Tokens  int64 `json:"num_used_tokens"`
			} `json:"loads"`
		}
		err := e.get(ctx, "/v1/loads", &s)
		if !isStatus(err, http.StatusNotFound) {
			var l load
			for _, r := range s.Loads { // one for each data-parallel rank
				l.Running += r.Running
				l.Queued += r.Waiting
				l.KVUsed += r.Tokens
			}
			return l, err
		}
		e.older.Store(true)
	}
	var ranks []struct {
		All     int   `json:"num_reqs"`
		Waiting int   `json:"num_waiting_reqs"`
		Tokens  int64 `json:"num_tokens"`
	}
	err := e.get(ctx, "/get_load", &ranks)
	var l load
	for _, r := range ranks {
		l.Running += r.All - r.Waiting
		l.Queued += r.Waiting
		l.KVUsed += r.Tokens
	}
	return l, err
}

func (e *endpoint) loadsVLLM(ctx context.Context) (load, error) {
	data, err := e.call(ctx, http.MethodGet, "/metrics", nil)
	if err != nil {
		return load{}, err
	}
	l := load{KVUsed: -1}
	l.Running = int(sumMetric(data, "vllm:num_requests_running"))
	l.Queued = int(sumMetric(data, "vllm:num_requests_waiting"))
	return l, nil
}

// sumMetric adds up the series of a metric in Prometheus' text format.
func sumMetric(text []byte, name string) float64 {
	var sum float64
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, maxAnswer)
	for lines.Scan() {
		rest, ok := strings.CutPrefix(lines.Text(), name)
		if !ok || rest == "" || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		if k := strings.LastIndexByte(rest, '}'); k >= 0 {
			rest = rest[k+1:]
		}
		fields := strings.Fields(rest)
		if len(fields) == 0 {
			continue
		}
		if v, err := strconv.ParseFloat(fields[0], 64); err == nil && v >= 0 && v < 1e9 {
			sum += v
		}
	}
	return sum
}

// loadAdapter and unloadAdapter change what a worker holds. An adapter that is
// there, or gone, already is no failure.
func (e *endpoint) loadAdapter(ctx context.Context, name, path string) error {
	_, err := e.call(ctx, http.MethodPost, e.loraPath("load"), map[string]any{"lora_name": name, "lora_path": path})
	if err != nil && strings.Contains(err.Error(), "already") {
		return nil
	}
	return err
}

func (e *endpoint) unloadAdapter(ctx context.Context, name string) error {
	_, err := e.call(ctx, http.MethodPost, e.loraPath("unload"), map[string]any{"lora_name": name})
	if err != nil && (isStatus(err, http.StatusNotFound) || strings.Contains(err.Error(), "not loaded")) {
		return nil
	}
	return err
}

func (e *endpoint) loraPath(verb string) string {
	if e.kind() == VLLM {
		return "/v1/" + verb + "_lora_adapter"
	}
	return "/" + verb + "_lora_adapter"
}

// ErrNoAbort says that the interface has none; closing the connection aborts.
var ErrNoAbort = errors.New("the worker's interface has no abort")

func (e *endpoint) abort(ctx context.Context, rid string) error {
	if e.kind() == VLLM {
		return ErrNoAbort
	}
	_, err := e.call(ctx, http.MethodPost, "/abort_request", map[string]any{"rid": rid})
	return err
}
