package gateway

import (
	"embed"
	"io"
	"net/http"
	"strings"

	"lorasim/bench/replay"
	"lorasim/bench/serving/fleet"
	"lorasim/internal/charts"
	"lorasim/router"
)

// fleetPage is the page for operators. It contains no secrets: it fetches its data with the operator's key.
//
//go:embed page
var fleetPage embed.FS

// fleetState is the data of the page.
type fleetState struct {
	Workers  []fleet.WorkerState `json:"workers"`
	Adapters []string            `json:"adapters"`
	Plans    []fleet.PlanNote    `json:"plans"`
	// Policy routes since the latest race of the policy auto, and Compared holds its predictions against measurements.
	Policy   string           `json:"policy,omitempty"`
	Compared *router.Measured `json:"compared,omitempty"`
}

func (g *Gateway) answerState(rw http.ResponseWriter, _ *http.Request) {
	f := g.cfg.Fleet
	races := f.Stats().Races
	s := fleetState{Workers: f.Workers(), Plans: f.Plans(), Policy: races.Chosen, Compared: races.Compared,
		Adapters: []string{}}
	for _, a := range f.Adapters() {
		s.Adapters = append(s.Adapters, a.Name)
	}
	writeJSON(rw, http.StatusOK, s)
}

// isPage reports whether a request is for a file of the page, which needs no key.
func isPage(r *http.Request) bool {
	name, ok := strings.CutPrefix(r.URL.Path, "/admin/")
	return ok && (r.Method == http.MethodGet || r.Method == http.MethodHead) &&
		(name == "" || name == "fleet.js" || name == "replay.js" || strings.HasPrefix(name, "charts/"))
}

// pageRoutes serves the page.
func pageRoutes(mux *http.ServeMux) {
	file := func(path, media string, content []byte) {
		mux.HandleFunc("GET "+path, func(rw http.ResponseWriter, _ *http.Request) {
			h := rw.Header()
			h.Set("Content-Type", media+"; charset=utf-8")
			h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; "+
				"connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
			h.Set("X-Content-Type-Options", "nosniff")
			h.Set("Cache-Control", "no-store")
			rw.Write(content) // what fails is the connection, which the browser sees
		})
	}
	read := func(name string) []byte {
		f, err := fleetPage.Open("page/" + name)
		if err != nil {
			panic(err) // a fault of this package
		}
		defer f.Close()
		content, err := io.ReadAll(f)
		if err != nil {
			panic(err)
		}
		return content
	}
	file("/admin/{$}", "text/html", read("index.html"))
	file("/admin/fleet.js", "text/javascript", read("fleet.js"))
	file("/admin/replay.js", "text/javascript", []byte(replay.Script()))
	mux.Handle("GET /admin/charts/", http.StripPrefix("/admin/charts/", http.FileServerFS(charts.Files)))
}
