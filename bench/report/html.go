package report

import (
	"embed"
	"encoding/json"
	"html/template"
	"io"
)

//go:embed assets
var assets embed.FS

// WriteHTML writes the page as one file that needs no other.
func (p *Page) WriteHTML(w io.Writer) error {
	d, err := p.data()
	if err != nil {
		return err
	}
	data, err := json.Marshal(d) // escapes <, so that no text can end the script element
	if err != nil {
		return err
	}
	t, err := template.ParseFS(assets, "assets/page.html")
	if err != nil {
		return err
	}
	style, err := assets.ReadFile("assets/style.css")
	if err != nil {
		return err
	}
	var script []byte
	for _, name := range []string{"base.js", "chart.js", "sections.js", "placement.js"} {
		part, err := assets.ReadFile("assets/" + name)
		if err != nil {
			return err
		}
		script = append(append(script, part...), '\n')
	}
	return t.Execute(w, struct {
		Title, About string
		Style        template.CSS
		Data, Script template.JS
	}{p.Title, p.About, template.CSS(style), template.JS(data), template.JS(script)})
}
