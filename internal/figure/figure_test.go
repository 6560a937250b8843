package figure

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.SVG")
	err := Write(path, 4*vg.Inch, 3*vg.Inch, func(c draw.Canvas) error {
		p := New("time (s)", "requests")
		p.Grid()
		if err := p.Line("first", 0, plotter.XYs{{X: 1, Y: 1}, {X: 2, Y: 3}}); err != nil {
			return err
		}
		p.Entry("second", Swatch{Color(1)})
		p.DrawBeside(c)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"time (s)", ">first<", ">second<", "#0072B2", "#D55E00"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the picture has no %s", want)
		}
	}
	bad := errors.New("bad")
	if err := Write(filepath.Join(dir, "b.png"), vg.Inch, vg.Inch, func(draw.Canvas) error { return bad }); err != bad {
		t.Error(err)
	}
	if err := Write(filepath.Join(dir, "c.gif"), vg.Inch, vg.Inch, nil); err == nil || !strings.Contains(err.Error(), ".png or .svg") {
		t.Error(err)
	}
	if files, _ := os.ReadDir(dir); len(files) != 1 {
		t.Errorf("%v are there, expected the first alone", files)
	}
}
