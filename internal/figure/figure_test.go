package figure

import (
	"errors"
	"math"
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
	p := New("time (s)", "requests")
	p.Grid()
	p.Line("first", 0, plotter.XYs{{X: 1, Y: 1}, {X: 2, Y: 3}})
	p.Entry("second", Swatch{Color(1)})
	if err := Write(path, 4*vg.Inch, 3*vg.Inch, p.DrawBeside); err != nil {
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
	if err := Write(filepath.Join(dir, "c.gif"), vg.Inch, vg.Inch, nil); err == nil ||
		!strings.Contains(err.Error(), ".png or .svg") {
		t.Error(err)
	}
	for _, draw := range []func(string, int, plotter.XYs){p.Line, p.Dots} {
		p.err = nil
		if draw("none", 0, plotter.XYs{{X: 1, Y: math.NaN()}, {X: 2, Y: 3}}); p.err == nil {
			t.Error("NaN was drawn")
		}
		if err := Write(filepath.Join(dir, "d.svg"), vg.Inch, vg.Inch, p.DrawBeside); err == nil {
			t.Error("what could not be drawn is no error")
		}
	}
	if files, _ := os.ReadDir(dir); len(files) != 1 {
		t.Errorf("%v are there, expected the first alone", files)
	}
}
