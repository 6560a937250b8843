package report

import (
	"fmt"
	"image/color"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"lorasim/bench/scenario"
	"lorasim/bench/sweep"
	"lorasim/internal/figure"
)

// mapData shows which policy is the best in each cell of a sweep over two to four
// settings, and what it gains over the baseline: the first setting goes across
// and the second up, the others tell blocks apart.
type mapData struct {
	Metric string     `json:"metric"`
	Title  string     `json:"title"`
	X      axisData   `json:"x"`
	Y      axisData   `json:"y"`
	Blocks []mapBlock `json:"blocks"` // those of one value of the fourth setting after the other
	Across int        `json:"across"` // blocks side by side
}

type mapBlock struct {
	Title string      `json:"title"`
	Cells [][]mapCell `json:"cells"` // by value of Y, then of X
}

// mapCell is empty where no policy is certain to be better than the baseline.
type mapCell struct {
	Policy string  `json:"policy,omitempty"`
	Gain   float64 `json:"gain"` // share of the baseline
	Half   float64 `json:"half"` // of its 95 % interval
	mark   string
}

// mapMetrics are those that have a map.
var mapMetrics = []string{"mean_e2e_latency_ms", "mean_ttft_ms", "p99_ttft_ms"}

// maps are empty where a sweep has too few settings or policies, or too many.
func (s *Sweep) maps() (out []mapData) {
	n := len(s.Axes)
	if n < 2 || n > 4 || len(s.Policies) < 2 || len(s.Seeds) < 2 {
		return nil
	}
	axis := func(i int) axisData {
		if i >= n {
			return axisData{Values: []string{""}}
		}
		a := s.Axes[i]
		return axisData{a.Leaf(), scenario.Label(a.Key), a.Values, a.Numeric()}
	}
	x, y, z, v := axis(0), axis(1), axis(2), axis(3)
	for _, metric := range mapMetrics {
		if !slices.Contains(s.Tables.Metrics, metric) {
			continue
		}
		m := mapData{Metric: metric, Title: sweep.Title(metric), X: x, Y: y, Across: len(z.Values)}
		for k4 := range v.Values {
			for k3 := range z.Values {
				b := mapBlock{Cells: make([][]mapCell, len(y.Values))}
				for i, k := range []int{k3, k4} {
					if 2+i < n {
						b.Title += ", " + s.Axes[2+i].Leaf() + " " + s.Axes[2+i].Values[k]
					}
				}
				b.Title = strings.TrimPrefix(b.Title, ", ")
				for k2 := range y.Values {
					for k1 := range x.Values {
						at := 0 // the last axis varies fastest
						for i, k := range []int{k1, k2, k3, k4}[:n] {
							at = at*len(s.Axes[i].Values) + k
						}
						b.Cells[k2] = append(b.Cells[k2], bestOf(s.Points[at*len(s.Policies):][:len(s.Policies)], metric))
					}
				}
				m.Blocks = append(m.Blocks, b)
			}
		}
		out = append(out, m)
	}
	return out
}

// bestOf is the policy with the largest gain over the baseline among those whose
// gain is certain, by paired t-tests with Holm's correction.
func bestOf(points []sweep.Point, metric string) (best mapCell) {
	var ms []sweep.Metric
	var ps []float64
	for i := range points {
		m, _ := points[i].Metric(metric)
		ms = append(ms, m)
		if m.Diff.N > 1 {
			ps = append(ps, m.Diff.P())
		}
	}
	ps = sweep.Holm(ps)
	for i, m := range ms {
		if m.Diff.N < 2 {
			continue
		}
		p := ps[0]
		ps = ps[1:]
		gain := -float64(sweep.LowerIsBetter(metric)) * m.Diff.Mean / m.Base
		if p < sweep.Level && !m.Apart && gain > best.Gain {
			best = mapCell{points[i].Policy, gain, m.Diff.Half() / m.Base, mark(points[i].Policy)}
		}
	}
	return best
}

// mark names a policy in a cell: by its interval, where its spec has one.
func mark(policy string) string {
	name, options, _ := strings.Cut(policy, ":")
	for o := range strings.SplitSeq(options, ",") {
		if s, ok := strings.CutPrefix(o, "interval="); ok {
			return s + " s"
		}
	}
	return name
}

// mapFigures draws the maps of each sweep.
func (p *Page) mapFigures() (out []picture, err error) {
	for _, s := range p.Sweeps {
		for _, m := range s.maps() {
			out = append(out, m.picture(s.Name))
		}
	}
	return out, nil
}

const mapGap = 0.5 // between blocks, in cells

func (m *mapData) picture(name string) picture {
	nx, ny := len(m.X.Values), len(m.Y.Values)
	down := len(m.Blocks) / m.Across
	f := picture{Plot: figure.New(m.X.Label, m.Y.Label), name: fileName("map", name, m.Metric)}
	f.Title.Text = m.Title + ": the best, and its gain"
	f.X.Min, f.X.Max = 0, float64(m.Across)*(float64(nx)+mapGap)-mapGap
	f.Y.Min, f.Y.Max = 0, float64(down)*(float64(ny)+mapGap)
	var xs, ys []plot.Tick
	for b := range m.Across {
		for i, v := range m.X.Values {
			xs = append(xs, plot.Tick{Value: float64(b)*(float64(nx)+mapGap) + float64(i) + 0.5, Label: v})
		}
	}
	for b := range down {
		for i, v := range m.Y.Values {
			ys = append(ys, plot.Tick{Value: float64(b)*(float64(ny)+mapGap) + float64(i) + 0.5, Label: v})
		}
	}
	f.X.Tick.Marker, f.Y.Tick.Marker = plot.ConstantTicks(xs), plot.ConstantTicks(ys)
	f.X.Tick.Length, f.Y.Tick.Length = 0, 0
	f.X.LineStyle.Width, f.Y.LineStyle.Width = 0, 0
	most := m.most()
	f.Add(mapPlot{m, most})
	f.Entry("no certain gain", figure.Swatch{Color: shade(0)})
	for _, share := range []float64{1.0 / 3, 2.0 / 3, 1} {
		f.Entry(fmt.Sprintf("%.0f %%", 100*share*most), figure.Swatch{Color: shade(share)})
	}
	f.height = vg.Length(down)*(vg.Length(ny)+mapGap)*vg.Points(30) + vg.Inch
	return f
}

// most is the largest gain.
func (m *mapData) most() (most float64) {
	for _, b := range m.Blocks {
		for _, row := range b.Cells {
			for _, c := range row {
				most = max(most, c.Gain)
			}
		}
	}
	return most
}

// shade goes from grey, for no gain, over pale to full green.
func shade(share float64) color.NRGBA {
	if !(share > 0) {
		return color.NRGBA{236, 238, 241, 255}
	}
	full := figure.Color(2)
	mix := func(c uint8) uint8 { return uint8(math.Round(255 - (0.15+0.85*min(share, 1))*float64(255-c))) }
	return color.NRGBA{mix(full.R), mix(full.G), mix(full.B), 255}
}

// mapPlot draws the cells of a map.
type mapPlot struct {
	*mapData
	most float64
}

// Plot implements plot.Plotter.
func (p mapPlot) Plot(c draw.Canvas, pl *plot.Plot) {
	tx, ty := pl.Transforms(&c)
	style := pl.X.Tick.Label
	style.Font.Size, style.XAlign, style.YAlign, style.Rotation = vg.Points(8), draw.XCenter, draw.YCenter, 0
	nx, ny := float64(len(p.X.Values)), float64(len(p.Y.Values))
	for i, b := range p.Blocks {
		x0 := float64(i%p.Across) * (nx + mapGap)
		y0 := float64(i/p.Across) * (ny + mapGap)
		style.Color = color.Black
		c.FillText(style, vg.Point{X: tx(x0 + nx/2), Y: ty(y0 + ny + mapGap/2)}, b.Title)
		for k2, row := range b.Cells {
			for k1, cell := range row {
				x, y := x0+float64(k1), y0+float64(k2)
				const edge = 0.02
				left, right, low, high := tx(x+edge), tx(x+1-edge), ty(y+edge), ty(y+1-edge)
				c.FillPolygon(shade(cell.Gain/p.most), []vg.Point{{X: left, Y: low}, {X: right, Y: low}, {X: right, Y: high}, {X: left, Y: high}})
				if cell.Policy == "" {
					continue
				}
				if style.Color = color.Black; cell.Gain > 0.6*p.most {
					style.Color = color.White
				}
				middle := tx(x + 0.5)
				c.FillText(style, vg.Point{X: middle, Y: ty(y + 0.68)}, cell.mark)
				c.FillText(style, vg.Point{X: middle, Y: ty(y + 0.32)}, fmt.Sprintf("%.0f %%", 100*cell.Gain))
			}
		}
	}
}
