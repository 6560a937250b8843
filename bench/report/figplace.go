package report

import (
	"fmt"
	"image/color"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// figurePlaceRows is the number of adapters in a figure of the placement.
const figurePlaceRows = 32

// placements draws for each run which adapter lay in the host memory of which
// worker; several workers share the height of a row.
func (p *Page) placements() ([]figure, error) {
	var out []figure
	for _, r := range p.Runs {
		if r.Series == nil || r.Series.Placement == nil || r.Series.End <= 0 {
			continue
		}
		order := byRequests(r.Series)
		order = order[:min(len(order), figurePlaceRows)]
		pl := plot.New()
		sans(pl)
		pl.Title.Text = r.Name
		pl.X.Label.Text, pl.Y.Label.Text = "time (s)", "adapters, the most used on top"
		pl.X.Min, pl.X.Max = 0, r.Series.End
		pl.Y.Min, pl.Y.Max = 0, float64(len(order))
		names := make([]plot.Tick, len(order))
		for i, a := range order {
			names[i] = plot.Tick{Value: float64(len(order)-i) - 0.5, Label: r.Series.Adapters[a].Name}
		}
		pl.Y.Tick.Marker = plot.ConstantTicks(names)
		pl.Y.Tick.Label.Font.Size = vg.Points(7)
		pl.Y.Tick.Length = 0
		pl.Add(placementPlot{r, order})
		f := figure{name: "placement-" + fileName(r.Name), plot: pl, h: vg.Length(len(order))*vg.Points(9) + vg.Inch}
		for w := range min(len(r.Series.Workers), 24) {
			f.legend = append(f.legend, entry{fmt.Sprintf("worker %d", w), swatch{figureColor(w)}})
		}
		out = append(out, f)
	}
	return out, nil
}

// placementPlot draws stays as bars, and plans as marks on the upper edge.
type placementPlot struct {
	r     *Run
	order []int
}

var _ plot.Plotter = placementPlot{}

// Plot implements plot.Plotter.
func (p placementPlot) Plot(c draw.Canvas, pl *plot.Plot) {
	x, y := pl.Transforms(&c)
	s := p.r.Series
	for i, a := range p.order {
		for _, b := range p.bars(a) {
			top := float64(len(p.order)-i) - 0.05 - 0.9*b.from
			bottom := float64(len(p.order)-i) - 0.05 - 0.9*b.to
			c.FillPolygon(figureColor(b.worker), []vg.Point{
				{X: x(b.start), Y: y(bottom)}, {X: x(b.end), Y: y(bottom)}, {X: x(b.end), Y: y(top)}, {X: x(b.start), Y: y(top)},
			})
		}
	}
	for i := range s.Plans {
		if pn := &s.Plans[i]; !pn.Empty() && pn.Dropped == "" {
			at := x(pn.Applied)
			c.FillPolygon(color.Black, []vg.Point{
				{X: at, Y: c.Max.Y}, {X: at - vg.Points(2), Y: c.Max.Y + vg.Points(4)}, {X: at + vg.Points(2), Y: c.Max.Y + vg.Points(4)},
			})
		}
	}
}

// bar is a worker's share of a row over some time; from and to are parts of the
// row's height.
type bar struct {
	worker     int
	start, end float64
	from, to   float64
}

func (p placementPlot) bars(adapter int) []bar {
	s := p.r.Series
	var cuts []float64
	for w := range s.Workers {
		for _, st := range s.Placement.Host[w*len(s.Adapters)+adapter] {
			cuts = append(cuts, st[0], st[1])
		}
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	next := make([]int, len(s.Workers))
	var out []bar
	for i := 0; i+1 < len(cuts); i++ {
		a, b := cuts[i], cuts[i+1]
		var on []int
		for w := range s.Workers {
			stays := s.Placement.Host[w*len(s.Adapters)+adapter]
			for next[w] < len(stays) && stays[next[w]][1] <= a {
				next[w]++
			}
			if next[w] < len(stays) && stays[next[w]][0] <= a {
				on = append(on, w)
			}
		}
		for k, w := range on {
			out = append(out, bar{w, a, b, float64(k) / float64(len(on)), float64(k+1) / float64(len(on))})
		}
	}
	return out
}

// swatch is a legend entry's patch of colour.
type swatch struct{ color color.Color }

// Thumbnail implements plot.Thumbnailer.
func (s swatch) Thumbnail(c *draw.Canvas) {
	c.FillPolygon(s.color, []vg.Point{
		{X: c.Min.X, Y: c.Min.Y}, {X: c.Min.X, Y: c.Max.Y}, {X: c.Max.X, Y: c.Max.Y}, {X: c.Max.X, Y: c.Min.Y},
	})
}
