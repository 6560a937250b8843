package gateway

import (
	"encoding/json"
	"math"
	"net/http"
	"strings"
	"testing"

	"lorasim/bench/live/fleet"
	"lorasim/router"
	"lorasim/trace"
)

func read(t *testing.T, path, body string) *want {
	t.Helper()
	q := &want{body: []byte(body), openAI: path != "/generate"}
	if err := json.Unmarshal(q.body, &q.fields); err != nil {
		t.Fatal(err)
	}
	return q
}

func TestPromptTokens(t *testing.T) {
	for _, c := range []struct {
		body string
		want int32
	}{
		{`{}`, 1}, {`{"prompt": ""}`, 1}, {`{"prompt": "0123456789"}`, 3}, // 12 bytes with the quotes
		{`{"prompt": [1,2,3]}`, 3}, {`{"input_ids": [7]}`, 1}, {`{"input_ids": [7,8]}`, 2}, {`{"text": "01234567890123"}`, 4},
		{`{"messages": [{"content": "0,1,2,3"}]}`, 6}, // text, not a list of tokens
	} {
		if got := read(t, "/v1/completions", c.body).promptTokens(); got != c.want {
			t.Errorf("%s: %d, expected %d", c.body, got, c.want)
		}
	}
}

func TestBudget(t *testing.T) {
	for body, want := range map[string]int32{
		`{}`: defaultMaxNew, `{"max_tokens": 1}`: 1, `{"max_completion_tokens": 7, "max_tokens": 9}`: 7,
		`{"max_completion_tokens": 0, "max_tokens": 9}`: 9, `{"max_completion_tokens": null, "max_tokens": 9}`: 9,
		`{"max_tokens": 0}`: defaultMaxNew, `{"max_tokens": -3}`: defaultMaxNew, `{"max_tokens": "many"}`: defaultMaxNew,
		`{"sampling_params": {"max_new_tokens": 5}}`: 5, `{"sampling_params": {"max_new_tokens": 0}, "max_tokens": 4}`: 4,
		`{"sampling_params": 5, "max_tokens": 4}`: 4, `{"max_tokens": 4000000000}`: math.MaxInt32 / 4,
	} {
		if got := read(t, "/generate", body).budget(); got != want {
			t.Errorf("%s: %d, expected %d", body, got, want)
		}
	}
}

func TestAdapterName(t *testing.T) {
	for _, c := range []struct{ path, body, want string }{
		{"/generate", `{"lora_path": "a", "model": "b"}`, "a"}, {"/generate", `{"model": "b"}`, ""}, {"/generate", `{"lora_path": null}`, ""},
		{"/v1/completions", `{"model": "base:a", "lora_path": "c"}`, "a"}, {"/v1/completions", `{"model": "base", "lora_path": "c"}`, "c"},
		{"/v1/completions", `{"model": "base"}`, "base"}, {"/v1/completions", `{"model": "base", "lora_path": null}`, "base"}, {"/v1/completions", `{}`, ""},
		{"/generate", `{"lora_path": ["a"]}`, "error: lora_path: expected a string"}, {"/v1/completions", `{"model": 1}`, "error: model: expected a string"},
		{"/v1/completions", `{"model": "a", "lora_path": 1}`, "error: lora_path: expected a string"},
	} {
		got, err := read(t, c.path, c.body).adapterName()
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != c.want {
			t.Errorf("%s %s: %q, expected %q", c.path, c.body, got, c.want)
		}
	}
}

// The model is spelled as the worker's interface does, and everything else is
// left as it came.
func TestBodyFor(t *testing.T) {
	for _, c := range []struct {
		path, body string
		adapter    int32
		api        fleet.API
		want       string
	}{
		{"/v1/completions", `{"model":"a","x":[1, 2]}`, 0, fleet.SGLang, `{"model":"base:a","x":[1,2]}`},
		{"/v1/completions", `{"model":"base:a","x":[1, 2]}`, 0, fleet.SGLang, `{"model":"base:a","x":[1, 2]}`},
		{"/v1/completions", `{"model":"base:a","lora_path":"a"}`, 0, fleet.VLLM, `{"model":"a"}`},
		{"/v1/completions", `{"model":"a","x":[1, 2]}`, 0, fleet.VLLM, `{"model":"a","x":[1, 2]}`},
		{"/v1/completions", `{ "model":"base" }`, trace.BaseModel, fleet.SGLang, `{ "model":"base" }`},
		{"/generate", `{ "lora_path":"a" }`, 0, fleet.SGLang, `{ "lora_path":"a" }`},
	} {
		q := read(t, c.path, c.body)
		q.adapter = c.adapter
		if got := string(q.bodyFor(c.api, "base", "a")); got != c.want {
			t.Errorf("%s for %s: %s, expected %s", c.body, c.api, got, c.want)
		}
	}
}

// Which models are known: adapters, base models that workers tell of, and any
// where none does.
func TestUnderstand(t *testing.T) {
	f, err := fleet.New(fleet.Config{URLs: []string{"u"}, Adapters: []trace.Adapter{{Name: "a"}}, Router: &router.Router{}})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	g := &Gateway{cfg: Config{Fleet: f, URLs: []string{"u"}}}
	for _, c := range []struct {
		path, body string
		status     int
		adapter    int32
		err        string
	}{
		{"/v1/completions", `{"model": "a"}`, 0, 0, ""}, {"/v1/completions", `{"model": "x"}`, 0, trace.BaseModel, ""}, // no worker has told
		{"/generate", `{"lora_path": "a"}`, 0, 0, ""}, {"/generate", `{}`, 0, trace.BaseModel, ""},
		{"/generate", `{"lora_path": "x"}`, http.StatusNotFound, 0, `unknown adapter or model "x"; known: a`},
		{"/generate", `null`, http.StatusBadRequest, 0, "the body is not a JSON object: it is null"},
		{"/generate", `[1]`, http.StatusBadRequest, 0, "the body is not a JSON object: json: "},
		{"/generate", `{"lora_path": 1}`, http.StatusBadRequest, 0, "lora_path: expected a string"},
	} {
		q, status, err := g.understand(c.path, []byte(c.body))
		if status != c.status || (err == nil) != (c.err == "") || err != nil && !strings.HasPrefix(err.Error(), c.err) {
			t.Errorf("%s: %d, %v; expected %d, %q", c.body, status, err, c.status, c.err)
		} else if err == nil && q.adapter != c.adapter {
			t.Errorf("%s: adapter %d", c.body, q.adapter)
		}
	}
}
