package synth

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// A spec is a name and arguments, "name:a,b,c".

// splitSpec takes a spec apart; args is nil without a colon.
func splitSpec(s string) (name string, args []string) {
	name, rest, found := strings.Cut(strings.TrimSpace(s), ":")
	if found {
		args = strings.Split(rest, ",")
	}
	return strings.TrimSpace(name), args
}

// parseNumbers reads args as finite numbers, between lo and hi of them.
func parseNumbers(args []string, lo, hi int) ([]float64, error) {
	if len(args) < lo || len(args) > hi {
		want := strconv.Itoa(lo)
		if hi != lo {
			want = fmt.Sprintf("%d to %d", lo, hi)
		}
		return nil, fmt.Errorf("has %d arguments, expected %s", len(args), want)
	}
	xs := make([]float64, len(args))
	for i, a := range args {
		x, err := strconv.ParseFloat(strings.TrimSpace(a), 64)
		if err != nil || math.IsInf(x, 0) || math.IsNaN(x) {
			return nil, fmt.Errorf("argument %d is %q, expected a finite number", i+1, a)
		}
		xs[i] = x
	}
	return xs, nil
}

// formatSpec is the inverse of splitSpec and parseNumbers.
func formatSpec(name string, xs ...float64) string {
	var b strings.Builder
	b.WriteString(name)
	for i, x := range xs {
		b.WriteByte(":,"[min(i, 1)])
		b.WriteString(formatNumber(x))
	}
	return b.String()
}

// formatNumber writes x in the shortest form that reads back, without the "+" of
// an exponent, which joins patterns.
func formatNumber(x float64) string {
	return strings.Replace(strconv.FormatFloat(x, 'g', -1, 64), "e+", "e", 1)
}
