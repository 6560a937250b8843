package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"lorasim/router"
	"lorasim/trace"
)

// admin serves what is not a client's business: the state of the workers, and
// changes of it.
//
//	GET  /admin/workers
//	POST /admin/load    {"worker": 0, "adapter": "chat"}
//	POST /admin/unload  {"worker": 0, "adapter": "chat"}
//	POST /admin/drain   {"worker": 0, "drain": true}
func (g *Gateway) admin() {
	type order struct {
		Worker  *int   `json:"worker"`
		Adapter string `json:"adapter"`
		Drain   bool   `json:"drain"`
	}
	do := func(path string, f func(ctx context.Context, o order) error) {
		g.mux.HandleFunc("POST "+path, func(rw http.ResponseWriter, r *http.Request) {
			var o order
			if err := json.NewDecoder(r.Body).Decode(&o); err != nil || o.Worker == nil {
				fail(rw, http.StatusBadRequest, `expected a JSON object with "worker", the index of one`)
				return
			}
			if err := f(r.Context(), o); err != nil {
				fail(rw, http.StatusBadRequest, err.Error())
				return
			}
			g.workers(rw, r)
		})
	}
	f := g.cfg.Fleet
	do("/admin/load", func(ctx context.Context, o order) error { return f.Load(ctx, *o.Worker, o.Adapter) })
	do("/admin/unload", func(_ context.Context, o order) error { return f.Unload(*o.Worker, o.Adapter) })
	do("/admin/drain", func(_ context.Context, o order) error { return f.Drain(*o.Worker, o.Drain) })
	g.mux.HandleFunc("GET /admin/workers", g.workers)
}

func (g *Gateway) workers(rw http.ResponseWriter, _ *http.Request) {
	type state struct {
		URL      string   `json:"url"`
		API      string   `json:"api"`
		Up       bool     `json:"up"`
		Draining bool     `json:"draining"`
		Running  int      `json:"running"`
		Queued   int      `json:"queued"`
		Adapters []string `json:"adapters"`
	}
	list := []state{}
	for _, w := range g.cfg.Fleet.Workers() {
		list = append(list, state{w.URL, string(w.API), w.Up, w.Draining, w.Running, w.Queued, w.Adapters})
	}
	writeJSON(rw, http.StatusOK, map[string]any{"workers": list})
}

// health says whether requests can be served.
func (g *Gateway) health(rw http.ResponseWriter, _ *http.Request) {
	switch {
	case g.draining.Load():
		fail(rw, http.StatusServiceUnavailable, "shutting down")
	case g.cfg.Fleet.Up() == 0:
		fail(rw, http.StatusServiceUnavailable, "no worker is available")
	}
}

// models lists the base models and the adapters.
func (g *Gateway) models(rw http.ResponseWriter, _ *http.Request) {
	list := []any{}
	var base any
	for i, name := range g.names() {
		entry := map[string]any{"id": name, "object": "model", "owned_by": "lorasim", "root": name, "parent": nil}
		if _, isAdapter := g.byName[name]; isAdapter {
			entry["parent"] = base
		} else if i == 0 {
			base = name
		}
		list = append(list, entry)
	}
	writeJSON(rw, http.StatusOK, map[string]any{"object": "list", "data": list})
}

// ask passes a question about the server on to the first worker that is up.
func (g *Gateway) ask(rw http.ResponseWriter, r *http.Request) {
	w := g.cfg.Fleet.First(trace.BaseModel)
	if w == router.None {
		fail(rw, http.StatusServiceUnavailable, "no worker is available")
		return
	}
	resp, err := g.call(r.Context(), http.MethodGet, w, r.URL.Path, nil, r.Header)
	if err != nil {
		fail(rw, http.StatusBadGateway, "the worker did not answer")
		return
	}
	defer resp.Body.Close()
	copyHeader(rw.Header(), resp.Header)
	rw.WriteHeader(resp.StatusCode)
	io.Copy(rw, resp.Body) // what fails is a connection, which the client sees
}

// adminTimeout limits short calls to workers.
const adminTimeout = 10 * time.Second

func (g *Gateway) call(ctx context.Context, method string, w int, path string, body io.Reader, h http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, g.cfg.URLs[w]+path, body)
	if err != nil {
		return nil, err
	}
	copyHeader(req.Header, h)
	for k, v := range g.cfg.Header {
		req.Header[k] = v
	}
	return g.cfg.Client.Do(req)
}

// abort asks every worker to abort a request: which of them has it is known to
// its client alone.
func (g *Gateway) abort(rw http.ResponseWriter, r *http.Request) {
	var q struct {
		RID string `json:"rid"`
	}
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil || q.RID == "" {
		fail(rw, http.StatusBadRequest, `expected a JSON object with "rid"`)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), adminTimeout)
	defer cancel()
	failures := 0
	for w := range g.cfg.URLs {
		if err := g.cfg.Fleet.Abort(ctx, w, q.RID); err != nil {
			failures++
		}
	}
	if failures == len(g.cfg.URLs) {
		fail(rw, http.StatusBadGateway, fmt.Sprintf("none of %d workers took the abort", failures))
	}
}
