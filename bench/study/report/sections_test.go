package report_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"lorasim/bench/study/report"
	"lorasim/internal/testbrowser"
)

// studied is a page of sections alone.
func studied() *report.Page {
	return &report.Page{Title: "A study", Sections: []report.Section{
		{ID: "answer", Title: "Answer", Note: "note", Text: "a </script> b"},
		{ID: "points", Title: "Points", Table: [][]string{{"name", "value"}, {"x", "1"}, {"y", "2"}},
			Chart: &report.Chart{
				Label: "two points", X: "name", Y: "value", Names: []string{"x", "y"},
				Lines: []report.Line{{Name: "value",
					Dots: true, Points: [][4]float64{{0, 1, math.NaN(), math.NaN()}, {1, 2, 1.5, 2.5}}}}}},
	}}
}

// TestSections: the data of the sections are in the page, and no text ends the script.
func TestSections(t *testing.T) {
	var b bytes.Buffer
	if err := studied().WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(b.String(), `id="data">`)
	text, _, _ := strings.Cut(rest, "</script>")
	var d struct {
		Sections []struct {
			ID, Text string
			Table    [][]string
			Chart    *struct {
				Names []string
				Lines []struct {
					Dots   bool
					Points [][]*float64
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatal(err)
	}
	if len(d.Sections) != 2 || d.Sections[0].Text != "a </script> b" || d.Sections[0].Chart != nil ||
		len(d.Sections[1].Table) != 3 {
		t.Fatalf("%+v", d.Sections)
	}
	l := d.Sections[1].Chart.Lines[0]
	if !l.Dots || l.Points[0][2] != nil || *l.Points[1][3] != 2.5 || d.Sections[1].Chart.Names[1] != "y" {
		t.Errorf("%+v", l)
	}
}

// TestSectionsInBrowser: the browser draws them without an error.
func TestSectionsInBrowser(t *testing.T) {
	ctx := testbrowser.Start(t)
	path := filepath.Join(t.TempDir(), "page.html")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(studied().WriteHTML(f), f.Close()); err != nil {
		t.Fatal(err)
	}
	testbrowser.Watch(t, ctx, "file://"+path)
	if err := chromedp.Do(ctx, chromedp.Navigate("file://"+path),
		chromedp.WaitVisible(chromedp.CSS("#points-chart svg"))); err != nil {
		t.Fatal(err)
	}
	out, err := chromedp.Run(ctx, chromedp.Evaluate[string](
		`document.querySelector('#points-chart').dataset.points + ' ' + document.querySelectorAll('#points tbody tr').length`))
	if err != nil || out != "2 2" {
		t.Errorf("points and rows: %s (%v)", out, err)
	}
	testbrowser.Look(t, ctx, "sections")
}
