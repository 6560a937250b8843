package stats

import (
	"fmt"
	"math"
	"strconv"

	"lorasim/internal/format"
)

// NotComparable is the mark for values of runs that did not complete the same requests.
const NotComparable = "≠"

// String returns the mean and its interval, such as "812.4 ±10.2" or "71.2 (66 to 91.3)"; "-" without values.
func (e Estimate) String() string {
	if e.N == 0 {
		return "-"
	}
	return Number(e.Mean) + e.Interval(func(x float64) string { return numberLike(x, e.Mean) })
}

// Versus returns the estimate of a difference in percent of base, with its interval, such as "-3.1 % ±0.8" or
// "-12.0 % (-28.1 to -3.5)"; "-" without values or if base is 0.
func (e Estimate) Versus(base float64) string {
	if e.N == 0 || base == 0 {
		return "-"
	}
	f := e.Times(100 / base)
	return fmt.Sprintf("%+.1f %%", f.Mean) + f.Interval(func(x float64) string { return fmt.Sprintf("%.1f", x) })
}

// Times returns the estimate in another unit.
func (e Estimate) Times(factor float64) Estimate {
	e.Mean, e.Std, e.Low, e.High = e.Mean*factor, e.Std*math.Abs(factor), e.Low*factor, e.High*factor
	if factor < 0 {
		e.Low, e.High = e.High, e.Low
	}
	return e
}

// uneven is the least ratio of the longer side of an interval to the shorter one at which a text has both ends.
const uneven = 1.25

// Interval returns the text of the interval: half its width, such as " ±0.8", or its ends, such as " (0.4 to 3.1)", if
// one side is clearly longer than the other; "" without an interval. half writes half the width.
func (e Estimate) Interval(half func(float64) string) string {
	down, up := e.Mean-e.Low, e.High-e.Mean
	switch {
	case !e.HasInterval():
		return ""
	case max(down, up) > uneven*min(down, up):
		return " (" + format.Digits(e.Low) + " to " + format.Digits(e.High) + ")"
	}
	return " ±" + half(e.Half())
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
