package main

import (
	"fmt"
	"image/color"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"lorasim/internal/figure"
)

// leastDrawn is the regret that smaller ones are drawn as: the axis is logarithmic.
const leastDrawn = 0.001

// Plot draws a box per policy and metric: median and quartiles, whiskers to the farthest
// regret within 1.5 times their distance, dots beyond, and a triangle for the mean.
func (t *Table) Plot(path string) error {
	policies := slices.Clone(t.Policies)
	slices.Reverse(policies) // the best on top
	policies = slices.DeleteFunc(policies, func(p string) bool { return len(t.of(p)) == 0 })
	const width, names, row, rest = 9 * vg.Centimeter, 6.5 * vg.Centimeter, 0.62 * vg.Centimeter, 2.4 * vg.Centimeter
	height := row*vg.Length(len(policies)) + rest
	return figure.Write(path, names+width*vg.Length(numMetrics), height, func(c draw.Canvas) error {
		for m := range numMetrics {
			p, err := t.panel(policies, m)
			if err != nil {
				return err
			}
			left := c
			left.Min.X = c.Min.X + width*vg.Length(m)
			if m > 0 {
				left.Min.X += names
			}
			left.Max.X = c.Min.X + names + width*vg.Length(m+1)
			p.Draw(left)
		}
		return nil
	})
}

// most is the largest regret.
func (t *Table) most() float64 {
	most := 1.0
	for _, r := range t.Regrets {
		most = max(most, slices.Max(r.Hindsight[:]))
	}
	return most
}

// panel draws the boxes of a metric; the first one has the names of the policies.
func (t *Table) panel(policies []string, m metric) (*plot.Plot, error) {
	f := figure.New("worse than the best other policy", "")
	f.Grid()
	p := f.Plot
	p.Title.Text = "Regret of " + strings.Replace(metricNames[m], "E2E", "mean E2E", 1)
	if m == ttft {
		p.Title.Text = "Regret of mean TTFT"
	}
	p.X.Scale = plot.LogScale{}
	var means plotter.XYs
	for i, name := range policies {
		var values plotter.Values
		rs := t.of(name)
		for _, r := range rs {
			values = append(values, max(leastDrawn, r.Hindsight[m]))
		}
		mean := meanOf(rs, func(r Regret) float64 { return r.Hindsight[m] })
		means = append(means, plotter.XY{X: max(leastDrawn, mean), Y: float64(i)})
		box, err := plotter.NewBoxPlot(0.38*vg.Centimeter, float64(i), values)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		box.Horizontal = true
		box.FillColor = colorOf(name)
		box.GlyphStyle.Radius = vg.Points(1.3)
		p.Add(box)
	}
	f.Marks("", draw.PyramidGlyph{}, means)
	p.X.Min, p.X.Max = leastDrawn, t.most()*1.2
	p.Y.Min, p.Y.Max = -0.6, float64(len(policies))-0.4
	p.X.Tick.Marker = plot.TickerFunc(percentTicks)
	ticks := make(plot.ConstantTicks, len(policies))
	for i, name := range policies {
		ticks[i].Value = float64(i)
		if ticks[i].Label = " "; m == 0 {
			ticks[i].Label = name
		}
	}
	p.Y.Tick.Marker = ticks
	return p, nil
}

// percentTicks marks powers of ten.
func percentTicks(low, high float64) (ticks []plot.Tick) {
	for x, percent := leastDrawn, 0.1; x <= high*1.0001; x, percent = 10*x, 10*percent {
		label := fmt.Sprintf("%g %%", rounded(percent, 3))
		if x == leastDrawn {
			label = "<= " + label
		}
		ticks = append(ticks, plot.Tick{Value: x, Label: label})
	}
	return ticks
}

// colorOf tells this project's planners, and choices on other seeds, from the rest.
func colorOf(policy string) color.Color {
	switch {
	case strings.HasPrefix(policy, "auto"), strings.HasPrefix(policy, "best"):
		return figure.Color(2)
	case strings.HasPrefix(policy, "period_mig"), strings.HasPrefix(policy, "plan-and-route"), policy == "route-only":
		return figure.Color(1)
	}
	return color.Gray{200}
}
