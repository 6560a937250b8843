// Package bounds describes the numbers that a setting allows, in a short text for struct tags and flags:
//
//	b := bounds.MustParse(">=0 <1")
//	b.Has(1)     // false
//	b.String()   // ">= 0 and < 1"
package bounds

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Bounds is a range of numbers. It never contains NaN.
type Bounds struct {
	low, high         float64
	openLow, openHigh bool      // the limit itself is outside
	extra             []float64 // single numbers beside the range
}

// Parse parses bounds: any of >=X, >X, <=X, <X, and single numbers that are also allowed, separated by spaces.
// Examples are "0 >=0.001" and ">0 inf". Without an upper limit every finite number above the lower limit is allowed.
// The empty text allows every finite number.
func Parse(text string) (Bounds, error) {
	b := Bounds{low: math.Inf(-1), high: math.Inf(1), openLow: true, openHigh: true}
	for _, part := range strings.Fields(text) {
		number := strings.TrimLeft(part, "<>=")
		x, err := strconv.ParseFloat(number, 64)
		if err != nil {
			return b, fmt.Errorf("bounds %q: %q is not a number", text, number)
		}
		switch strings.TrimSuffix(part, number) {
		case ">=":
			b.low, b.openLow = x, false
		case ">":
			b.low, b.openLow = x, true
		case "<=":
			b.high, b.openHigh = x, false
		case "<":
			b.high, b.openHigh = x, true
		case "":
			b.extra = append(b.extra, x)
		default:
			return b, fmt.Errorf("bounds %q: expected >=X, >X, <=X, <X or X, not %q", text, part)
		}
	}
	return b, nil
}

// MustParse is Parse for texts in the source code. It panics on an error.
func MustParse(text string) Bounds {
	b, err := Parse(text)
	if err != nil {
		panic(err)
	}
	return b
}

// Has reports whether x is allowed.
func (b Bounds) Has(x float64) bool {
	return (x > b.low || x == b.low && !b.openLow) && (x < b.high || x == b.high && !b.openHigh) ||
		slices.Contains(b.extra, x)
}

// String describes the bounds for people; "" means every finite number.
func (b Bounds) String() string {
	low, high, closed := ">= "+number(b.low), "<= "+number(b.high), !b.openLow && !b.openHigh
	if b.openLow {
		low = "> " + number(b.low)
	}
	if b.openHigh {
		high = "< " + number(b.high)
	}
	text := low + " and " + high
	switch noLow, noHigh := math.IsInf(b.low, -1), math.IsInf(b.high, 1); {
	case noLow && noHigh:
		text = ""
	case noLow:
		text = high
	case noHigh:
		text = low
	case closed:
		text = "from " + number(b.low) + " to " + number(b.high)
	}
	for _, x := range b.extra {
		text += ", or " + number(x)
	}
	return text
}

func number(x float64) string {
	format := byte('f')
	if x != 0 && math.Abs(x) < 1e-4 {
		format = 'g'
	}
	return strings.TrimPrefix(strings.ToLower(strconv.FormatFloat(x, format, -1, 64)), "+") // "inf", not "+Inf"
}

// Schema returns the JSON Schema of a number of a type ("integer", "number") within the bounds. Infinity is the text
// "inf", or the value of ".inf" in YAML.
func (b Bounds) Schema(typ string) map[string]any {
	in := map[string]any{"type": typ}
	limit := func(x float64, open bool, name, exclusive string) {
		if open {
			name = exclusive
		}
		if !math.IsInf(x, 0) {
			in[name] = x
		}
	}
	limit(b.low, b.openLow, "minimum", "exclusiveMinimum")
	limit(b.high, b.openHigh, "maximum", "exclusiveMaximum")
	if len(b.extra) == 0 {
		return in
	}
	var more []any
	ways := []any{in}
	for _, x := range b.extra {
		if math.IsInf(x, 0) {
			more, ways = append(more, number(x)),
				append(ways, map[string]any{"type": "number", "exclusiveMinimum": math.MaxFloat64})
		} else {
			more = append(more, x)
		}
	}
	return map[string]any{"anyOf": append(ways, map[string]any{"enum": more})}
}
