package capacity

import (
	"context"
	"fmt"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"lorasim/bench/scenario"
	"lorasim/bench/validate"
	"lorasim/internal/figure"
)

// Plot draws the attainment with the first seed over the rate, for the answer's
// number of workers and those around it.
func (a *Answer) Plot(ctx context.Context, base *scenario.Scenario, path string) error {
	const around, points, from, to = 2, 16, 0.5, 2.0
	s := newSearch(ctx, base, a.Options)
	var lines []Candidate
	for w := max(a.Found.Workers-around, 1); w <= a.Found.Workers+around; w++ {
		lines = append(lines, a.Found.Candidate.with(w))
	}
	xys := make([]plotter.XYs, len(lines))
	for i := range xys {
		xys[i] = make(plotter.XYs, points)
	}
	err := validate.Parallel(ctx, points*len(lines), func(k int) error {
		i, factor := k%len(lines), from+(to-from)*float64(k/len(lines))/(points-1)
		r, err := s.measure(lines[i], factor, base.Seed)
		if err == nil {
			xys[i][k/len(lines)] = plotter.XY{X: factor, Y: 100 * r.attainment}
		}
		return err
	}, nil)
	if err != nil {
		return err
	}
	p := figure.New("rate, as a multiple of the workload's", map[bool]string{false: "requests within the SLO, %", true: "adapters within the SLO, %"}[a.PerAdapter > 0])
	p.Title.Text = fmt.Sprintf("%s, asked for %s", a.SLO, percent(a.asked()))
	p.Y.Min, p.Y.Max = 0, 100
	p.Grid()
	for i, c := range lines {
		p.Line(c.workers(), i, xys[i])
	}
	p.Line("asked for", len(lines), plotter.XYs{{X: from, Y: 100 * a.asked()}, {X: to, Y: 100 * a.asked()}})
	return figure.Write(path, 18*vg.Centimeter, 10*vg.Centimeter, p.DrawBeside)
}
