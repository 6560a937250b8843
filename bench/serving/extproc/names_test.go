package extproc

import (
	"bytes"
	"fmt"
	"mime/multipart"
	"strings"
	"testing"

	"lorasim/bench/serving/httpapi"
)

// picked sends a request and returns its stream, and the body that the server gets.
func picked(t *testing.T, c *conn, path, contentType, body string) string {
	t.Helper()
	c.send(headersOf(requestHeaders, false, header{":path", path}, header{"content-type", contentType}))
	c.send(bodyOf(requestBody, body, true))
	if a := parseAnswer(t, c.receive()); a.Endpoint == "" {
		t.Fatalf("%+v, expected a worker", a)
	}
	return string(parseAnswer(t, c.receive()).Body)
}

// The name of the model in a streamed response is the client's, wherever the pieces are cut, with trailers and without.
func TestNameInPieces(t *testing.T) {
	address, cl := serve(t, pickerOf(workersOf(t, "least-loaded", httpapi.SGLang))), client(t)
	event := func(model string) string {
		return fmt.Sprintf("data: {\"model\":%q,\"choices\":[{\"text\":\"\\\"model\\\":\\\"base:b\\\"\"}]}\n\n", model)
	}
	for _, trailers := range []bool{false, true} {
		text := event("base:b") + event("base:b") + "data: [DONE]\n\n" + `{"model":"base:`
		want := event("b") + event("b") + "data: [DONE]\n\n" + `{"model":"base:`
		for cut := range len(text) {
			c := dial(t, cl, address, processPath)
			picked(t, c, "/v1/completions", "application/json", `{"model":"b","prompt":"x","stream":true}`)
			c.send(headersOf(responseHeaders, false, header{":status", "200"}, header{"content-length", "7"}))
			if a := parseAnswer(t, c.receive()); len(a.Removed) != 1 || a.Removed[0] != "content-length" {
				t.Errorf("headers removed: %v, expected content-length", a.Removed)
			}
			var got []byte
			c.send(bodyOf(responseBody, text[:cut], false))
			got = append(got, parseAnswer(t, c.receive()).Body...)
			c.send(bodyOf(responseBody, text[cut:], !trailers))
			got = append(got, parseAnswer(t, c.receive()).Body...)
			if trailers {
				c.send(appendBytes(nil, field(responseTrailers), nil))
				for a := parseAnswer(t, c.receive()); a.Kind == responseBody; a = parseAnswer(t, c.receive()) {
					got = append(got, a.Body...)
				}
			}
			c.in.Close()
			if string(got) != want {
				t.Fatalf("cut at %d, trailers %v: %q, expected %q", cut, trailers, got, want)
			}
		}
	}
}

// A request may be a form. Its other bytes stay.
func TestForm(t *testing.T) {
	f := workersOf(t, "least-loaded", httpapi.VLLM)
	c := dial(t, client(t), serve(t, pickerOf(f)), processPath)
	var b bytes.Buffer
	form := multipart.NewWriter(&b)
	file, _ := form.CreateFormFile("file", "a.wav")
	file.Write([]byte("sound"))
	form.WriteField("model", "base:b")
	form.Close()
	text := b.String()
	want := strings.Replace(text, "base:b", "b", 1)
	if got := picked(t, c, "/v1/audio/transcriptions", form.FormDataContentType(), text); got != want {
		t.Errorf("%q, expected %q", got, want)
	}
	if f.Status()[0].Queued != 1 {
		t.Errorf("%+v, expected a request", f.Status()[0])
	}
	c.send(headersOf(responseHeaders, false, header{":status", "200"}))
	c.receive()
	c.send(bodyOf(responseBody, `{"model":"b"}`, true))
	if a := parseAnswer(t, c.receive()); string(a.Body) != `{"model":"base:b"}` {
		t.Errorf("response %s, expected the client's model", a.Body)
	}
}

// The model is read in every form of a request that carries one.
func TestEveryFormOfRequest(t *testing.T) {
	address, cl := serve(t, pickerOf(workersOf(t, "epp", httpapi.SGLang))), client(t)
	for path, body := range map[string]string{
		"/v1/completions":      `"prompt":"x"`,
		"/v1/chat/completions": `"messages":[{"role":"user","content":"x"}]`,
		"/v1/messages":         `"messages":[{"role":"user","content":"x"}]`,
		"/v1/embeddings":       `"input":["x"]`,
		"/tokenize":            `"prompt":"x"`,
	} {
		c := dial(t, cl, address, processPath)
		got := picked(t, c, path, "application/json", `{`+body+`,"model":"b"}`)
		if want := `{` + body + `,"model":"base:b"}`; !sameBody([]byte(got), []byte(want)) {
			t.Errorf("%s: %s, expected %s", path, got, want)
		}
		c.in.Close()
	}
}

// A request for an adapter goes to an engine that reads the adapter there, or is refused.
func TestFormsWithoutAdapters(t *testing.T) {
	cl := client(t)
	f := workersOf(t, "least-loaded", httpapi.SGLang, httpapi.VLLM)
	mixed := serve(t, pickerOf(f))
	sglang := serve(t, pickerOf(workersOf(t, "least-loaded", httpapi.SGLang)))
	for _, c := range []struct {
		path, body string
		worker     int // of the mixed fleet; -1: either
		alone      bool
	}{
		{"/v1/completions", `{"model":"b","prompt":"x"}`, -1, true},
		{"/llm/v1/completions?x=1", `{"model":"b","prompt":"x"}`, -1, true},
		{"/v1/completions", `{"prompt":"x","lora_path":"b"}`, 0, true},
		{"/v1/completions", `{"model":"base","prompt":["x","y"],"lora_path":["a","b"]}`, 0, true},
		{"/v1/messages", `{"model":"b","messages":[]}`, -1, true},
		{"/tokenize", `{"model":"b","prompt":"x"}`, -1, true},
		{"/generate", `{"text":"x","lora_path":"b"}`, 0, true},
		{"/v1/responses", `{"model":"b","input":"x"}`, 1, false},
		{"/v1/responses", `{"model":"base","input":"x"}`, -1, true},
		{"/v1/score", `{"model":"b"}`, 1, false},
		{"/v1/rerank", `{"model":"base:b"}`, 1, false},
		{"/classify", `{"model":"b"}`, 1, false},
	} {
		ask := func(address string) answer {
			s := dial(t, cl, address, processPath)
			defer s.in.Close()
			s.send(headersOf(requestHeaders, false, header{":path", c.path},
				header{"content-type", "application/json"}))
			s.send(bodyOf(requestBody, c.body, true))
			return parseAnswer(t, s.receive())
		}
		for range 3 {
			if a := ask(mixed); a.Endpoint == "" || c.worker >= 0 && a.Endpoint != f.Address(c.worker) {
				t.Errorf("%s %s: %+v, expected worker %d", c.path, c.body, a, c.worker)
			}
		}
		if a := ask(sglang); (a.Endpoint != "") != c.alone || !c.alone && a.Status != 404 {
			t.Errorf("%s %s with sglang alone: %+v", c.path, c.body, a)
		}
	}
}

// A worker that asks for a pause gets no requests while another one takes them.
func TestRetryAfter(t *testing.T) {
	f := workers(t, "least-loaded")
	address, cl := serve(t, pickerOf(f)), client(t)
	busy := ""
	for i := range 10 {
		c := dial(t, cl, address, processPath)
		c.send(headersOf(requestHeaders, false, header{":path", "/v1/completions"}))
		c.send(bodyOf(requestBody, `{"model":"b","prompt":"x"}`, true))
		to := parseAnswer(t, c.receive()).Endpoint
		c.receive()
		if to == busy {
			t.Fatalf("request %d goes to the worker that has asked for a pause", i)
		}
		if busy == "" {
			busy = to
			c.send(headersOf(responseHeaders, true, header{":status", "503"}, header{"retry-after", "60"}))
			c.receive()
		}
		c.in.Close()
		eventually(t, "no request is in flight", func() bool { return inFlight(f) == 0 })
	}
}

// The former name of a base model becomes the present one in the body, and the former one again in the response.
func TestBaseAlias(t *testing.T) {
	f := workersOf(t, "least-loaded", httpapi.VLLM)
	c := dial(t, client(t), serve(t, pickerOf(f)), processPath)
	got := picked(t, c, "/v1/completions", "application/json", `{"model":"old","prompt":"x"}`)
	if want := `{"model":"base","prompt":"x"}`; !sameBody([]byte(got), []byte(want)) {
		t.Errorf("%s, expected %s", got, want)
	}
	c.send(headersOf(responseHeaders, false, header{":status", "200"}))
	c.receive()
	c.send(bodyOf(responseBody, `{"model":"base"}`, true))
	if a := parseAnswer(t, c.receive()); string(a.Body) != `{"model":"old"}` {
		t.Errorf("response %s, expected the client's model", a.Body)
	}
}

// A response that names another model than the request, or that vLLM has aborted, does not reach the client: the
// picker ends its stream, so that Envoy resets the response.
func TestResponseThatMustNotPass(t *testing.T) {
	for _, x := range []struct {
		api          httpapi.Kind
		model, piece string
		ends         bool
	}{
		{httpapi.VLLM, "b", `{"model":"b","choices":[{"finish_reason":"length"}]}`, false},
		{httpapi.VLLM, "b", `{"model":"base","choices":[{"finish_reason":"length"}]}`, true},
		{httpapi.VLLM, "base", `{"model":"b","choices":[{"finish_reason":"length"}]}`, true},
		{httpapi.VLLM, "b", "data: {\"model\":\"base\",\"choices\":[]}\n\n", true},
		{httpapi.VLLM, "b", `{"model":"b","choices":[{"finish_reason":"abort"}]}`, true},
		{httpapi.SGLang, "b", `{"model":"base:b","choices":[{"finish_reason":"abort"}]}`, false},
		{httpapi.SGLang, "b", `{"model":"b","choices":[]}`, false},
		{httpapi.SGLang, "b", `{"model":"base","choices":[]}`, true},
	} {
		f := workersOf(t, "least-loaded", x.api)
		c := dial(t, client(t), serve(t, pickerOf(f)), processPath)
		picked(t, c, "/v1/completions", "application/json", fmt.Sprintf(`{"model":%q,"prompt":"x"}`, x.model))
		c.send(headersOf(responseHeaders, false, header{":status", "200"}))
		c.receive()
		c.send(bodyOf(responseBody, x.piece, true))
		if ends := c.receive() == nil; ends != x.ends || ends && c.resp.Trailer.Get("Grpc-Status") == "0" {
			t.Errorf("%s, %s: %s: the stream ends: %t, %v", x.api, x.model, x.piece, ends, c.resp.Trailer)
		}
		c.in.Close()
		eventually(t, "the request leaves", func() bool { return inFlight(f) == 0 })
	}
}
