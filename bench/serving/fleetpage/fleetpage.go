// Package fleetpage serves the page of a fleet: the workers, what they hold, requests, latencies, and
// events. The gateway serves a [Page] beside its calls for operators. A benchmark serves a [Server], which needs no
// other part.
//
// What the page looks like is in bench/pages, with the charts of all pages. It loads nothing from other servers.
package fleetpage

import (
	"crypto/rand"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"lorasim/bench/pages"
	"lorasim/bench/serving/fleet"
)

// A Page shows a fleet. Its methods are safe for concurrent use.
type Page struct {
	changes  bool
	instance string // tells a page that its server has been restarted

	mu    sync.RWMutex // read-locked while the fleet is used
	fleet *fleet.Fleet // nil: none yet, or state is final
	state State        // without fleet: what the page shows
}

// New returns a page of a fleet; nil: [Page.Watch] is to come. If changes is true, the page offers drains, loads and
// unloads, whose calls its server must serve.
func New(f *fleet.Fleet, changes bool) *Page {
	return &Page{fleet: f, changes: changes, instance: rand.Text()}
}

// State is the data of the page. Latencies are on the workers' clock, which runs Speed times as fast as the wall clock.
type State struct {
	fleet.Snapshot
	Instance  string                `json:"instance"` // changes when the server is restarted: IDs of events begin again
	Started   bool                  `json:"started"`  // false: there is no fleet yet
	At        time.Time             `json:"at"`
	Changes   bool                  `json:"changes"` // operators may drain, load and unload
	Speed     float64               `json:"speed"`
	Events    []fleet.Event         `json:"events"` // those after the one that the request names
	Latencies []fleet.WorkerLatency `json:"latencies"`
	Run       *Run                  `json:"run,omitempty"` // of a benchmark
}

// Run is the progress of a benchmark, and its result.
type Run struct {
	Done     int64   `json:"done"`
	Failed   int64   `json:"failed"`
	InFlight int64   `json:"in_flight"`
	Requests int64   `json:"requests"` // 0: unknown
	Now      float64 `json:"now_s"`    // time since the start
	Ended    bool    `json:"ended"`
	Outcome  string  `json:"outcome,omitempty"` // how the run ended
	Result   string  `json:"result,omitempty"`  // as on the terminal
}

// Watch makes the page show a fleet. The function that it returns keeps the present state on the page; the fleet is not
// used after it.
func (p *Page) Watch(f *fleet.Fleet) (stop func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fleet = f
	return func() {
		last := p.State(0)
		p.mu.Lock()
		defer p.mu.Unlock()
		last.Run = p.state.Run
		p.state, p.fleet = last, nil
	}
}

// setRun changes the progress of a benchmark.
func (p *Page) setRun(change func(r *Run)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var r Run
	if p.state.Run != nil {
		r = *p.state.Run
	}
	change(&r)
	p.state.Run = &r
}

// State returns the data of the page, with the events after the one with the given ID.
func (p *Page) State(after int64) State {
	p.mu.RLock()
	defer p.mu.RUnlock()
	s, f := p.state, p.fleet
	s.Instance = p.instance
	if f == nil {
		s.Events = []fleet.Event{}
		for _, e := range p.state.Events {
			if e.ID > after {
				s.Events = append(s.Events, e)
			}
		}
		return s
	}
	s.Snapshot, s.Started, s.At, s.Changes, s.Speed = f.Snapshot(), true, time.Now(), p.changes, f.Config().Speed
	s.Events, s.Latencies = f.Events(after), f.Latencies()
	return s
}

// IsFile reports whether a path, relative to the page, names a file of the page. Files need no key: they contain no
// secrets, and the page asks for its data with the operator's key.
func IsFile(path string) bool { return pages.Fleet.Has(path) }

// Handle serves the page and its data below a path, which ends in a slash.
func (p *Page) Handle(mux *http.ServeMux, path string) {
	files := http.StripPrefix(strings.TrimSuffix(path, "/"), pages.Fleet.Handler())
	mux.Handle("GET "+path+"{$}", files)
	for name := range pages.Fleet.Files() {
		mux.Handle("GET "+path+name, files)
	}
	mux.Handle("GET "+path+"state", safe(http.HandlerFunc(p.answer)))
}

// answer answers with the state: ?after=ID leaves out the events up to that one.
func (p *Page) answer(w http.ResponseWriter, r *http.Request) {
	after, err := strconv.ParseInt(r.URL.Query().Get("after"), 10, 64)
	if err != nil {
		after = 0
	}
	writeJSON(w, p.State(after))
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v) // what fails is the connection, which the browser sees
}

// safe adds the headers of [pages.SetHeaders].
func safe(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pages.SetHeaders(w.Header())
		h.ServeHTTP(w, r)
	})
}
