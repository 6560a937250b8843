// Package web serves the explorer's page on this machine.
//
// The page and its API lie below a secret path, so that no other page can name them. The server refuses requests from
// pages of other origins, both reads and writes. It also refuses requests whose Host is not this machine (DNS
// rebinding). The page loads nothing from other servers.
package web

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"path"
	"strings"
	"sync"

	"lorasim/bench/explore"
	"lorasim/bench/pages"
	"lorasim/bench/scenario"
	"lorasim/internal/samehost"
)

// A Config is the configuration of a server.
type Config struct {
	Explorer *explore.Explorer
	Presets  []explore.Preset
	Query    explore.Query // initial query of the page
	// Keep stores a log that a user uploads, and returns its path; nil: uploads are disabled.
	Keep func(name string, content io.Reader) (path string, err error)
	// Replay returns the recording of a scenario's run, in the form that the page reads; nil: replays are disabled.
	Replay func(ctx context.Context, sc *scenario.Scenario) (json.RawMessage, error)
	// Token is the secret path; "": a new random one.
	Token string
}

// A Server serves the page.
type Server struct {
	cfg   Config
	token string
	mux   *http.ServeMux
}

// Limits of what a browser may send.
const (
	maxQuery  = 1 << 20
	maxUpload = 1 << 30
)

// New returns a server with the given configuration.
func New(cfg Config) *Server {
	s := &Server{cfg: cfg, token: cfg.Token, mux: http.NewServeMux()}
	if s.token == "" {
		s.token = rand.Text()
	}
	s.mux.Handle("GET /", pages.Explorer.Handler())
	s.mux.HandleFunc("GET /api/start", s.start)
	s.mux.HandleFunc("POST /api/run", s.run)
	s.mux.HandleFunc("POST /api/log", s.upload)
	s.mux.HandleFunc("GET /api/replay", s.replay)
	return s
}

// Path returns the path of the page, with a slash at both ends.
func (s *Server) Path() string { return "/" + s.token + "/" }

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	pages.SetHeaders(w.Header())
	_, known := samehost.CutSecret(r.URL.Path, s.token)
	switch {
	case !samehost.Trusts(r, nil):
		refuse(w, http.StatusForbidden, fmt.Sprintf("the Host %.100q is not this machine", r.Host))
	case !samehost.SameOrigin(r) && !samehost.OpensPage(r, s.Path()):
		refuse(w, http.StatusForbidden, "requests of web pages of another origin are refused")
	case !known:
		refuse(w, http.StatusNotFound, "nothing is here; the address is the one that lorasim explore prints")
	default:
		http.StripPrefix("/"+s.token, s.mux).ServeHTTP(w, r)
	}
}

func refuse(w http.ResponseWriter, status int, why string) {
	writeJSON(w, status, map[string]string{"error": why})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.Encode(v) // what fails is the connection, which the browser sees
}

// start returns the initial data of the page.
func (s *Server) start(w http.ResponseWriter, _ *http.Request) {
	st := explore.NewStart(s.cfg.Presets, s.cfg.Query)
	st.Upload, st.Replay = s.cfg.Keep != nil, s.cfg.Replay != nil
	writeJSON(w, http.StatusOK, st)
}

// run answers a query: one event per line, as soon as it is ready. If the browser cancels the request, the runs end.
func (s *Server) run(w http.ResponseWriter, r *http.Request) {
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		refuse(w, http.StatusUnsupportedMediaType, "expected Content-Type: application/json")
		return
	}
	var q explore.Query
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxQuery))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&q); err != nil {
		refuse(w, http.StatusBadRequest, "the query: "+err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	out := &lines{w: w, flush: http.NewResponseController(w).Flush}
	if err := s.cfg.Explorer.Run(r.Context(), q, out.event); err != nil && r.Context().Err() == nil {
		out.event(explore.Event{Kind: "error", Data: err.Error()})
	}
}

// lines writes events, one per line.
type lines struct {
	mu    sync.Mutex
	w     io.Writer
	flush func() error
}

func (l *lines) event(e explore.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	enc := json.NewEncoder(l.w)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(e); err != nil {
		return // the browser has gone, which ends the context
	}
	l.flush() // likewise
}

// upload stores a log from the browser, unchanged.
func (s *Server) upload(w http.ResponseWriter, r *http.Request) {
	if s.cfg.Keep == nil {
		refuse(w, http.StatusNotFound, "this explorer takes no uploads")
		return
	}
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil ||
		media != "application/octet-stream" {
		refuse(w, http.StatusUnsupportedMediaType, "expected Content-Type: application/octet-stream")
		return
	}
	name := path.Base(strings.ReplaceAll(r.URL.Query().Get("name"), `\`, "/"))
	kept, err := s.cfg.Keep(name, http.MaxBytesReader(w, r.Body, maxUpload))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		refuse(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("%s has more than %d bytes", name, large.Limit))
	case err != nil:
		refuse(w, http.StatusBadRequest, err.Error())
	default:
		writeJSON(w, http.StatusOK, map[string]string{"path": kept})
	}
}

// replay answers with the data of a run's replay.
func (s *Server) replay(w http.ResponseWriter, r *http.Request) {
	id := r.URL.Query().Get("run")
	sc, ok := s.cfg.Explorer.Scenario(id)
	switch {
	case s.cfg.Replay == nil:
		refuse(w, http.StatusNotFound, "this explorer has no replay")
		return
	case !ok:
		refuse(w, http.StatusNotFound, fmt.Sprintf("the run %.50q was shown too long ago", id))
		return
	}
	data, err := s.cfg.Replay(r.Context(), &sc)
	if err != nil {
		refuse(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(data) // what fails is the connection, which the browser sees
}
