package info

import (
	"bytes"
	"encoding/xml"
	"errors"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gonum.org/v1/plot/plotter"

	"lorasim/trace"
)

// twelve is a workload of 12 adapters, adapter i with 2*(12-i) requests, one
// in each of the first seconds.
func twelve() *trace.Workload {
	w := &trace.Workload{Adapters: trace.Names(12, nil)}
	for second := range 24 {
		for a := range int32(12) {
			if second < 2*int(12-a) {
				w.Requests = append(w.Requests, trace.Request{
					ID: int64(len(w.Requests)), Arrival: float64(second), Adapter: a, Prompt: 100 + 10*a, Output: 10})
			}
		}
	}
	return w
}

func plotTwice(t *testing.T, w *trace.Workload, name string) []byte {
	t.Helper()
	dir := t.TempDir()
	var files [2][]byte
	for i := range files {
		path := filepath.Join(dir, name)
		if err := Plot(w.Source(), path); err != nil {
			t.Fatal(err)
		}
		var err error
		if files[i], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(files[0], files[1]) {
		t.Errorf("%s differs from one drawing to the next", name)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("%v in the folder, expected the plot alone", left)
	}
	return files[0]
}

func TestPlotPNG(t *testing.T) {
	img, err := png.Decode(bytes.NewReader(plotTwice(t, twelve(), "w.png")))
	if err != nil {
		t.Fatal(err)
	}
	if size := img.Bounds().Size(); size.X != 864 || size.Y != 672 { // 9 x 7 inch at 96 dpi
		t.Errorf("the image is %v", size)
	}
	for i := range plotTop + 1 {
		found, want := false, plotColor(i)
		for y := range 672 {
			for x := range 864 {
				r, g, b, a := img.At(x, y).RGBA()
				wr, wg, wb, wa := want.RGBA()
				found = found || r == wr && g == wg && b == wb && a == wa
			}
		}
		if !found {
			t.Errorf("colour %d is not in the image", i)
		}
	}
}

func TestPlotSVG(t *testing.T) {
	svg := plotTwice(t, twelve(), "w.svg")
	var texts []string
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if s, ok := token.(xml.CharData); ok {
			texts = append(texts, string(s))
		}
	}
	all := strings.Join(texts, "|")
	for _, want := range []string{"lora0", "lora7", "4 others", "time (s)", "requests/s", "tokens per request",
		"prompt", "output"} {
		if !strings.Contains(all, want) {
			t.Errorf("the plot does not say %q", want)
		}
	}
	if strings.Contains(all, "lora8") {
		t.Error("the plot names an adapter that belongs to the others")
	}
}

func TestPlotWithoutLengths(t *testing.T) {
	w := twelve()
	for i := range w.Requests {
		w.Requests[i].Prompt, w.Requests[i].Output = 0, 0
	}
	if svg := plotTwice(t, w, "w.svg"); bytes.Contains(svg, []byte("tokens per request")) {
		t.Error("a panel for lengths that do not exist")
	}
}

// What is drawn adds up to the workload.
func TestPlotData(t *testing.T) {
	w := twelve()
	c := newCollector(w.Adapters, newTimeline(13, plotBins))
	if err := c.read(w.Source()); err != nil {
		t.Fatal(err)
	}
	c.timeline.round(plotCols)
	ls := c.layers()
	if len(ls) != 9 || ls[0].name != "lora0" || ls[8].name != "4 others" {
		t.Fatalf("layers %v", ls)
	}
	area := func(xys plotter.XYs) float64 {
		sum := 0.0
		for i := range len(xys) - 1 {
			sum += xys[i].Y * (xys[i+1].X - xys[i].X)
		}
		return sum
	}
	near(t, "requests in the stack", Number(area(c.outline(ls))), 24*13/2, 1e-9)
	near(t, "requests of the lowest layer", Number(area(c.outline(ls[:1]))), 24, 1e-9)
	// One arrival per second and adapter: the stack starts at 12 per bin.
	near(t, "first bin", Number(c.outline(ls)[0].Y*c.timeline.seconds()), 12, 1e-9)

	sum := 0.0
	for _, p := range c.prompt.outline() {
		sum += p.Y
	}
	near(t, "% of requests", Number(sum), 100, 1e-9)
	// Prompts have 100 to 210 tokens.
	for _, p := range c.prompt.outline() {
		if p.Y > 0 && (p.X < 90 || p.X > 210) {
			t.Errorf("%v %% of the prompts have %v tokens or more", p.Y, p.X)
		}
	}
}

func TestPlotErrors(t *testing.T) {
	dir := t.TempDir()
	for _, test := range []struct{ want, path string }{
		{"expected a name that ends in .png or .svg", filepath.Join(dir, "w.pdf")},
		{"no such file or directory", filepath.Join(dir, "missing", "w.png")},
	} {
		if err := Plot(twelve().Source(), test.path); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("error %v, expected %q", err, test.want)
		}
	}
	empty := &trace.Workload{}
	if err := Plot(empty.Source(), filepath.Join(dir, "w.png")); err == nil ||
		!strings.Contains(err.Error(), "no requests") {
		t.Errorf("no requests: error %v", err)
	}
	// A folder in the way: the temporary file must not stay.
	if err := os.Mkdir(filepath.Join(dir, "taken.svg"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Plot(twelve().Source(), filepath.Join(dir, "taken.svg")); err == nil {
		t.Error("a plot replaced a folder")
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("%v in the folder", left)
	}
}

// Bins and adapters share what memory may hold.
func TestPlotBins(t *testing.T) {
	for adapters, want := range map[int]int{1: 1024, 1<<13 - 1: 1024, 1<<14 - 1: 512, 1<<20 - 1: 100} {
		if got := binsFor(adapters + 1); got != want {
			t.Errorf("%d adapters: %d bins, expected %d", adapters, got, want)
		}
	}
}
