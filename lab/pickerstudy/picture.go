package main

import (
	"fmt"
	"image/color"
	"math"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"lorasim/internal/figure"
)

// The sizes of the picture.
const (
	panelWidth = 6.6 * vg.Centimeter
	namesWidth = 3.6 * vg.Centimeter
	rowHeight  = 0.75 * vg.Centimeter
	axesHeight = 2 * vg.Centimeter
)

// picture plots the objective of each policy relative to KServe's default, in a panel for each
// workload. Each rate has a dot with its interval. Configurations tuned on other workloads are
// omitted.
func picture(path string, studies []*study) error {
	rows := shown(studies[0])
	height := rowHeight*vg.Length(len(rows)) + axesHeight
	width := namesWidth + panelWidth*vg.Length(len(studies))
	low, high := ends(studies)
	return figure.Write(path, width, height, func(c draw.Canvas) error {
		left := c.Min.X
		for i, s := range studies {
			width := panelWidth
			if i == 0 {
				width += namesWidth
			}
			part := c
			part.Min.X, part.Max.X = left, left+width-vg.Points(6)
			left += width
			p, err := s.panel(i == 0, low, high)
			if err != nil {
				return err
			}
			p.Draw(part)
		}
		return nil
	})
}

// shown returns the policies in the picture, the first one last: rows are counted from below.
func shown(s *study) (rows []int) {
	for i := len(s.labels) - 1; i > 0; i-- {
		if !strings.Contains(s.labels[i], " on ") {
			rows = append(rows, i)
		}
	}
	return rows
}

// ends returns the ends of the axis that all panels share.
func ends(studies []*study) (low, high float64) {
	low, high = 1, 1
	for _, s := range studies {
		for r := range s.rates() {
			for _, i := range shown(s) {
				_, l, h := s.versus(r, i)
				low, high = min(low, l), max(high, h)
			}
		}
	}
	return low / 1.1, high * 1.1
}

// panel plots a workload.
func (s *study) panel(names bool, low, high float64) (*plot.Plot, error) {
	f := figure.New("", "")
	f.Grid()
	p := f.Plot
	p.Title.Text = s.name + ", requests/s: "
	rows := shown(s)
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.TickerFunc(ratioTicks)
	p.X.Min, p.X.Max = low, high
	p.Y.Min, p.Y.Max = -0.6, float64(len(rows))-0.4
	ticks := make(plot.ConstantTicks, len(rows))
	for k, i := range rows {
		ticks[k].Value = float64(k)
		if ticks[k].Label = " "; names {
			ticks[k].Label = s.labels[i]
		}
	}
	p.Y.Tick.Marker, p.Y.Tick.Length = ticks, 0
	line, err := plotter.NewLine(plotter.XYs{{X: 1, Y: p.Y.Min}, {X: 1, Y: p.Y.Max}})
	if err != nil {
		return nil, err
	}
	line.Color = color.Gray{120}
	p.Add(line)
	for r := range s.rates() {
		if r > 0 {
			p.Title.Text += ", "
		}
		p.Title.Text += s.point(r, 0).Values[0] + []string{" (blue)", " (red)"}[r%2]
		if err := s.dots(p, r, rows); err != nil {
			return nil, err
		}
	}
	p.Title.TextStyle.Font.Size, p.X.Tick.Label.Font.Size = vg.Points(9), vg.Points(8)
	return p, nil
}

// dots plots the policies at a rate, with their intervals.
func (s *study) dots(p *plot.Plot, rate int, rows []int) error {
	var at plotter.XYs
	var errors plotter.XErrors
	for k, i := range rows {
		mean, low, high := s.versus(rate, i)
		at = append(at, plotter.XY{X: mean, Y: float64(k) + 0.15 - 0.3*float64(rate)})
		errors = append(errors, struct{ Low, High float64 }{mean - low, high - mean})
	}
	bars, err := plotter.NewXErrorBars(struct {
		plotter.XYs
		plotter.XErrors
	}{at, errors})
	if err != nil {
		return err
	}
	bars.Color, bars.CapWidth = figure.Color(rate), vg.Points(4)
	dots, err := plotter.NewScatter(at)
	if err != nil {
		return err
	}
	dots.GlyphStyle = draw.GlyphStyle{Color: figure.Color(rate), Radius: vg.Points(2.6), Shape: draw.CircleGlyph{}}
	p.Add(bars, dots)
	return nil
}

// ratioTicks marks powers of two.
func ratioTicks(low, high float64) (ticks []plot.Tick) {
	for e := math.Ceil(math.Log2(low)); e <= math.Log2(high); e++ {
		ticks = append(ticks, plot.Tick{Value: math.Exp2(e), Label: fmt.Sprintf("x%g", math.Exp2(e))})
	}
	return ticks
}
