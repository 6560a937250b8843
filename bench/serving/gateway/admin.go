package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"time"

	"lorasim/bench/serving/fleet"
	"lorasim/bench/serving/fleetpage"
	"lorasim/internal/suggest"
)

// routes are what operators use: the state of the gateway and the workers, and changes.
//
//	GET  /metrics
//	GET  /admin/               a page with all of this; it asks for the key
//	GET  /admin/state          what the page shows
//	GET  /admin/workers
//	POST   /admin/workers      {"url": "http://gpu2:30000"}: it joins
//	DELETE /admin/workers      {"worker": 0}: it leaves when its requests have ended; "now": true cuts them
//	POST /admin/load           {"worker": 0, "adapter": "chat"}; with "path", if the adapter is unknown
//	POST /admin/push           {"adapter": "chat", "path": "/adapters/chat/7"}: a new version for all workers
//	POST /admin/unload         {"worker": 0, "adapter": "chat"}; 202 if it is not over after a few seconds
//	POST /admin/drain          {"worker": 0, "drain": true}
//	POST /admin/abort_request  {"rid": "r1"}
//	POST /admin/flush_cache    and the others of everyWorker: sent to every worker
func (g *Gateway) routes() *http.ServeMux {
	f, mux := g.cfg.Fleet, http.NewServeMux()
	order(g, mux, "load", "adapter", "the name of an adapter", "path", f.LoRAs.Load)
	order(g, mux, "unload", "adapter", "the name of an adapter", "",
		func(ctx context.Context, w int, name, _ string) error {
			ctx, cancel := context.WithTimeout(ctx, unloadWait)
			defer cancel()
			return f.LoRAs.Unload(ctx, w, name)
		})
	order(g, mux, "drain", "drain", "true or false", "",
		func(_ context.Context, w int, drain bool, _ string) error { return f.Drain(w, drain) })
	fleetpage.New(f, true).Handle(mux, "/admin/")
	mux.HandleFunc("POST /admin/push", g.push)
	mux.HandleFunc("GET /admin/workers", g.answerWorkers)
	mux.HandleFunc("POST /admin/workers", g.addWorker)
	mux.HandleFunc("DELETE /admin/workers", g.removeWorker)
	mux.HandleFunc("POST /admin/abort_request", g.abort)
	for _, path := range everyWorker {
		mux.HandleFunc("POST /admin"+path, g.all(path))
	}
	mux.Handle("GET /metrics", g.metrics.Handler())
	return mux
}

// order serves a change of one worker: a JSON object of "worker" and one other field, neither of which may be left out,
// and one that may (a text; "": there is none). It answers how the workers are then.
func order[T any](g *Gateway, mux *http.ServeMux, what, field, expected, optional string,
	do func(ctx context.Context, w int, value T, more string) error) {
	read := func(body []byte) (w int, value T, more string, err error) {
		fail := func(err error) (int, T, string, error) { return 0, value, "", err }
		var values map[string]json.RawMessage
		if err := json.Unmarshal(body, &values); err != nil || values == nil {
			return fail(fmt.Errorf(`expected a JSON object with "worker" and %q`, field))
		}
		names := []string{"worker", field}
		for _, name := range slices.Sorted(maps.Keys(values)) {
			if !slices.Contains(names, name) && (name != optional || optional == "") {
				return fail(suggest.Unknown("field", name, names))
			}
		}
		for _, name := range names {
			if values[name] == nil {
				return fail(fmt.Errorf("field %q is missing", name))
			}
		}
		if w, err = g.findWorker(values["worker"]); err != nil {
			return fail(err)
		}
		if raw := string(values[field]); raw == "null" || raw == `""` || json.Unmarshal([]byte(raw), &value) != nil {
			return fail(fmt.Errorf("%s is %s, expected %s", field, raw, expected))
		}
		if raw := values[optional]; raw != nil && json.Unmarshal(raw, &more) != nil {
			return fail(fmt.Errorf("%s is %s, expected a text", optional, raw))
		}
		return w, value, more, nil
	}
	mux.HandleFunc("POST /admin/"+what, func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(rw, r.Body, keep))
		if err == nil {
			var w int
			var value T
			var more string
			if w, value, more, err = read(body); err == nil {
				err = do(r.Context(), w, value, more)
			}
		}
		switch {
		case errors.Is(err, fleet.ErrPending):
			writeJSON(rw, http.StatusAccepted, map[string]any{"pending": err.Error(), "workers": g.cfg.Fleet.Workers()})
		case err != nil:
			fail(rw, http.StatusBadRequest, err.Error())
		default:
			g.answerWorkers(rw, r)
		}
	})
}

// push publishes a new version of an adapter. It answers the number of the version at once, while the workers load it.
func (g *Gateway) push(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(rw, r.Body, keep))
	var q struct{ Adapter, Path string }
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(body))
		d.DisallowUnknownFields()
		if d.Decode(&q) != nil || q.Adapter == "" || q.Path == "" {
			err = errors.New(`expected a JSON object with "adapter", the name of an adapter, and "path", that of its new version`)
		}
	}
	if err == nil {
		var version int32
		if version, err = g.cfg.Fleet.LoRAs.Publish(q.Adapter, q.Path); err == nil {
			writeJSON(rw, http.StatusOK, map[string]any{"adapter": q.Adapter, "version": version})
			return
		}
	}
	fail(rw, http.StatusBadRequest, err.Error())
}

func (g *Gateway) answerWorkers(rw http.ResponseWriter, _ *http.Request) {
	writeJSON(rw, http.StatusOK, map[string]any{"workers": g.cfg.Fleet.Workers()})
}

// health answers whether requests can be served.
func (g *Gateway) health(rw http.ResponseWriter, _ *http.Request) {
	switch {
	case g.isClosed():
		fail(rw, http.StatusServiceUnavailable, "shutting down")
	case g.cfg.Fleet.Up() == 0:
		fail(rw, http.StatusServiceUnavailable, g.cfg.Fleet.Unavailable())
	}
}

// ready answers whether all workers serve with all their adapters, and what is missing.
func (g *Gateway) ready(rw http.ResponseWriter, _ *http.Request) {
	missing := g.cfg.Fleet.Missing()
	if g.isClosed() {
		missing = append(missing, "shutting down")
	}
	status := http.StatusOK
	if len(missing) > 0 {
		status = http.StatusServiceUnavailable
	}
	writeJSON(rw, status, map[string]any{"ready": len(missing) == 0, "missing": missing})
}

// modelEntry is an entry of /v1/models, with the fields that vLLM and sglang have. Adapters have a parent, and their
// root is the path of their weights. OpenAI's clients require all fields but the last three.
type modelEntry struct {
	ID          string  `json:"id"`
	Object      string  `json:"object"`
	Created     int64   `json:"created"` // start of the gateway, s since 1970
	OwnedBy     string  `json:"owned_by"`
	Root        string  `json:"root"`
	Parent      *string `json:"parent"`
	MaxModelLen *int    `json:"max_model_len"` // of a base model: the shortest of its workers; null: unknown
}

// models lists the base models and the adapters.
func (g *Gateway) models(rw http.ResponseWriter, _ *http.Request) {
	writeJSON(rw, http.StatusOK, map[string]any{"object": "list", "data": g.modelList()})
}

func (g *Gateway) modelList() []modelEntry {
	list := []modelEntry{}
	var first *string
	longest := map[string]*int{}
	for _, w := range g.cfg.Fleet.Status() {
		if n := w.ContextLength; n > 0 && (longest[w.Model] == nil || n < *longest[w.Model]) {
			longest[w.Model] = &n
		}
	}
	entry := func(id, root string, parent *string, longest *int) {
		list = append(list, modelEntry{id, "model", g.created, "lorasim", root, parent, longest})
	}
	for i, name := range g.bases() {
		if i == 0 {
			first = &name
		}
		entry(name, name, nil, longest[name])
	}
	for i, a := range g.cfg.Fleet.Adapters() {
		parent := first
		if base, _ := g.cfg.Fleet.BaseOf(int32(i)); base != "" {
			parent = &base
		}
		entry(a.Name, g.cfg.Fleet.Root(int32(i)), parent, nil)
	}
	return list
}

// unloadWait is how long an operator waits for the end of an unload.
const unloadWait = 3 * time.Second

// adminTimeout limits short calls to workers.
const adminTimeout = 10 * time.Second

// abort asks every worker to abort a request: which of them has it is known to
// its client alone.
func (g *Gateway) abort(rw http.ResponseWriter, r *http.Request) {
	var q struct {
		RID string `json:"rid"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(rw, r.Body, keep)).Decode(&q); err != nil || q.RID == "" {
		fail(rw, http.StatusBadRequest, `expected a JSON object with "rid"`)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), adminTimeout)
	defer cancel()
	failures, workers := 0, g.cfg.Fleet.Status()
	for _, s := range workers {
		if err := g.cfg.Fleet.Abort(ctx, s.Worker, q.RID); err != nil {
			failures++
		}
	}
	if failures == len(workers) {
		fail(rw, http.StatusBadGateway, fmt.Sprintf("none of the %d workers accepted the abort", failures))
	}
}

// all serves a path by passing the request on to every worker that is up, such as
// to empty caches. It answers as the first that fails, or the last.
func (g *Gateway) all(path string) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(rw, r.Body, keep))
		if err != nil {
			fail(rw, http.StatusRequestEntityTooLarge, err.Error())
			return
		}
		status, header, text := http.StatusServiceUnavailable, http.Header{}, []byte(g.cfg.Fleet.Unavailable())
		for _, s := range g.cfg.Fleet.Status() {
			if !s.Up {
				continue
			}
			status, header, text = g.forward(r, s.URL, path, body)
			if status/100 != 2 {
				text = fmt.Appendf(nil, "worker %d (%s): %s", s.Worker, s.URL, fleet.ErrorText(text))
				break
			}
		}
		if status/100 != 2 {
			fail(rw, status, string(text))
			return
		}
		rw.Header().Set("Content-Type", header.Get("Content-Type"))
		rw.WriteHeader(status)
		rw.Write(text) // what fails is the connection, which the client sees
	}
}

// forward sends a short request to one worker.
func (g *Gateway) forward(r *http.Request, worker, path string, body []byte) (int, http.Header, []byte) {
	u := worker + path
	if r.URL.RawQuery != "" {
		u += "?" + r.URL.RawQuery
	}
	req, err := http.NewRequestWithContext(r.Context(), r.Method, u, bytes.NewReader(body))
	if err != nil {
		return http.StatusBadRequest, nil, []byte(err.Error())
	}
	req.Header.Set("Content-Type", r.Header.Get("Content-Type"))
	maps.Copy(req.Header, g.workers.Header)
	resp, err := g.transport.RoundTrip(req)
	if err != nil {
		return http.StatusBadGateway, nil, []byte("it did not answer")
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, keep))
	if err != nil {
		return http.StatusBadGateway, nil, []byte("its answer ended early")
	}
	return resp.StatusCode, resp.Header, text
}
