package stats

import (
	"fmt"
	"math"
	"strconv"
)

// NotComparable is the mark for values of runs that did not complete the same requests.
const NotComparable = "≠"

// String returns the mean and half the interval, such as "812.4 ±10.2"; "-" without values.
func (e Estimate) String() string {
	switch {
	case e.N == 0:
		return "-"
	case !e.HasInterval():
		return Number(e.Mean)
	}
	return Number(e.Mean) + " ±" + numberLike(e.Half(), e.Mean)
}

// Versus returns the estimate of a difference in percent of base, with half its interval,
// such as "-3.1 % ±0.8"; "-" without values or if base is 0.
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

// Number formats x with up to four decimals, fewer for larger numbers. Whole numbers have
// none. NaN is "-".
func Number(x float64) string { return numberLike(x, x) }

// numberLike formats x with the decimals of a number of the size of y.
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
