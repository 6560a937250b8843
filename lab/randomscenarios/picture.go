package main

import (
	"fmt"
	"image/color"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"lorasim/bench/stats"
	"lorasim/internal/figure"
)

// leastDrawn is the least regret on the logarithmic axis. Smaller regrets are drawn there.
const leastDrawn = 0.001

// The sizes of the picture.
const (
	panelWidth = 8 * vg.Centimeter
	namesWidth = 5.2 * vg.Centimeter
	rowHeight  = 0.6 * vg.Centimeter
	axesHeight = 2.4 * vg.Centimeter
	halfBox    = 0.19 * vg.Centimeter
)

// Plot plots the regrets of each policy in a row, with a panel for each metric.
func (t *Table) Plot(path string) error {
	policies := slices.Clone(t.Policies)
	slices.Reverse(policies) // the best policy on top
	policies = slices.DeleteFunc(policies, func(p string) bool { return len(t.of(p)) == 0 })
	height := rowHeight*vg.Length(len(policies)) + axesHeight
	return figure.Write(path, namesWidth+panelWidth*vg.Length(numMetrics), height, func(c draw.Canvas) error {
		left := c.Min.X
		for m := range numMetrics {
			width := panelWidth
			if m == 0 {
				width += namesWidth
			}
			part := c
			part.Min.X, part.Max.X = left, left+width-vg.Points(6)
			left += width
			t.panel(policies, m).Draw(part)
		}
		return nil
	})
}

// panel plots the boxes of a metric. The first panel has the names of the policies.
func (t *Table) panel(policies []string, m metric) *plot.Plot {
	f := figure.New("", "") // a label of the axis would take room on the right, as the axis is logarithmic
	f.Grid()
	p := f.Plot
	p.Title.Text = [numMetrics]string{"Mean E2E", "Mean TTFT", "P99 TTFT"}[m] + ", % above the best other policy"
	p.Title.TextStyle.Font.Size = vg.Points(9)
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.TickerFunc(percentTicks)
	p.X.Min, p.X.Max = leastDrawn, t.most()*1.3
	p.Y.Min, p.Y.Max = -0.6, float64(len(policies))-0.4
	ticks := make(plot.ConstantTicks, len(policies))
	for i, name := range policies {
		p.Add(newBox(t.of(name), m, float64(i), colorOf(name)))
		ticks[i].Value = float64(i)
		if ticks[i].Label = " "; m == e2e {
			ticks[i].Label = name
		}
	}
	p.Y.Tick.Marker, p.Y.Tick.Length = ticks, 0
	return p
}

// most returns the largest regret.
func (t *Table) most() float64 {
	most := 1.0
	for _, r := range t.Regrets {
		most = max(most, slices.Max(r.Hindsight[:]))
	}
	return most
}

// box is the distribution of regrets: quartiles and median as a box, a line from the 10th
// to the 90th percentile, a triangle for the mean, a circle for the worst.
type box struct {
	y                                        float64
	p10, quarter, median, threeQuarters, p90 float64
	mean, worst                              float64
	color                                    color.Color
}

func newBox(rs []Regret, m metric, y float64, of color.Color) *box {
	var xs []float64
	for _, r := range rs {
		xs = append(xs, r.Hindsight[m])
	}
	slices.Sort(xs)
	at := func(p float64) float64 { return max(leastDrawn, stats.Quantile(xs, p)) }
	mean := meanOf(rs, func(r Regret) float64 { return r.Hindsight[m] })
	return &box{y: y, p10: at(0.1), quarter: at(0.25), median: at(0.5), threeQuarters: at(0.75), p90: at(0.9),
		mean: max(leastDrawn, mean), worst: at(1), color: of}
}

// Plot implements plot.Plotter.
func (b *box) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	at := y(b.y)
	thin := draw.LineStyle{Width: vg.Points(0.8), Color: color.Black}
	c.StrokeLine2(thin, x(b.p10), at, x(b.p90), at)
	for _, end := range []float64{b.p10, b.p90} {
		c.StrokeLine2(thin, x(end), at-halfBox/2, x(end), at+halfBox/2)
	}
	low, high := vg.Point{X: x(b.quarter), Y: at - halfBox}, vg.Point{X: x(b.threeQuarters), Y: at + halfBox}
	figure.Fill(&c, b.color, low, high)
	c.StrokeLines(thin, []vg.Point{low, {X: high.X, Y: low.Y}, high, {X: low.X, Y: high.Y}, low})
	c.StrokeLine2(draw.LineStyle{Width: vg.Points(2), Color: color.Black}, x(b.median), low.Y, x(b.median), high.Y)
	mark := draw.GlyphStyle{Color: color.Black, Radius: vg.Points(3.2), Shape: draw.PyramidGlyph{}}
	c.DrawGlyph(mark, vg.Point{X: x(b.mean), Y: at})
	mark.Shape, mark.Radius = draw.RingGlyph{}, vg.Points(2.2)
	c.DrawGlyph(mark, vg.Point{X: x(b.worst), Y: at})
}

// percentTicks returns powers of ten, as percentages.
func percentTicks(low, high float64) (ticks []plot.Tick) {
	labels := []string{"<= 0.1", "1", "10", "100", "1k", "10k", "100k", "1000k"}
	x := leastDrawn
	for i := 0; x <= high*1.0001; i++ {
		label := fmt.Sprintf("%g", 100*x)
		if i < len(labels) {
			label = labels[i]
		}
		ticks = append(ticks, plot.Tick{Value: x, Label: label})
		x *= 10
	}
	return ticks
}

// colorOf returns a colour that distinguishes planners of this project, and choices on other seeds,
// from other policies.
func colorOf(policy string) color.Color {
	switch {
	case strings.HasPrefix(policy, "best"):
		return figure.Color(2)
	case strings.HasPrefix(policy, "plan-and-route"), policy == "route-only":
		return figure.Color(1)
	}
	return color.Gray{200}
}
