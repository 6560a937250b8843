package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"lorasim/bench/serving/fleet"
	"lorasim/internal/suggest"
)

// member is the body of a change of the set of workers.
type member struct {
	URL    string          `json:"url"`
	Worker json.RawMessage `json:"worker"`
	Now    bool            `json:"now"`
}

// readMember reads the body of a change of the set of workers, an object of some of the fields.
func readMember(r *http.Request, fields ...string) (m member, err error) {
	body, err := io.ReadAll(r.Body) // serveRead has bounded it
	if err != nil {
		return m, err
	}
	var values map[string]json.RawMessage
	if err := json.Unmarshal(body, &values); err != nil || values == nil {
		return m, fmt.Errorf("expected a JSON object with %s", strings.Join(fields, ", "))
	}
	for name := range values {
		if err := suggest.Among("field", name, fields); err != nil {
			return m, err
		}
	}
	if err := json.Unmarshal(body, &m); err != nil {
		return m, fmt.Errorf("%w; expected a JSON object with %s", err, strings.Join(fields, ", "))
	}
	return m, nil
}

// addWorker serves POST /admin/workers {"url": "http://host:port"}.
func (g *Gateway) addWorker(rw http.ResponseWriter, r *http.Request) {
	m, err := readMember(r, "url")
	if err == nil && m.URL == "" {
		err = errors.New(`field "url" is missing`)
	}
	if err == nil {
		_, err = g.cfg.Fleet.Add(r.Context(), m.URL)
	}
	g.answerChange(rw, r, err)
}

// removeWorker serves DELETE /admin/workers {"worker": 0} or {"url": "http://host:port"}.
func (g *Gateway) removeWorker(rw http.ResponseWriter, r *http.Request) {
	m, err := readMember(r, "worker", "url", "now")
	if err != nil {
		g.answerChange(rw, r, err)
		return
	}
	if m.Worker == nil && m.URL != "" {
		m.Worker, _ = json.Marshal(m.URL)
	}
	w, err := g.findWorker(m.Worker)
	if err == nil {
		err = g.cfg.Fleet.Remove(w, m.Now)
	}
	g.answerChange(rw, r, err)
}

// findWorker returns the worker with the index or URL in raw.
func (g *Gateway) findWorker(raw json.RawMessage) (w int, err error) {
	var host string
	switch {
	case raw == nil:
		return 0, errors.New(`field "worker" is missing`)
	case json.Unmarshal(raw, &w) == nil && w >= 0 && string(raw) != "null":
		return w, nil
	case json.Unmarshal(raw, &host) != nil || host == "":
		return 0, fmt.Errorf("worker is %s, expected the index (from 0) or the URL of a worker", raw)
	}
	if host, err = fleet.ParseURL(host); err != nil {
		return 0, err
	}
	if w = g.cfg.Fleet.Find(host); w < 0 {
		return 0, fmt.Errorf("no worker is at %s, expected the index (from 0) or the URL of a worker", host)
	}
	return w, nil
}

// answerChange answers with the state of the workers after a change, or with the error of the change.
func (g *Gateway) answerChange(rw http.ResponseWriter, r *http.Request, err error) {
	switch {
	case err == nil:
		g.answerWorkers(rw, r)
	case errors.Is(err, fleet.ErrMember):
		fail(rw, http.StatusConflict, err.Error())
	default:
		fail(rw, http.StatusBadRequest, err.Error())
	}
}
