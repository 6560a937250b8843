package report

import (
	"cmp"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"lorasim/bench/result/series"
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

// WriteFigures writes every figure of the page to a folder and returns the names of the files. format is png or svg.
func (p *Page) WriteFigures(dir, format string) (files []string, err error) {
	if format != "png" && format != "svg" {
		return nil, fmt.Errorf("figure format %q: expected png or svg", format)
	}
	for _, f := range slices.Concat(p.cdfs(), p.adapterFigures(), p.overTime(), p.placements(), p.curves(), p.costs(),
		p.mapFigures()) {
		name := f.name + "." + format
		err := figure.Write(filepath.Join(dir, name), figureWidth, cmp.Or(f.height, figureHeight),
			func(c draw.Canvas) error {
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
		{"e2e", "end-to-end latency (ms)"}, {"ttft", "time to first token (ms)"},
		{"tpot", "time per output token (ms)"},
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
