package web_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"lorasim/bench/explore"
	"lorasim/bench/explore/web"
	"lorasim/bench/scenario"
	"lorasim/trace"
)

// newServer is a server with a known token.
func newServer(t *testing.T, c web.Config) *httptest.Server {
	t.Helper()
	c.Explorer, c.Token = explore.New(explore.Limits{}, trace.Files{}), "secret"
	srv := httptest.NewServer(web.New(c))
	t.Cleanup(srv.Close)
	return srv
}

// send sends a request with changes, and returns status and body.
func send(t *testing.T, method, url, body string, change func(*http.Request)) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	if change != nil {
		change(r)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(data)
}

// header sets header fields.
func header(pairs ...string) func(*http.Request) {
	return func(r *http.Request) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == "Host" {
				r.Host = pairs[i+1]
			} else {
				r.Header.Set(pairs[i], pairs[i+1])
			}
		}
	}
}

const oneRun = `{"settings":{"workload.num_prompts":"50"},"policies":["static"]}`

// TestOtherOrigins: only the page itself, and programs that know the secret path, can read or start anything.
func TestOtherOrigins(t *testing.T) {
	srv := newServer(t, web.Config{})
	page, port := srv.URL+"/secret/", srv.URL[strings.LastIndexByte(srv.URL, ':')+1:]
	for _, path := range []string{"", "explorer.js", "dom.js", "api/start", "api/run"} {
		method, body := http.MethodGet, ""
		if path == "api/run" {
			method, body = http.MethodPost, oneRun
		}
		for what, c := range map[string]struct {
			url    string
			change func(*http.Request)
			want   int
		}{
			"a program":           {page + path, nil, 200},
			"the page":            {page + path, header("Sec-Fetch-Site", "same-origin"), 200},
			"the page by origin":  {page + path, header("Origin", srv.URL), 200},
			"localhost":           {page + path, header("Host", "localhost:80"), 200},
			"another site":        {page + path, header("Sec-Fetch-Site", "cross-site"), 403},
			"another port":        {page + path, header("Sec-Fetch-Site", "same-site"), 403},
			"another origin":      {page + path, header("Origin", "http://evil.example"), 403},
			"a frame":             {page + path, header("Origin", "null"), 403},
			"DNS rebinding":       {page + path, header("Host", "evil.example"), 403},
			"rebound, same port":  {page + path, header("Host", "evil.example:"+port), 403},
			"without the secret":  {srv.URL + "/" + path, nil, 404},
			"with another secret": {srv.URL + "/secres/" + path, nil, 404},
		} {
			if status, text := send(t, method, c.url, body, c.change); status != c.want {
				t.Errorf("%s asks for %q: %d %.80q, expected %d", what, path, status, text, c.want)
			}
		}
	}
	link := header("Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document")
	if status, _ := send(t, http.MethodGet, page, "", link); status != 200 {
		t.Errorf("a link to the page: %d", status)
	}
	frame := header("Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe")
	for _, path := range []string{"", "api/start"} {
		if status, _ := send(t, http.MethodGet, page+path, "", frame); status != 403 {
			t.Errorf("a frame of %q: %d", path, status)
		}
	}
	if status, _ := send(t, http.MethodGet, page+"api/start", "", link); status != 403 {
		t.Errorf("a link to data: %d", status)
	}
	res, err := http.Get(page)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if h := res.Header; h.Get("Access-Control-Allow-Origin") != "" ||
		!strings.HasPrefix(h.Get("Content-Security-Policy"), "default-src 'none'") ||
		h.Get("Referrer-Policy") != "no-referrer" {
		t.Errorf("%v", h)
	}
}

// TestWrongRequests: what is no query is refused.
func TestWrongRequests(t *testing.T) {
	srv, bytesOf := newServer(t, web.Config{}), header("Content-Type", "application/octet-stream")
	form := header("Content-Type", "application/x-www-form-urlencoded")
	for what, c := range map[string]struct {
		method, path, body string
		change             func(*http.Request)
		want               int
		says               string
	}{
		"no JSON":       {"POST", "api/run", "{", nil, 400, "the query"},
		"other fields":  {"POST", "api/run", `{"sql":""}`, nil, 400, "sql"},
		"a form":        {"POST", "api/run", "a=b", form, 415, "application/json"},
		"text":          {"POST", "api/run", oneRun, header("Content-Type", "text/plain"), 415, "application/json"},
		"too long":      {"POST", "api/run", `{"slo":"` + strings.Repeat("x", 2<<20) + `"}`, nil, 400, "too large"},
		"a GET":         {"GET", "api/run", "", nil, 404, ""},
		"no uploads":    {"POST", "api/log?name=x", "a", bytesOf, 404, "no uploads"},
		"no replay":     {"GET", "api/replay?run=x", "", nil, 404, "no replay"},
		"unknown page":  {"GET", "nowhere", "", nil, 404, ""},
		"outside":       {"GET", "../../etc/passwd", "", nil, 404, ""},
		"wrong setting": {"POST", "api/run", `{"policies":["x"]}`, nil, 200, `"key":"policy.0"`},
	} {
		if status, text := send(t, c.method, srv.URL+"/secret/"+c.path, c.body, c.change); status != c.want ||
			!strings.Contains(text, c.says) {
			t.Errorf("%s: %d %.200q, expected %d %q", what, status, text, c.want, c.says)
		}
	}
}

// TestRunEndsWithRequest: when the browser gives a run up, the run ends.
func TestRunEndsWithRequest(t *testing.T) {
	ended := make(chan error, 1)
	x := explore.New(explore.Limits{}, trace.Files{})
	page := web.New(web.Config{Explorer: x, Token: "secret"})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page.ServeHTTP(w, r)
		ended <- r.Context().Err()
	}))
	defer srv.Close()
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL+"/secret/api/run", strings.NewReader(
		`{"settings":{"workload.num_prompts":"150000"},"policies":["static","p2c"],"slo":"ttft:500","seeds":"30"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	line := make([]byte, 10)
	if _, err := io.ReadFull(res.Body, line); err != nil || string(line) != `{"kind":"c` {
		t.Fatalf("%q, %v", line, err)
	}
	cancel()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v: the run was over before it was given up", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("still running a minute later")
	}
}

// TestUpload: a log is kept under its own name. A log that is too long or refused gets an error.
func TestUpload(t *testing.T) {
	var name, content string
	srv := newServer(t, web.Config{Keep: func(n string, r io.Reader) (string, error) {
		data, err := io.ReadAll(r)
		if name, content = n, string(data); n == "refused" {
			err = errors.New("the disk is full")
		}
		return "/kept/" + n, err
	}})
	bytesOf := header("Content-Type", "application/octet-stream")
	for sent, kept := range map[string]string{"a.csv": "a.csv", "..%2F..%2Fb.csv": "b.csv", "C%3A%5Cc.csv": "c.csv"} {
		status, text := send(t, "POST", srv.URL+"/secret/api/log?name="+sent, "1,2", bytesOf)
		var answer struct{ Path string }
		if err := json.Unmarshal([]byte(text), &answer); err != nil || status != 200 || name != kept ||
			content != "1,2" || answer.Path != "/kept/"+kept {
			t.Errorf("%s: %d %s, kept %q as %q (%v)", sent, status, text, content, name, err)
		}
	}
	if status, text := send(t, "POST", srv.URL+"/secret/api/log?name=refused", "", bytesOf); status != 400 ||
		!strings.Contains(text, "disk is full") {
		t.Errorf("%d %s", status, text)
	}
	if status, _ := send(t, "POST", srv.URL+"/secret/api/log?name=a", "", nil); status != 415 {
		t.Errorf("as JSON: %d", status)
	}
}

// TestReplay: a run that is shown can be replayed, by its ID.
func TestReplay(t *testing.T) {
	srv := newServer(t, web.Config{Replay: func(_ context.Context, sc *scenario.Scenario) (json.RawMessage, error) {
		return json.Marshal(map[string]any{"policy": sc.Routing.Policy, "requests": sc.Workload.NumPrompts.Value})
	}})
	status, text := send(t, "POST", srv.URL+"/secret/api/run", oneRun, nil)
	id := ""
	for line := range bytes.Lines([]byte(text)) {
		var e struct {
			Kind string
			Data json.RawMessage
		}
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(err)
		}
		var runs []explore.Run
		if e.Kind == explore.KindRuns && json.Unmarshal(e.Data, &runs) == nil {
			id = runs[0].ID
		}
	}
	if status != 200 || id == "" {
		t.Fatalf("%d %s", status, text)
	}
	if status, text := send(t, "GET", srv.URL+"/secret/api/replay?run="+id, "", nil); status != 200 ||
		text != `{"policy":"static","requests":50}` {
		t.Errorf("%d %s", status, text)
	}
	if status, text := send(t, "GET", srv.URL+"/secret/api/replay?run=x", "", nil); status != 404 ||
		!strings.Contains(text, "too long ago") {
		t.Errorf("%d %s", status, text)
	}
}
