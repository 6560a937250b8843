package faultworker

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"lorasim/bench/serving/httpapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, cfg Config, rules ...Rule) *Worker {
	t.Helper()
	w, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	if err := w.Listen("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	if err := w.Break(rules...); err != nil {
		t.Fatal(err)
	}
	return w
}

// ask sends a request on a connection of its own, and returns what came of the reply.
func ask(t *testing.T, w *Worker, path, body string) (status int, text string, err error) {
	t.Helper()
	return askFor(t, long, long, w, path, body)
}

// Waits for what comes, and for what never comes.
const long, brief = 30 * time.Second, 500 * time.Millisecond

// askFor limits the waits for the header and for the rest of the reply.
func askFor(t *testing.T, header, rest time.Duration, w *Worker, path, body string) (status int, text string,
	err error) {
	t.Helper()
	tr := &http.Transport{MaxResponseHeaderBytes: 1 << 16}
	defer tr.CloseIdleConnections()
	c := http.Client{Transport: tr,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	timer := time.AfterFunc(header, cancel)
	defer timer.Stop()
	resp, err := c.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	timer.Reset(rest)
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return resp.StatusCode, string(b), err
}

const order = `{"rid": "r1", "text": "x", "sampling_params": {"max_new_tokens": 3}, "stream": true}`

func TestFaults(t *testing.T) {
	for _, c := range []struct {
		rule     Rule
		status   int
		text     string // that the reply has
		err      string // of the client; "": none
		executed int
		aborted  int
	}{
		{Rule{}, 200, `"output_ids":[3]`, "", 1, 0},
		{Rule{Do: Cut, Tokens: 1}, 200, `"output_ids":[1]`, "unexpected EOF", 1, 0},
		{Rule{Do: Reset, Tokens: 2}, 200, "", "reset", 1, 0},
		{Rule{Do: ResetFirst}, 0, "", "reset", 0, 0},
		{Rule{Do: Drop}, 0, "", "EOF", 1, 0},
		{Rule{Do: Hang}, 0, "", "canceled", 0, 0},
		{Rule{Do: Stall}, 200, "", "canceled", 1, 1},
		{Rule{Do: Trickle, After: 200 * time.Microsecond}, 200, `"output_ids":[3]`, "", 1, 0},
		{Rule{Do: Garbage}, 200, "<<<", "", 1, 0},
		{Rule{Do: NotHTTP}, 0, "", "malformed", 1, 0},
		{Rule{Do: Counts, Number: 4e9}, 200, `"completion_tokens":4000000000`, "", 1, 0},
		{Rule{Do: Answer, Status: 503, Text: "busy"}, 503, "busy", "", 0, 0},
		{Rule{Do: Endless}, 200, "a 1\n", "", 0, 0},
		{Rule{Do: EndlessHead}, 0, "", "exceeded", 0, 0},
		{Rule{Do: Endless1xx}, 0, "", "exceeded", 0, 0},
		{Rule{Do: TooShort}, 200, `"output_ids":[3]`, "unexpected EOF", 1, 0},
		{Rule{Do: TooLong}, 200, "[DONE]", "", 1, 0},
		{Rule{Do: Second, After: time.Millisecond}, 200, "[DONE]", "", 1, 0},
		{Rule{Do: Redirect, Text: "http://other.invalid/"}, 307, "", "", 0, 0},
		{Rule{Do: Crash}, 0, "", "EOF reset", 1, 0},
		{Rule{Do: Slow, After: time.Millisecond}, 200, "[DONE]", "", 1, 0},
	} {
		t.Run(string(c.rule.Do), func(t *testing.T) {
			t.Parallel()
			w := start(t, Config{}, c.rule)
			header, rest := long, long
			switch c.rule.Do {
			case Hang:
				header = brief
			case Stall:
				rest = brief
			}
			status, text, err := askFor(t, header, rest, w, "/generate", order)
			if status != c.status || !strings.Contains(text, c.text) {
				t.Errorf("status %d, %q; expected %d with %q", status, text, c.status, c.text)
			}
			if (err == nil) != (c.err == "") {
				t.Errorf("error %v, expected %q", err, c.err)
			} else if err != nil {
				found := false
				for _, word := range strings.Fields(strings.Replace(c.err, "unexpected EOF", "unexpected", 1)) {
					found = found || strings.Contains(err.Error(), word)
				}
				if !found {
					t.Errorf("error %v, expected %q", err, c.err)
				}
			}
			for end := time.Now().Add(5 * time.Second); w.Book().Of("r1").Aborted < c.aborted &&
				time.Now().Before(end); {
				time.Sleep(time.Millisecond) // until the worker has seen that the client hung up
			}
			w.Close()
			if n := w.Book().Of("r1"); n.Executed != c.executed || n.Aborted != c.aborted {
				t.Errorf("%+v, expected %d executed, %d aborted", n, c.executed, c.aborted)
			}
		})
	}
	if len(faults) != 20 {
		t.Errorf("%d faults: the table has 20", len(faults))
	}
}

// A connection serves several requests; a second reply comes before that to the next request, with another id.
func TestSecondReply(t *testing.T) {
	w := start(t, Config{}, Rule{On: Generate, Do: Second, After: time.Millisecond})
	c, err := net.Dial("tcp", strings.TrimPrefix(w.URL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	in := bufio.NewReader(c)
	for _, want := range []string{"r1", "late-r1"} { // the reply to r2 comes after both
		if want == "r1" {
			for _, id := range []string{"r1", "r2"} {
				body := fmt.Sprintf(`{"rid": %q, "text": "x"}`, id)
				fmt.Fprintf(c, "POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
			}
		}
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		if id := resp.Header.Get("X-Request-Id"); id != want || err != nil || !bytes.Contains(b, []byte(want)) {
			t.Errorf("id %s, %s, %v; expected %s", id, b, err, want)
		}
	}
}

// A share of requests, or marked ones, go wrong.
func TestRules(t *testing.T) {
	w := start(t, Config{}, Rule{On: Generate, Mark: "poison", Do: Answer, Status: 500},
		Rule{On: Generate, Share: 0.3, Do: Answer, Status: 503})
	count := map[int]int{}
	for range 20 {
		status, _, _ := ask(t, w, "/generate", `{"text": "x"}`)
		count[status]++
	}
	if count[503] != 6 || count[200] != 14 {
		t.Errorf("status codes %v, expected 6 of 20 with 503", count)
	}
	if status, _, _ := ask(t, w, "/generate", `{"text": "poison"}`); status != 500 {
		t.Errorf("status %d of a marked request", status)
	}
	if status, _, _ := ask(t, w, "/health", ""); status != 200 {
		t.Errorf("status %d of /health", status)
	}
	if err := w.Break(Rule{Do: "nonsense"}); err == nil {
		t.Error("an unknown fault was accepted")
	}
}

// A frozen worker takes connections and says nothing; a stopped one refuses them; both come back.
func TestFreezeAndStop(t *testing.T) {
	w := start(t, Config{Adapters: []string{"a"}})
	w.Freeze()
	if _, _, err := askFor(t, brief, brief, w, "/health", ""); err == nil ||
		!strings.Contains(err.Error(), "canceled") {
		t.Errorf("a frozen worker: %v", err)
	}
	w.Thaw()
	if status, _, err := ask(t, w, "/health", ""); status != 200 {
		t.Errorf("a worker that goes on: %v", err)
	}
	ask(t, w, "/load_lora_adapter", `{"lora_name": "b", "lora_path": "b"}`)
	w.Stop()
	if _, _, err := ask(t, w, "/health", ""); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("a stopped worker: %v", err)
	}
	if err := w.Restart(); err != nil {
		t.Fatal(err)
	}
	if held := w.Held(); len(held) != 1 {
		t.Errorf("a restarted worker holds %v", held)
	}
}

// Adapters are loaded and unloaded in both interfaces; there is a limit of places; unknown adapters are refused.
func TestAdapters(t *testing.T) {
	for _, api := range []httpapi.Kind{httpapi.SGLang, httpapi.VLLM} {
		w := start(t, Config{API: api, Adapters: []string{"a"}, Places: 2})
		prefix, path, body := "", "/generate", `{"text": "x", "lora_path": "%s"}`
		if api == httpapi.VLLM {
			prefix, path, body = "/v1", "/v1/completions", `{"prompt": "x", "model": "%s"}`
		}
		for _, step := range []struct {
			path, body string
			status     int
			text       string
		}{
			{path, fmt.Sprintf(body, "a"), 200, "t16"},
			{path, fmt.Sprintf(body, "b"), 400, "b"},
			{prefix + "/load_lora_adapter", `{"lora_name": "b"}`, 200, ""},
			{prefix + "/load_lora_adapter", `{"lora_name": "b"}`, 400, "already"},
			{prefix + "/load_lora_adapter", `{"lora_name": "c"}`, 400, "2 of at most 2"},
			{path, fmt.Sprintf(body, "b"), 200, "t16"},
			{prefix + "/unload_lora_adapter", `{"lora_name": "a"}`, 200, ""},
			{prefix + "/unload_lora_adapter", `{"lora_name": "a"}`, 400, "not loaded"},
		} {
			status, text, err := ask(t, w, step.path, step.body)
			if api == httpapi.VLLM && step.path == path && step.status == 400 {
				step.status = 404
			}
			if err != nil || status != step.status || !strings.Contains(text, step.text) {
				t.Errorf("%s: %s %s: %d %s, %v; expected %d %q", api, step.path, step.body, status, text, err,
					step.status, step.text)
			}
		}
	}
}

// Another server hands its connections over; events of another process can be read.
func TestHandler(t *testing.T) {
	var lines bytes.Buffer
	w, err := New(Config{Book: NewEcho(&lines)})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(w)
	defer srv.Close()
	defer w.Close()
	for range 2 {
		resp, err := srv.Client().Post(srv.URL+"/v1/chat/completions", "application/json",
			strings.NewReader(`{"model": "base", "stream": true, "rid": "q", "stream_options": {"include_usage": true}}`))
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || !strings.Contains(string(b), `"completion_tokens":16`) ||
			!strings.Contains(string(b), `"content":" t16"`) {
			t.Errorf("%s, %v", b, err)
		}
	}
	w.Close() // nothing writes any more
	var book Book
	if err := book.Read(&lines); err != nil {
		t.Fatal(err)
	}
	if got, want := book.Totals(), (Totals{Requests: 1, Twice: 1, Most: 2,
		Count: Count{Executed: 2, Completed: 2}}); got != want {
		t.Errorf("%+v, expected %+v", got, want)
	}
}
