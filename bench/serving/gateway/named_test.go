package gateway_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime/multipart"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"lorasim/bench/serving/bearer"
	"lorasim/bench/serving/fleet"
	"lorasim/bench/serving/gateway"
)

// sglangLike starts a worker that answers as sglang does what the fleet asks for, and requests by a function.
func sglangLike(t *memory, model string, reply func(w io.Writer, rw http.ResponseWriter, r *http.Request)) *testWorker {
	t.Helper()
	w := &testWorker{}
	w.srv = t.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost:
			w.seen.Add(1)
			reply(flushed{rw}, rw, r)
		case r.URL.Path == "/server_info":
			fmt.Fprintf(rw, `{"version":"0.5.23","model_path":%q,"served_model_name":%[1]q,"enable_lora":true,
				"max_loras_per_batch":8,"max_running_requests":64,"context_length":4096,"dp_size":1}`, model)
		case r.URL.Path == "/v1/models":
			listModels(rw, model)
		case r.URL.Path == "/v1/loads":
			io.WriteString(rw, `{"loads":[{"num_running_reqs":0,"num_waiting_reqs":0,"max_running_requests":64}]}`)
		case r.URL.Path == "/health":
		default:
			http.NotFound(rw, r)
		}
	}))
	t.Cleanup(w.srv.Kill)
	return w
}

// modelOf is the model that a request names, in JSON or a form.
func modelOf(r *http.Request) string {
	if strings.HasPrefix(r.Header.Get("Content-Type"), "multipart/") {
		return r.FormValue("model")
	}
	var q struct{ Model string }
	json.NewDecoder(r.Body).Decode(&q)
	return q.Model
}

// Clients get the name of the model that they used, in streams and other replies, however the worker cuts them. Texts
// that quote the name stay.
func TestNameOfModelInReplies(t *testing.T) {
	quoted := `"text":"say \"model\":\"base:a\" base:a"`
	for _, size := range []int{1, 2, 3, 7, 50, 10_000} {
		for _, form := range []string{"stream", "length", "chunked", "long"} {
			inMemory(t, func(t *memory) {
				text := func(model string) string {
					one := fmt.Sprintf(`{"id":"x","model":%q,"choices":[{%s}]}`, model, quoted)
					switch form {
					case "stream":
						return "data: " + one + "\n\ndata: " + one + "\n\ndata: [DONE]\n\n"
					case "long":
						return `{"pad":"` + strings.Repeat("x", 100_000) + `",` + one[1:]
					}
					return one
				}
				w := sglangLike(t, "base", func(w io.Writer, rw http.ResponseWriter, r *http.Request) {
					reply := text(modelOf(r))
					rw.Header().Set("Content-Type", "application/json")
					switch form {
					case "stream":
						rw.Header().Set("Content-Type", "text/event-stream")
					case "length", "long":
						rw.Header().Set("Content-Length", fmt.Sprint(len(reply)))
					}
					for len(reply) > 0 {
						n := min(size, len(reply))
						if form == "long" {
							n = min(10*size+50, len(reply))
						}
						io.WriteString(w, reply[:n])
						reply = reply[n:]
					}
				})
				srv := newGateway(t, "round-robin", nil, w)
				for _, name := range []string{"a", "base:a", "base"} {
					code, got := post(t, srv.URL+"/v1/completions",
						fmt.Sprintf(`{"model": %q, "prompt": "x", "stream": %v}`, name, form == "stream"))
					if want := text(name); code != 200 || got != want {
						t.Errorf("pieces of %d, %s, model %s: %d %.300s, expected %.300s", size, form, name, code, got,
							want)
					}
				}
			})
		}
	}
}

// A stream in pieces is not delayed by the search for its name: what cannot be a part of the name passes.
func TestNameIsNotDelayed(t *testing.T) {
	inMemory(t, func(t *memory) {
		w := sglangLike(t, "base", func(w io.Writer, rw http.ResponseWriter, r *http.Request) {
			beginStream(rw)
			io.WriteString(w, "data: {\"model\":\"base:a\",\"choices\":[{\"text\":\"one\"}]}\n\n")
			time.Sleep(time.Second)
			io.WriteString(w, "data: {\"choices\":[{\"text\":\"two\"}],\"model\":\"ba")
			time.Sleep(time.Second)
			io.WriteString(w, "se:a\"}\n\ndata: [DONE]\n\n")
		})
		srv := newGateway(t, "round-robin", nil, w)
		resp, err := t.client.Post(srv.URL+"/v1/completions", "application/json",
			strings.NewReader(`{"model": "a", "prompt": "x", "stream": true}`))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		begun := time.Now()
		for i, want := range []string{"data: {\"model\":\"a\",\"choices\":[{\"text\":\"one\"}]}\n\n",
			"data: {\"choices\":[{\"text\":\"two\"}],", "\"model\":\"a\"}\n\ndata: [DONE]\n\n"} {
			got := make([]byte, len(want))
			if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != want ||
				time.Since(begun) != time.Duration(i)*time.Second {
				t.Errorf("%q, %v after %v; expected %q", got, err, time.Since(begun), want)
			}
		}
	})
}

// baseOnly lists paths at which sglang answers with the base model, whatever adapter the request names.
var baseOnly = []string{"/v1/responses", "/v1/score", "/v1/rerank", "/v1/audio/transcriptions"}

// A request for an adapter goes to an engine that reads the adapter there, or is refused. Requests for the base model
// go to every engine.
func TestFormsWithoutAdapters(t *testing.T) {
	const both, vLLMOnly, sglangOnly, none = "vllm sglang", "vllm", "sglang", ""
	cases := []struct{ path, body, engines string }{
		{"/v1/completions", `{"model": "a"}`, both},
		{"/v1/completions", `{"model": "base", "lora_path": "a"}`, both},
		{"/v1/completions", `{"model": "base", "lora_path": ["a", "a"]}`, both},
		{"/v1/completions", `{"model": "base", "lora_path": ["a", "b"]}`, sglangOnly},
		{"/v1/completions", `{"model": "base", "lora_path": [null, "a"]}`, sglangOnly},
		{"/v1/completions", `{"model": "base:a", "lora_path": ["a", "b"]}`, both},
		{"/v1/messages", `{"model": "a"}`, both},
		{"/tokenize", `{"model": "a"}`, both},
		{"/generate", `{"lora_path": "a"}`, sglangOnly},
		{"/encode", `{"lora_path": "a"}`, sglangOnly},
		{"/encode", `{"model": "a"}`, none},
		{"/classify", `{"model": "a"}`, vLLMOnly},
		{"/classify", `{"model": "base", "lora_path": "a"}`, both},
		{"/classify", `{"model": "base:a", "lora_path": "b"}`, vLLMOnly},
		{"/v1/classify", `{"model": "a"}`, none},
		{"/v1/audio/speech", `{"model": "a"}`, none},
		{"/v1/responses", `{"model": "base"}`, both},
		{"/v1/rerank", `{"model": "base"}`, both},
	}
	for _, path := range baseOnly {
		if path != "/v1/audio/transcriptions" { // a form, below
			cases = append(cases, struct{ path, body, engines string }{path, `{"model": "base:a"}`, vLLMOnly})
		}
	}
	inMemory(t, func(t *memory) {
		var got map[string]string
		note := func(name string) func(io.Writer, http.ResponseWriter, *http.Request) {
			return func(_ io.Writer, rw http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				got[name] = string(body)
				io.WriteString(rw, `{}`)
			}
		}
		v, s := vllmLike(t, "base", note("vllm")), sglangLike(t, "base", note("sglang"))
		fleets := map[string]string{
			"vllm":        newGateway(t, "round-robin", nil, v).URL,
			"sglang":      newGateway(t, "round-robin", nil, s).URL,
			"vllm sglang": newGateway(t, "round-robin", nil, v, s).URL,
		}
		check := func(what, engines string, send func(url string) (int, string)) {
			for have, url := range fleets {
				got = map[string]string{}
				var want []string
				for _, e := range strings.Fields(engines) {
					if strings.Contains(have, e) {
						want = append(want, e)
					}
				}
				for range 4 {
					code, text := send(url)
					if ok := code == 200; ok != (len(want) > 0) ||
						!ok && (code != 404 || !strings.Contains(text, "no worker's engine serves adapters at /")) {
						t.Errorf("%s with %s: %d %s", what, have, code, text)
					}
				}
				slices.Sort(want)
				if reached := slices.Sorted(maps.Keys(got)); !slices.Equal(reached, want) {
					t.Errorf("%s with %s reached %v, expected %v", what, have, reached, want)
				}
			}
		}
		for _, c := range cases {
			check(c.path+" "+c.body, c.engines, func(url string) (int, string) { return post(t, url+c.path, c.body) })
			if text := got["sglang"]; c.engines == sglangOnly && text != "" && text != c.body &&
				strings.Contains(c.body, "[") {
				t.Errorf("sglang read %s, expected %s", text, c.body)
			}
		}
		form := "--x\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\na\r\n--x--\r\n"
		check("a form", vLLMOnly, func(url string) (int, string) {
			resp, err := t.client.Post(url+"/v1/audio/transcriptions", "multipart/form-data; boundary=x",
				strings.NewReader(form))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			text, _ := io.ReadAll(resp.Body)
			return resp.StatusCode, string(text)
		})
	})
}

// The model is read in every form of a request that carries one, and spelled as the worker expects it.
func TestEveryFormOfRequest(t *testing.T) {
	inMemory(t, func(t *memory) {
		var got string
		note := func(_ io.Writer, rw http.ResponseWriter, r *http.Request) {
			got = modelOf(r)
			rw.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(rw, `{"model":%q}`, got)
		}
		vllm := newGateway(t, "round-robin", nil, vllmLike(t, "base", note))
		sglang := newGateway(t, "round-robin", nil, sglangLike(t, "base", note))
		for path, body := range map[string]string{
			"/v1/completions":           `"prompt": "x"`,
			"/v1/chat/completions":      `"messages": [{"role": "user", "content": "x"}]`,
			"/v1/responses":             `"input": "x"`,
			"/v1/messages":              `"max_tokens": 5, "messages": [{"role": "user", "content": "x"}]`,
			"/v1/messages/count_tokens": `"messages": [{"role": "user", "content": "x"}]`,
			"/v1/embeddings":            `"input": ["x"]`,
			"/v1/score":                 `"text_1": "x", "text_2": ["y"]`,
			"/v1/rerank":                `"query": "x", "documents": ["y"]`,
			"/tokenize":                 `"prompt": "x"`,
		} {
			for _, model := range []string{"a", "base:a"} {
				for srv, want := range map[string]string{vllm.URL: "a", sglang.URL: "base:a"} {
					if srv == sglang.URL && slices.Contains(baseOnly, path) {
						continue // TestFormsWithoutAdapters
					}
					code, text := post(t, srv+path, fmt.Sprintf(`{%s, "model": %q}`, body, model))
					if code != 200 || got != want || text != fmt.Sprintf(`{"model":%q}`, model) {
						t.Errorf("%s, model %s: %d %s; the worker read %q, expected %q", path, model, code, text, got,
							want)
					}
				}
			}
			if code, _ := post(t, vllm.URL+path, fmt.Sprintf(`{%s, "model": "nothing"}`, body)); code != 404 {
				t.Errorf("%s, an unknown model: %d", path, code)
			}
		}
		for _, path := range []string{"/v1/audio/transcriptions", "/v1/audio/translations"} {
			for model, want := range map[string]string{"a": "a", "base:a": "a", "base": "base", "nothing": ""} {
				var b bytes.Buffer
				form := multipart.NewWriter(&b)
				file, _ := form.CreateFormFile("file", "a.wav")
				file.Write([]byte("sound"))
				form.WriteField("model", model)
				form.WriteField("language", "en")
				form.Close()
				got = ""
				resp, err := t.client.Post(vllm.URL+path, form.FormDataContentType(), &b)
				if err != nil {
					t.Fatal(err)
				}
				text, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				if got != want || want != "" && string(text) != fmt.Sprintf(`{"model":%q}`, model) {
					t.Errorf("%s, model %s: %d %s; the worker read %q, expected %q", path, model, resp.StatusCode, text,
						got, want)
				}
			}
		}
	})
}

// The name of a base model may have colons.
func TestModelWithColons(t *testing.T) {
	inMemory(t, func(t *memory) {
		var got string
		w := sglangLike(t, "s3://models:7b", func(_ io.Writer, rw http.ResponseWriter, r *http.Request) {
			got = modelOf(r)
			fmt.Fprintf(rw, `{"model":%q}`, got)
		})
		srv := newGateway(t, "round-robin", nil, w)
		for _, c := range []struct{ body, want, reply string }{
			{`"model": "s3://models:7b"`, "s3://models:7b", "s3://models:7b"},
			{`"model": "a"`, "s3://models:7b:a", "a"},
			{`"model": "s3://models:7b:a"`, "s3://models:7b:a", "s3://models:7b:a"},
			{`"model": "s3://models:7b", "lora_path": "a"`, "s3://models:7b:a", "s3://models:7b"},
			{`"model": "s3://models:7b:b", "lora_path": "a"`, "s3://models:7b:b", "s3://models:7b:b"},
			{`"lora_path": "a"`, "s3://models:7b:a", "a"},
			{`"model": "s3://models:7b:nothing"`, "", ""},
			{`"model": "s3://models"`, "", ""},
		} {
			got = ""
			code, text := post(t, srv.URL+"/v1/completions", `{"prompt": "x", `+c.body+`}`)
			if reply := fmt.Sprintf(`{"model":%q}`, c.reply); got != c.want || c.want != "" && text != reply ||
				c.want == "" && code != 404 {
				t.Errorf("%s: %d %s; the worker read %q, expected %q", c.body, code, text, got, c.want)
			}
		}
	})
}

// A client's key may stand in x-api-key, as Anthropic's clients send it. No worker gets it.
func TestXAPIKey(t *testing.T) {
	for _, workers := range []string{"", "Bearer worker"} {
		inMemory(t, func(t *memory) {
			var got http.Header
			w := vllmLike(t, "base", func(_ io.Writer, _ http.ResponseWriter, r *http.Request) { got = r.Header })
			srv, _ := startGateway(t, "round-robin", func(c *fleet.Config) {
				if workers != "" {
					c.Header = http.Header{"Authorization": {workers}}
				}
			}, func(c *gateway.Config) { c.Keys = bearer.New("secret") }, w)
			for key, status := range map[string]int{"secret": 200, "other": 401, "": 401} {
				got = nil
				req, err := http.NewRequest("POST", srv.URL+"/v1/messages", strings.NewReader(
					`{"model": "a", "max_tokens": 1, "messages": [{"role": "user", "content": "x"}]}`))
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("X-Api-Key", key)
				resp, err := t.client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				if resp.StatusCode != status || (got != nil) != (status == 200) {
					t.Errorf("key %q: %d", key, resp.StatusCode)
				}
				if got.Get("X-Api-Key") != "" || got.Get("Authorization") != workers && got != nil {
					t.Errorf("key %q: the worker got %v", key, got)
				}
			}
		})
	}
}

// Where the gateway has a key for workers, status 401 is the worker's fault: other workers serve the requests, it is
// ejected, and no client gets 401. Without such a key it is the client's answer.
func TestWorkerThatRefusesTheKey(t *testing.T) {
	deny := func(_ io.Writer, rw http.ResponseWriter, _ *http.Request) {
		rw.WriteHeader(http.StatusUnauthorized)
		io.WriteString(rw, `{"error":"Unauthorized"}`)
	}
	serve := func(_ io.Writer, rw http.ResponseWriter, _ *http.Request) { io.WriteString(rw, "{}") }
	for _, c := range []struct {
		name    string
		key     bool
		other   func(io.Writer, http.ResponseWriter, *http.Request)
		codes   string
		least   int64 // requests to the worker that refuses
		most    int64
		ejected bool
	}{
		{"another worker serves", true, serve, "map[200:100]", 5, 20, true},
		{"all refuse", true, deny, "map[502:100]", 5, 100, true},
		{"the client's key", false, serve, "map[200:50 401:50]", 50, 50, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			inMemory(t, func(t *memory) {
				bad := vllmLike(t, "base", deny)
				other := vllmLike(t, "base", c.other)
				var mu sync.Mutex
				var log strings.Builder
				srv, _ := startGateway(t, "round-robin", func(f *fleet.Config) {
					if f.Log = func(format string, args ...any) {
						mu.Lock()
						defer mu.Unlock()
						fmt.Fprintf(&log, format+"\n", args...)
					}; c.key {
						f.Header = http.Header{"Authorization": {"Bearer k"}}
					}
				}, nil, bad, other)
				codes := map[int]int{}
				for range 100 {
					code, _ := post(t, srv.URL+"/v1/completions", `{"model": "a", "prompt": "x"}`)
					codes[code]++
					time.Sleep(10 * time.Millisecond)
				}
				if n := bad.seen.Load(); fmt.Sprint(codes) != c.codes || n < c.least || n > c.most {
					t.Errorf("%v, expected %s; the worker got %d requests", codes, c.codes, n)
				}
				if _, text := get(t, srv.URL+"/admin/workers"); strings.Contains(text, `"ejected":true`) != c.ejected {
					t.Errorf("ejected is not %v: %s", c.ejected, text)
				}
				mu.Lock()
				defer mu.Unlock()
				if said := strings.Contains(log.String(), "key"); said != c.key {
					t.Errorf("the log speaks of the key: %v: %s", said, log.String())
				}
			})
		})
	}
}
