package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
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

// loadAdapter and unloadAdapter change what a worker holds. An adapter that is
// there, or gone, already is no failure; the worker is asked first, as others
// change it too, and sglang itself, which drops and reloads adapters.
func (e *endpoint) loadAdapter(ctx context.Context, name, path string) error {
	if held, err := e.holds(ctx, name); err == nil && held {
		return nil
	}
	_, err := e.call(ctx, http.MethodPost, e.loraPath("load"), map[string]any{"lora_name": name, "lora_path": path})
	if err != nil && strings.Contains(err.Error(), "already") {
		return nil
	}
	return err
}

func (e *endpoint) unloadAdapter(ctx context.Context, name string) error {
	if held, err := e.holds(ctx, name); err == nil && !held {
		return nil
	}
	_, err := e.call(ctx, http.MethodPost, e.loraPath("unload"), map[string]any{"lora_name": name})
	if err != nil && (isStatus(err, http.StatusNotFound) || IsNotLoaded(err.Error())) {
		return nil
	}
	return err
}

// holds says whether a worker lists an adapter.
func (e *endpoint) holds(ctx context.Context, name string) (bool, error) {
	list, err := e.models(ctx)
	return slices.ContainsFunc(list, func(m model) bool { return m.ID == name && m.Parent != "" }), err
}

// IsNotLoaded says whether an engine's message is that it does not hold an
// adapter, in the words of the engines.
func IsNotLoaded(text string) bool {
	for _, words := range []string{"not loaded", "never been loaded", "does not exist", "cannot be found"} {
		if strings.Contains(text, words) {
			return true
		}
	}
	return false
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
