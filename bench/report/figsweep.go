package report

import (
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"lorasim/bench/scenario"
	"lorasim/bench/sweep"
)

// curves draws the usual metrics of each sweep across its first axis, with error
// bands: a line per policy, or, where there is one policy, per value of the
// second axis; other axes are at their middle.
func (p *Page) curves() ([]figure, error) {
	var out []figure
	for _, s := range p.Sweeps {
		if len(s.Axes) == 0 {
			continue
		}
		for _, metric := range append([]string{"goodput.share"}, sweep.DefaultMetrics...) {
			if !slices.Contains(s.Tables.Metrics, metric) {
				continue
			}
			f, err := s.curve(metric)
			if err != nil {
				return nil, err
			}
			f.name = fileName("sweep-" + s.Name + "-" + metric)
			out = append(out, f)
		}
	}
	return out, nil
}

// lines lists the names of a sweep's lines, and which one a point belongs to; -1:
// none.
func (s *Sweep) lines() (names []string, of func(*sweep.Point) int) {
	second := len(s.Policies) == 1 && len(s.Axes) > 1
	names = s.Policies
	if second {
		names = s.Axes[1].Values
	}
	return names, func(pt *sweep.Point) int {
		for i, a := range s.Axes {
			if i > 0 && !(i == 1 && second) && pt.Values[i] != a.Values[len(a.Values)/2] {
				return -1
			}
		}
		if second {
			return slices.Index(names, pt.Values[1])
		}
		return slices.Index(names, pt.Policy)
	}
}

func (s *Sweep) curve(metric string) (figure, error) {
	a := s.Axes[0]
	f := figure{plot: newPlot(scenario.Label(a.Key), sweep.Title(metric))}
	names, of := s.lines()
	lo, hi := math.Inf(1), 0.0
	for i, name := range names {
		var line, up, down plotter.XYs
		for k := range s.Points {
			pt := &s.Points[k]
			m, ok := pt.Metric(metric)
			if !ok || of(pt) != i {
				continue
			}
			x := a.Number(pt.Values[0])
			if !a.Numeric() {
				x = float64(slices.Index(a.Values, pt.Values[0]))
			}
			line = append(line, plotter.XY{X: x, Y: m.Mean})
			lo, hi = min(lo, m.Mean), max(hi, m.Mean)
			if m.N > 1 {
				// below a tenth of the mean an interval would only stretch a logarithmic axis
				up, down = append(up, plotter.XY{X: x, Y: m.High}), append(down, plotter.XY{X: x, Y: max(m.Low, m.Mean/10, 0)})
			}
		}
		if err := f.addBand(i, up, down); err != nil {
			return f, err
		}
		if err := f.addLine(name, i, line); err != nil {
			return f, err
		}
		if err := f.addDots(i, line); err != nil {
			return f, err
		}
	}
	s.scaleX(f.plot)
	if lo > 0 && hi > 20*lo {
		f.plot.Y.Min = lo / 1.5
		f.plot.Y.Scale, f.plot.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
	return f, nil
}

// scaleX puts the values of the first axis below the plot: names where they are
// no numbers, on a logarithmic scale where they grow by factors.
func (s *Sweep) scaleX(pl *plot.Plot) {
	a := s.Axes[0]
	var ticks []plot.Tick
	lo, hi := 0.0, 0.0
	for i, v := range a.Values {
		x := float64(i)
		if a.Numeric() {
			x = a.Number(v)
		}
		if i == 0 {
			lo, hi = x, x
		}
		lo, hi = min(lo, x), max(hi, x)
		ticks = append(ticks, plot.Tick{Value: x, Label: v})
	}
	if a.Numeric() && lo > 0 && hi/lo >= 16 && len(a.Values) > 2 {
		pl.X.Scale = plot.LogScale{}
	}
	if len(ticks) <= 14 {
		pl.X.Tick.Marker = plot.ConstantTicks(ticks)
	}
	const fits = 50 // letters side by side
	if len(strings.Join(a.Values, "  ")) > fits {
		pl.X.Tick.Label.Rotation = math.Pi / 8
		pl.X.Tick.Label.XAlign, pl.X.Tick.Label.YAlign = draw.XRight, draw.YCenter
	}
	if !a.Numeric() {
		pl.X.Min, pl.X.Max = -0.2, float64(len(a.Values))-0.8
	}
}

func (f *figure) addBand(i int, up, down plotter.XYs) error {
	if len(up) < 2 {
		return nil
	}
	slices.Reverse(down)
	band, err := plotter.NewPolygon(append(up, down...))
	if err != nil {
		return err
	}
	c := figureColor(i)
	c.A = 45
	band.Color, band.LineStyle.Width = c, 0
	f.plot.Add(band)
	return nil
}

func (f *figure) addDots(i int, xys plotter.XYs) error {
	if len(xys) == 0 {
		return nil
	}
	s, err := plotter.NewScatter(xys)
	if err != nil {
		return err
	}
	s.GlyphStyle = draw.GlyphStyle{Color: figureColor(i), Radius: vg.Points(2.2), Shape: draw.CircleGlyph{}}
	f.plot.Add(s)
	return nil
}
