package stats

import (
	"fmt"
	"math"
	"strconv"
)

// NotComparable marks numbers of runs that did not complete the same requests.
const NotComparable = "≠"

// String prints mean and half interval.
func (e Estimate) String() string {
	switch {
	case e.N == 0:
		return "-"
	case !e.HasInterval():
		return Number(e.Mean)
	}
	return Number(e.Mean) + " ±" + numberLike(e.Half(), e.Mean)
}

// Versus prints a difference in percent of a base, with half its interval.
func (e Estimate) Versus(base float64) string {
	if e.N == 0 || base == 0 {
		return "-"
	}
	text := fmt.Sprintf("%+.1f %%", 100*e.Mean/base)
	if e.HasInterval() {
		text += fmt.Sprintf(" ±%.1f", math.Abs(100*e.Half()/base))
	}
	return text
}

// Number prints a number with as many digits as a reader wants.
func Number(x float64) string { return numberLike(x, x) }

// numberLike prints x with the decimals that a number of the size of y has.
func numberLike(x, y float64) string {
	a := math.Abs(y)
	decimals := 0
	switch {
	case math.IsNaN(x):
		return "-"
	case a == math.Trunc(a) && x == math.Trunc(x):
	case a < 1:
		decimals = 4
	case a < 100:
		decimals = 2
	case a < 10_000:
		decimals = 1
	}
	return strconv.FormatFloat(x, 'f', decimals, 64)
}
