package report

import (
	"fmt"
	"image/color"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"lorasim/bench/result/series"
	"lorasim/internal/figure"
)

// figurePlaceRows is the number of adapters in a figure of the placement.
const figurePlaceRows = 32

// placements draws for each run which adapter lay in the host memory of which
// worker, or in its GPU slots where host memory holds all adapters all the time;
// several workers share the height of a row.
func (p *Page) placements() (out []picture) {
	for _, r := range p.Runs {
		if r.Series == nil || r.Series.Placement == nil || r.Series.End <= 0 {
			continue
		}
		order := byRequests(r.Series)
		order = order[:min(len(order), figurePlaceRows)]
		where, stays := "host memory", r.Series.Placement.Host
		if tellingTier(r.Series) == "gpu" {
			where, stays = "GPU slots", r.Series.Placement.GPU
		}
		f := picture{
			Plot: figure.New("time (s)", "adapters in "+where+", the most used on top"),
			name: fileName("placement", r.Name),
		}
		f.Title.Text = r.Name
		f.X.Min, f.X.Max = 0, r.Series.End
		f.Y.Min, f.Y.Max = 0, float64(len(order))
		names := make([]plot.Tick, len(order))
		for i, a := range order {
			names[i] = plot.Tick{Value: float64(len(order)-i) - 0.5, Label: r.Series.Adapters[a].Name}
		}
		f.Y.Tick.Marker = plot.ConstantTicks(names)
		f.Y.Tick.Label.Font.Size = vg.Points(7)
		f.Y.Tick.Length = 0
		f.Add(placementPlot{r.Series, stays, order})
		f.height = vg.Length(len(order))*vg.Points(9) + vg.Inch
		for w := range min(len(r.Series.Workers), 24) {
			f.Entry(fmt.Sprintf("worker %d", w), figure.Swatch{Color: figure.Color(w)})
		}
		out = append(out, f)
	}
	return out
}

// placementPlot draws stays as bars, and plans as marks on the upper edge.
type placementPlot struct {
	*series.Series
	stays []series.Stays
	order []int
}

// Plot implements plot.Plotter. Between any two times at which a stay begins or
// ends, the workers that hold an adapter share the height of its row.
func (p placementPlot) Plot(c draw.Canvas, pl *plot.Plot) {
	x, y := pl.Transforms(&c)
	for i, adapter := range p.order {
		top := float64(len(p.order)-i) - 0.05
		var cuts []float64
		left := make([]series.Stays, len(p.Workers)) // that have not ended yet
		for w := range left {
			left[w] = p.stays[w*len(p.Adapters)+adapter]
			for _, st := range left[w] {
				cuts = append(cuts, st[0], st[1])
			}
		}
		slices.Sort(cuts)
		cuts = slices.Compact(cuts)
		for k, from := range cuts[:max(len(cuts)-1, 0)] {
			var on []int
			for w := range left {
				for len(left[w]) > 0 && left[w][0][1] <= from {
					left[w] = left[w][1:]
				}
				if len(left[w]) > 0 && left[w][0][0] <= from {
					on = append(on, w)
				}
			}
			for n, w := range on {
				at := func(part int) vg.Length { return y(top - 0.9*(float64(part)/float64(len(on)))) }
				figure.Fill(&c, figure.Color(w), vg.Point{X: x(from), Y: at(n + 1)}, vg.Point{
					X: x(cuts[k+1]), Y: at(n),
				})
			}
		}
	}
	for i := range p.Plans {
		if pn := &p.Plans[i]; !pn.Empty() && pn.Dropped == "" {
			at, up, half := x(pn.Applied), c.Max.Y+vg.Points(4), vg.Points(2)
			c.FillPolygon(color.Black, []vg.Point{{X: at, Y: c.Max.Y}, {X: at - half, Y: up}, {X: at + half, Y: up}})
		}
	}
}
