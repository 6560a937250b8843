package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"hash/maphash"
	"io"
	"math"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"lorasim/bench/serving/fleet"
	"lorasim/bench/serving/httpapi"
	"lorasim/router"
	"lorasim/trace"
)

const most = 2 * keep // where the search for a model ends, here

// newWant is a request with a body of some length, -1: unknown, and enough memory.
func newWant(openAI bool, length int64) *parsed {
	q := &parsed{openAI: openAI, prompt: 1, maxNew: defaultMaxNew}
	q.length = length
	q.memory, _ = newBodyMemory(8*most, most)
	return q
}

// respelt is what was read of a body as it is sent.
func (q *parsed) respelt(api httpapi.Kind, base, adapter string) []byte {
	return bytes.Join(q.edited(q.respell(api, base, adapter)), nil)
}

func read(t *testing.T, path, body string) *parsed {
	t.Helper()
	q := newWant(path != "/generate", int64(len(body)))
	if err := q.read(t.Context(), httptest.NewRequest("POST", path, strings.NewReader(body)), most); err != nil {
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
		{`{"prompt": [1,2,3]}`, 3}, {`{"input_ids": [7]}`, 1}, {`{"input_ids": [7,8]}`, 2},
		{`{"text": "01234567890123"}`, 4},
		{`{"messages": [{"content": "0,1,2,3"}]}`, 6}, // text, not a list of tokens
		{`{"input": [1,2]}`, 2}, {`[1,2,3]`, 1}, {`not JSON`, 1}, {`{"prompt": `, 1},
	} {
		if got := read(t, "/v1/completions", c.body).prompt; got != c.want {
			t.Errorf("%s: %d, expected %d", c.body, got, c.want)
		}
	}
}

func TestBudget(t *testing.T) {
	for body, want := range map[string]int32{
		`{}`: defaultMaxNew, `{"max_tokens": 1}`: 1, `{"max_completion_tokens": 7, "max_tokens": 9}`: 7,
		`{"max_completion_tokens": 0, "max_tokens": 9}`: 9, `{"max_completion_tokens": null, "max_tokens": 9}`: 9,
		`{"max_tokens": 0}`: defaultMaxNew, `{"max_tokens": -3}`: defaultMaxNew,
		`{"max_tokens": "many"}`:                                      defaultMaxNew,
		`{"sampling_params": {"max_new_tokens": 5}}`:                  5,
		`{"sampling_params": {"max_new_tokens": 0}, "max_tokens": 4}`: 4,
		`{"sampling_params": 5, "max_tokens": 4}`:                     4,
		`{"max_tokens": 4000000000}`:                                  math.MaxInt32 / 4,
		`{"max_output_tokens": 6}`:                                    6,
	} {
		if got := read(t, "/generate", body).maxNew; got != want {
			t.Errorf("%s: %d, expected %d", body, got, want)
		}
	}
}

func TestNames(t *testing.T) {
	for _, c := range []struct{ path, body, want string }{
		{"/generate", `{"lora_path": "a", "model": "b"}`, "a"}, {"/generate", `{"model": "b"}`, ""},
		{"/generate", `{"lora_path": null}`, ""},
		{"/v1/completions", `{"model": "base:a", "lora_path": "c"}`, "base:a"},
		{"/v1/completions", `{"model": "base", "lora_path": "c"}`, "c"},
		{"/v1/completions", `{"model": "base"}`, "base"}, {"/v1/completions", `{"model": "base", "lora_path": null}`,
			"base"}, {"/v1/completions", `{}`, ""},
		{"/generate", `{"lora_path": ["a", null, "b"]}`, "a b"}, {"/generate", `{"lora_path": 3}`, ""},
		{"/v1/completions", `{"model": 1}`, ""},
		{"/v1/completions", `{"prompt": {"model": "inner"}, "model": "x" `, "x"},
		{"/v1/completions", `{"mo\u0064el":"x"}`, "x"},
		{"/v1/completions", `{"p":"\\\"}","q":[{"r":"]"}],"s":-1.5e3,"t":true , "model":"x"}`, "x"},
		{"/v1/completions", `["model"]`, ""},
	} {
		if got := strings.Join(read(t, c.path, c.body).names, " "); got != c.want {
			t.Errorf("%s %s: %q, expected %q", c.path, c.body, got, c.want)
		}
	}
}

// The model is spelled as the worker's interface does, and every other byte is
// left as it came.
func TestRespelt(t *testing.T) {
	for _, c := range []struct {
		path, body string
		adapter    int32
		api        httpapi.Kind
		want       string
	}{
		{"/v1/completions", `{"x":[1, 2], "model" :"a" }`, 0, httpapi.SGLang, `{"x":[1, 2], "model" :"base:a" }`},
		{"/v1/completions", `{"model":"base:a","x":[1, 2]}`, 0, httpapi.SGLang, `{"model":"base:a","x":[1, 2]}`},
		{"/v1/completions", `{"model":"base:a","lora_path":"a"}`, 0, httpapi.VLLM, `{"model":"a","lora_path":"a"}`},
		{"/v1/completions", ` { "lora_path":"a"}`, 0, httpapi.VLLM, ` {"model":"a", "lora_path":"a"}`},
		{"/v1/completions", `{"model":"a","x":[1, 2]}`, 0, httpapi.VLLM, `{"model":"a","x":[1, 2]}`},
		{"/v1/completions", `{ "model":"base" }`, trace.BaseModel, httpapi.SGLang, `{ "model":"base" }`},
		{"/generate", `{ "lora_path":"a" }`, 0, httpapi.SGLang, `{ "lora_path":"a" }`},
	} {
		q := read(t, c.path, c.body)
		q.adapter = c.adapter
		if got := string(q.respelt(c.api, "base", "a")); got != c.want {
			t.Errorf("%s for %s: %s, expected %s", c.body, c.api, got, c.want)
		}
	}
}

// Of a long body as much is read as it takes to find the model; the rest is sent
// as it comes, once.
func TestLongBody(t *testing.T) {
	pad := strings.Repeat("x", keep)
	for _, c := range []struct {
		name, body string
		before     int // bytes that are read at least, and not twice as many
		rest       bool
	}{
		{"model first", `{"model": "a", "prompt": "` + pad + `"}`, keep, true},
		{"model later", `{"prompt": "` + pad + `", "model": "a", "more": "` + pad + pad + `"}`, keep, true},
		{"short", `{"prompt": "", "model": "a"}`, 28, false},
	} {
		for _, known := range []bool{true, false} {
			r := httptest.NewRequest("POST", "/v1/completions", strings.NewReader(c.body))
			q := newWant(true, int64(len(c.body)))
			if !known {
				r.ContentLength, q.length = -1, -1
			}
			if err := q.read(t.Context(), r, most); err != nil || len(q.names) != 1 || q.names[0] != "a" {
				t.Fatalf("%s: %q, %v", c.name, q.names, err)
			}
			if n := len(q.data); n < c.before || n > 2*c.before || (q.rest != nil) != c.rest {
				t.Errorf("%s: %d bytes were read", c.name, n)
			}
			q.adapter = 0
			out := httptest.NewRequest("POST", "/", nil)
			q.send(out, q.respell(httpapi.SGLang, "base", "a"))
			text, err := io.ReadAll(out.Body)
			if want := strings.Replace(c.body, `"a"`, `"base:a"`, 1); err != nil || string(text) != want {
				t.Errorf("%s: %d bytes were sent, %v; expected %d", c.name, len(text), err, len(want))
			}
			if q.spent.Load() != c.rest || known && out.ContentLength != int64(len(text)) || !known && c.rest &&
				out.ContentLength != -1 {
				t.Errorf("%s: spent: %v, a length of %d", c.name, q.spent.Load(), out.ContentLength)
			}
		}
	}
	for body, want := range map[string]error{
		`{"prompt": "` + pad + pad + `", "model": "a"}`: errNoModel,
		`{"model": "a", "prompt": "` + pad + pad + `"}`: nil,
	} {
		q := newWant(true, int64(len(body)))
		if err := q.read(t.Context(), httptest.NewRequest("POST", "/v1/completions", strings.NewReader(body)),
			most); !errors.Is(err, want) {
			t.Errorf("%.20s...: %v, expected %v", body, err, want)
		}
	}
	broken := httptest.NewRequest("POST", "/v1/completions", iotest.ErrReader(io.ErrUnexpectedEOF))
	if err := newWant(true, 10).read(t.Context(), broken, most); err == nil {
		t.Error("no error for a body that breaks off")
	}
}

func TestForm(t *testing.T) {
	var b bytes.Buffer
	form := multipart.NewWriter(&b)
	file, _ := form.CreateFormFile("file", "a.wav")
	io.WriteString(file, "sound")
	form.WriteField("model", "a")
	form.Close()
	text := b.String()
	r := httptest.NewRequest("POST", "/v1/audio/transcriptions", &b)
	r.Header.Set("Content-Type", form.FormDataContentType())
	q := newWant(true, r.ContentLength)
	if err := q.read(t.Context(), r, most); err != nil || len(q.names) != 1 || q.names[0] != "a" {
		t.Fatalf("%q, %v", q.names, err)
	}
	q.adapter = 0
	if d := cmp.Diff(text, string(q.respelt(httpapi.SGLang, "base", "a"))); d != "" {
		t.Errorf("the form was changed:\n%s", d)
	}
}

// Which models are known: adapters, base models that workers tell of, and any
// where none does.
func TestUnderstand(t *testing.T) {
	f, err := fleet.New(fleet.Config{Connection: fleet.Connection{URLs: []string{"u"}},
		Adapters: []trace.Adapter{{Name: "a"}, {Name: "x:b"}}, Router: &router.Router{}})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	g := &Gateway{cfg: Config{Fleet: f, MaxBody: most, ClientTimeout: time.Minute}, workers: f.Config()}
	if g.bodies, err = newBodyMemory(8*most, most); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path, body string
		status     int
		adapter    int32
		err        string
	}{
		// no worker has told
		{"/v1/completions", `{"model": "a"}`, 0, 0, ""}, {"/v1/completions", `{"model": "x"}`, 0, trace.BaseModel, ""},
		{"/v1/completions", `{"model": "x:b"}`, 0, 1, ""},
		{"/generate", `{"lora_path": "a"}`, 0, 0, ""}, {"/generate", `{}`, 0, trace.BaseModel, ""},
		{"/generate", `{"lora_path": ["x:b", "a"]}`, 0, 1, ""},
		{"/generate", `{"lora_path": "x"}`, http.StatusNotFound, 0, `unknown adapter or model "x"; known: a, x:b`},
		{"/generate", `null`, 0, trace.BaseModel, ""}, {"/generate", `[1]`, 0, trace.BaseModel, ""},
		{"/generate", `{"lora_path": 1}`, 0, trace.BaseModel, ""},
		{"/v1/models/a", ``, 0, trace.BaseModel, ""},
	} {
		q, status, err := g.understand(httptest.NewRecorder(), httptest.NewRequest("POST", c.path,
			strings.NewReader(c.body)))
		if status != c.status || (err == nil) != (c.err == "") || err != nil && !strings.HasPrefix(err.Error(), c.err) {
			t.Errorf("%s: %d, %v; expected %d, %q", c.body, status, err, c.status, c.err)
		} else if err == nil && q.adapter != c.adapter {
			t.Errorf("%s: adapter %d", c.body, q.adapter)
		}
	}
}

// Prompts have as many blocks in common as they begin alike, of token ids and of
// text; what is left of a block does not count.
func TestBlocks(t *testing.T) {
	seed := maphash.MakeSeed()
	ids := func(n int, last string) []byte {
		return []byte("[" + strings.Repeat("1234, ", n-1) + last + "]")
	}
	text := func(n int, last string) []byte { return []byte(`"` + strings.Repeat("x", n-2-len(last)) + last + `"`) }
	for _, c := range []struct {
		name         string
		a, b         []byte
		blocks, same int // of a; of both
	}{
		{"the same ids", ids(200, "7"), ids(200, "7"), 3, 3},
		{"a longer prompt", ids(200, "7"), ids(300, "7"), 3, 3},
		{"the last block differs", ids(65, "7"), ids(64, "7, 8"), 1, 0}, // the 64th of the second is 7
		{"other ids", ids(129, "7"), []byte(strings.Replace(string(ids(129, "7")), "1234", "1235", 1)), 2, 0},
		{"a block without the comma behind it", ids(64, "7"), nil, 0, 0},
		{"text of 4 bytes a token", text(600, ""), text(600, "y"), 2, 2},
		{"another end", text(512, ""), text(512, "y"), 2, 1},
		{"a list of texts", []byte(`["` + strings.Repeat("a,", 300) + `"]`), nil, 2, 0},
		{"nothing", nil, nil, 0, 0},
	} {
		a, b := blocksOf(seed, c.a), blocksOf(seed, c.b)
		same := 0
		for same < min(len(a), len(b)) && a[same] == b[same] {
			same++
		}
		if len(a) != c.blocks || same != c.same {
			t.Errorf("%s: %d blocks, %d of them in common; expected %d and %d", c.name, len(a), same, c.blocks, c.same)
		}
	}
}

// A policy that looks at prefixes is told what a prompt begins with, any other is not.
func TestIdentify(t *testing.T) {
	g := &Gateway{seed: maphash.MakeSeed(), readsPrefixes: true}
	ask := func(body string) *fleet.Request {
		q := read(t, "/v1/completions", body)
		r := &fleet.Request{Request: router.Request{Prompt: q.prompt}}
		g.identify(q, r)
		return r
	}
	ids := strings.Repeat("5,", 150)
	one, two := ask(`{"prompt": [`+ids+`6]}`), ask(`{"prompt": [`+ids+`7,8]}`)
	if one.Known != 128 || two.Known != 128 || one.Text != two.Text {
		t.Errorf("%d and %d tokens are known, expected two blocks of 64 in common", one.Known, two.Known)
	}
	if other := ask(`{"prompt": [4,` + ids + `6]}`); one.Text.Common(other.Text) != 0 {
		t.Error("another prompt has something in common")
	}
	if short := ask(`{"prompt": [1, 2, 3]}`); short.Text != nil || short.Known != 0 {
		t.Errorf("a short prompt: %+v", short)
	}
	if g.readsPrefixes = false; ask(`{"prompt": [`+ids+`6]}`).Text != nil {
		t.Error("a policy that does not look is told")
	}
}

// No body makes the search for a model fall over, and none is changed but where
// the model stands.
func FuzzBody(f *testing.F) {
	f.Add("/v1/completions", `{"prompt": [1, {"model": "b"}], "model": "a", "max_tokens": 1e3}`, "application/json")
	f.Add("/generate", `{"lora_path": ["a", null], "sampling_params": {"max_new_tokens": 4}}`, "")
	f.Add("/v1/audio/transcriptions", "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\na\r\n--b--\r\n",
		"multipart/form-data; boundary=b")
	f.Fuzz(func(t *testing.T, path, body, media string) {
		r := httptest.NewRequest("POST", "/", strings.NewReader(body))
		r.Header.Set("Content-Type", media)
		q := newWant(path != "/generate", r.ContentLength)
		if err := q.read(t.Context(), r, most); err != nil {
			t.Fatal(err)
		}
		if string(q.data) != body || q.prompt < 1 || q.maxNew < 1 {
			t.Fatalf("%q was read as %q: %d and %d tokens", body, q.data, q.prompt, q.maxNew)
		}
		var fields map[string]json.RawMessage
		if json.Unmarshal([]byte(body), &fields) == nil && fields != nil && !strings.HasPrefix(media, "multipart/") &&
			!strings.Contains(body, `\u`) {
			if want := string(fields["model"]); string(q.fields.model) != want || body[q.model[0]:q.model[1]] != want {
				t.Fatalf("the model of %q is %q at %v, expected %q", body, q.fields.model, q.model, want)
			}
		}
		text := string(q.respelt(httpapi.SGLang, "base", "a"))
		before, after := body[:q.model[0]], body[q.model[1]:]
		if q.model[1] > 0 && (!strings.HasPrefix(text, before) || !strings.HasSuffix(text, after)) {
			t.Fatalf("%q became %q", body, text)
		}
	})
}
