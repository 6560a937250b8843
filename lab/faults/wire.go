//go:build linux

package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"lorasim/bench/serving/faultworker"
)

// asked records the requests that workers get, without probes.
type asked struct {
	mu    sync.Mutex
	paths []string
	evil  int // requests with a header that no client intended
}

func (a *asked) note(_, path string, h http.Header) {
	switch path {
	case "/v1/loads", "/v1/models", "/server_info", "/get_load", "/metrics", "/version":
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.paths = append(a.paths, path)
	if h.Get("X-Smuggled") != "" {
		a.evil++
	}
}

func (a *asked) take() (paths []string, evil int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	paths, evil = a.paths, a.evil
	a.paths, a.evil = nil, 0
	return paths, evil
}

// smugglingForms returns requests that are not HTTP, or whose end two servers may see differently.
func smugglingForms() map[string]string {
	const body = `{"text":"x","lora_path":"a0","sampling_params":{"max_new_tokens":2}}`
	const second = "GET /health_generate HTTP/1.1\r\nHost: x\r\nX-Smuggled: 1\r\n\r\n"
	post := func(headers, rest string) string {
		return "POST /generate HTTP/1.1\r\nHost: x\r\n" + headers + "\r\n" + rest
	}
	chunked := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)
	length := fmt.Sprintf("Content-Length: %d\r\n", len(body))
	return map[string]string{
		"CL.TE":                post("Content-Length: 6\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"+second),
		"TE.CL":                post("Transfer-Encoding: chunked\r\nContent-Length: 4\r\n", chunked),
		"two lengths":          post(length+"Content-Length: 5\r\n", body),
		"list of lengths":      post("Content-Length: 5, 6\r\n", body),
		"length +5":            post("Content-Length: +5\r\n", body),
		"length 0x5":           post("Content-Length: 0x5\r\n", body),
		"length -1":            post("Content-Length: -1\r\n", body),
		"length 1e1":           post("Content-Length: 1e1\r\n", body),
		"length too large":     post("Content-Length: 99999999999999999999\r\n", body),
		"TE identity":          post("Transfer-Encoding: identity\r\n"+length, body),
		"TE xchunked":          post("Transfer-Encoding: xchunked\r\n"+length, body),
		"TE chunked, identity": post("Transfer-Encoding: chunked, identity\r\n", chunked),
		"TE twice":             post("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", chunked),
		"TE and a space":       post("Transfer-Encoding : chunked\r\n"+length, chunked),
		"TE in a folded line":  post("X-A: b\r\n Transfer-Encoding: chunked\r\n"+length, body),
		"TE after a bare LF":   post("X-A: b\nTransfer-Encoding: chunked\r\n", chunked+second),
		"TE after a bare CR":   post("X-A: b\rTransfer-Encoding: chunked\r\n"+length, body),
		"TE by HTTP/1.0": "POST /generate HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n" + length +
			"\r\n" + chunked,
		"NUL in a header":          post("X-A: b\x00c\r\n"+length, body),
		"header without a colon":   post("X-A\r\n"+length, body),
		"space before a header":    "POST /generate HTTP/1.1\r\n Host: x\r\n" + length + "\r\n" + body,
		"two hosts":                "POST /generate HTTP/1.1\r\nHost: x\r\nHost: y\r\n" + length + "\r\n" + body,
		"no host":                  "POST /generate HTTP/1.1\r\n" + length + "\r\n" + body,
		"HTTP/0.9":                 "GET /health_generate\r\n",
		"HTTP/1.1 with lower case": "POST /generate http/1.1\r\nHost: x\r\n" + length + "\r\n" + body,
		"HTTP/2 preface":           "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"bare LF lines": "POST /generate HTTP/1.1\nHost: x\n" + strings.ReplaceAll(length, "\r", "") + "\n" +
			body,
		"CONNECT": "CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: 127.0.0.1:22\r\n\r\n",
		"another host's URL": "POST http://example.invalid/generate HTTP/1.1\r\nHost: example.invalid\r\n" +
			length + "\r\n" + body,
		"CRLF in the path": "POST /generate%0d%0aX-Smuggled:%201 HTTP/1.1\r\nHost: x\r\n" + length + "\r\n" +
			body,
		"chunk 0x": post("Transfer-Encoding: chunked\r\n", fmt.Sprintf("0x%x\r\n%s\r\n0\r\n\r\n",
			len(body), body)),
		"chunk too large": post("Transfer-Encoding: chunked\r\n", "fffffffffffffffff1\r\n"+body),
		"chunk -1":        post("Transfer-Encoding: chunked\r\n", "-1\r\n"+body),
		"chunk longer than told": post("Transfer-Encoding: chunked\r\n", fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n",
			len(body)-4, body)),
		"chunk with a bare LF": post("Transfer-Encoding: chunked\r\n", fmt.Sprintf("%x;\n%s\r\n0\r\n\r\n",
			len(body), body)),
		"trailer": post("Transfer-Encoding: chunked\r\nTrailer: X-Smuggled\r\n",
			fmt.Sprintf("%x\r\n%s\r\n0\r\nX-Smuggled: 1\r\n\r\n", len(body), body)),
		"header of 2 MB":           post("X-A: "+strings.Repeat("a", 2<<20)+"\r\n"+length, body),
		"Connection names a field": post("Connection: close, X-Smuggled\r\nX-Smuggled: 1\r\n"+length, body),
	}
}

// smuggling sends each form on its own connection. A form does harm if workers get more requests
// than the client got answers, or a header that was not meant for them.
func smuggling(c *cell) error {
	var seen asked
	if err := c.work(1, func(_ int, cfg *faultworker.Config) { cfg.Asked, cfg.Token = seen.note, 0 }); err != nil {
		return err
	}
	if err := c.serve(); err != nil {
		return err
	}
	forms := smugglingForms()
	refused, harm := 0, []string{}
	for name, text := range forms {
		answer, _ := raw(c.gateway.URL(0, 0), text, false, 400*time.Millisecond) // no answer is also a refusal
		paths, evil := seen.take()
		answers := strings.Count(answer, "HTTP/1.1 2") + strings.Count(answer, "HTTP/1.0 2")
		if len(paths) == 0 {
			refused++
		}
		if evil > 0 && name != "TE after a bare LF" && name != "CL.TE" || len(paths) > answers &&
			!strings.HasPrefix(answer, "HTTP/1.1 4") {
			harm = append(harm, name)
		}
	}
	c.figure("forms", float64(len(forms)))
	c.figure("did not reach a worker", float64(refused))
	c.figure("reached it as one clean request", float64(len(forms)-refused-len(harm)))
	if len(harm) > 0 {
		c.say("did harm", strings.Join(harm, "; "))
	} else {
		c.figure("did harm", 0)
	}
	c.aliveFigure()
	return nil
}

// workerPaths are paths that change a worker, or that clients must not read (routes of sglang
// 0.5.23 and vLLM 0.32.0).
var workerPaths = strings.Fields(`/weights_checker /get_weights_by_name /open_session /close_session /add_external_corpus
	/remove_external_corpus /start_expert_distribution_record /stop_expert_distribution_record /dump_expert_distribution_record
	/register_transfer_engine_info /start_profile /stop_profile /update_weights_from_disk /update_weights_from_tensor
	/init_weights_update_group /load_lora_adapter /unload_lora_adapter /v1/load_lora_adapter /v1/unload_lora_adapter
	/set_internal_state /configure_logging /release_memory_occupation /resume_memory_occupation /slow_down /pause_generation
	/continue_generation /sleep /wake_up /collective_rpc /reset_prefix_cache /flush_cache /scale_elastic_ep /freeze_gc
	/server_info /get_server_info /get_internal_state /get_load /vertex_generate /hicache/clear /dumper /future_endpoint`)

// dataPlane requests paths that clients must not use.
func dataPlane(c *cell) error {
	var seen asked
	if err := c.work(3, func(_ int, cfg *faultworker.Config) { cfg.Asked = seen.note }); err != nil {
		return err
	}
	if err := c.serve(); err != nil {
		return err
	}
	reach := func(url, method, path string) bool {
		// only the requests that arrive count
		raw(url, request(method, path, `{"text":"x","lora_name":"a0"}`), false, time.Second)
		paths, _ := seen.take()
		return len(paths) > 0
	}
	seen.take() // requests of the gateway at its start
	through, spelt := []string{}, 0
	for _, p := range workerPaths {
		if reach(c.gateway.URL(0, 0), "POST", p) {
			through = append(through, p)
		}
	}
	odd := []string{"//weights_checker", "/./weights_checker", "/%77eights_checker", "/v1/../weights_checker",
		"/weights_checker/", "/WEIGHTS_CHECKER",
		"/generate/../weights_checker", "/generate;/weights_checker", "/weights_checker?x=/generate",
		"/v1%2f..%2fweights_checker"}
	for _, p := range odd {
		spelt += b2i(reach(c.gateway.URL(0, 0), "POST", p))
	}
	answer, _ := raw(c.gateway.URL(0, 0), request("POST", "/admin/drain", `{"worker": 0, "drain": true}`,
		"Origin: http://evil.example\r\n", "Content-Type: text/plain\r\n"), false, 3*time.Second)
	status, _, _ := strings.Cut(strings.TrimPrefix(answer, "HTTP/1.1 "), " ")
	c.figure("paths", float64(len(workerPaths)))
	c.figure("reached a worker", float64(len(through)))
	if n := len(through); n > 0 {
		c.say("such as", strings.Join(through[:min(n, 4)], " "))
	}
	c.figure("odd spellings of one", float64(len(odd)))
	c.figure("odd spellings that reached a worker", float64(spelt))
	c.say("status of /admin/drain from a web page", status)

	raw(c.gateway.URL(0, 0), request("GET", "/no/such/path", ""), false, time.Second) // see above
	paths, _ := seen.take()
	c.figure("workers asked for an unknown GET path", float64(len(paths)))

	p, err := c.startGateway(c.gatewayArgs(c.policy, c.urls(), adapterNames(6), "--gateway-key", "clients-key"))
	if err != nil {
		return err
	}
	if err := c.ready(p); err != nil {
		return err
	}
	seen.take()
	without := 0
	for _, m := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"} {
		without += b2i(reach(p.URL(0, 0), m, "/health"))
	}
	c.figure("methods of /health that passed --gateway-key without a key", float64(without))
	return nil
}
