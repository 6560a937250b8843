package fleetpage

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"lorasim/bench/pages"
	"lorasim/bench/serving/bearer"
	"lorasim/bench/serving/fleet"
	"lorasim/internal/samehost"
)

// A Server serves the page of one benchmark. It changes nothing. Without keys, the page lies below a secret path; with
// keys, the page asks for one of them. The server refuses pages of other origins, also requests that only read, and
// requests whose Host is not this machine (DNS rebinding).
type Server struct {
	page  *Page
	keys  bearer.Keys
	names []string // further names allowed in the Host header
	token string   // secret path; "": none
	mux   *http.ServeMux
	once  sync.Once
	ended chan struct{} // closed at the end of the run
}

// NewServer returns a server that accepts keys, and names beside localhost, loopback addresses and the listener's
// address.
func NewServer(keys bearer.Keys, names []string) *Server {
	s := &Server{page: New(nil, false), keys: keys, names: names, mux: http.NewServeMux(), ended: make(chan struct{})}
	if !keys.Required() {
		s.token = rand.Text()
	}
	s.page.setRun(func(*Run) {})
	s.page.Handle(s.mux, "/")
	s.mux.HandleFunc("GET /result", s.result)
	return s
}

// Path returns the path of the page, with a slash at both ends.
func (s *Server) Path() string {
	if s.token == "" {
		return "/"
	}
	return "/" + s.token + "/"
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, known := s.below(r.URL.Path)
	switch {
	case !samehost.Trusts(r, s.names):
		refuse(w, http.StatusForbidden,
			fmt.Sprintf("the Host %.100q is not allowed here; --ui-host NAME allows it", r.Host))
	case !samehost.SameOrigin(r) && !samehost.OpensPage(r, s.Path()):
		refuse(w, http.StatusForbidden, "requests of web pages of another origin are refused")
	case !known:
		refuse(w, http.StatusNotFound, "nothing is here; lorasim bench --ui prints the address")
	case !IsFile(path) && !s.keys.Accept(r):
		w.Header().Set("WWW-Authenticate", "Bearer")
		refuse(w, http.StatusUnauthorized, "a key is needed: --ui-key-file")
	default:
		http.StripPrefix(strings.TrimSuffix(s.Path(), "/"), s.mux).ServeHTTP(w, r)
	}
}

// below returns a path relative to the page, and whether the path has the secret part.
func (s *Server) below(path string) (relative string, ok bool) {
	if s.token == "" {
		return strings.TrimPrefix(path, "/"), true
	}
	return samehost.CutSecret(path, s.token)
}

func refuse(w http.ResponseWriter, status int, why string) {
	pages.SetHeaders(w.Header())
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	writeJSON(w, map[string]any{"error": map[string]any{"message": why, "code": status}})
}

// result answers at the end of the run, with the whole state.
func (s *Server) result(w http.ResponseWriter, r *http.Request) {
	select {
	case <-s.ended:
		safe(http.HandlerFunc(s.page.answer)).ServeHTTP(w, r)
	case <-r.Context().Done():
	}
}

// Watch is [Page.Watch].
func (s *Server) Watch(f *fleet.Fleet) (stop func()) { return s.page.Watch(f) }

// Progress shows how far the run is: requests that are done, failed, in flight and in total (0: unknown), and the time
// since its start, s.
func (s *Server) Progress(done, failed, inFlight, requests int64, now float64) {
	s.page.setRun(func(r *Run) {
		r.Done, r.Failed, r.InFlight, r.Requests, r.Now = done, failed, inFlight, requests, now
	})
}

// End shows how the run ended, and its result as on the terminal; "": there is none. Later calls have no effect.
func (s *Server) End(outcome, result string) {
	s.once.Do(func() {
		s.page.setRun(func(r *Run) { r.Ended, r.Outcome, r.Result, r.InFlight = true, outcome, result, 0 })
		close(s.ended)
	})
}
