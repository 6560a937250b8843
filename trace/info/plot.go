package info

import (
	"cmp"
	"fmt"
	"image/color"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"lorasim/internal/atomicfile"
	"lorasim/trace"
)

const (
	plotWidth  = 9 * vg.Inch
	plotHeight = 7 * vg.Inch
	plotTop    = 8 // adapters with a colour of their own
	plotBins   = 1024
	plotCols   = 200 // most bins drawn
)

// plotColors are for the most used adapters and, last, for all others (Okabe
// and Ito's palette, which is safe for the colour-blind, and greys).
var plotColors = [plotTop + 1]color.Color{
	color.NRGBA{0, 114, 178, 255}, color.NRGBA{230, 159, 0, 255}, color.NRGBA{0, 158, 115, 255},
	color.NRGBA{204, 121, 167, 255}, color.NRGBA{86, 180, 233, 255}, color.NRGBA{213, 94, 0, 255},
	color.NRGBA{240, 228, 66, 255}, color.NRGBA{80, 80, 80, 255}, color.NRGBA{200, 200, 200, 255},
}

// Plot reads src to its end and draws arrivals per second over time, stacked by
// adapter, and below the lengths of prompts and outputs, if there are any. The
// file is PNG or SVG by the ending of path, and appears only when complete.
func Plot(src trace.Source, path string) error {
	format := strings.TrimPrefix(strings.ToLower(filepath.Ext(path)), ".")
	if format != "png" && format != "svg" {
		return fmt.Errorf("plot file %q: expected a name that ends in .png or .svg", path)
	}
	c := newPlotCollector(src.Adapters())
	if err := each(src, c.add); err != nil {
		return err
	}
	if c.prompt.n == 0 {
		return fmt.Errorf("plot file %q: the workload has no requests to draw", path)
	}
	c.timeline.round(plotCols)
	return c.write(path, format)
}

// plotCollector gathers what Plot needs.
type plotCollector struct {
	adapters []trace.Adapter
	requests []int64   // by adapter; the last one is the base model
	timeline *timeline // a row per adapter
	prompt   *histogram
	output   *histogram
}

func newPlotCollector(adapters []trace.Adapter) *plotCollector {
	rows := len(adapters) + 1
	const cells = 1 << 23 // that memory may hold; many adapters get wider bins
	return &plotCollector{
		adapters: adapters,
		requests: make([]int64, rows),
		timeline: newTimeline(rows, min(max(cells/rows, plotCols/2), plotBins)),
		prompt:   newHistogram(),
		output:   newHistogram(),
	}
}

func (c *plotCollector) add(r trace.Request) {
	row := int(r.Adapter)
	if r.Adapter == trace.BaseModel {
		row = len(c.adapters)
	}
	c.requests[row]++
	c.timeline.add(row, r.Arrival)
	c.prompt.add(r.Prompt)
	c.output.add(r.Output)
}

// layer is one colour of the stacked plot.
type layer struct {
	name   string
	counts []int64
}

// layers returns the most used adapters, and all others as one more layer.
func (c *plotCollector) layers() []layer {
	var order []int
	for row, n := range c.requests {
		if n > 0 {
			order = append(order, row)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(c.requests[b], c.requests[a]) })
	var ls []layer
	for i, row := range order {
		if i < plotTop {
			name := "base model"
			if row < len(c.adapters) {
				name = c.adapters[row].Name
			}
			ls = append(ls, layer{name, c.timeline.row(row)})
			continue
		}
		if i == plotTop {
			ls = append(ls, layer{others(len(order) - plotTop), make([]int64, c.timeline.used)})
		}
		for bin, n := range c.timeline.row(row) {
			ls[plotTop].counts[bin] += n
		}
	}
	return ls
}

// write draws the plots into a file.
func (c *plotCollector) write(path, format string) error {
	canvas, err := draw.NewFormattedCanvas(plotWidth, plotHeight, format)
	if err != nil {
		return err
	}
	if err := c.draw(draw.New(canvas)); err != nil {
		return err
	}
	err = atomicfile.Write(path, func(f *atomicfile.File) error {
		_, err := canvas.WriteTo(f)
		return err
	})
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// panel is one plot with a legend of its own, drawn beside it.
type panel struct {
	*plot.Plot
	legend plot.Legend
}

func newPanel(x, y string) panel {
	p := panel{plot.New(), plot.NewLegend()}
	p.X.Label.Text, p.Y.Label.Text = x, y
	p.Y.Min = 0
	p.legend.Top, p.legend.Left, p.legend.YPosition = true, true, draw.PosCenter
	return p
}

// draw puts the panels one above the other.
func (c *plotCollector) draw(dc draw.Canvas) error {
	arrivals, err := c.arrivals()
	if err != nil {
		return err
	}
	panels := []panel{arrivals}
	if c.prompt.total+c.output.total > 0 {
		lengths, err := c.lengths()
		if err != nil {
			return err
		}
		panels = append(panels, lengths)
	}
	var plots [][]*plot.Plot
	for _, p := range panels {
		plots = append(plots, []*plot.Plot{p.Plot})
	}
	const legend = 1.3 * vg.Inch
	tiles := draw.Tiles{
		Rows: len(panels), Cols: 1, PadY: vg.Points(18),
		PadTop: vg.Points(8), PadBottom: vg.Points(8), PadLeft: vg.Points(8), PadRight: legend,
	}
	for i, row := range plot.Align(plots, tiles, dc) {
		panels[i].Draw(row[0])
		beside := row[0]
		beside.Min.X, beside.Max.X = row[0].Max.X+vg.Points(8), row[0].Max.X+legend
		panels[i].legend.Draw(beside)
	}
	return nil
}

// arrivals draws requests/s over time. The stack is drawn from its top down,
// so that each layer's area covers the ones below it.
func (c *plotCollector) arrivals() (panel, error) {
	p := newPanel("time (s)", "requests/s")
	p.X.Min = 0
	ls := c.layers()
	for i := len(ls) - 1; i >= 0; i-- {
		line, err := plotter.NewLine(c.outline(ls[:i+1]))
		if err != nil {
			return panel{}, err
		}
		line.StepStyle, line.FillColor = plotter.PostStep, plotColors[i]
		if i == plotTop {
			line.FillColor = plotColors[plotTop]
		}
		line.LineStyle.Width = 0
		p.Add(line)
		p.legend.Add(ls[i].name, swatch{line.FillColor})
	}
	return p, nil
}

// outline is the upper edge of layers on top of each other, in requests/s.
func (c *plotCollector) outline(ls []layer) plotter.XYs {
	width := c.timeline.seconds()
	xys := make(plotter.XYs, c.timeline.used+1)
	for bin := range xys {
		xys[bin].X = float64(bin) * width
		for _, l := range ls {
			if bin < c.timeline.used {
				xys[bin].Y += float64(l.counts[bin]) / width
			}
		}
	}
	return xys
}

// swatch is a legend entry's patch of colour.
type swatch struct{ color color.Color }

// Thumbnail implements plot.Thumbnailer.
func (s swatch) Thumbnail(c *draw.Canvas) {
	c.FillPolygon(s.color, []vg.Point{
		{X: c.Min.X, Y: c.Min.Y}, {X: c.Min.X, Y: c.Max.Y},
		{X: c.Max.X, Y: c.Max.Y}, {X: c.Max.X, Y: c.Min.Y},
	})
}

// lengths draws the distribution of prompt and output tokens.
func (c *plotCollector) lengths() (panel, error) {
	p := newPanel("tokens per request", "% of requests")
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	for i, side := range []struct {
		name string
		h    *histogram
	}{{"prompt", c.prompt}, {"output", c.output}} {
		if side.h.total == 0 {
			continue
		}
		line, err := plotter.NewLine(side.h.outline())
		if err != nil {
			return panel{}, err
		}
		line.StepStyle = plotter.PostStep
		line.LineStyle.Width, line.LineStyle.Color = vg.Points(1.5), plotColors[i]
		p.Add(line)
		p.legend.Add(side.name, line)
	}
	return p, nil
}

// outline is the histogram in bins of a quarter octave, in % of the numbers.
// Zeros, which have no place on a logarithmic axis, are left out.
func (h *histogram) outline() plotter.XYs {
	var xys plotter.XYs
	edge := func(bin int) float64 { return math.Ceil(math.Exp2(float64(bin) / 4)) }
	bin := 0
	h.each(func(value, count int64) bool {
		if value == 0 {
			return true
		}
		for float64(value) >= edge(bin) {
			if edge(bin+1) > edge(bin) { // small numbers have fewer bins
				xys = append(xys, plotter.XY{X: edge(bin)})
			}
			bin++
		}
		xys[len(xys)-1].Y += 100 * float64(count) / float64(h.n)
		return true
	})
	return append(xys, plotter.XY{X: edge(bin)})
}
