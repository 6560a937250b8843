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

// The rates that Plot draws, as multiples of the workload's.
const ratePoints, leastRate, mostRate = 16, 0.5, 2.0

// curves is the attainment with the first seed, in %, over the rate, for the
// answer's number of workers and those around it.
func (a *Answer) curves(ctx context.Context, base *scenario.Scenario) ([]Candidate, []plotter.XYs, error) {
	const around = 2
	s := newSearch(ctx, base, a.Options)
	var lines []Candidate
	var xys []plotter.XYs
	for w := max(a.Found.Workers-around, 1); w <= a.Found.Workers+around; w++ {
		lines = append(lines, a.Found.Candidate.with(w))
		xys = append(xys, make(plotter.XYs, ratePoints))
	}
	err := validate.Parallel(ctx, ratePoints*len(lines), func(k int) error {
		line, point := k%len(lines), k/len(lines)
		factor := leastRate + (mostRate-leastRate)*float64(point)/(ratePoints-1)
		r, err := s.measure(lines[line], factor, base.Seed)
		if err == nil {
			xys[line][point] = plotter.XY{X: factor, Y: 100 * r.attainment}
		}
		return err
	}, nil)
	return lines, xys, err
}

// Plot draws the attainment over the rate.
func (a *Answer) Plot(ctx context.Context, base *scenario.Scenario, path string) error {
	lines, xys, err := a.curves(ctx, base)
	if err != nil {
		return err
	}
	what := "requests within the SLO, %"
	if a.PerAdapter > 0 {
		what = "adapters within the SLO, %"
	}
	p := figure.New("rate, as a multiple of the workload's", what)
	p.Title.Text = fmt.Sprintf("%s, asked for %s", a.SLO, percent(a.asked()))
	p.Y.Min, p.Y.Max = 0, 100
	p.Grid()
	for i, c := range lines {
		p.Line(c.workers(), i, xys[i])
	}
	p.Line("asked for", len(lines), plotter.XYs{{X: leastRate, Y: 100 * a.asked()}, {X: mostRate, Y: 100 * a.asked()}})
	return figure.Write(path, 18*vg.Centimeter, 10*vg.Centimeter, p.DrawBeside)
}
