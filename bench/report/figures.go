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

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/bench/series"
	"lorasim/bench/steady"
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
	for _, f := range slices.Concat(p.cdfs(), p.adapterFigures(), p.overTime(), p.placements(), p.curves(), p.costs(), p.mapFigures()) {
		name := f.name + "." + format
		err := figure.Write(filepath.Join(dir, name), figureWidth, cmp.Or(f.height, figureHeight), func(c draw.Canvas) error {
			return f.DrawBeside(draw.Crop(c, vg.Points(2), -vg.Points(4), vg.Points(2), -vg.Points(4)))
		})
		if err != nil {
			return nil, err
		}
		files = append(files, name)
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

// shown are those of the pictures in which something is drawn.
func shown(pictures ...picture) []picture {
	return slices.DeleteFunc(pictures, func(f picture) bool { return f.Empty() })
}

// cdfs draws the latency distributions.
func (p *Page) cdfs() (out []picture) {
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
			if len(xys) > 1 && xys[0].X != xys[len(xys)-1].X {
				f.Line(r.label(), i, xys)
			}
		}
		out = append(out, f)
	}
	return shown(out...)
}

// label is the name of a run in a legend, with its state unless it is steady.
func (r *Run) label() string {
	if s := r.Stationarity(); !s.Judge() {
		return fmt.Sprintf("%s (%s)", r.Name, s.State)
	}
	return r.Name
}

// adapterFigures draws the mean latency of each adapter, the busiest left.
func (p *Page) adapterFigures() []picture {
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
		if len(xys) > 1 {
			f.Dots(r.label(), i, xys)
		}
	}
	return shown(f)
}

// overTime draws waiting and running requests on all workers, run against run,
// and for each run the requests of each worker.
func (p *Page) overTime() (out []picture) {
	for _, m := range []struct {
		name, title string
		values      func(w *series.Worker) []float64
	}{
		{"queue", "waiting requests", func(w *series.Worker) []float64 { return w.Queued }},
		{"running", "running requests", func(w *series.Worker) []float64 { return w.Running }},
		{"on", "workers that cost GPU time", func(w *series.Worker) []float64 { return w.On }},
	} {
		f := newPicture("time (s)", m.title+", all workers", m.name)
		f.Y.Min = 0
		for i, r := range p.Runs {
			if r.Series == nil || len(r.Series.Workers) == 0 || m.values(&r.Series.Workers[0]) == nil {
				continue
			}
			single := newPicture("time (s)", m.title, m.name, r.Name)
			single.Title.Text, single.Y.Min = r.Name, 0
			all := make(plotter.XYs, len(m.values(&r.Series.Workers[0])))
			for w := range r.Series.Workers {
				xys := make(plotter.XYs, len(all))
				for k, v := range m.values(&r.Series.Workers[w]) {
					xys[k] = plotter.XY{X: (float64(k) + 0.5) * r.Series.Bucket, Y: v}
					all[k].X = xys[k].X
					all[k].Y += v
				}
				name := ""
				if w < 16 {
					name = fmt.Sprintf("worker %d", w)
				}
				single.Line(name, w, xys)
			}
			f.Line(r.label(), i, all)
			out = append(out, single)
		}
		out = append(out, shown(f)...)
	}
	return out
}

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
		f := picture{Plot: figure.New("time (s)", "adapters in "+where+", the most used on top"), name: fileName("placement", r.Name)}
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
				figure.Fill(&c, figure.Color(w), vg.Point{X: x(from), Y: at(n + 1)}, vg.Point{X: x(cuts[k+1]), Y: at(n)})
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

// curves draws the usual metrics of each sweep across its first axis, with error
// bands: a line per policy, or, where there is one policy, per value of the
// second axis; other axes are at their middle.
func (p *Page) curves() (out []picture) {
	for _, s := range p.Sweeps {
		for _, metric := range append([]string{"goodput.share", "goodput.adapter_share", "goodput.worst_adapter.share", "goodput.others.share", "goodput.others.worst_adapter.share"}, sweep.DefaultMetrics...) {
			if len(s.Axes) > 0 && slices.Contains(s.Tables.Metrics, metric) {
				f := newPicture(scenario.Label(s.Axes[0].Key), result.Title(metric), "sweep", s.Name, metric)
				s.curve(f.Plot, metric)
				out = append(out, f)
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
				f := newPicture(result.Title(hours.Name), result.Title(good.Name), "sweep", s.Name, "gpu-hours", title)
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

func (s *Sweep) curve(f *figure.Plot, metric string) {
	names, of := s.lines()
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
			x := s.at(pt.Values[0])
			line = append(line, plotter.XY{X: x, Y: m.Mean})
			lo, hi = min(lo, m.Mean), max(hi, m.Mean)
			switch {
			case pt.Judge() || !result.NeedsSteady(metric):
			case pt.State == steady.Overloaded:
				overloaded = append(overloaded, line[len(line)-1])
			default:
				transient = append(transient, line[len(line)-1])
			}
			if m.N > 1 {
				// below a tenth of the mean an interval would only stretch a logarithmic axis
				up, down = append(up, plotter.XY{X: x, Y: m.High}), append(down, plotter.XY{X: x, Y: max(m.Low, m.Mean/10, 0)})
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
	s.scaleX(f)
	if lo > 0 && hi > 20*lo {
		f.Y.Min = lo / 1.5
		f.Y.Scale, f.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
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
