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
		"200.5 ±1.5":         {N: 2, Mean: 200.5, Low: 199, High: 202},
		"71.25 (66 to 91.3)": {N: 5, Mean: 71.25, Low: 66, High: 91.3},
	} {
		if got := e.String(); got != want {
			t.Errorf("%q, expected %q", got, want)
		}
	}
	for want, e := range map[string]Estimate{
		"-": {}, "+5.0 %": {N: 1, Mean: 10}, "-3.1 % ±0.8": {N: 5, Mean: -6.2, Low: -7.8, High: -4.6},
		"-12.0 % (-28.1 to -3.5)": {N: 5, Mean: -24, Low: -56.2, High: -7},
	} {
		if got := e.Versus(200); got != want {
			t.Errorf("%q, expected %q", got, want)
		}
	}
	if got := (Estimate{N: 5, Mean: 10, Low: 5, High: 30}).Versus(-100); got != "-10.0 % (-30 to -5)" {
		t.Errorf("of a negative base: %q", got)
	}
}
