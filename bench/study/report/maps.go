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

	"lorasim/bench/result"
	"lorasim/bench/stats"
	"lorasim/bench/study/sweep"
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

// maps are empty where a sweep has too few settings or policies, or too many.
func (s *Sweep) maps() (out []mapData) {
	n := len(s.Axes)
	if n < 2 || n > 4 || len(s.Policies) < 2 || len(s.Seeds) < 2 {
		return nil
	}
	across, down := 1, 1
	if n > 2 {
		across = len(s.Axes[2].Values)
	}
	if n > 3 {
		down = len(s.Axes[3].Values)
	}
	for _, metric := range result.Names(func(m *result.Metric) bool { return m.Map }) {
		if !slices.Contains(s.Tables.Metrics, metric) {
			continue
		}
		m := mapData{
			Metric: metric, Title: result.MetricOf(metric).Title, X: newAxis(s.Axes[0]), Y: newAxis(s.Axes[1]),
			Across: across,
		}
		m.Blocks = make([]mapBlock, across*down)
		for points := range slices.Chunk(s.Points, len(s.Policies)) { // the last axis varies fastest
			var at [4]int
			var title []string
			for i, v := range points[0].Values {
				if at[i] = slices.Index(s.Axes[i].Values, v); i > 1 {
					title = append(title, s.Axes[i].Leaf()+" "+v)
				}
			}
			b := &m.Blocks[at[3]*across+at[2]]
			if b.Cells == nil {
				b.Title, b.Cells = strings.Join(title, ", "), make([][]mapCell, len(m.Y.Values))
			}
			b.Cells[at[1]] = append(b.Cells[at[1]], bestOf(points, metric))
		}
		out = append(out, m)
	}
	return out
}

// bestOf is the policy with the largest gain over the baseline among those whose
// gain is certain, by paired t-tests with Holm's correction.
func bestOf(points []sweep.Point, metric string) (best mapCell) {
	var cells []mapCell
	var ps []float64
	for i := range points {
		m, _ := points[i].Metric(metric)
		if m.Diff.N < 2 {
			continue
		}
		gain := -float64(result.MetricOf(metric).Better) * m.Diff.Mean / m.Base
		if m.Apart || m.Unsteady {
			gain = 0
		}
		cells = append(cells, mapCell{points[i].Policy, gain, m.Diff.Half() / m.Base, mark(points[i].Policy)})
		ps = append(ps, m.Diff.P())
	}
	for i, p := range stats.Holm(ps) {
		if p < stats.Level && cells[i].Gain > best.Gain {
			best = cells[i]
		}
	}
	return best
}

// mark names a policy in a cell: by its interval, if its spec has one.
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
func (p *Page) mapFigures() (out []picture) {
	for _, s := range p.Sweeps {
		for _, m := range s.maps() {
			out = append(out, m.picture(s.Name))
		}
	}
	return out
}

const mapGap = 0.5 // between blocks, in cells

func (m *mapData) picture(name string) picture {
	down := len(m.Blocks) / m.Across
	f := picture{Plot: figure.New(m.X.Label, m.Y.Label), name: fileName("map", name, m.Metric)}
	f.Title.Text = m.Title + ": the best, and its gain"
	// an axis has the values of a setting once for each block
	axis := func(a *plot.Axis, values []string, blocks int) (cells float64) {
		var ticks []plot.Tick
		for b := range blocks {
			for i, v := range values {
				ticks = append(ticks, plot.Tick{
					Value: float64(b)*(float64(len(values))+mapGap) + float64(i) + 0.5, Label: v,
				})
			}
		}
		a.Tick.Marker, a.Tick.Length, a.LineStyle.Width = plot.ConstantTicks(ticks), 0, 0
		return float64(blocks) * (float64(len(values)) + mapGap)
	}
	f.X.Min, f.X.Max = 0, axis(&f.X, m.X.Values, m.Across)-mapGap
	f.Y.Min, f.Y.Max = 0, axis(&f.Y, m.Y.Values, down)
	most := 0.0
	for _, b := range m.Blocks {
		for _, c := range slices.Concat(b.Cells...) {
			most = max(most, c.Gain)
		}
	}
	f.Add(mapPlot{m, most})
	f.Entry("no significant gain", figure.Swatch{Color: shade(0)})
	for _, share := range []float64{1.0 / 3, 2.0 / 3, 1} {
		f.Entry(fmt.Sprintf("%.0f %%", 100*share*most), figure.Swatch{Color: shade(share)})
	}
	f.height = vg.Length(f.Y.Max)*vg.Points(30) + vg.Inch
	return f
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
	most float64 // the largest gain
}

// Plot implements plot.Plotter.
func (p mapPlot) Plot(c draw.Canvas, pl *plot.Plot) {
	tx, ty := pl.Transforms(&c)
	point := func(x, y float64) vg.Point { return vg.Point{X: tx(x), Y: ty(y)} }
	style := pl.X.Tick.Label
	style.Font.Size, style.XAlign, style.YAlign, style.Rotation = vg.Points(8), draw.XCenter, draw.YCenter, 0
	nx, ny := float64(len(p.X.Values)), float64(len(p.Y.Values))
	for i, b := range p.Blocks {
		x0 := float64(i%p.Across) * (nx + mapGap)
		y0 := float64(i/p.Across) * (ny + mapGap)
		style.Color = color.Black
		c.FillText(style, point(x0+nx/2, y0+ny+mapGap/2), b.Title)
		for k2, row := range b.Cells {
			for k1, cell := range row {
				const edge = 0.02
				x, y := x0+float64(k1), y0+float64(k2)
				figure.Fill(&c, shade(cell.Gain/p.most), point(x+edge, y+edge), point(x+1-edge, y+1-edge))
				if cell.Policy == "" {
					continue
				}
				if style.Color = color.Black; cell.Gain > 0.6*p.most {
					style.Color = color.White
				}
				c.FillText(style, point(x+0.5, y+0.68), cell.mark)
				c.FillText(style, point(x+0.5, y+0.32), fmt.Sprintf("%.0f %%", 100*cell.Gain))
			}
		}
	}
}
