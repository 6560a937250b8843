// Package pages is what a person sees in a browser: the report, the explorer with its replays, and the page of a fleet.
// It has the layout, the style sheets and the scripts of all pages, and no data. The data and its assembly are with
// their subjects (bench/study/report, bench/explore, bench/replay, bench/serving/fleetpage).
//
// A page is a folder with parts of layout.html (body.html), a script that begins it, and further scripts and styles of
// its own. The folder shared has what all pages use; a page imports it as if the files lay in one folder:
//
//   - dom.js: elements, numbers with units, colors, themes, legends, tables that fit
//   - chart.js: line charts and stacked bars, with a cursor for mouse, touch and keyboard, a table of the same
//     numbers, and pictures to keep (SVG, PNG)
//   - replay.js: the workers of a cluster as columns, and a recorded run over time
//   - style.css: colors and layout, with a light and a dark theme
//
// A server sends a page as files ([Page.Files], [Page.Handler]) with [SetHeaders]. [Page.WriteFile] writes a page with
// its data as one file. In both forms a page loads nothing from elsewhere, and browsers enforce it.
package pages

import (
	"bytes"
	"cmp"
	"embed"
	"html"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"path"
	"strings"
	"time"

	"lorasim/internal/slots"
)

//go:embed layout.html shared report explorer fleet
var assets embed.FS

// A Page is a page by the name of its folder.
type Page string

// The pages.
const (
	Report   Page = "report"   // runs and sweeps, in one file
	Explorer Page = "explorer" // settings and their results
	Fleet    Page = "fleet"    // workers, latencies and events of a live fleet
)

// types are the media types of the files of pages, by extension.
var types = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
}

// Content is what a page in one file contains.
type Content struct {
	Title, About string
	Data         string // JSON, with < escaped
}

// Files returns the files of a page by name: scripts, style sheets, and index.html.
func (p Page) Files() map[string][]byte {
	files, styles := p.sources()
	var links []string
	for _, name := range styles {
		links = append(links, `<link rel="stylesheet" href="`+name+`">`)
	}
	files["index.html"] = []byte(p.fill(Content{}, map[string]string{
		"links": strings.Join(links, "\n"), "entry": p.entry(), "where": "files of this page"}))
	return files
}

// sources returns the scripts and style sheets of a page by name, and the names of the style sheets in their order.
func (p Page) sources() (files map[string][]byte, styles []string) {
	files = map[string][]byte{}
	for _, folder := range p.folders() {
		entries, err := assets.ReadDir(folder)
		must(err)
		for _, e := range entries {
			name := e.Name()
			switch path.Ext(name) {
			case ".html":
				continue
			case ".css":
				styles = append(styles, name)
			}
			files[name], err = assets.ReadFile(folder + "/" + name)
			must(err)
		}
	}
	return files, styles
}

// Has reports whether a path, relative to the page, names one of its files.
func (p Page) Has(name string) bool {
	for _, folder := range p.folders() {
		info, err := fs.Stat(assets, folder+"/"+name)
		if err == nil && !info.IsDir() && path.Ext(name) != ".html" {
			return true
		}
	}
	return name == "" || name == "index.html"
}

// Handler serves the files of a page, with [SetHeaders]. Paths are relative to the page.
func (p Page) Handler() http.Handler {
	files := p.Files()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := cmp.Or(strings.TrimPrefix(r.URL.Path, "/"), "index.html")
		data, ok := files[name]
		if !ok {
			http.NotFound(w, r)
			return
		}
		SetHeaders(w.Header())
		w.Header().Set("Content-Type", types[path.Ext(name)])
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(data))
	})
}

// WriteFile writes a page and its data as one file, which loads nothing.
func (p Page) WriteFile(w io.Writer, c Content) error {
	files, styles := p.sources()
	var style strings.Builder
	for _, name := range styles {
		style.Write(files[name])
	}
	script := bundle(files, p.entry())
	_, err := io.WriteString(w, p.fill(c, map[string]string{
		"policy": html.EscapeString(filePolicy(style.String(), script)), "style": style.String(), "data": c.Data,
		"script": script, "where": "this file"}))
	return err
}

// folders are the folders of a page's files. Names are unique.
func (p Page) folders() []string { return []string{"shared", string(p)} }

// entry is the name of the script that begins the page.
func (p Page) entry() string { return string(p) + ".js" }

// fill fills in layout.html: the parts of the page, and what the page's form adds to them. Without a policy, a server
// sends the policy, and the page links to its style sheets and script.
func (p Page) fill(c Content, values map[string]string) string {
	all := map[string]string{"policy": "", "style": "", "data": "", "script": "", "links": "", "entry": ""}
	maps.Copy(all, values)
	own := map[string]string{"name": html.EscapeString(c.Title), "about": html.EscapeString(c.About)}
	for part := range strings.SplitSeq(asset(string(p)+"/body.html"), "<!-- ") {
		name, text, _ := strings.Cut(part, " -->\n")
		all[name] = strings.TrimSuffix(slots.Fill(text, own), "\n")
	}
	return slots.Fill(asset("layout.html"), all)
}

func asset(name string) string {
	data, err := assets.ReadFile(name)
	must(err)
	return string(data)
}

// must fails on faults of this package, which its tests find.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
