package gateway

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"lorasim/bench/serving/fleet"
	"lorasim/bench/serving/httpapi"
	"lorasim/internal/testutil"
	"lorasim/router"
)

// panicking panics after the text.
type panicking struct{ text io.Reader }

func (p panicking) Read(b []byte) (int, error) {
	if n, err := p.text.Read(b); err == nil {
		return n, nil
	}
	panic("bytes of a worker")
}

func (p panicking) Close() error { panic("at the end, too") }

// A panic over a worker's answer ends that request alone: with status 502, or cut
// off where its answer has begun. The worker is down, and has no request left.
func TestPanickingAnswer(t *testing.T) {
	for _, c := range []struct {
		name, text string
		inCall     bool
		code       int
		cut        bool
	}{{"before the answer", "", true, 502, false}, {"after a byte", "x", false, 200, true}} {
		bad := "http://bad"
		ask := testutil.RoundTrip(func(r *http.Request) (*http.Response, error) {
			resp := &http.Response{StatusCode: 200, Header: http.Header{}, ContentLength: -1,
				Body: io.NopCloser(strings.NewReader("{}"))}
			if r.URL.Path == "/generate" && "http://"+r.URL.Host == bad {
				if c.inCall {
					panic("bytes of a worker")
				}
				resp.Body = panicking{strings.NewReader(c.text)}
			}
			return resp, nil
		})
		policy := &first{}
		f, err := fleet.New(fleet.Config{Connection: fleet.Connection{URLs: []string{bad, "http://good"},
			API: httpapi.SGLang, Client: &http.Client{Transport: ask}},
			Router: &router.Router{Policy: policy, Placement: make([][]int32, 2)}, Now: func() float64 { return 0 }})
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		var access bytes.Buffer
		g, err := New(Config{Fleet: f, Access: slog.New(slog.NewJSONHandler(&access, nil))})
		if err != nil {
			t.Fatal(err)
		}
		srv := httptest.NewServer(Both(g))
		for i, want := range []int{c.code, 200} {
			resp, err := srv.Client().Post(srv.URL+"/generate", "application/json", strings.NewReader(`{"text":"x"}`))
			if err != nil {
				t.Fatal(err)
			}
			_, err = io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != want || (err != nil) != (c.cut && i == 0) {
				t.Errorf("%s, request %d: status %d, %v", c.name, i, resp.StatusCode, err)
			}
		}
		for i, w := range f.Workers() {
			if w.Up != (i == 1) || w.Running+w.Queued != 0 {
				t.Errorf("%s: %+v", c.name, w)
			}
		}
		resp, err := srv.Client().Get(srv.URL + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if !strings.Contains(string(text), "lorasim_gateway_panics_total 1\n") {
			t.Errorf("%s: %s", c.name, text)
		}
		srv.Close()
		g.Close()
		f.Close()
	}
}
