package main

import (
	"context"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
)

// newStream opens Envoy's side of a stream, with room for queued messages.
func newStream(ctx context.Context, queued int) *stream {
	return &stream{
		ctx:  ctx,
		in:   make(chan *extproc.ProcessingRequest, queued),
		out:  make(chan *extproc.ProcessingResponse, 64),
		done: make(chan error, 1),
	}
}

func requestHeaders(h *extproc.HttpHeaders) *extproc.ProcessingRequest {
	return &extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_RequestHeaders{RequestHeaders: h}}
}

func requestBody(text []byte, end bool) *extproc.ProcessingRequest {
	b := &extproc.HttpBody{Body: text, EndOfStream: end}
	return &extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_RequestBody{RequestBody: b}}
}

func responseHeaders(h *extproc.HttpHeaders) *extproc.ProcessingRequest {
	return &extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_ResponseHeaders{ResponseHeaders: h}}
}

func responseBody(text []byte, end bool) *extproc.ProcessingRequest {
	b := &extproc.HttpBody{Body: text, EndOfStream: end}
	return &extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_ResponseBody{ResponseBody: b}}
}

// headers returns the headers of the pairs kv: name, value, name, value, ...
func headers(kv ...string) *corev3.HeaderMap {
	h := &corev3.HeaderMap{}
	for i := 0; i < len(kv); i += 2 {
		h.Headers = append(h.Headers, &corev3.HeaderValue{Key: kv[i], RawValue: []byte(kv[i+1])})
	}
	return h
}
