package figure

import (
	"fmt"
	"image/color"
	"io"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Panel shows a figure of merit of several runs, predicted against measured.
type Panel struct {
	Title, Unit string
	Points      []Point
}

// Point is one run. Points of one group have a colour in common.
type Point struct {
	Group               string
	Measured, Predicted float64 // > 0
}

// WritePanels draws panels side by side as an SVG, on logarithmic axes with the
// diagonal and lines 10 % beside it.
func WritePanels(w io.Writer, panels []Panel) error {
	const width, height = 9 * vg.Centimeter, 9 * vg.Centimeter
	canvas := vgsvg.New(width*vg.Length(len(panels)), height)
	all := draw.New(canvas)
	for i, panel := range panels {
		p, err := panel.plot()
		if err != nil {
			return fmt.Errorf("plot: %w", err)
		}
		left := width * vg.Length(i)
		p.Draw(draw.Crop(all, left, left+width-all.Max.X, 0, 0))
	}
	_, err := canvas.WriteTo(w)
	return err
}

func (panel *Panel) plot() (*plot.Plot, error) {
	if len(panel.Points) == 0 {
		return nil, fmt.Errorf("no run with a prediction of %s", panel.Title)
	}
	p := plot.New()
	p.Title.Text = panel.Title
	p.X.Label.Text, p.Y.Label.Text = "measured, "+panel.Unit, "predicted, "+panel.Unit
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = logTicks{}, logTicks{}
	p.Legend.TextStyle.Font.Size = vg.Points(8)

	var names []string
	points := map[string]plotter.XYs{}
	lo, hi := math.Inf(1), 0.0
	for _, q := range panel.Points {
		if points[q.Group] == nil {
			names = append(names, q.Group)
		}
		points[q.Group] = append(points[q.Group], plotter.XY{X: q.Measured, Y: q.Predicted})
		lo, hi = min(lo, q.Measured, q.Predicted), max(hi, q.Measured, q.Predicted)
	}
	lo, hi = lo/1.15, hi*1.15
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = lo, hi, lo, hi
	for _, f := range []float64{0.9, 1, 1.1} {
		l, err := plotter.NewLine(plotter.XYs{{X: lo, Y: lo * f}, {X: hi, Y: hi * f}})
		if err != nil {
			return nil, err
		}
		l.Color = color.Gray{160}
		if f != 1 {
			l.Dashes = []vg.Length{vg.Points(2), vg.Points(3)}
		}
		p.Add(l)
	}
	for i, name := range names {
		s, err := dots(i, points[name])
		if err != nil {
			return nil, err
		}
		p.Add(s)
		p.Legend.Add(name, s)
	}
	return p, nil
}

// logTicks marks round numbers, more of them in a narrow range.
type logTicks struct{}

func (logTicks) Ticks(lo, hi float64) []plot.Tick {
	factors := []float64{1, 2, 5}
	switch {
	case hi/lo < 10:
		factors = []float64{1, 1.5, 2, 3, 4, 5, 7}
	case hi/lo > 3000:
		factors = []float64{1}
	case hi/lo > 100:
		factors = []float64{1, 3}
	}
	var ts []plot.Tick
	for e := math.Floor(math.Log10(lo)); e <= math.Ceil(math.Log10(hi)); e++ {
		for _, f := range factors {
			v := f * math.Pow(10, e)
			label := fmt.Sprintf("%g", v)
			if v >= 10_000 {
				label = fmt.Sprintf("%gk", v/1000)
			}
			if v >= lo && v <= hi {
				ts = append(ts, plot.Tick{Value: v, Label: label})
			}
		}
	}
	return ts
}
