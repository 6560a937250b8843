package fleetpage_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"lorasim/bench/serving/bearer"
	"lorasim/bench/serving/fleetpage"
)

// ask sends a request with headers, given as pairs of name and value, and returns status and body.
func ask(t *testing.T, method, url string, headers ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		} else {
			r.Header.Set(headers[i], headers[i+1])
		}
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// serve serves the page of a benchmark, and returns the address of the page.
func serve(t *testing.T, s *fleetpage.Server) string {
	t.Helper()
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	return srv.URL + s.Path()
}

// TestOtherOrigins: only the page itself, and programs that know the secret path, can read anything.
func TestOtherOrigins(t *testing.T) {
	s := fleetpage.NewServer(bearer.Keys{}, []string{"bench.internal"})
	page := serve(t, s)
	s.End("The run has ended", "")
	root := strings.TrimSuffix(page, s.Path())
	port := root[strings.LastIndexByte(root, ':'):]
	for _, path := range []string{"", "fleet.js", "fleet.css", "replay.js", "chart.js", "state", "result"} {
		for what, c := range map[string]struct {
			url     string
			headers []string
			want    int
		}{
			"a program":           {page, nil, 200},
			"the page":            {page, []string{"Sec-Fetch-Site", "same-origin"}, 200},
			"the page by origin":  {page, []string{"Origin", root}, 200},
			"an allowed name":     {page, []string{"Host", "bench.internal"}, 200},
			"another site":        {page, []string{"Sec-Fetch-Site", "cross-site"}, 403},
			"another port":        {page, []string{"Sec-Fetch-Site", "same-site"}, 403},
			"another origin":      {page, []string{"Origin", "http://evil.example"}, 403},
			"a frame":             {page, []string{"Origin", "null"}, 403},
			"DNS rebinding":       {page, []string{"Host", "evil.example"}, 403},
			"rebound, same port":  {page, []string{"Host", "evil.example" + port}, 403},
			"without the secret":  {root + "/", nil, 404},
			"with another secret": {root + "/0" + s.Path()[2:], nil, 404},
		} {
			if status, text := ask(t, http.MethodGet, c.url+path, c.headers...); status != c.want {
				t.Errorf("%s asks for %q: %d %.80q, expected %d", what, path, status, text, c.want)
			}
		}
		for _, method := range []string{http.MethodPost, http.MethodDelete, http.MethodPut} {
			if status, _ := ask(t, method, page+path); status != http.StatusMethodNotAllowed {
				t.Errorf("%s %q: %d, expected 405: the page changes nothing", method, path, status)
			}
		}
	}
	link := []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}
	for path, want := range map[string]int{"": 200, "state": 403} {
		if status, _ := ask(t, http.MethodGet, page+path, link...); status != want {
			t.Errorf("a link to %q: %d, expected %d", path, status, want)
		}
	}
	for _, path := range []string{"load", "drain", "workers", "fleet/fleet.js", "none.js"} {
		if status, _ := ask(t, http.MethodGet, page+path); status != 404 {
			t.Errorf("%q: %d", path, status)
		}
	}
}

// TestKeys: with keys the path is no secret. Files need no key, data does.
func TestKeys(t *testing.T) {
	s := fleetpage.NewServer(bearer.New("sesame"), nil)
	page := serve(t, s)
	s.End("The run has ended", "")
	if s.Path() != "/" {
		t.Errorf("the path is %s", s.Path())
	}
	for path, want := range map[string]int{"": 200, "fleet.js": 200, "style.css": 200, "state": 401,
		"result": 401, "nothing": 401} {
		if status, text := ask(t, http.MethodGet, page+path); status != want || want == 401 &&
			!strings.Contains(text, "--ui-key-file") {
			t.Errorf("%q without a key: %d %.100q, expected %d", path, status, text, want)
		}
		if status, _ := ask(t, http.MethodGet, page+path, "Authorization", "Bearer other"); status != want {
			t.Errorf("%q with another key: %d, expected %d", path, status, want)
		}
		if status, _ := ask(t, http.MethodGet, page+path, "Authorization", "Bearer sesame"); status != 200 &&
			path != "nothing" {
			t.Errorf("%q with the key: %d", path, status)
		}
	}
}

// TestHeaders: browsers load nothing from other servers for the page, and show it in no frame.
func TestHeaders(t *testing.T) {
	s := fleetpage.NewServer(bearer.Keys{}, nil)
	page := serve(t, s)
	for _, path := range []string{"", "state", "nothing"} {
		resp, err := http.Get(page + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		h := resp.Header
		if path != "nothing" && (!strings.HasPrefix(h.Get("Content-Security-Policy"), "default-src 'none'") ||
			h.Get("X-Frame-Options") != "DENY" || h.Get("Referrer-Policy") != "no-referrer" ||
			h.Get("X-Content-Type-Options") != "nosniff") || h.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%q: %v", path, h)
		}
	}
}

// TestProgressAndResult: before the run begins the page says so; the result comes at the end, once, and a page that
// waits for it gets it at once.
func TestProgressAndResult(t *testing.T) {
	s := fleetpage.NewServer(bearer.Keys{}, nil)
	page := serve(t, s)
	read := func(text string) (st fleetpage.State) {
		t.Helper()
		if err := json.Unmarshal([]byte(text), &st); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		return st
	}
	_, text := ask(t, http.MethodGet, page+"state")
	if st := read(text); st.Started || st.Run == nil || st.Run.Ended || !strings.Contains(text, `"events":[]`) {
		t.Errorf("before the run: %s", text)
	}
	s.Progress(12, 1, 7, 100, 3.5)
	_, text = ask(t, http.MethodGet, page+"state")
	if r := read(text).Run; *r != (fleetpage.Run{Done: 12, Failed: 1, InFlight: 7, Requests: 100, Now: 3.5}) {
		t.Errorf("during the run: %+v", r)
	}
	got := make(chan string)
	go func() {
		defer close(got)
		_, text := ask(t, http.MethodGet, page+"result")
		got <- text
	}()
	select {
	case text := <-got:
		t.Fatalf("a result before the end: %s", text)
	default:
	}
	s.End("The run has ended", "2000 requests")
	s.End("again", "other")
	want := fleetpage.Run{Done: 12, Failed: 1, Requests: 100, Now: 3.5, Ended: true, Outcome: "The run has ended",
		Result: "2000 requests"}
	if r := read(<-got).Run; *r != want {
		t.Errorf("at the end: %+v, expected %+v", r, want)
	}
}
