package report

import (
	"fmt"
	"image/color"
	"path/filepath"
	"regexp"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"lorasim/internal/atomicfile"
)

// figureColors are those of the page in its light theme, safe for the
// colour-blind (after Okabe and Ito).
var figureColors = []color.NRGBA{
	{0, 114, 178, 255}, {213, 94, 0, 255}, {0, 128, 93, 255}, {181, 73, 140, 255},
	{138, 109, 0, 255}, {43, 159, 216, 255}, {106, 81, 163, 255}, {95, 102, 112, 255},
}

func figureColor(i int) color.NRGBA { return figureColors[i%len(figureColors)] }

func lineStyle(i int) draw.LineStyle {
	dashes := [][]vg.Length{nil, {vg.Points(5), vg.Points(2)}, {vg.Points(1.5), vg.Points(2)}}
	return draw.LineStyle{Width: vg.Points(1.6), Color: figureColor(i), Dashes: dashes[i/len(figureColors)%len(dashes)]}
}

// figure is one picture: its file name without ending, and its plot, with a
// legend of its own beside it.
type figure struct {
	name   string
	plot   *plot.Plot
	legend []entry
	h      vg.Length // 0: figureHeight
}

// entry is a line of a legend.
type entry struct {
	name string
	icon plot.Thumbnailer
}

const (
	figureWidth  = 6.3 * vg.Inch // the text of a page
	figureHeight = 3.6 * vg.Inch
)

// WriteFigures writes every figure of the page into a folder, in the given
// format (png or svg), and returns the names of the files.
func (p *Page) WriteFigures(dir, format string) ([]string, error) {
	if format != "png" && format != "svg" {
		return nil, fmt.Errorf("figure format %q: expected png or svg", format)
	}
	var figures []figure
	for _, build := range []func() ([]figure, error){p.cdfs, p.adapterFigures, p.overTime, p.placements, p.curves} {
		fs, err := build()
		if err != nil {
			return nil, err
		}
		figures = append(figures, fs...)
	}
	var files []string
	for _, f := range figures {
		name := f.name + "." + format
		if err := f.write(filepath.Join(dir, name), format); err != nil {
			return nil, err
		}
		files = append(files, name)
	}
	return files, nil
}

func (f figure) write(path, format string) error {
	h := f.h
	if h == 0 {
		h = figureHeight
	}
	canvas, err := draw.NewFormattedCanvas(figureWidth, h, format)
	if err != nil {
		return err
	}
	f.draw(draw.New(canvas))
	return atomicfile.Write(path, func(file *atomicfile.File) error {
		_, err := canvas.WriteTo(file)
		return err
	})
}

// draw draws the plot and, on its right, the legend: within the plot it would
// hide lines.
func (f figure) draw(c draw.Canvas) {
	c = draw.Crop(c, vg.Points(2), -vg.Points(4), vg.Points(2), -vg.Points(4))
	if len(f.legend) == 0 {
		f.plot.Draw(c)
		return
	}
	l := plot.NewLegend()
	l.Top, l.Left, l.Padding = true, true, vg.Points(2)
	l.TextStyle.Font.Variant, l.TextStyle.Font.Size = "Sans", vg.Points(10)
	width := vg.Length(0)
	for _, e := range f.legend {
		l.Add(e.name, e.icon)
		width = max(width, l.TextStyle.Width(e.name))
	}
	width += l.ThumbnailWidth + vg.Points(12)
	right := c
	right.Min.X = c.Max.X - width
	c.Max.X -= width + vg.Points(4)
	f.plot.Draw(c)
	l.Draw(right)
}

var unsafeName = regexp.MustCompile(`[^a-zA-Z0-9._-]+`)

func fileName(s string) string { return unsafeName.ReplaceAllString(s, "_") }

func newPlot(x, y string) *plot.Plot {
	pl := plot.New()
	pl.X.Label.Text, pl.Y.Label.Text = x, y
	sans(pl)
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = color.Gray{225}, color.Gray{225}
	pl.Add(grid)
	return pl
}

// sans sets the letters of a plot without serifs.
func sans(pl *plot.Plot) {
	for _, st := range []*draw.TextStyle{
		&pl.Title.TextStyle, &pl.X.Label.TextStyle, &pl.Y.Label.TextStyle, &pl.X.Tick.Label, &pl.Y.Tick.Label,
	} {
		st.Font.Variant = "Sans"
	}
	pl.Title.Padding = vg.Points(6)
}

// addLine adds a line with its entry in the legend; "": none.
func (f *figure) addLine(name string, i int, xys plotter.XYs) error {
	if len(xys) == 0 {
		return nil
	}
	l, err := plotter.NewLine(xys)
	if err != nil {
		return err
	}
	l.LineStyle = lineStyle(i)
	f.plot.Add(l)
	if name != "" {
		f.legend = append(f.legend, entry{name, l})
	}
	return nil
}

func logX(pl *plot.Plot) {
	pl.X.Scale, pl.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
}

// cdfs draws the latency distributions.
func (p *Page) cdfs() ([]figure, error) {
	var out []figure
	for _, l := range []struct{ key, title string }{
		{"e2e", "end-to-end latency (ms)"}, {"ttft", "time to first token (ms)"}, {"tpot", "time per output token (ms)"},
	} {
		f := figure{name: "cdf-" + l.key, plot: newPlot(l.title, "share of requests")}
		logX(f.plot)
		f.plot.Y.Min, f.plot.Y.Max = 0, 1
		for i, r := range p.Runs {
			qs := r.quantiles()[l.key]
			var xys plotter.XYs
			for k, q := range qs {
				if q > 0 {
					xys = append(xys, plotter.XY{X: q, Y: float64(k) / float64(len(qs)-1)})
				}
			}
			if len(xys) < 2 || xys[0].X == xys[len(xys)-1].X {
				continue
			}
			if err := f.addLine(r.Name, i, xys); err != nil {
				return nil, err
			}
		}
		if len(f.legend) > 0 {
			out = append(out, f)
		}
	}
	return out, nil
}

// adapterFigures draws the mean latency of each adapter, the busiest left.
func (p *Page) adapterFigures() ([]figure, error) {
	f := figure{name: "adapters", plot: newPlot("adapters, by number of requests", "mean E2E latency (ms)")}
	f.plot.Y.Min = 0
	rank := map[string]int{}
	for i, r := range p.Runs {
		var xys plotter.XYs
		for _, a := range r.adapters() {
			if _, ok := rank[a.Name]; !ok {
				rank[a.Name] = len(rank) + 1
			}
			xys = append(xys, plotter.XY{X: float64(rank[a.Name]), Y: float64(a.E2E)})
		}
		if len(xys) < 2 {
			continue
		}
		s, err := plotter.NewScatter(xys)
		if err != nil {
			return nil, err
		}
		s.GlyphStyle = draw.GlyphStyle{Color: figureColor(i), Radius: vg.Points(2.2), Shape: draw.CircleGlyph{}}
		f.plot.Add(s)
		f.legend = append(f.legend, entry{r.Name, s})
	}
	if len(f.legend) == 0 {
		return nil, nil
	}
	return []figure{f}, nil
}

// overTime draws waiting and running requests on all workers, run against run,
// and for each run the waiting requests of each worker.
func (p *Page) overTime() ([]figure, error) {
	var out []figure
	for _, m := range []struct {
		name, title string
		values      func(r *Run, w int) []float64
	}{
		{"queue", "waiting requests", func(r *Run, w int) []float64 { return r.Series.Workers[w].Queued }},
		{"running", "running requests", func(r *Run, w int) []float64 { return r.Series.Workers[w].Running }},
	} {
		f := figure{name: m.name, plot: newPlot("time (s)", m.title+", all workers")}
		f.plot.Y.Min = 0
		for i, r := range p.Runs {
			if r.Series == nil || len(r.Series.Workers) == 0 {
				continue
			}
			var xys plotter.XYs
			for k := range m.values(r, 0) {
				at := plotter.XY{X: (float64(k) + 0.5) * r.Series.Bucket}
				for w := range r.Series.Workers {
					at.Y += m.values(r, w)[k]
				}
				xys = append(xys, at)
			}
			if err := f.addLine(r.Name, i, xys); err != nil {
				return nil, err
			}
			workers, err := r.perWorker(m.title, func(w int) []float64 { return m.values(r, w) })
			if err != nil {
				return nil, err
			}
			workers.name = m.name + "-" + fileName(r.Name)
			out = append(out, workers)
		}
		if len(f.legend) > 0 {
			out = append(out, f)
		}
	}
	return out, nil
}

func (r *Run) perWorker(title string, values func(w int) []float64) (figure, error) {
	f := figure{plot: newPlot("time (s)", title)}
	f.plot.Title.Text = r.Name
	f.plot.Y.Min = 0
	for w := range r.Series.Workers {
		var xys plotter.XYs
		for k, v := range values(w) {
			xys = append(xys, plotter.XY{X: (float64(k) + 0.5) * r.Series.Bucket, Y: v})
		}
		name := ""
		if w < 16 {
			name = fmt.Sprintf("worker %d", w)
		}
		if err := f.addLine(name, w, xys); err != nil {
			return f, err
		}
	}
	return f, nil
}
