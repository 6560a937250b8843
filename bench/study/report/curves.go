package report

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg/draw"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/bench/steady"
	"lorasim/bench/study/sweep"
	"lorasim/internal/figure"
)

// curves draws the usual metrics of each sweep across its first axis, and across each further axis whose effect the
// sweep states, with error bands: a line per policy, or, where there is one policy, per value of another axis; other
// axes are at their middle.
func (p *Page) curves() (out []picture) {
	for _, s := range p.Sweeps {
		for x, axis := range s.Axes {
			if x > 0 && !slices.Contains(s.EffectAxes(), x) {
				continue
			}
			for _, metric := range append(result.Names(func(m *result.Metric) bool { return m.Curve }),
				result.SweepDefaults()...) {
				if slices.Contains(s.Tables.Metrics, metric) {
					name := []string{"sweep", s.Name, metric}
					if x > 0 {
						name = []string{"sweep", s.Name, axis.Leaf(), metric}
					}
					f := newPicture(scenario.Label(axis.Key), result.MetricOf(metric).Title, name...)
					s.curve(f.Plot, x, metric)
					out = append(out, f)
				}
			}
		}
	}
	return out
}

// costs draws the share of good requests over the GPU-hours, of sweeps over elastic
// clusters: for each policy and other setting a picture with a line per rule.
func (p *Page) costs() (out []picture) {
	for _, s := range p.Sweeps {
		k := slices.IndexFunc(s.Axes, func(a sweep.Axis) bool { return a.Leaf() == "elastic" })
		pictures := map[string]int{} // by title, in out
		lines := map[string]map[string]plotter.XYs{}
		for i := range s.Points {
			pt := &s.Points[i]
			hours, ok := pt.Metric("elastic.gpu_hours")
			good, judged := pt.Metric("goodput.share")
			if k < 0 || !ok || !judged {
				continue
			}
			title := strings.Join(append(slices.Delete(slices.Clone(pt.Values), k, k+1), pt.Policy), ", ")
			if lines[title] == nil {
				pictures[title], lines[title] = len(out), map[string]plotter.XYs{}
				f := newPicture(result.MetricOf(hours.Name).Title, result.MetricOf(good.Name).Title, "sweep", s.Name,
					"gpu-hours", title)
				f.Title.Text = title
				out = append(out, f)
			}
			rule := scenario.ElasticRule(pt.Values[k])
			lines[title][rule] = append(lines[title][rule], plotter.XY{X: hours.Mean, Y: good.Mean})
		}
		for title, rules := range lines {
			for i, rule := range scenario.ElasticRules() {
				xys := rules[rule]
				slices.SortFunc(xys, func(a, b plotter.XY) int { return cmp.Compare(a.X, b.X) })
				out[pictures[title]].Line(rule, i, xys)
				out[pictures[title]].Dots("", i, xys)
			}
		}
	}
	return out
}

// lines lists the names of the lines across axis x, and which one a point belongs to; -1: none.
func (s *Sweep) lines(x int) (names []string, of func(*sweep.Point) int) {
	other := -1 // axis that the lines are for, in place of policies
	names = s.Policies
	if len(s.Policies) == 1 && len(s.Axes) > 1 {
		if other = 1; x > 0 {
			other = 0
		}
		names = s.Axes[other].Values
	}
	return names, func(pt *sweep.Point) int {
		for i, a := range s.Axes {
			if i != x && i != other && pt.Values[i] != a.Values[len(a.Values)/2] {
				return -1
			}
		}
		if other >= 0 {
			return slices.Index(names, pt.Values[other])
		}
		return slices.Index(names, pt.Policy)
	}
}

// at is where a value of an axis stands.
func at(a sweep.Axis, value string) float64 {
	if a.Numeric() {
		return a.Number(value)
	}
	return float64(slices.Index(a.Values, value))
}

func (s *Sweep) curve(f *figure.Plot, axis int, metric string) {
	names, of := s.lines(axis)
	lo, hi := math.Inf(1), 0.0
	var overloaded, transient plotter.XYs
	for i, name := range names {
		var line, up, down plotter.XYs
		for k := range s.Points {
			pt := &s.Points[k]
			m, ok := pt.Metric(metric)
			if !ok || of(pt) != i {
				continue
			}
			x := at(s.Axes[axis], pt.Values[axis])
			line = append(line, plotter.XY{X: x, Y: m.Mean})
			lo, hi = min(lo, m.Mean), max(hi, m.Mean)
			switch {
			case pt.Judge() || !result.MetricOf(metric).NeedsSteady:
			case pt.State == steady.Overloaded:
				overloaded = append(overloaded, line[len(line)-1])
			default:
				transient = append(transient, line[len(line)-1])
			}
			if m.N > 1 {
				// below a tenth of the mean an interval would only stretch a logarithmic axis
				up, down = append(up, plotter.XY{X: x, Y: m.High}),
					append(down, plotter.XY{X: x, Y: max(m.Low, m.Mean/10, 0)})
			}
		}
		if len(up) > 1 {
			slices.Reverse(down)
			band, err := plotter.NewPolygon(append(up, down...))
			if err == nil {
				c := figure.Color(i)
				c.A = 45
				band.Color, band.LineStyle.Width = c, 0
			}
			f.Named("", band, err)
		}
		f.Line(name, i, line)
		f.Dots("", i, line)
	}
	f.Marks("overloaded: no verdict", draw.CrossGlyph{}, overloaded)
	f.Marks("transient: no verdict", draw.RingGlyph{}, transient)
	scaleX(f, s.Axes[axis])
	if lo > 0 && hi > 20*lo {
		f.Y.Min = lo / 1.5
		f.Y.Scale, f.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
}

// scaleX puts the values of an axis below the plot: names where they are
// no numbers, on a logarithmic scale where they grow by factors.
func scaleX(f *figure.Plot, a sweep.Axis) {
	var ticks []plot.Tick
	lo, hi := math.Inf(1), math.Inf(-1)
	for _, v := range a.Values {
		x := at(a, v)
		lo, hi = min(lo, x), max(hi, x)
		ticks = append(ticks, plot.Tick{Value: x, Label: v})
	}
	if a.Numeric() && lo > 0 && hi/lo >= 16 && len(a.Values) > 2 {
		f.X.Scale = plot.LogScale{}
	}
	if len(ticks) <= 14 {
		f.X.Tick.Marker = plot.ConstantTicks(ticks)
	}
	const fits = 50 // letters side by side
	if len(strings.Join(a.Values, "  ")) > fits {
		f.X.Tick.Label.Rotation = math.Pi / 8
		f.X.Tick.Label.XAlign, f.X.Tick.Label.YAlign = draw.XRight, draw.YCenter
	}
	if !a.Numeric() {
		f.X.Min, f.X.Max = -0.2, float64(len(a.Values))-0.8
	}
}
