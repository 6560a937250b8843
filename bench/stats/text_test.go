package stats

import (
	"math"
	"testing"
)

// Numbers have the decimals that a reader wants, and those of an interval as
// many as its mean.
func TestNumbers(t *testing.T) {
	for x, want := range map[float64]string{
		0: "0", 7: "7", -3: "-3", 0.5: "0.5000", 0.99999: "1.0000", 1.25: "1.25", 99.5: "99.50", 100.25: "100.2",
		-250.5: "-250.5", 9999.5: "9999.5", 10000.5: "10000",
	} {
		if got := Number(x); got != want {
			t.Errorf("%v: %s, expected %s", x, got, want)
		}
	}
	if Number(math.NaN()) != "-" {
		t.Error(Number(math.NaN()))
	}
	for want, e := range map[string]Estimate{
		"-": {}, "5": {N: 1, Mean: 5}, "5 ±0": {N: 2, Mean: 5, Low: 5, High: 5},
		"200.5 ±1.5": {N: 2, Mean: 200.5, Low: 199, High: 202},
	} {
		if got := e.String(); got != want {
			t.Errorf("%q, expected %q", got, want)
		}
	}
}
