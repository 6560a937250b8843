package main

import (
	"fmt"
	"image/color"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"lorasim/internal/figure"
)

// The sizes of the picture.
const (
	width       = 20 * vg.Centimeter
	topHeight   = 7.5 * vg.Centimeter
	stripHeight = 3.6 * vg.Centimeter
	legendWidth = 4.4 * vg.Centimeter
	leftWidth   = 2.6 * vg.Centimeter // width of both y axes
)

// write plots the latencies of all runs and, below, the routing policy of the first run, auto's.
func write(path string, runs []run) error {
	return figure.Write(path, width, topHeight+stripHeight, func(c draw.Canvas) error {
		legend := plot.NewLegend()
		legend.Top, legend.Left, legend.Padding = true, true, vg.Points(3)
		legend.TextStyle.Font.Variant, legend.TextStyle.Font.Size = "Sans", vg.Points(10)
		top, err := latencies(runs, &legend)
		if err != nil {
			return err
		}
		strip, err := choices(&runs[0])
		if err != nil {
			return err
		}
		upper, lower, right := c, c, c
		upper.Min.Y = c.Min.Y + stripHeight
		lower.Max.Y = c.Min.Y + stripHeight
		right.Min.X = c.Max.X - legendWidth
		upper.Max.X, lower.Max.X = right.Min.X, right.Min.X
		alignLeft(top, &upper)
		alignLeft(strip, &lower)
		top.Draw(upper)
		strip.Draw(lower)
		legend.Draw(right)
		return nil
	})
}

// alignLeft moves a plot to the right until its data begins at leftWidth.
func alignLeft(p *plot.Plot, c *draw.Canvas) {
	data := p.DataCanvas(*c)
	c.Min.X += max(0, leftWidth-(data.Min.X-c.Min.X))
}

// latencies plots the mean latency over the arrival time of the requests.
func latencies(runs []run, legend *plot.Legend) (*plot.Plot, error) {
	f := figure.New("", "mean E2E latency, s")
	f.Grid()
	f.Title.Text = "Latency of requests by their arrival"
	for i, r := range slices.Backward(runs) { // auto on top
		var xys plotter.XYs
		for k, a := range r.latency {
			if a.n > 0 {
				xys = append(xys, plotter.XY{X: (float64(k) + 0.5) * interval, Y: a.sum / a.n})
			}
		}
		line, err := plotter.NewLine(xys)
		if err != nil {
			return nil, err
		}
		line.LineStyle = draw.LineStyle{Width: vg.Points(1.3), Color: figure.Color(i)}
		if i == 0 {
			line.LineStyle = draw.LineStyle{Width: vg.Points(2.4), Color: color.Black}
		}
		f.Add(line)
		defer legend.Add(fmt.Sprintf("%s: %.1f s", r.policy, r.mean), line) // in the order of the runs
	}
	f.X.Min, f.X.Max, f.Y.Min = 0, runs[0].until, 0
	return f.Plot, nil
}

// choices plots the routing candidate over time, and the gain that the twin predicted at each
// change.
func choices(r *run) (*plot.Plot, error) {
	f := figure.New("time, s", "")
	f.Title.Text = "Policy that auto uses; dots: races; numbers: predicted gains"
	p := f.Plot
	ticks := make(plot.ConstantTicks, len(candidates))
	for i, name := range candidates {
		ticks[i] = plot.Tick{Value: row(name), Label: name}
	}
	var labels plotter.XYLabels
	for _, s := range r.stays() {
		i := slices.Index(candidates, s.policy)
		low, high := row(s.policy)-0.3, row(s.policy)+0.3
		bar, err := plotter.NewPolygon(plotter.XYs{{X: s.from, Y: low}, {X: s.to, Y: low}, {X: s.to, Y: high},
			{X: s.from, Y: high}})
		if err != nil {
			return nil, err
		}
		bar.Color, bar.LineStyle.Width = figure.Color(i+1), 0
		p.Add(bar)
		if s.gain != 0 {
			labels.XYs = append(labels.XYs, plotter.XY{X: s.from, Y: row(s.policy)})
			labels.Labels = append(labels.Labels, fmt.Sprintf(" %+.2f", s.gain))
		}
	}
	if err := races(p, r); err != nil {
		return nil, err
	}
	if len(labels.Labels) > 0 {
		text, err := plotter.NewLabels(labels)
		if err != nil {
			return nil, err
		}
		for i := range text.TextStyle {
			text.TextStyle[i].Font.Variant, text.TextStyle[i].YAlign = "Sans", draw.YCenter
			text.TextStyle[i].Color = color.White
		}
		p.Add(text)
	}
	p.Y.Tick.Marker, p.Y.Tick.Length = ticks, 0
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, r.until, row(candidates[len(candidates)-1])-0.8, row(candidates[0])+0.5
	return p, nil
}

// row returns the y coordinate of a candidate's row; the first candidate is on top.
func row(policy string) float64 { return -float64(slices.Index(candidates, policy)) }

// races marks the times of all races below the rows.
func races(p *plot.Plot, r *run) error {
	var xys plotter.XYs
	for _, race := range r.races {
		xys = append(xys, plotter.XY{X: race.At, Y: row(candidates[len(candidates)-1]) - 0.6})
	}
	if len(xys) == 0 {
		return nil
	}
	dots, err := plotter.NewScatter(xys)
	if err != nil {
		return err
	}
	dots.GlyphStyle = draw.GlyphStyle{Color: color.Black, Radius: vg.Points(1.6), Shape: draw.CircleGlyph{}}
	p.Add(dots)
	return nil
}
