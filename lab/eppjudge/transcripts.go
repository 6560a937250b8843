package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/go-logr/logr"
	"google.golang.org/protobuf/encoding/protojson"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// transcripts records the answers of the ext_proc server to sequences of messages.
func transcripts(read func(string) ([]byte, error), out string) error {
	if err := os.Remove(filepath.Join(out, "extproc.jsonl")); err != nil && !os.IsNotExist(err) {
		return err
	}
	hdr := func(end bool, kv ...string) *extproc.ProcessingRequest {
		return requestHeaders(&extproc.HttpHeaders{Headers: headers(kv...), EndOfStream: end})
	}
	post := hdr(false, ":method", "POST", ":path", "/v1/completions", "x-request-id", "r",
		"authorization", "Bearer k", "x-gateway-inference-fairness-id", "tenant",
		"x-gateway-destination-endpoint", "1.2.3.4:5")
	body := func(s string, end bool) *extproc.ProcessingRequest { return requestBody([]byte(s), end) }
	rh := func(kv ...string) *extproc.ProcessingRequest {
		return responseHeaders(&extproc.HttpHeaders{Headers: headers(kv...)})
	}
	rb := func(s string, end bool) *extproc.ProcessingRequest { return responseBody([]byte(s), end) }
	const q = `{"prompt":"<hi>","model":"chat","max_tokens":2}`
	long := `{"model":"chat","prompt":"` + strings.Repeat("word ", 14000) + `"}`
	for _, c := range []struct {
		name     string
		rewrites map[string]string
		none     bool
		in       []*extproc.ProcessingRequest
	}{
		{"one answer", nil, false, []*extproc.ProcessingRequest{
			post, body(q, true), rh(":status", "200", "content-type", "application/json"),
			rb(`{"model":"chat","usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}`, true),
		}},
		{"body in pieces", nil, false, []*extproc.ProcessingRequest{
			post, body(q[:9], false), body(q[9:], false), body("", true),
		}},
		{"streamed answer", nil, false, []*extproc.ProcessingRequest{
			post, body(`{"prompt":"hi","model":"chat","stream":true}`, true),
			rh(":status", "200", "content-type", "text/event-stream"),
			rb("data: {\"model\":\"chat\"}\n\n", false), rb("data: [DONE]\n\n", false), rb("", true),
		}},
		{"streamed answer, model rewritten", map[string]string{"chat": "chat-v2"}, false, []*extproc.ProcessingRequest{
			post, body(`{"prompt":"hi","model":"chat","stream":true}`, true),
			rh(":status", "200", "content-type", "text/event-stream"),
			rb("data: {\"model\":\"chat-v2\"}\n\n", false), rb("data: {\"model\": \"chat-v2\"}\n\n", true),
		}},
		{"long body", nil, false, []*extproc.ProcessingRequest{post, body(long, true)}},
		{"no body", nil, false, []*extproc.ProcessingRequest{
			hdr(true, ":method", "GET", ":path", "/v1/models", "x-request-id", "r"),
		}},
		{"bad JSON", nil, false, []*extproc.ProcessingRequest{post, body(`{`, true)}},
		{"no model", nil, false, []*extproc.ProcessingRequest{post, body(`{"prompt":"x"}`, true)}},
		{"nobody there", nil, true, []*extproc.ProcessingRequest{post, body(q, true)}},
		{"error answer", nil, false, []*extproc.ProcessingRequest{
			post, body(q, true), rh(":status", "503", "content-type", "application/json"),
			rb(`{"error":1}`, true),
		}},
		{"answer without body", nil, false, []*extproc.ProcessingRequest{post, body(q, true), rh(":status", "204")}},
	} {
		y, err := read("lora.yaml")
		if err != nil {
			return err
		}
		e, err := newEngine(y, 0, false, false)
		if err != nil {
			return err
		}
		e.rewr = c.rewrites
		if !c.none {
			e.SetEndpoints([]Endpoint{{Name: "pod-0", Address: "10.0.0.1:8000"}})
		}
		s := newStream(log.IntoContext(context.Background(), logr.Discard()), 16)
		go func() { s.done <- e.server.Process(s); close(s.out) }()
		type msg struct {
			In  json.RawMessage   `json:"in"`
			Out []json.RawMessage `json:"out"`
		}
		t := struct {
			Name     string            `json:"name"`
			Rewrites map[string]string `json:"rewrites,omitempty"`
			Messages []msg             `json:"messages"`
		}{Name: c.name, Rewrites: c.rewrites}
		for _, m := range c.in {
			b, _ := protojson.Marshal(m)
			x := msg{In: canonical(b), Out: []json.RawMessage{}}
			s.in <- m
			for quiet := false; !quiet; {
				select {
				case r, ok := <-s.out:
					if !ok {
						quiet = true
						break
					}
					sorted(r)
					b, _ := protojson.Marshal(r)
					x.Out = append(x.Out, canonical(b))
				case <-time.After(30 * time.Millisecond):
					quiet = true
				}
			}
			t.Messages = append(t.Messages, x)
		}
		close(s.in)
		for range s.out {
		}
		<-s.done
		e.Close()
		f, err := os.OpenFile(filepath.Join(out, "extproc.jsonl"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		if err := json.NewEncoder(f).Encode(t); err != nil {
			return err
		}
		f.Close()
		fmt.Println(c.name, len(t.Messages))
	}
	return nil
}

// sorted sorts headers, which come from a map.
func sorted(r *extproc.ProcessingResponse) {
	for _, h := range []*extproc.HeadersResponse{r.GetRequestHeaders(), r.GetResponseHeaders()} {
		if l := h.GetResponse().GetHeaderMutation().GetSetHeaders(); l != nil {
			slices.SortFunc(l, func(a, b *corev3.HeaderValueOption) int {
				return strings.Compare(a.Header.Key, b.Header.Key)
			})
		}
	}
}
