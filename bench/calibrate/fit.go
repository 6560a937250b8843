// Package calibrate fits the coefficients of a latency profile to what was
// measured: per-request records of live runs, result blocks of serving
// benchmarks, tables of measured runs, and kernel timings.
//
// A fit simulates what was measured and moves the coefficients within bounds
// until the simulated metrics agree. It says how certain each coefficient is,
// and which ones the data cannot determine: those stay where the profile that
// it started from has them.
package calibrate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/optimize"

	"lorasim/bench/stats"
	"lorasim/bench/validate"
	"lorasim/internal/format"
	"lorasim/sim/profile"
)

// problem is a least-squares problem in a few positive coefficients.
type problem struct {
	Params []Param
	// Residuals returns the deviations of what the coefficients x predict, each
	// divided by its measured standard deviation. Their number never changes.
	// Coefficients that are NaN are to stay as they were before the fit.
	Residuals func(ctx context.Context, x []float64) ([]float64, error)
	// Prior is the standard deviation of the logarithm of every coefficient
	// about its start: how far one moves for which the data say nothing. 0: 1,
	// a factor of e.
	Prior float64
	// Evaluations limits the calls of Residuals in one attempt; there is one more
	// for each coefficient held. 0: 60 for each coefficient.
	Evaluations int
	// Progress, where set, is told the evaluations done and the loss so far.
	Progress func(done, total int, loss float64)
}

const (
	// undetermined is the relative standard error from which the data do not
	// determine a coefficient: with it, twice the error is a factor of 2.7.
	undetermined = 0.5
	// derivativeStep is the step in the logarithm of a coefficient for its
	// derivative: large enough to average over the jumps of a simulator.
	derivativeStep = 0.02
	maxIterations  = 12
)

// solve fits the coefficients. It works on the logarithms, mapped so that the
// bounds lie at infinity: first damped Gauss-Newton steps (K. Levenberg, 1944;
// D. Marquardt, 1963), which use that the loss is a sum of squares, then the
// simplex of J. Nelder and R. Mead (1965), which does not mind that a simulator
// answers a small change by a jump. It returns an error if a bound is unsound,
// a simulation fails or ctx ends.
func solve(ctx context.Context, p problem) (*Fit, error) {
	if len(p.Params) == 0 {
		return nil, errors.New("calibrate: no coefficient to fit")
	}
	s := &solver{ctx: ctx, p: p, best: math.Inf(1)}
	s.p.Prior, s.p.Evaluations = cmp.Or(p.Prior, 1), cmp.Or(p.Evaluations, 60*len(p.Params))
	fit := &Fit{StartLoss: math.NaN(), Params: make([]Estimate, len(p.Params))}
	for i, q := range p.Params {
		if !(q.Min > 0 && q.Min < q.Start && q.Start < q.Max) || math.IsInf(q.Max, 0) {
			return nil, fmt.Errorf("calibrate: %s starts at %g within [%g, %g], expected 0 < min < start < max", q.Name, q.Start, q.Min, q.Max)
		}
		fit.Params[i] = Estimate{Param: q, Value: math.NaN(), Held: true}
		s.active = append(s.active, i)
	}
	for {
		s.evaluations = 0
		u := make([]float64, len(s.active))
		for i := range u {
			u[i] = s.param(i).coordinate(s.param(i).Start)
		}
		r := s.residuals(u)
		if math.IsNaN(fit.StartLoss) {
			fit.StartLoss = s.loss(r)
		}
		u = s.gaussNewton(u, r)
		j := s.jacobian(u)
		if s.err != nil {
			return nil, s.err
		}
		std := s.standardErrors(j, 1)
		norm := func(i int) float64 { return mat.Norm(j.Slice(0, s.data, i, i+1), 2) }
		worst := 0
		for i := range std {
			if std[i] > std[worst] || std[i] == std[worst] && norm(i) < norm(worst) {
				worst = i
			}
		}
		if std[worst] >= undetermined {
			// Hold it and begin again. One at a time: what is left may be
			// determined once it no longer trades off against the one held.
			if len(s.active) == 1 {
				return nil, fmt.Errorf("calibrate: the data determine none of the %d coefficients", len(p.Params))
			}
			fit.Params[s.active[worst]].RelStd = std[worst]
			s.active = slices.Delete(s.active, worst, worst+1)
			fit.Evaluations += s.evaluations
			continue
		}
		u = s.simplex(u)
		fit.Loss, fit.x = s.loss(s.residuals(u)), s.all(u)
		// where the model fits worse than the measurement is uncertain, the
		// deviations themselves say how uncertain the coefficients are
		std = s.standardErrors(s.jacobian(u), max(1, fit.Loss))
		for i, k := range s.active {
			q, x := p.Params[k], fit.x[k]
			fit.Params[k] = Estimate{Param: q, Value: x, RelStd: std[i], AtBound: x < q.Min*1.01 || x > q.Max/1.01}
		}
		fit.Evaluations += s.evaluations
		return fit, s.err
	}
}

// solver evaluates a problem. Its first error stays; residuals are zeros then.
type solver struct {
	ctx         context.Context
	p           problem
	active      []int // the coefficients that are not held
	data        int   // residuals of the data
	evaluations int   // of this attempt
	best        float64
	err         error
}

// param is an active coefficient.
func (s *solver) param(i int) *Param { return &s.p.Params[s.active[i]] }

// value maps the unbounded coordinate of a coefficient to its value:
// ln x = ln Min + (ln Max - ln Min) / (1 + exp(-u)).
func (q *Param) value(u float64) float64 {
	lo, hi := math.Log(q.Min), math.Log(q.Max)
	return math.Exp(lo + (hi-lo)/(1+math.Exp(-u)))
}

// coordinate is the inverse of value.
func (q *Param) coordinate(x float64) float64 {
	lo, hi := math.Log(q.Min), math.Log(q.Max)
	t := (math.Log(x) - lo) / (hi - lo)
	return math.Log(t / (1 - t))
}

// all are the values of all coefficients, NaN for those held.
func (s *solver) all(u []float64) []float64 {
	all := slices.Repeat([]float64{math.NaN()}, len(s.p.Params))
	for i, k := range s.active {
		all[k] = s.param(i).value(u[i])
	}
	return all
}

// residuals are those of the data, then those of the prior.
func (s *solver) residuals(u []float64) []float64 {
	x := s.all(u)
	var r []float64
	if s.err = cmp.Or(s.err, s.ctx.Err()); s.err == nil {
		r, s.err = s.p.Residuals(s.ctx, x)
	}
	if s.err != nil {
		return make([]float64, s.data+len(u))
	}
	s.data = len(r)
	s.evaluations++
	r = slices.Clone(r)
	for i, k := range s.active {
		r = append(r, math.Log(x[k]/s.param(i).Start)/s.p.Prior)
	}
	s.best = min(s.best, s.loss(r))
	if s.p.Progress != nil {
		s.p.Progress(s.evaluations, s.p.Evaluations, s.best)
	}
	return r
}

func sumSquares(r []float64) (sum float64) {
	for _, v := range r {
		sum += v * v
	}
	return sum
}

// loss is the root mean square of the data's residuals.
func (s *solver) loss(r []float64) float64 {
	return math.Sqrt(sumSquares(r[:s.data]) / float64(s.data))
}

// jacobian holds the derivatives of the residuals by the logarithm of each
// coefficient, from central differences.
func (s *solver) jacobian(u []float64) *mat.Dense {
	j := mat.NewDense(s.data+len(u), len(u), nil)
	for i := range u {
		q := s.param(i)
		side := func(factor float64) ([]float64, float64) {
			v := min(max(q.value(u[i])*factor, q.Min*(1+1e-9)), q.Max*(1-1e-9))
			moved := slices.Clone(u)
			moved[i] = q.coordinate(v)
			return s.residuals(moved), math.Log(v)
		}
		up, a := side(math.Exp(derivativeStep))
		down, b := side(math.Exp(-derivativeStep))
		for k := range up {
			j.Set(k, i, (up[k]-down[k])/(a-b))
		}
	}
	return j
}

// gaussNewton makes damped Gauss-Newton steps until they no longer help.
func (s *solver) gaussNewton(u, r []float64) []float64 {
	damping, n := 1e-2, len(u)
	for range maxIterations {
		if s.err != nil || s.evaluations+2*n+1 > s.p.Evaluations/2 && s.evaluations > 4*n {
			break
		}
		j := s.jacobian(u)
		better, before := false, sumSquares(r)
		for range 5 {
			if next, ok := s.step(u, r, j, damping); ok {
				if rNext := s.residuals(next); sumSquares(rNext) < before {
					u, r, better = next, rNext, true
					damping = max(damping/5, 1e-6)
					break
				}
			}
			damping *= 10
		}
		if !better || sumSquares(r) > 0.999*before {
			break
		}
	}
	return u
}

// step solves (J'J + damping diag(J'J)) d = -J'r for a change of the logarithms
// of the coefficients, at most a factor of 2 each.
func (s *solver) step(u, r []float64, j *mat.Dense, damping float64) ([]float64, bool) {
	var a mat.Dense
	a.Mul(j.T(), j)
	for i := range u {
		a.Set(i, i, a.At(i, i)*(1+damping))
	}
	var g, d mat.VecDense
	g.MulVec(j.T(), mat.NewVecDense(len(r), r))
	if err := d.SolveVec(&a, &g); err != nil {
		return nil, false
	}
	next := make([]float64, len(u))
	for i := range next {
		q := s.param(i)
		x := q.value(u[i])
		v := x * math.Exp(min(max(-d.AtVec(i), -math.Ln2), math.Ln2))
		switch { // beyond a bound: half way to it
		case v >= q.Max:
			v = math.Sqrt(x * q.Max)
		case v <= q.Min:
			v = math.Sqrt(x * q.Min)
		}
		next[i] = q.coordinate(v)
	}
	return next, true
}

// simplex polishes u with what is left of the evaluations.
func (s *solver) simplex(u []float64) []float64 {
	left := s.p.Evaluations - s.evaluations - 2*len(u) // kept for the report
	if left < 2*len(u) {
		return u
	}
	best, bestLoss := slices.Clone(u), math.Inf(1)
	target := optimize.Problem{
		Func: func(v []float64) float64 {
			l := sumSquares(s.residuals(v))
			if l < bestLoss && s.err == nil {
				bestLoss = l
				copy(best, v)
			}
			return l
		},
		Status: func() (optimize.Status, error) {
			if s.err != nil {
				return optimize.Failure, s.err
			}
			return optimize.NotTerminated, nil
		},
	}
	settings := &optimize.Settings{FuncEvaluations: left, Concurrent: 1,
		Converger: &optimize.FunctionConverge{Absolute: 1e-6, Relative: 1e-5, Iterations: 10 * len(u)}}
	if _, err := optimize.Minimize(target, u, settings, &optimize.NelderMead{SimplexSize: 0.05}); err != nil && math.IsInf(bestLoss, 1) && s.err == nil {
		s.err = fmt.Errorf("calibrate: %w", err)
	}
	return best
}

// standardErrors are the square roots of the diagonal of the inverse of the
// Fisher information of the data, J'J, times scale; +Inf for a coefficient with
// a part in a direction about which the data say nothing.
func (s *solver) standardErrors(j *mat.Dense, scale float64) []float64 {
	n := len(s.active)
	data := j.Slice(0, s.data, 0, n)
	var info mat.SymDense
	info.SymOuterK(1, data.T())
	var eig mat.EigenSym
	if !eig.Factorize(&info, true) {
		return slices.Repeat([]float64{math.Inf(1)}, n)
	}
	var vectors mat.Dense
	eig.VectorsTo(&vectors)
	values := eig.Values(nil)
	std := make([]float64, n)
	for i := range std {
		sum := 0.0
		for k, v := range values {
			part := vectors.At(i, k) * vectors.At(i, k)
			switch {
			case v > 1e-9*values[n-1] && v > 0:
				sum += part / v
			case part > 1e-6:
				sum = math.Inf(1)
			}
		}
		std[i] = scale * math.Sqrt(sum)
	}
	return std
}

// Fit is the outcome of a fit: a profile with its source, and with its errors on
// data that the fit has not seen.
type Fit struct {
	Profile *profile.Profile
	Groups  *validate.Groups // of runs, where they were fitted too
	Params  []Estimate
	// Loss is the root mean square of the residuals: 1 where the model is as
	// far off as the measurement is uncertain. Of a fit without an evaluation
	// Errors are those on what was fitted.
	Loss, StartLoss float64
	Evaluations     int
	Errors          stats.ErrorSummary

	x []float64 // NaN: held
}

// Param is one coefficient that a fit may move.
type Param struct {
	Name     string
	Start    float64
	Min, Max float64 // 0 < Min < Start < Max
}

// Estimate is one fitted coefficient.
type Estimate struct {
	Param
	Value float64 // NaN: held
	// RelStd is the relative standard error that the data alone give, as a
	// fraction (of the logarithm of the value); +Inf where they say nothing, NaN
	// where it is not known.
	RelStd float64
	// Held: the data cannot determine it, so that it was left as it was.
	Held    bool
	AtBound bool
	// Physical: Min is the least that the hardware allows.
	Physical bool
}

// MarshalJSON writes what is not finite as null.
func (e Estimate) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]any{"name": e.Name, "start": e.Start, "value": format.Number(e.Value),
		"relative_error": format.Number(e.RelStd), "held": e.Held, "at_bound": e.AtBound})
}

// describe says in the profile what it was fitted to, and checks it.
func (f *Fit) describe(start *profile.Profile, data string, args ...any) (*Fit, error) {
	p := f.Profile
	p.Name, p.Uncalibrated = start.Name+"-fitted", false
	// The data do not tell what they were measured on; an analytic profile is taken
	// for the GPU that was measured.
	if p.Hardware, p.EngineVersion = "", ""; !start.Uncalibrated {
		p.Hardware = "not stated"
	}
	p.Source = fmt.Sprintf("Fitted to "+data+", starting from "+start.Name+".", args...)
	var held []string
	for _, e := range f.Params {
		if e.Held {
			held = append(held, e.Name)
		}
	}
	if held != nil {
		p.Source += " Not determined by the data and left as they were: " + strings.Join(held, ", ") + "."
	}
	return f, f.check()
}

func (f *Fit) check() error {
	if err := f.Profile.Check(); err != nil {
		return fmt.Errorf("the fitted profile is unsound: %w", err)
	}
	return nil
}

// WriteText prints the coefficients and the errors on unseen data.
func (f *Fit) WriteText(w io.Writer) error {
	tw := format.Columns(w)
	fmt.Fprintln(tw, "COEFFICIENT\tSTART\tVALUE\tSTANDARD ERROR\tNOTE")
	for _, e := range f.Params {
		value, std, note := fmt.Sprintf("%.4g", e.Value), fmt.Sprintf("%.1f %%", 100*e.RelStd), ""
		switch {
		case e.Held:
			value, std, note = "-", "-", "not determined by the data, left as it was"
		case math.IsNaN(e.RelStd):
			std = "-"
		case e.AtBound && e.Physical && e.Value < 1.01*e.Min:
			note = "at the least that the GPU allows"
		case e.AtBound:
			note = "at its bound"
		}
		fmt.Fprintln(tw, strings.TrimRight(fmt.Sprintf("%s\t%.4g\t%s\t%s\t%s", e.Name, e.Start, value, std, note), "\t"))
	}
	if f.Evaluations > 0 {
		fmt.Fprintf(tw, "\ndeviation in units of the noise: %.2f before, %.2f after, %d evaluations\n", f.StartLoss, f.Loss, f.Evaluations)
	} else {
		fmt.Fprintf(tw, "\nerror of the fit: median %.1f %%, P90 %.1f %%\n", 100*f.Errors.MedianAbsError, 100*f.Errors.P90AbsError)
	}
	if len(f.Profile.Validation) > 0 {
		fmt.Fprintln(tw, "\nUNSEEN DATA\tMETRIC\tMEDIAN |ERROR|\tP90")
		for _, v := range f.Profile.Validation {
			fmt.Fprintf(tw, "%s\t%s\t%.1f %%\t%.1f %%\n", v.Runs, v.Metric, 100*v.MedianAbsError, 100*v.P90AbsError)
		}
	}
	return tw.Flush()
}

// MarshalJSON writes the same.
func (f *Fit) MarshalJSON() ([]byte, error) {
	object := map[string]any{"profile": f.Profile.Name, "coefficients": f.Params, "unseen": append([]profile.Validation{}, f.Profile.Validation...)}
	if f.Evaluations > 0 {
		object["start_deviation"], object["deviation"], object["evaluations"] = format.Number(f.StartLoss), format.Number(f.Loss), f.Evaluations
	} else {
		object["fit_error"] = f.Errors
	}
	return json.Marshal(object)
}
