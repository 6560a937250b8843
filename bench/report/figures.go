package report

import (
	"cmp"
	"fmt"
	"image/color"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"lorasim/bench/scenario"
	"lorasim/bench/sweep"
	"lorasim/internal/figure"
)

// picture is one figure: its file name without ending, and its plot.
type picture struct {
	*figure.Plot
	name   string
	height vg.Length // 0: figureHeight
}

const (
	figureWidth  = 6.3 * vg.Inch // the text of a page
	figureHeight = 3.6 * vg.Inch
)

// WriteFigures writes every figure of the page into a folder, in the given
// format (png or svg), and returns the names of the files.
func (p *Page) WriteFigures(dir, format string) (files []string, err error) {
	if format != "png" && format != "svg" {
		return nil, fmt.Errorf("figure format %q: expected png or svg", format)
	}
	for _, build := range []func() ([]picture, error){p.cdfs, p.adapterFigures, p.overTime, p.placements, p.curves, p.mapFigures} {
		pictures, err := build()
		if err != nil {
			return nil, err
		}
		for _, f := range pictures {
			name := f.name + "." + format
			err := figure.Write(filepath.Join(dir, name), figureWidth, cmp.Or(f.height, figureHeight), func(c draw.Canvas) error {
				f.DrawBeside(draw.Crop(c, vg.Points(2), -vg.Points(4), vg.Points(2), -vg.Points(4)))
				return nil
			})
			if err != nil {
				return nil, err
			}
			files = append(files, name)
		}
	}
	return files, nil
}

var unsafeName = regexp.MustCompile(`[^a-zA-Z0-9._-]+`)

func fileName(parts ...string) string {
	return unsafeName.ReplaceAllString(strings.Join(parts, "-"), "_")
}

func newPicture(x, y string, name ...string) picture {
	f := picture{Plot: figure.New(x, y), name: fileName(name...)}
	f.Grid()
	return f
}

// cdfs draws the latency distributions.
func (p *Page) cdfs() (out []picture, err error) {
	for _, l := range []struct{ key, title string }{
		{"e2e", "end-to-end latency (ms)"}, {"ttft", "time to first token (ms)"}, {"tpot", "time per output token (ms)"},
	} {
		f := newPicture(l.title, "share of requests", "cdf", l.key)
		f.LogX()
		f.Y.Min, f.Y.Max = 0, 1
		for i, r := range p.Runs {
			qs := r.quantiles()[l.key]
			var xys plotter.XYs
			for k, q := range qs {
				if q > 0 {
					xys = append(xys, plotter.XY{X: q, Y: float64(k) / float64(len(qs)-1)})
				}
			}
			if len(xys) < 2 || xys[0].X == xys[len(xys)-1].X {
				continue
			}
			if err := f.Line(r.Name, i, xys); err != nil {
				return nil, err
			}
		}
		if !f.Empty() {
			out = append(out, f)
		}
	}
	return out, nil
}

// adapterFigures draws the mean latency of each adapter, the busiest left.
func (p *Page) adapterFigures() ([]picture, error) {
	f := newPicture("adapters, by number of requests", "mean E2E latency (ms)", "adapters")
	f.Y.Min = 0
	rank := map[string]int{}
	for i, r := range p.Runs {
		var xys plotter.XYs
		for _, a := range r.adapters() {
			if _, ok := rank[a.Name]; !ok {
				rank[a.Name] = len(rank) + 1
			}
			xys = append(xys, plotter.XY{X: float64(rank[a.Name]), Y: a.E2E})
		}
		if len(xys) < 2 {
			continue
		}
		if err := f.Dots(r.Name, i, xys); err != nil {
			return nil, err
		}
	}
	if f.Empty() {
		return nil, nil
	}
	return []picture{f}, nil
}

// overTime draws waiting and running requests on all workers, run against run,
// and for each run the requests of each worker.
func (p *Page) overTime() (out []picture, err error) {
	for _, m := range []struct {
		name, title string
		values      func(r *Run, w int) []float64
	}{
		{"queue", "waiting requests", func(r *Run, w int) []float64 { return r.Series.Workers[w].Queued }},
		{"running", "running requests", func(r *Run, w int) []float64 { return r.Series.Workers[w].Running }},
	} {
		f := newPicture("time (s)", m.title+", all workers", m.name)
		f.Y.Min = 0
		for i, r := range p.Runs {
			if r.Series == nil || len(r.Series.Workers) == 0 {
				continue
			}
			single := newPicture("time (s)", m.title, m.name, r.Name)
			single.Title.Text, single.Y.Min = r.Name, 0
			all := make(plotter.XYs, len(m.values(r, 0)))
			for w := range r.Series.Workers {
				xys := make(plotter.XYs, len(all))
				for k, v := range m.values(r, w) {
					xys[k] = plotter.XY{X: (float64(k) + 0.5) * r.Series.Bucket, Y: v}
					all[k].X = xys[k].X
					all[k].Y += v
				}
				name := ""
				if w < 16 {
					name = fmt.Sprintf("worker %d", w)
				}
				if err := single.Line(name, w, xys); err != nil {
					return nil, err
				}
			}
			if err := f.Line(r.Name, i, all); err != nil {
				return nil, err
			}
			out = append(out, single)
		}
		if !f.Empty() {
			out = append(out, f)
		}
	}
	return out, nil
}

// figurePlaceRows is the number of adapters in a figure of the placement.
const figurePlaceRows = 32

// placements draws for each run which adapter lay in the host memory of which
// worker; several workers share the height of a row.
func (p *Page) placements() (out []picture, err error) {
	for _, r := range p.Runs {
		if r.Series == nil || r.Series.Placement == nil || r.Series.End <= 0 {
			continue
		}
		order := byRequests(r.Series)
		order = order[:min(len(order), figurePlaceRows)]
		f := picture{Plot: figure.New("time (s)", "adapters, the most used on top"), name: fileName("placement", r.Name)}
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
		f.Add(placementPlot{r, order})
		f.height = vg.Length(len(order))*vg.Points(9) + vg.Inch
		for w := range min(len(r.Series.Workers), 24) {
			f.Entry(fmt.Sprintf("worker %d", w), figure.Swatch{Color: figure.Color(w)})
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

// Plot implements plot.Plotter.
func (p placementPlot) Plot(c draw.Canvas, pl *plot.Plot) {
	x, y := pl.Transforms(&c)
	s := p.r.Series
	for i, a := range p.order {
		for _, b := range p.bars(a) {
			top := float64(len(p.order)-i) - 0.05 - 0.9*b.from
			bottom := float64(len(p.order)-i) - 0.05 - 0.9*b.to
			c.FillPolygon(figure.Color(b.worker), []vg.Point{
				{X: x(b.start), Y: y(bottom)}, {X: x(b.end), Y: y(bottom)}, {X: x(b.end), Y: y(top)}, {X: x(b.start), Y: y(top)},
			})
		}
	}
	for i := range s.Plans {
		if pn := &s.Plans[i]; !pn.Empty() && pn.Dropped == "" {
			at, up, half := x(pn.Applied), c.Max.Y+vg.Points(4), vg.Points(2)
			c.FillPolygon(color.Black, []vg.Point{{X: at, Y: c.Max.Y}, {X: at - half, Y: up}, {X: at + half, Y: up}})
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

func (p placementPlot) bars(adapter int) (out []bar) {
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

// curves draws the usual metrics of each sweep across its first axis, with error
// bands: a line per policy, or, where there is one policy, per value of the
// second axis; other axes are at their middle.
func (p *Page) curves() (out []picture, err error) {
	for _, s := range p.Sweeps {
		for _, metric := range append([]string{"goodput.share", "goodput.adapter_share", "goodput.worst_adapter.share"}, sweep.DefaultMetrics...) {
			if len(s.Axes) == 0 || !slices.Contains(s.Tables.Metrics, metric) {
				continue
			}
			f := newPicture(scenario.Label(s.Axes[0].Key), sweep.Title(metric), "sweep", s.Name, metric)
			if err := s.curve(f.Plot, metric); err != nil {
				return nil, err
			}
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

// at is where a value of the first axis stands.
func (s *Sweep) at(value string) float64 {
	if a := s.Axes[0]; a.Numeric() {
		return a.Number(value)
	}
	return float64(slices.Index(s.Axes[0].Values, value))
}

func (s *Sweep) curve(f *figure.Plot, metric string) error {
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
			x := s.at(pt.Values[0])
			line = append(line, plotter.XY{X: x, Y: m.Mean})
			lo, hi = min(lo, m.Mean), max(hi, m.Mean)
			if m.N > 1 {
				// below a tenth of the mean an interval would only stretch a logarithmic axis
				up, down = append(up, plotter.XY{X: x, Y: m.High}), append(down, plotter.XY{X: x, Y: max(m.Low, m.Mean/10, 0)})
			}
		}
		if len(up) > 1 {
			slices.Reverse(down)
			band, err := plotter.NewPolygon(append(up, down...))
			if err != nil {
				return err
			}
			c := figure.Color(i)
			c.A = 45
			band.Color, band.LineStyle.Width = c, 0
			f.Add(band)
		}
		if err := cmp.Or(f.Line(name, i, line), f.Dots("", i, line)); err != nil {
			return err
		}
	}
	s.scaleX(f)
	if lo > 0 && hi > 20*lo {
		f.Y.Min = lo / 1.5
		f.Y.Scale, f.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
	return nil
}

// scaleX puts the values of the first axis below the plot: names where they are
// no numbers, on a logarithmic scale where they grow by factors.
func (s *Sweep) scaleX(f *figure.Plot) {
	a := s.Axes[0]
	var ticks []plot.Tick
	lo, hi := math.Inf(1), math.Inf(-1)
	for _, v := range a.Values {
		x := s.at(v)
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
