package replay

import (
	"fmt"

	"lorasim/trace/internal/renewal"
)

// Distribution names a distribution of the gaps between the requests of one
// adapter. All are scaled to mean 1/rate and a coefficient of variation CV.
type Distribution string

// The distributions.
const (
	Exponential Distribution = renewal.Exponential // Poisson arrivals; CV 1, whatever is asked for
	Gamma       Distribution = renewal.Gamma
	Pareto      Distribution = renewal.Pareto  // type I: x^-(shape+1) above a smallest gap; the heaviest tail
	Weibull     Distribution = renewal.Weibull // for CV > 1 a heavier tail than gamma
)

// ParseDistribution reads the name of a distribution.
func ParseDistribution(s string) (Distribution, error) {
	switch d := Distribution(s); d {
	case Exponential, Gamma, Pareto, Weibull:
		return d, nil
	}
	return "", fmt.Errorf("unknown arrival distribution %q: expected %s, %s, %s or %s", s, Exponential, Gamma, Pareto, Weibull)
}
