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
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
)

// Param is one coefficient that a fit may move.
type Param struct {
	Name     string
	Start    float64
	Min, Max float64 // 0 < Min < Start < Max
}

// Problem is a least-squares problem in a few positive coefficients.
type Problem struct {
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

// Fit is the outcome of a fit.
type Fit struct {
	Params []Estimate // as in the problem
	// Loss is the root mean square of the residuals: 1 where the model is as
	// far off as the measurement is uncertain.
	Loss, StartLoss float64
	Evaluations     int
	X               []float64 // NaN: held
}

// Estimate is one fitted coefficient.
type Estimate struct {
	Param
	Value float64
	// RelStd is the relative standard error that the data alone give, as a
	// fraction (of the logarithm of the value); +Inf where they say nothing.
	RelStd float64
	// Held: the data cannot determine it, so that it was left as it was.
	Held    bool
	AtBound bool
}

// undetermined is the relative standard error from which the data do not
// determine a coefficient: with it, twice the error is a factor of 2.7.
const undetermined = 0.5

// Solve fits the coefficients. It works on the logarithms, mapped so that the
// bounds lie at infinity: first damped Gauss-Newton steps (K. Levenberg, 1944;
// D. Marquardt, 1963), which use that the loss is a sum of squares, then the
// simplex of J. Nelder and R. Mead (1965), which does not mind that a simulator
// answers a small change by a jump. It returns an error if a bound is unsound,
// a simulation fails or ctx ends.
func Solve(ctx context.Context, p Problem) (*Fit, error) {
	s, err := newSolver(ctx, p)
	if err != nil {
		return nil, err
	}
	startLoss := math.NaN()
	for {
		u := s.start()
		r, err := s.residuals(u)
		if err != nil {
			return nil, err
		}
		if math.IsNaN(startLoss) {
			startLoss = s.loss(r)
		}
		if u, err = s.gaussNewton(u, r); err != nil {
			return nil, err
		}
		held, err := s.hold(u)
		if err != nil {
			return nil, err
		}
		if held { // again without it
			s.total += s.evaluations
			s.evaluations = 0
			continue
		}
		if u, err = s.simplex(u); err != nil {
			return nil, err
		}
		return s.report(u, startLoss)
	}
}

type solver struct {
	ctx         context.Context
	p           Problem
	active      []int     // the coefficients that are not held
	n, data     int       // active coefficients, residuals of the data
	evaluations int       // of this attempt
	total       int       // of those before
	best        float64   // loss so far
	heldStd     []float64 // by coefficient: RelStd when it was held
}

func newSolver(ctx context.Context, p Problem) (*solver, error) {
	if len(p.Params) == 0 {
		return nil, errors.New("calibrate: no coefficient to fit")
	}
	for _, q := range p.Params {
		if !(q.Min > 0 && q.Min < q.Start && q.Start < q.Max) || math.IsInf(q.Max, 0) {
			return nil, fmt.Errorf("calibrate: %s starts at %g within [%g, %g], expected 0 < min < start < max", q.Name, q.Start, q.Min, q.Max)
		}
	}
	if p.Prior == 0 {
		p.Prior = 1
	}
	if p.Evaluations == 0 {
		p.Evaluations = 60 * len(p.Params)
	}
	s := &solver{ctx: ctx, p: p, n: len(p.Params), best: math.Inf(1), heldStd: make([]float64, len(p.Params))}
	for i := range p.Params {
		s.active = append(s.active, i)
	}
	return s, nil
}

// param is an active coefficient.
func (s *solver) param(i int) *Param { return &s.p.Params[s.active[i]] }

// hold holds the coefficient that is least certain at u, if the data do not
// determine it, and reports whether it did. One at a time: what is left may be
// determined once it no longer trades off against the one held.
func (s *solver) hold(u []float64) (held bool, err error) {
	j, err := s.jacobian(u)
	if err != nil {
		return false, err
	}
	std := s.standardErrors(j, 1)
	worst := 0
	norm := func(i int) float64 { return mat.Norm(j.Slice(0, s.data, i, i+1), 2) }
	for i := range std {
		if std[i] > std[worst] || std[i] == std[worst] && norm(i) < norm(worst) {
			worst = i
		}
	}
	if std[worst] < undetermined {
		return false, nil
	}
	if s.n == 1 {
		return false, fmt.Errorf("calibrate: the data determine none of the %d coefficients", len(s.p.Params))
	}
	s.heldStd[s.active[worst]] = std[worst]
	s.active = append(s.active[:worst:worst], s.active[worst+1:]...)
	s.n--
	return true, nil
}

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

func (s *solver) start() []float64 {
	u := make([]float64, s.n)
	for i := range u {
		u[i] = s.param(i).coordinate(s.param(i).Start)
	}
	return u
}

// values are those of the active coefficients.
func (s *solver) values(u []float64) []float64 {
	x := make([]float64, s.n)
	for i := range x {
		x[i] = s.param(i).value(u[i])
	}
	return x
}

// all are the values of all coefficients, NaN for those held.
func (s *solver) all(u []float64) []float64 {
	all := make([]float64, len(s.p.Params))
	for i := range all {
		all[i] = math.NaN()
	}
	for i, x := range s.values(u) {
		all[s.active[i]] = x
	}
	return all
}

// residuals are those of the data, then those of the prior.
func (s *solver) residuals(u []float64) ([]float64, error) {
	if err := s.ctx.Err(); err != nil {
		return nil, err
	}
	x := s.values(u)
	r, err := s.p.Residuals(s.ctx, s.all(u))
	if err != nil {
		return nil, err
	}
	if s.data > 0 && len(r) != s.data {
		return nil, fmt.Errorf("calibrate: internal error: %d residuals, expected %d", len(r), s.data)
	}
	s.data = len(r)
	s.evaluations++
	all := make([]float64, 0, len(r)+s.n)
	all = append(all, r...)
	for i := range x {
		all = append(all, math.Log(x[i]/s.param(i).Start)/s.p.Prior)
	}
	if l := s.loss(all); l < s.best {
		s.best = l
	}
	if s.p.Progress != nil {
		s.p.Progress(s.evaluations, s.p.Evaluations, s.best)
	}
	return all, nil
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

// report evaluates the fit at u.
func (s *solver) report(u []float64, startLoss float64) (*Fit, error) {
	r, err := s.residuals(u)
	if err != nil {
		return nil, err
	}
	f := &Fit{StartLoss: startLoss, Loss: s.loss(r), X: s.all(u)}
	j, err := s.jacobian(u)
	if err != nil {
		return nil, err
	}
	// where the model fits worse than the measurement is uncertain, the
	// deviations themselves say how uncertain the coefficients are
	scale := max(1, f.Loss)
	std := s.standardErrors(j, scale)
	for k, q := range s.p.Params {
		e := Estimate{Param: q, Value: math.NaN(), RelStd: s.heldStd[k], Held: true}
		if i := slices.Index(s.active, k); i >= 0 {
			x := f.X[k]
			e = Estimate{Param: q, Value: x, RelStd: std[i], AtBound: x < q.Min*1.01 || x > q.Max/1.01}
		}
		f.Params = append(f.Params, e)
	}
	f.Evaluations = s.total + s.evaluations
	return f, nil
}

// standardErrors are the square roots of the diagonal of the inverse of the
// Fisher information of the data, J'J, times scale; +Inf for a coefficient with
// a part in a direction about which the data say nothing.
func (s *solver) standardErrors(j *mat.Dense, scale float64) []float64 {
	data := j.Slice(0, s.data, 0, s.n)
	var info mat.SymDense
	info.SymOuterK(1, data.T())
	var eig mat.EigenSym
	std := make([]float64, s.n)
	if !eig.Factorize(&info, true) {
		for i := range std {
			std[i] = math.Inf(1)
		}
		return std
	}
	var vectors mat.Dense
	eig.VectorsTo(&vectors)
	values := eig.Values(nil)
	for i := range std {
		sum := 0.0
		for k, v := range values {
			part := vectors.At(i, k) * vectors.At(i, k)
			switch {
			case v > 1e-9*values[s.n-1] && v > 0:
				sum += part / v
			case part > 1e-6:
				sum = math.Inf(1)
			}
		}
		std[i] = scale * math.Sqrt(sum)
	}
	return std
}
