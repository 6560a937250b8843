package synth

import (
	"fmt"

	"lorasim/internal/suggest"
	"lorasim/trace/internal/renewal"
)

// The distributions of the gaps of Arrivals.
const (
	Gamma         = renewal.Gamma
	Exponential   = renewal.Exponential   // Poisson arrivals; CV 1
	Weibull       = renewal.Weibull       // heavier tail than gamma at the same CV > 1
	Deterministic = renewal.Deterministic // equal gaps; CV 0
)

// Coefficients of variation of the presets "bursty" and "smooth", both gamma.
const (
	burstyCV = 4
	smoothCV = 0.5
)

// Arrivals describes the renewal process of the requests.
//
// By default each adapter has a process of its own, whose rate is its share of
// the total, and the processes are merged. CV is then that of one adapter; the
// merged gaps of many adapters come closer to a Poisson process. With Total a
// single process gives the times and each request draws its adapter.
type Arrivals struct {
	Dist  string
	CV    float64 // coefficient of variation of the gaps; Gamma and Weibull only
	Total bool
}

// ParseArrivals reads "gamma:4" (with the CV; without: 1), "weibull:2",
// "exponential", "deterministic", "bursty" (gamma:4) or "smooth" (gamma:0.5).
// The prefix "total-", as in "total-gamma:4", sets Total.
func ParseArrivals(s string) (Arrivals, error) {
	name, args := splitSpec(s)
	a := Arrivals{CV: 1}
	const total = "total-"
	if len(name) > len(total) && name[:len(total)] == total {
		a.Total, name = true, name[len(total):]
	}
	a.Dist = name
	maxArgs := 0
	switch name {
	case Gamma, Weibull:
		maxArgs = 1
	case Exponential, Deterministic:
	case "bursty":
		a.Dist, a.CV = Gamma, burstyCV
	case "smooth":
		a.Dist, a.CV = Gamma, smoothCV
	default:
		return Arrivals{}, fmt.Errorf("arrivals %q: %w", s, suggest.Unknown("name", name,
			[]string{Gamma, Exponential, Weibull, Deterministic, "bursty", "smooth"}))
	}
	xs, err := parseNumbers(args, 0, maxArgs)
	if len(xs) == 1 {
		a.CV = xs[0]
	}
	if err == nil {
		err = a.check()
	}
	if err != nil {
		return Arrivals{}, fmt.Errorf("arrivals %q: %w", s, err)
	}
	return a, nil
}

// String returns the spec that ParseArrivals reads.
func (a Arrivals) String() string {
	name := a.Dist
	if a.Total {
		name = "total-" + name
	}
	if a.Dist == Gamma || a.Dist == Weibull {
		return formatSpec(name, a.CV)
	}
	return name
}

// Check says what is wrong with a, or nil.
func (a Arrivals) Check() error {
	if err := a.check(); err != nil {
		return fmt.Errorf("arrivals %s: %w", a.Dist, err)
	}
	return nil
}

func (a Arrivals) check() error {
	switch a.Dist {
	case Gamma, Weibull:
		if !(a.CV >= renewal.MinCV && a.CV <= renewal.MaxCV) {
			return fmt.Errorf("cv is %v, expected %g to %g (for cv 0 use %q)", a.CV, renewal.MinCV, renewal.MaxCV, Deterministic)
		}
	case Exponential, Deterministic:
	default:
		return suggest.Unknown("name", a.Dist, []string{Gamma, Exponential, Weibull, Deterministic})
	}
	return nil
}
