package validate

import (
	"fmt"
	"image/color"
	"io"
	"math"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Plot draws predicted against measured as an SVG: a panel for each of the
// metrics duration, mean and median E2E latency, or for logs the mean E2E
// latency, TTFT and ITL, on logarithmic axes with the diagonal and lines 10 %
// beside it.
func (r *Report) Plot(w io.Writer) error {
	metrics := []Metric{Duration, MeanE2E, MedianE2E}
	if r.blocks() {
		metrics = []Metric{MeanE2E, MeanTTFT, MeanITL}
	}
	const width, height = 9 * vg.Centimeter, 9 * vg.Centimeter
	canvas := vgsvg.New(width*vg.Length(len(metrics)), height)
	all := draw.New(canvas)
	for i, m := range metrics {
		p, err := r.panel(m)
		if err != nil {
			return fmt.Errorf("plot: %w", err)
		}
		left := width * vg.Length(i)
		p.Draw(draw.Crop(all, left, left+width-all.Max.X, 0, 0))
	}
	_, err := canvas.WriteTo(w)
	return err
}

// colors tell groups apart, also for those who see few colors (Okabe, Ito).
var colors = []color.Color{
	color.RGBA{0, 114, 178, 255}, color.RGBA{213, 94, 0, 255}, color.RGBA{0, 158, 115, 255},
	color.RGBA{204, 121, 167, 255}, color.RGBA{86, 180, 233, 255}, color.RGBA{230, 159, 0, 255},
}

func (r *Report) panel(m Metric) (*plot.Plot, error) {
	p := plot.New()
	unit := "ms"
	if m == Duration {
		unit = "s"
	}
	p.Title.Text = string(m)
	p.X.Label.Text, p.Y.Label.Text = "measured, "+unit, "predicted, "+unit
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = logTicks{}, logTicks{}
	p.Legend.Left = false // the points lie about the diagonal
	p.Legend.TextStyle.Font.Size = vg.Points(8)

	var names []string
	points := map[string]plotter.XYs{}
	lo, hi := math.Inf(1), 0.0
	for i := range r.Runs {
		row := &r.Runs[i]
		if _, ok := row.Error[m]; !ok || row.Predicted[m] <= 0 {
			continue
		}
		policy, _, _ := strings.Cut(row.Policy, ":")
		name := row.Group + " " + policy
		if r.blocks() {
			name = row.ID
		}
		if points[name] == nil {
			names = append(names, name)
		}
		x, y := row.Measured[m], row.Predicted[m]
		points[name] = append(points[name], plotter.XY{X: x, Y: y})
		lo, hi = min(lo, x, y), max(hi, x, y)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("no run with a prediction of %s", m)
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
		s, err := plotter.NewScatter(points[name])
		if err != nil {
			return nil, err
		}
		s.Color, s.Radius, s.Shape = colors[i%len(colors)], vg.Points(2.5), draw.CircleGlyph{}
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
	case hi/lo > 100:
		factors = []float64{1, 3}
	}
	var ts []plot.Tick
	for e := math.Floor(math.Log10(lo)); e <= math.Ceil(math.Log10(hi)); e++ {
		for _, f := range factors {
			v := f * math.Pow(10, e)
			if v < lo || v > hi {
				continue
			}
			label := fmt.Sprintf("%g", v)
			if v >= 10_000 {
				label = fmt.Sprintf("%gk", v/1000)
			}
			ts = append(ts, plot.Tick{Value: v, Label: label})
		}
	}
	return ts
}
