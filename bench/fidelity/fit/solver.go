package fit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/optimize"
)

// problem is a least-squares problem in a few positive coefficients.
type problem struct {
	Params []Param
	// Residuals returns the deviations between predictions with the coefficients x and the data,
	// each divided by its measured standard deviation. Their number never changes. Coefficients
	// that are NaN keep their values from before the fit.
	Residuals func(ctx context.Context, x []float64) ([]float64, error)
	// Prior is the standard deviation of the logarithm of every coefficient about its start. It limits coefficients
	// that the data do not determine. 0: 1, a factor of e. [Param.Prior] and [Param.Loose] override it.
	Prior float64
	// Evaluations limits the calls of Residuals in one attempt. Each held coefficient adds one
	// attempt. 0: 60 for each coefficient.
	Evaluations int
	// Coarse takes wider steps, for residuals that jump, as in whole simulations.
	Coarse bool
	// Progress, if not nil, is called with the evaluations done and the loss so far.
	Progress func(done, total int, loss float64)
}

// solve fits the coefficients. It works on the logarithms, mapped so that the bounds lie at
// infinity. First it makes damped Gauss-Newton steps (K. Levenberg, 1944; D. Marquardt, 1963),
// which use that the loss is a sum of squares. Then it uses the simplex of J. Nelder and R. Mead
// (1965), which tolerates a simulator that jumps after a small change. It returns an error if a
// bound is invalid, a simulation fails or ctx ends.
func solve(ctx context.Context, p problem) (*Result, error) {
	if len(p.Params) == 0 {
		return nil, errors.New("calibrate: no coefficient to fit")
	}
	s := &solver{ctx: ctx, p: p, best: math.Inf(1)}
	s.p.Prior, s.p.Evaluations = cmp.Or(p.Prior, 1), cmp.Or(p.Evaluations, 60*len(p.Params))
	fit := &Result{StartLoss: math.NaN(), Params: make([]Estimate, len(p.Params))}
	for i, q := range p.Params {
		if !(q.Min > 0 && q.Min < q.Start && q.Start < q.Max) || math.IsInf(q.Max, 0) {
			return nil, fmt.Errorf("calibrate: %s starts at %g within [%g, %g], expected 0 < min < start < max",
				q.Name, q.Start, q.Min, q.Max)
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
		u, r = s.gaussNewton(u, r)
		j := s.sensitivity(u, r)
		if s.err != nil {
			return nil, s.err
		}
		if std, worst := s.leastDetermined(j); std[worst] >= undetermined {
			// Hold it and begin again. Hold one at a time: the others may be determined once they
			// no longer trade off against the held one.
			if len(s.active) == 1 {
				return nil, fmt.Errorf("calibrate: the data determine none of the %d coefficients", len(p.Params))
			}
			s.hold(fit, worst, std[worst])
			continue
		}
		u = s.refine(u)
		r = s.residuals(u)
		fit.Loss, fit.x = s.loss(r), s.all(u)
		// Where the model fits worse than the measurement is uncertain, the residuals themselves
		// measure the uncertainty of the coefficients.
		j = s.sensitivity(u, r)
		if std, worst := s.leastDetermined(j); p.Coarse && std[worst] >= undetermined && len(s.active) > 1 {
			s.hold(fit, worst, std[worst]) // the simplex has found another minimum
			continue
		}
		std := s.standardErrors(j, max(1, fit.Loss))
		for i, k := range s.active {
			q, x := p.Params[k], fit.x[k]
			fit.Params[k] = Estimate{Param: q, Value: x, RelStd: std[i], AtBound: x < q.Min*1.01 || x > q.Max/1.01,
				Assumed: std[i]*std[i] > q.Prior*q.Prior/2 && q.Prior > 0}
		}
		fit.Evaluations += s.evaluations
		return fit, s.err
	}
}

// hold ends an attempt: the next one begins without an active coefficient, which has a standard error.
func (s *solver) hold(fit *Result, worst int, std float64) {
	fit.Params[s.active[worst]].RelStd = std
	s.active = slices.Delete(s.active, worst, worst+1)
	fit.Evaluations += s.evaluations
}

// leastDetermined returns the standard errors of the active coefficients, and the index of the
// largest among those that may be held: coefficients with a prior of their own are never held. If it is a loose
// one, the last of the loose ones is held instead, with its error: what the data tell of their sum is put down to the
// first.
func (s *solver) leastDetermined(j *mat.Dense) (std []float64, worst int) {
	std = s.standardErrors(j, 1)
	norm := func(i int) float64 { return mat.Norm(j.Slice(0, s.data, i, i+1), 2) }
	for i := range std {
		if s.param(i).Prior > 0 {
			std[i] = 0
		}
		if std[i] > std[worst] || std[i] == std[worst] && norm(i) < norm(worst) {
			worst = i
		}
	}
	if most := std[worst]; s.param(worst).Loose > 0 {
		for i := range std {
			if s.param(i).Loose > 0 {
				worst = i
			}
		}
		std[worst] = most
	}
	return std, worst
}

// solver evaluates a problem. It keeps its first error; residuals are then zeros.
type solver struct {
	ctx         context.Context
	p           problem
	active      []int // indices of the coefficients that are not held
	data        int   // number of residuals of the data
	evaluations int   // of this attempt
	best        float64
	err         error
}

// param returns an active coefficient.
func (s *solver) param(i int) *Param { return &s.p.Params[s.active[i]] }

// all returns the values of all coefficients, NaN for those held.
func (s *solver) all(u []float64) []float64 {
	all := slices.Repeat([]float64{math.NaN()}, len(s.p.Params))
	for i, k := range s.active {
		all[k] = s.param(i).value(u[i])
	}
	return all
}

// residuals returns the residuals of the data, then those of the prior.
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
		r = append(r, math.Log(x[k]/s.param(i).Start)/cmp.Or(s.param(i).Prior, s.param(i).Loose, s.p.Prior))
	}
	s.best = min(s.best, s.loss(r))
	if s.p.Progress != nil {
		s.p.Progress(s.evaluations, s.p.Evaluations, s.best)
	}
	return r
}

// loss returns the root mean square of the data's residuals.
func (s *solver) loss(r []float64) float64 {
	return math.Sqrt(sumSquares(r[:s.data]) / float64(s.data))
}

// jacobian returns the derivatives of the residuals by the logarithm of each coefficient, from
// central differences.
func (s *solver) jacobian(u []float64) *mat.Dense {
	j, _ := s.derivatives(u, nil)
	return j
}

// sensitivity returns the derivatives without what the jumps of a simulator add to them: a coefficient that changes
// nothing but the jumps would seem to be known. r is the residuals at u. If they are smooth, the residuals on both
// sides differ from r by about the same, with opposite signs. The rest measures the jumps, and shortens the column.
func (s *solver) sensitivity(u, r []float64) *mat.Dense {
	j, rest := s.derivatives(u, r)
	if !s.p.Coarse {
		return j
	}
	for i, square := range rest {
		column := j.Slice(0, s.data, i, i+1).(*mat.Dense)
		if norm := mat.Norm(column, 2); norm > 0 {
			column.Scale(math.Sqrt(max(1-square/(norm*norm), 0)), column)
		}
	}
	return j
}

// derivatives returns the derivatives by the logarithm of each coefficient. If r is not nil, rest has the expected
// sum of squares in each column that comes from jumps: a jump of variance v in each residual adds 2 v to the square
// of the difference of two, and 6 v to that of the second difference.
func (s *solver) derivatives(u, r []float64) (j *mat.Dense, rest []float64) {
	j, rest = mat.NewDense(s.data+len(u), len(u), nil), make([]float64, len(u))
	for i := range u {
		q, step := s.param(i), derivativeStep
		if s.p.Coarse {
			step = max(coarseStep, looseStep*q.Loose)
		}
		side := func(factor float64) ([]float64, float64) {
			v := min(max(q.value(u[i])*factor, q.Min*(1+1e-9)), q.Max*(1-1e-9))
			moved := slices.Clone(u)
			moved[i] = q.coordinate(v)
			return s.residuals(moved), math.Log(v)
		}
		up, a := side(math.Exp(step))
		down, b := side(math.Exp(-step))
		for k := range up {
			j.Set(k, i, (up[k]-down[k])/(a-b))
			if r != nil && k < s.data {
				second := (up[k] - 2*r[k] + down[k]) / (a - b)
				rest[i] += second * second / 3
			}
		}
	}
	return j, rest
}

// gaussNewton makes damped Gauss-Newton steps until they no longer help. It returns the coordinates and their
// residuals.
func (s *solver) gaussNewton(u, r []float64) ([]float64, []float64) {
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
	return u, r
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

// refine improves u by a simplex. Where residuals jump, a simplex can collapse on a ledge. So another
// one starts from its end in the opposite direction, until two in a row do not help
// (C. T. Kelley, SIAM J. Optim. 10(1), 1999).
func (s *solver) refine(u []float64) []float64 {
	if !s.p.Coarse {
		return s.simplex(u, simplexSize)
	}
	loss, size := sumSquares(s.residuals(u)), coarseSimplex
	for failed := 0; failed < 2 && s.err == nil; size = -size {
		u = s.simplex(u, size)
		after := sumSquares(s.residuals(u))
		if failed++; after < restartGain*loss {
			failed = 0
		}
		loss = after
	}
	return u
}

// simplex refines u with the remaining evaluations. size is the step to the corners of the first
// simplex.
func (s *solver) simplex(u []float64, size float64) []float64 {
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
	if _, err := optimize.Minimize(target, u, settings, &optimize.NelderMead{SimplexSize: size}); err != nil &&
		math.IsInf(bestLoss, 1) && s.err == nil {
		s.err = fmt.Errorf("calibrate: %w", err)
	}
	return best
}

// standardErrors returns the square roots of the diagonal of the inverse of the Fisher information:
// that of the data, J'J / scale^2, plus 1 / Prior^2 for each coefficient with a prior of its own. It
// returns +Inf for a coefficient with a part in a direction that neither determines.
func (s *solver) standardErrors(j *mat.Dense, scale float64) []float64 {
	n := len(s.active)
	data := j.Slice(0, s.data, 0, n)
	var info mat.SymDense
	info.SymOuterK(1/(scale*scale), data.T())
	for i := range n {
		if prior := s.param(i).Prior; prior > 0 {
			info.SetSym(i, i, info.At(i, i)+1/(prior*prior))
		}
	}
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
		std[i] = math.Sqrt(sum)
	}
	return std
}

func sumSquares(r []float64) (sum float64) {
	for _, v := range r {
		sum += v * v
	}
	return sum
}
