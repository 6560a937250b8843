package calibrate

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/optimize"
)

// Steps in the logarithm of a coefficient for its derivative: large enough to
// average over the jumps of a simulator.
const (
	derivativeStep = 0.02
	maxIterations  = 12
)

// jacobian holds the derivatives of the residuals by the logarithm of each
// coefficient, from central differences.
func (s *solver) jacobian(u []float64) (*mat.Dense, error) {
	var j *mat.Dense
	x := s.values(u)
	for i := range u {
		q := s.param(i)
		side := func(factor float64) ([]float64, float64, error) {
			v := min(max(x[i]*factor, q.Min*(1+1e-9)), q.Max*(1-1e-9))
			moved := append([]float64(nil), u...)
			moved[i] = q.coordinate(v)
			r, err := s.residuals(moved)
			return r, math.Log(v), err
		}
		up, a, err := side(math.Exp(derivativeStep))
		if err != nil {
			return nil, err
		}
		down, b, err := side(math.Exp(-derivativeStep))
		if err != nil {
			return nil, err
		}
		if j == nil {
			j = mat.NewDense(len(up), s.n, nil)
		}
		for k := range up {
			j.Set(k, i, (up[k]-down[k])/(a-b))
		}
	}
	return j, nil
}

// gaussNewton makes damped Gauss-Newton steps until they no longer help.
func (s *solver) gaussNewton(u, r []float64) ([]float64, error) {
	damping := 1e-2
	for range maxIterations {
		if s.evaluations+2*s.n+1 > s.p.Evaluations/2 && s.evaluations > 4*s.n {
			break
		}
		j, err := s.jacobian(u)
		if err != nil {
			return nil, err
		}
		better := false
		before := sumSquares(r)
		for range 5 {
			next, ok := s.step(u, r, j, damping)
			if !ok {
				damping *= 10
				continue
			}
			rNext, err := s.residuals(next)
			if err != nil {
				return nil, err
			}
			if sumSquares(rNext) < before {
				u, r, better = next, rNext, true
				damping = max(damping/5, 1e-6)
				break
			}
			damping *= 10
		}
		if !better || sumSquares(r) > 0.999*before {
			break
		}
	}
	return u, nil
}

// step solves (J'J + damping diag(J'J)) d = -J'r for a change of the logarithms
// of the coefficients, at most a factor of 2 each.
func (s *solver) step(u, r []float64, j *mat.Dense, damping float64) ([]float64, bool) {
	var a mat.Dense
	a.Mul(j.T(), j)
	for i := range s.n {
		a.Set(i, i, a.At(i, i)*(1+damping))
	}
	var g, d mat.VecDense
	g.MulVec(j.T(), mat.NewVecDense(len(r), r))
	if err := d.SolveVec(&a, &g); err != nil {
		return nil, false
	}
	x := s.values(u)
	next := make([]float64, s.n)
	for i := range next {
		q := s.param(i)
		change := min(max(-d.AtVec(i), -math.Ln2), math.Ln2)
		v := x[i] * math.Exp(change)
		if v <= q.Min || v >= q.Max { // half way to the bound
			bound := q.Min
			if v >= q.Max {
				bound = q.Max
			}
			v = math.Sqrt(x[i] * bound)
		}
		next[i] = q.coordinate(v)
	}
	return next, true
}

// simplex polishes u with what is left of the evaluations.
func (s *solver) simplex(u []float64) ([]float64, error) {
	left := s.p.Evaluations - s.evaluations - 2*s.n // kept for the report
	if left < 2*s.n {
		return u, nil
	}
	best, bestLoss := append([]float64(nil), u...), math.Inf(1)
	var failure error
	problem := optimize.Problem{
		Func: func(v []float64) float64 {
			if failure != nil {
				return math.Inf(1)
			}
			r, err := s.residuals(v)
			if err != nil {
				failure = err
				return math.Inf(1)
			}
			l := sumSquares(r)
			if l < bestLoss {
				bestLoss = l
				copy(best, v)
			}
			return l
		},
		Status: func() (optimize.Status, error) {
			if failure != nil {
				return optimize.Failure, failure
			}
			return optimize.NotTerminated, nil
		},
	}
	settings := &optimize.Settings{FuncEvaluations: left, Concurrent: 1,
		Converger: &optimize.FunctionConverge{Absolute: 1e-6, Relative: 1e-5, Iterations: 10 * s.n}}
	_, err := optimize.Minimize(problem, u, settings, &optimize.NelderMead{SimplexSize: 0.05})
	if failure != nil {
		return nil, failure
	}
	if err != nil && bestLoss == math.Inf(1) {
		return nil, fmt.Errorf("calibrate: %w", err)
	}
	return best, nil
}
