package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"lorasim/bench/serving/bearer"
)

// recorder is a worker that notes what reaches it.
type recorder struct {
	mu  sync.Mutex
	got []string // METHOD URI
	req *http.Request
}

func (w *recorder) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.got, w.req = append(w.got, r.Method+" "+r.RequestURI), r.Clone(r.Context())
	io.WriteString(rw, "from the worker")
}

// take returns what has reached the worker since the last call.
func (w *recorder) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	got := w.got
	w.got = nil
	return got
}

// raw sends the bytes of one request and returns the status of the answer.
func raw(t *testing.T, s *httptest.Server, text string) (status int, body string) {
	t.Helper()
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, text)
	method, _, _ := strings.Cut(text, " ")
	resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	defer resp.Body.Close()
	data, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(data)
}

// direct gives a handler one request as it is written, and returns the status: 400
// if net/http would refuse it.
func direct(h http.Handler, text string) int {
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
	if err != nil {
		return http.StatusBadRequest
	}
	rw := httptest.NewRecorder()
	h.ServeHTTP(rw, r)
	return rw.Code
}

// request is a request with a small JSON body, whose target is sent as it is written.
func request(method, target string, headers ...string) string {
	lines := append([]string{method + " " + target + " HTTP/1.1", "Host: gateway", "Connection: close",
		"Content-Type: application/json", "Content-Length: 2"}, headers...)
	return strings.Join(lines, "\r\n") + "\r\n\r\n{}"
}

// spellings are other ways to write a path that some server might take for it.
func spellings(path string) []string {
	rest := path[1:]
	return []string{"//" + rest, "/./" + rest, "/x/../" + rest, "/%2e/" + rest, "/x/%2e%2e/" + rest, "/%2F" + rest,
		"/%2f" + rest,
		fmt.Sprintf("/%%%02x%s", rest[0], rest[1:]), fmt.Sprintf("/%%25%02x%s", rest[0], rest[1:]), path + "/",
		path + "//", path + "/.", path + ";x", path + ";x=1", path + "%00", path + "%20", path + "%3Fx",
		strings.ToUpper(path), `/\` + rest, "/v1/completions/../.." + path, "/v1/completions" + path, "/generate;" +
			path, "/v1/models/.." + path, "/health/.." + path}
}

// The routes of both engines: what is marked for clients passes, and nothing else
// does, however it is written.
func TestRoutesOfEngines(t *testing.T) {
	w := &recorder{}
	gateway := startScripted(t, 0, w.ServeHTTP)
	s := gateway.clientsOnly(t)
	for _, file := range []string{"testdata/routes-sglang.txt", "testdata/routes-vllm.txt"} {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		checked := 0
		for line := range strings.Lines(string(data)) {
			var verdict, method, path string
			if n, _ := fmt.Sscan(line, &verdict, &method, &path); n < 3 || verdict == "#" {
				continue
			}
			if method == "WEBSOCKET" || method == "MOUNT" {
				method = "GET"
			}
			path = wildcardOf(path)
			status, _ := raw(t, s, request(method, path+"?q=1"))
			got := w.take()
			switch checked++; verdict {
			case "allow":
				if status != 200 || !slices.Equal(got, []string{method + " " + path + "?q=1"}) {
					t.Errorf("%s %s: %d, the worker got %q", method, path, status, got)
				}
				for _, other := range append(spellings(path), path+"x", path+".json") {
					if status := direct(gateway.g, request(method, other)); status != 404 && status != 405 &&
						status != 400 {
						t.Errorf("%s %s: %d, expected 404 or 405", method, other, status)
					}
				}
			case "own":
				if status == 405 || len(got) > 0 {
					t.Errorf("%s %s: %d, the worker got %q", method, path, status, got)
				}
			case "deny":
				if status != 404 && status != 405 || len(got) > 0 {
					t.Errorf("%s %s: %d, expected 404 or 405; the worker got %q", method, path, status, got)
				}
				if path == "/" {
					break
				}
				for _, other := range spellings(path) {
					if status := direct(gateway.g, request(method, other)); status != 404 && status != 405 &&
						status != 400 {
						t.Errorf("%s %s: %d, expected 404 or 405", method, other, status)
					}
				}
			default:
				t.Errorf("%s: %q, expected allow, own or deny", file, line)
			}
			if got := w.take(); len(got) > 0 {
				t.Errorf("other spellings of %s %s: the worker got %q", method, path, got)
			}
		}
		if checked < 80 {
			t.Errorf("%s: %d routes, expected about a hundred", file, checked)
		}
	}
}

func wildcardOf(path string) string { // FastAPI has {name:path}
	return wildcard.ReplaceAllString(strings.NewReplacer(":path}", "}").Replace(path), "x")
}

// Methods, headers and forms of a request that might name another path or host than
// the one that was checked.
func TestTricks(t *testing.T) {
	w := &recorder{}
	s := startScripted(t, 0, w.ServeHTTP).clientsOnly(t)
	host := strings.TrimPrefix(s.URL, "http://")
	for _, c := range []struct {
		text   string
		status int
		want   string // what the worker gets
	}{
		{request("POST", "http://evil.example/v1/completions"), 200, "POST /v1/completions"},
		{request("POST", "http://evil.example/flush_cache"), 404, ""},
		{request("POST", "http://evil.example"), 404, ""},
		{request("CONNECT", host), 404, ""}, {request("CONNECT", "/v1/completions"), 405, ""},
		{request("OPTIONS", "*"), 200, ""}, {request("OPTIONS", "/v1/completions"), 405, ""},
		{request("TRACE", "/v1/completions"), 405, ""},
		{request("GET", "/v1/completions"), 405, ""}, {request("post", "/v1/completions"), 405, ""},
		{request("PUT", "/generate"), 405, ""},
		{request("HEAD", "/version"), 200, "HEAD /version"}, {request("POST", "/version"), 405, ""},
		{request("POST", "/health"), 405, ""}, {request("HEAD", "/health"), 200, ""},
		{request("GET", "/health/"), 404, ""},
		{request("POST", "/v1/completions", "X-HTTP-Method-Override: DELETE", "X-Original-URL: /flush_cache",
			"X-Rewrite-URL: /flush_cache"), 200, "POST /v1/completions"},
		{request("POST", "/v1/completions?x=/../flush_cache#/flush_cache"), 200,
			"POST /v1/completions?x=/../flush_cache#/flush_cache"},
		{request("POST", "/v1/completions", "Upgrade: websocket"), 200, "POST /v1/completions"},
		{request("GET", "/v1/realtime", "Upgrade: websocket"), 404, ""},
		{request("POST", "/v1/completions", "Content-Encoding: gzip"), 415, ""},
		{request("POST", "/v1/completions", "Content-Encoding: identity"), 200, "POST /v1/completions"},
		{request("GET", "/admin/workers/"), 404, ""}, {request("GET", "/v1/models/a"), 200, ""},
		{request("GET", "/v1/models/..%2f..%2fserver_info"), 404, ""},
	} {
		status, text := raw(t, s, c.text)
		got := w.take()
		if status != c.status || strings.Join(got, ", ") != c.want {
			t.Errorf("%.60q: %d %s, the worker got %q; expected %d, %q", c.text, status, text, got, c.status, c.want)
		}
		if status == 200 && c.want != "" {
			for name := range w.req.Header {
				if instructions.MatchString(name) || name == "Upgrade" {
					t.Errorf("%.60q: the worker got the header %s", c.text, name)
				}
			}
			if strings.Contains(w.req.Host, "evil") {
				t.Errorf("%.60q: the worker got Host %s", c.text, w.req.Host)
			}
		}
	}
}

func TestDropInstructions(t *testing.T) {
	h := http.Header{}
	for _, name := range []string{"x-override-rid", "X-AMZN-SAGEMAKER-SESSION-ID",
		"X-Amzn-SageMaker-Adapter-Identifier", "x-method-override", "X-HTTP-Method", "X-Original-URI"} {
		h.Set(name, "1")
	}
	h.Set("X-Request-Id", "kept")
	if dropInstructions(h); len(h) != 1 || h.Get("X-Request-Id") != "kept" {
		t.Errorf("left: %v", h)
	}
}

func TestParseAllow(t *testing.T) {
	for _, c := range []struct{ text, want, err string }{
		{"/v1/images/generations", "[GET POST] /v1/images/generations", ""},
		{"DELETE /v1/responses/{response_id}", "[DELETE] /v1/responses/{response_id}", ""},
		{"/metrics", "[GET] /metrics", ""}, {"GET /metrics", "[GET] /metrics", ""},
		{"/flush_cache", "[GET POST] /flush_cache", ""}, {"/v1/a:b/c.d-e_f~g@h", "[GET POST] /v1/a:b/c.d-e_f~g@h",
			""},
		{"", "", "expected [METHOD ]PATH"}, {"v1", "", "expected [METHOD ]PATH"}, {"/", "", "expected [METHOD ]PATH"},
		{"/a/", "", "no trailing /"}, {"/a//b", "", "no //"}, {"//a", "", "no //"},
		{"/a/../b", "", "expected"}, {"/./a", "", "expected"}, {"/a/.", "", "expected"}, {"/.a", "", "expected"},
		{"/a%2Fb", "", "no %"}, {"/a?b=c", "", "no query"}, {"/a;b", "", "expected"}, {`/a\b`, "", "expected"},
		{"/a/*", "", "expected"}, {"/a b", "", `method "/a"`},
		{"TRACE /a", "", `method "TRACE", expected one of GET, POST`}, {"get /a", "", `method "get"`},
		{"GET  /a", "", "expected"}, {"/a/{}", "", "expected"},
		{"/{X}", "", "expected"}, {"/a\n", "", "expected"}, {"/admin/workers", "", "only on the admin listener"},
		{"/admin", "", "only on the admin listener"}, {"/health", "", "itself"}, {"POST /v1/models", "", "itself"},
		{"/load_lora_adapter", "", "POST /admin/load"}, {"POST /v1/unload_lora_adapter", "", "POST /admin/load"},
		{"DELETE /adapters/{name}", "", "POST /admin/load"}, {"POST /metrics", "", "takes GET"},
	} {
		methods, path, err := ParseAllow(c.text)
		if got := fmt.Sprint(methods, " ", path); err == nil && got != c.want || (err == nil) != (c.err == "") ||
			err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%q: %s, %v; expected %s %s", c.text, got, err, c.want, c.err)
		}
	}
	f := startScripted(t, 0, status(200, "")).fleet
	if _, err := New(Config{Fleet: f, Allow: []string{"x"}}); err == nil {
		t.Error("no error for a wrong path")
	}
}

// What an operator allows passes, with its methods and no others, and segments in
// braces stand for one segment each.
func TestAllow(t *testing.T) {
	w := &recorder{}
	s := startScriptedWith(t, 0, func(c *Config) {
		c.Allow = []string{"/new", "PUT /generate", "GET /v1/responses/{id}", "POST /v1/responses/{id}/cancel",
			"/metrics"}
	}, w.ServeHTTP)
	for _, c := range []struct {
		method, path string
		status       int
		want         string
	}{
		{"POST", "/new", 200, "POST /new"}, {"GET", "/new", 200, "GET /new"}, {"PUT", "/new", 405, ""},
		{"PUT", "/generate", 200, "PUT /generate"}, {"POST", "/generate", 200, "POST /generate"},
		{"GET", "/v1/responses/resp_1-a.b", 200, "GET /v1/responses/resp_1-a.b"},
		{"DELETE", "/v1/responses/r", 405, ""},
		{"POST", "/v1/responses/r/cancel", 200, "POST /v1/responses/r/cancel"},
		{"GET", "/v1/responses/", 404, ""}, {"GET", "/v1/responses/..", 404, ""}, {"GET", "/v1/responses/.", 404, ""},
		{"GET", "/v1/responses/.x", 404, ""}, {"GET", "/v1/responses/a/b", 404, ""},
		{"GET", "/v1/responses/a%2Fb", 404, ""},
		{"GET", "/v1/responses/a;b", 404, ""}, {"POST", "/v1/responses/../cancel", 404, ""},
		{"POST", "/v1/responses/r/cancel/", 404, ""}, {"GET", "/v1/responses/%61", 404, ""},
		{"GET", "/v1/responses/a%0Ab", 404, ""},
	} {
		status, text := raw(t, s.Server, request(c.method, c.path))
		if got := strings.Join(w.take(), ", "); status != c.status || got != c.want {
			t.Errorf("%s %s: %d %s, the worker got %q; expected %d, %q", c.method, c.path, status, text, got, c.status,
				c.want)
		}
	}
}

// Without the key only GET /health is answered, and keys of clients are not for workers.
func TestClientKeys(t *testing.T) {
	w := &recorder{}
	s := startScriptedWith(t, 0, func(c *Config) { c.Keys = bearer.New("old", "new") }, w.ServeHTTP)
	for _, c := range []struct {
		method, path, header string
		status               int
	}{
		{"GET", "/health", "", 200}, {"HEAD", "/health", "", 200}, {"POST", "/health", "", 401},
		{"GET", "/%68ealth", "", 401}, {"GET", "//health", "", 401}, {"GET", "/health/", "", 401},
		{"GET", "/health_generate", "", 401}, {"GET", "/v1/models", "", 401}, {"POST", "/v1/completions", "", 401},
		{"POST", "/nothing", "", 401}, {"OPTIONS", "/v1/completions", "", 401},
		{"POST", "/v1/completions", "Authorization: Bearer wrong", 401},
		{"POST", "/v1/completions", "Authorization: Bearer old", 200},
		{"POST", "/v1/completions", "authorization: bearer new", 200},
		{"POST", "/health", "Authorization: Bearer new", 405},
	} {
		headers := []string{}
		if c.header != "" {
			headers = append(headers, c.header)
		}
		status, _ := raw(t, s.Server, request(c.method, c.path, headers...))
		if got := w.take(); status != c.status || (len(got) > 0) != (c.status == 200 && c.method == "POST") {
			t.Errorf("%s %s %q: %d, the worker got %q; expected %d", c.method, c.path, c.header, status, got, c.status)
		}
	}
	if got := w.req.Header.Get("Authorization"); got != "" {
		t.Errorf("the worker got a client's key: %q", got)
	}
}

// The workers' key goes to the workers alone, whatever host a client names and
// wherever a worker redirects to.
func TestWorkersKey(t *testing.T) {
	var other recorder
	elsewhere := httptest.NewServer(&other)
	defer elsewhere.Close()
	w := &recorder{}
	s := startScripted(t, 1, func(rw http.ResponseWriter, r *http.Request) {
		w.ServeHTTP(httptest.NewRecorder(), r)
		http.Redirect(rw, r, elsewhere.URL+"/stolen", http.StatusTemporaryRedirect)
	})
	s.key("Bearer secret")
	for _, text := range []string{
		request("POST", elsewhere.URL+"/v1/completions"),
		request("POST", "/v1/completions", "X-Forwarded-Host: "+elsewhere.Listener.Addr().String()),
		strings.Replace(request("POST", "/v1/completions"), "Host: gateway",
			"Host: "+elsewhere.Listener.Addr().String(), 1),
		request("GET", elsewhere.URL+"/version"), request("POST", "/v1/completions", "Authorization: Bearer mine"),
	} {
		if status, _ := raw(t, s.Server, text); status != http.StatusTemporaryRedirect {
			t.Errorf("%.60q: %d", text, status)
		}
		if got := w.req.Header["Authorization"]; len(w.take()) == 0 || !slices.Equal(got, []string{"Bearer secret"}) {
			t.Errorf("%.60q: the worker got %q", text, got)
		}
	}
	if status, _ := raw(t, s.Server, strings.Replace(request("POST", "/admin/flush_cache"), "Host: gateway",
		"Host: localhost", 1)); status != http.StatusTemporaryRedirect || len(w.take()) != 1 {
		t.Errorf("flush_cache: %d", status)
	}
	if got := other.take(); len(got) > 0 {
		t.Errorf("another host got %q", got)
	}
}

// Errors stay short, whatever a client names.
func TestLongNames(t *testing.T) {
	s := startScripted(t, 0, status(200, ""))
	long := strings.Repeat("n", 1<<20)
	for _, c := range [][2]string{{"/generate", `{"lora_path": "` + long[:1<<19] + `"}`},
		{"/generate", `{"lora_path": "` + strings.Repeat(`\u0001`, 1<<17) + `"}`},
		{"/v1/models/" + long[:1<<15], ""}, {"/" + long[:1<<15], ""}, {"/admin/load", `{"` + long[:1<<19] + `": 1}`},
		{"/admin/unload", `{"worker": 0, "adapter": "` + long[:1<<19] + `"}`}} {
		path, body := c[0], c[1]
		resp, err := s.Client().Post(s.URL+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode/100 != 4 || len(text) > 20_000 {
			t.Errorf("%.20s: %d with %d bytes", path, resp.StatusCode, len(text))
		}
	}
	if log := s.access.Len(); log > 6000 {
		t.Errorf("%d bytes of log for 6 requests", log)
	}
}

// Operators: which hosts, keys, origins and bodies are taken.
func TestAdminGuards(t *testing.T) {
	w := &recorder{}
	s := startScriptedWith(t, 0, func(c *Config) {
		c.Keys, c.AdminKeys, c.AdminHosts = bearer.New("client"), bearer.New("admin"),
			[]string{"Ops.example", "192.0.2.7"}
	}, w.ServeHTTP)
	json, key := "Content-Type: application/json", "Authorization: Bearer admin"
	ask := func(method, path, host string, headers ...string) int {
		lines := append([]string{method + " " + path + " HTTP/1.1", "Host: " + host, "Connection: close"}, headers...)
		body := ""
		if method == "POST" {
			body = `{"worker": 0, "drain": false}`
		}
		status, _ := raw(t, s.Server, strings.Join(append(lines, fmt.Sprint("Content-Length: ", len(body))),
			"\r\n")+"\r\n\r\n"+body)
		return status
	}
	for _, c := range []struct {
		host string
		want int
	}{
		{"localhost", 200}, {"localhost:8001", 200}, {"LOCALHOST.", 200}, {"127.0.0.1", 200}, {"127.9.9.9:1", 200},
		{"[::1]:8001", 200}, {"[::1]", 200}, {"ops.example:9", 200}, {"192.0.2.7", 200},
		{"evil.example", 403}, {"localhost.evil.example", 403}, {"127.0.0.1.evil.example", 403}, {"192.0.2.8", 403},
		{"0.0.0.0", 403}, {"[::]", 403}, {"evil.example:8001", 403}, {"x.ops.example", 403}, {"2130706433", 403},
		{"", 403},
	} {
		if got := ask("GET", "/admin/workers", c.host, key); got != c.want {
			t.Errorf("Host %q: %d, expected %d", c.host, got, c.want)
		}
		if got := ask("GET", "/metrics", c.host, key); got != c.want {
			t.Errorf("metrics, Host %q: %d, expected %d", c.host, got, c.want)
		}
	}
	for _, c := range []struct {
		headers []string
		want    int
	}{
		{[]string{json, key}, 200}, {[]string{"Content-Type: application/json; charset=utf-8", key}, 200},
		{[]string{json}, 401}, {[]string{json, "Authorization: Bearer client"}, 401},
		{[]string{key}, 415}, {[]string{key, "Content-Type: text/plain"}, 415},
		{[]string{key, "Content-Type: application/x-www-form-urlencoded"}, 415},
		{[]string{key, "Content-Type: text/plain; application/json"}, 415},
		{[]string{json, key, "Origin: http://evil.example"}, 403}, {[]string{json, key, "Origin: null"}, 403},
		{[]string{json, key, "Sec-Fetch-Site: cross-site"}, 403}, {[]string{json, key, "Sec-Fetch-Site: same-site"},
			403},
		{[]string{json, key, "Origin: http://localhost"}, 200}, {[]string{json, key, "Sec-Fetch-Site: same-origin"},
			200},
	} {
		if got := ask("POST", "/admin/drain", "localhost", c.headers...); got != c.want {
			t.Errorf("%q: %d, expected %d", c.headers, got, c.want)
		}
	}
	for _, path := range []string{"/admin/nothing", "/admin/../v1/completions", "/admin//workers"} {
		if got := ask("GET", path, "localhost", key); got == 200 {
			t.Errorf("%s: 200", path)
		}
	}
	if got := ask("GET", "/admin/flush_cache", "localhost", key); got != 405 || len(w.take()) > 0 {
		t.Errorf("GET /admin/flush_cache: %d", got)
	}
}
