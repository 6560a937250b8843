package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"time"

	"lorasim/internal/suggest"
)

// admin serves what is not a client's business: the state of the workers, and
// changes of it.
//
//	GET  /admin/workers
//	POST /admin/load    {"worker": 0, "adapter": "chat"}
//	POST /admin/unload  {"worker": 0, "adapter": "chat"}
//	POST /admin/drain   {"worker": 0, "drain": true}
func (g *Gateway) admin() {
	f := g.cfg.Fleet
	g.order("/admin/load", "adapter", func(ctx context.Context, w int, value json.RawMessage) error {
		name, err := named(value)
		if err != nil {
			return err
		}
		return f.Load(ctx, w, name)
	})
	g.order("/admin/unload", "adapter", func(_ context.Context, w int, value json.RawMessage) error {
		name, err := named(value)
		if err != nil {
			return err
		}
		return f.Unload(w, name)
	})
	g.order("/admin/drain", "drain", func(_ context.Context, w int, value json.RawMessage) error {
		switch string(value) {
		case "true", "false":
			return f.Drain(w, string(value) == "true")
		}
		return fmt.Errorf("drain is %s, expected true or false", value)
	})
	g.mux.HandleFunc("GET /admin/workers", g.workers)
}

func named(value json.RawMessage) (name string, err error) {
	if err = json.Unmarshal(value, &name); err != nil || name == "" {
		return "", fmt.Errorf("adapter is %s, expected the name of one", value)
	}
	return name, nil
}

// order serves a change of one worker: a JSON object of "worker" and one other
// field, neither of which may be left out, and answers how the workers are then.
func (g *Gateway) order(path, field string, do func(ctx context.Context, w int, value json.RawMessage) error) {
	g.mux.HandleFunc("POST "+path, func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(rw, r.Body, keep))
		var values map[string]json.RawMessage
		if err == nil {
			values, err = fieldsOf(body, "worker", field)
		}
		w := -1
		if err == nil && (json.Unmarshal(values["worker"], &w) != nil || w < 0) {
			err = fmt.Errorf("worker is %s, expected the index of one, from 0", values["worker"])
		}
		if err == nil {
			err = do(r.Context(), w, values[field])
		}
		if err != nil {
			fail(rw, http.StatusBadRequest, err.Error())
			return
		}
		g.workers(rw, r)
	})
}

// fieldsOf reads a JSON object that has the given fields and no others.
func fieldsOf(body []byte, names ...string) (map[string]json.RawMessage, error) {
	var values map[string]json.RawMessage
	if err := json.Unmarshal(body, &values); err != nil || values == nil {
		return nil, fmt.Errorf("expected a JSON object with %q and %q", names[0], names[1])
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !slices.Contains(names, name) {
			return nil, suggest.Unknown("field", name, names)
		}
	}
	for _, name := range names {
		if _, ok := values[name]; !ok {
			return nil, fmt.Errorf("field %q is missing", name)
		}
	}
	return values, nil
}

func (g *Gateway) workers(rw http.ResponseWriter, _ *http.Request) {
	writeJSON(rw, http.StatusOK, map[string]any{"workers": g.cfg.Fleet.Workers()})
}

// health says whether requests can be served.
func (g *Gateway) health(rw http.ResponseWriter, _ *http.Request) {
	switch {
	case g.gate.isClosed():
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
		if g.cfg.Fleet.Lookup(name) >= 0 {
			entry["parent"] = base
		} else if i == 0 {
			base = name
		}
		list = append(list, entry)
	}
	writeJSON(rw, http.StatusOK, map[string]any{"object": "list", "data": list})
}

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
