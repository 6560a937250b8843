package info

import (
	"fmt"
	"image/color"
	"math"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"lorasim/internal/figure"
	"lorasim/trace"
)

const (
	plotTop  = 8 // adapters with a colour of their own
	plotBins = 1024
	plotCols = 200 // most bins drawn
)

// plotColor is that of the i-th most used adapter or, last, of all others.
func plotColor(i int) color.Color {
	if i >= plotTop {
		return color.Gray{200}
	}
	return figure.Color(i)
}

// Plot reads src to its end and draws arrivals per second over time, stacked by
// adapter, and below the lengths of prompts and outputs, if there are any. The
// file is PNG or SVG by the ending of path, and appears only when complete.
func Plot(src trace.Source, path string) error {
	if _, err := figure.Format(path); err != nil {
		return err
	}
	rows := len(src.Adapters()) + 1
	c := newCollector(src.Adapters(), newTimeline(rows, binsFor(rows)))
	if err := c.read(src); err != nil {
		return err
	}
	if c.prompt.n == 0 {
		return fmt.Errorf("plot file %q: the workload has no requests to draw", path)
	}
	c.timeline.round(plotCols)
	if err := figure.Write(path, 9*vg.Inch, 7*vg.Inch, c.draw); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// binsFor is the number of bins of so many rows: many adapters get wider ones.
func binsFor(rows int) int {
	const cells = 1 << 23 // that memory may hold
	return min(max(cells/rows, plotCols/2), plotBins)
}

// layer is one colour of the stacked plot.
type layer struct {
	name   string
	counts []int64
}

// layers returns the most used adapters, and all others as one more layer.
func (c *collector) layers() []layer {
	order := c.mostUsed()
	var ls []layer
	for i, row := range order {
		if i < plotTop {
			ls = append(ls, layer{c.name(row), c.timeline.row(row)})
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

// draw puts the panels one above the other.
func (c *collector) draw(dc draw.Canvas) error {
	panels := []func() (*figure.Plot, error){c.arrivals}
	if c.prompt.total+c.output.total > 0 {
		panels = append(panels, c.lengths)
	}
	const pad = 8
	tiles := draw.Tiles{Rows: len(panels), Cols: 1, PadY: vg.Points(18),
		PadTop: vg.Points(pad), PadBottom: vg.Points(pad), PadLeft: vg.Points(pad), PadRight: vg.Points(pad)}
	for i, panel := range panels {
		p, err := panel()
		if err != nil {
			return err
		}
		p.Y.Min = 0
		if err := p.DrawBeside(tiles.At(dc, 0, i)); err != nil {
			return err
		}
	}
	return nil
}

// arrivals draws requests/s over time. The stack is drawn from its top down,
// so that each layer's area covers the ones below it.
func (c *collector) arrivals() (*figure.Plot, error) {
	p := figure.New("time (s)", "requests/s")
	p.X.Min = 0
	ls := c.layers()
	for i := len(ls) - 1; i >= 0; i-- {
		line, err := plotter.NewLine(c.outline(ls[:i+1]))
		if err != nil {
			return nil, err
		}
		line.StepStyle, line.FillColor = plotter.PostStep, plotColor(i)
		line.LineStyle.Width = 0
		p.Add(line)
		p.Entry(ls[i].name, figure.Swatch{Color: line.FillColor})
	}
	return p, nil
}

// outline is the upper edge of layers on top of each other, in requests/s.
func (c *collector) outline(ls []layer) plotter.XYs {
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

// lengths draws the distribution of prompt and output tokens.
func (c *collector) lengths() (*figure.Plot, error) {
	p := figure.New("tokens per request", "% of requests")
	p.LogX()
	for i, side := range []struct {
		name string
		h    *histogram
	}{{"prompt", c.prompt}, {"output", c.output}} {
		if side.h.total == 0 {
			continue
		}
		line, err := plotter.NewLine(side.h.outline())
		if err != nil {
			return nil, err
		}
		line.StepStyle = plotter.PostStep
		line.LineStyle.Width, line.LineStyle.Color = vg.Points(1.5), plotColor(i)
		p.Add(line)
		p.Entry(side.name, line)
	}
	return p, nil
}

// outline is the histogram in bins of a quarter octave, in % of the numbers.
// Zeros, which have no place on a logarithmic axis, are left out.
func (h *histogram) outline() plotter.XYs {
	var xys plotter.XYs
	edge := func(bin int) float64 { return math.Ceil(math.Exp2(float64(bin) / 4)) }
	bin := 0
	for value, count := range h.all {
		if value == 0 {
			continue
		}
		for float64(value) >= edge(bin) {
			if edge(bin+1) > edge(bin) { // small numbers have fewer bins
				xys = append(xys, plotter.XY{X: edge(bin)})
			}
			bin++
		}
		xys[len(xys)-1].Y += 100 * float64(count) / float64(h.n)
	}
	return append(xys, plotter.XY{X: edge(bin)})
}
