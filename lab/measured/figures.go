package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"

	"lorasim/bench/stats"
)

// A comparison is one figure of one run: the measured and the predicted value, in the same unit.
type comparison struct{ measured, predicted float64 }

// err returns the relative error.
func (c comparison) err() float64 { return c.predicted/c.measured - 1 }

// A target bounds errors: the median over runs and the worst run, as shares; 0 is no bound.
type target struct{ median, worst float64 }

// text returns the target, and whether it holds for the given errors.
func (t target) text(median, worst float64) string {
	if t == (target{}) {
		return "-"
	}
	ok, what := true, ""
	switch {
	case t.worst == 0:
		ok, what = median <= t.median, percent(t.median)
	case t.median == 0:
		ok, what = worst <= t.worst, "each "+percent(t.worst)
	default:
		ok, what = median <= t.median && worst <= t.worst, percent(t.median)+", each "+percent(t.worst)
	}
	if ok {
		return what + ": met"
	}
	return what + ": " + missed
}

// one returns the row of a figure of one run. most is the target for its error.
func one(claim, unit string, c comparison, most float64) row {
	return row{claim: claim, measured: number(c.measured) + unit, predicted: number(c.predicted) + unit,
		err: signed(c.err()), target: target{worst: most}.one(c.err()), peers: "-", command: "a"}
}

// one returns the target, and whether it holds for one run.
func (t target) one(err float64) string {
	if t.worst == 0 {
		return "-"
	}
	if math.Abs(err) <= t.worst {
		return percent(t.worst) + ": met"
	}
	return percent(t.worst) + ": " + missed
}

// several returns the row of a figure of several runs.
func several(claim, unit string, cs []comparison, t target) row {
	var measured, predicted, errors []float64
	for _, c := range cs {
		measured = append(measured, c.measured)
		predicted = append(predicted, c.predicted)
		errors = append(errors, math.Abs(c.err()))
	}
	median := func(values []float64) float64 { return stats.QuantileOf(values, 0.5) }
	middle, worst := median(errors), slices.Max(errors)
	return row{claim: fmt.Sprintf("%s, %d runs", claim, len(cs)), measured: number(median(measured)) + unit,
		predicted: number(median(predicted)) + unit, err: percent(middle) + ", worst " + percent(worst),
		target: t.text(middle, worst), peers: "-", command: "a"}
}

// number formats a number with three significant digits, and all digits before the point.
func number(x float64) string {
	if math.Abs(x) >= 100 {
		return strconv.FormatFloat(x, 'f', 0, 64)
	}
	return strconv.FormatFloat(x, 'g', 3, 64)
}

// percent formats a share as a percentage, with one decimal below 10 % and no trailing zero.
func percent(share float64) string {
	x := 100 * share
	if x < 10 {
		x = math.Round(10*x) / 10
	} else {
		x = math.Round(x)
	}
	return strconv.FormatFloat(x, 'f', -1, 64) + " %"
}

func signed(share float64) string {
	if math.Round(1000*share) >= 0 {
		return "+" + percent(math.Abs(share))
	}
	return "-" + percent(-share)
}

// sortedBy sorts rows by a key, ascending. Rows with equal keys keep their order.
func sortedBy[T any, K cmp.Ordered](rows []T, key func(*T) K) []T {
	slices.SortStableFunc(rows, func(a, b T) int { return cmp.Compare(key(&a), key(&b)) })
	return rows
}
