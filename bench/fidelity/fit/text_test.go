package fit

import (
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"lorasim/sim/profile"
)

// The coefficients and the notes about them fit a terminal of 80 columns.
func TestTextFitsTerminal(t *testing.T) {
	f := &Result{Profile: &profile.Profile{}, Params: []Estimate{
		{Param: Param{Name: "decode.base_ms", Min: 1, Start: 9.17}, Value: 1, RelStd: 0.01,
			AtBound: true, Physical: true},
		{Param: Param{Name: "prefill.mixed_per_request_ms", Start: 0.02001}, Value: 0.02181, RelStd: 0.5112,
			Assumed: true},
		{Param: Param{Name: "lora.triton_us", Min: 1, Start: 10}, Value: 1e4, RelStd: 0.2, AtBound: true},
		{Param: Param{Name: "adapters.base_ms", Start: 5}, Value: 4.567, RelStd: math.NaN()},
		{Param: Param{Name: "prefill.per_token_ctx_ns", Start: 1.12}, Held: true},
		{Param: Param{Name: "request_overhead_ms", Start: 5}, Held: true},
	}}
	var b strings.Builder
	if err := f.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	const want = `COEFFICIENT                   START    VALUE    95 % INTERVAL         STD ERROR
decode.base_ms                9.17     1        0.981 to 1.02         1.0 %
prefill.mixed_per_request_ms  0.02001  0.02181  0.00801 to 0.0594     51.1 %
lora.triton_us                10       1e+04    6.76e+03 to 1.48e+04  20.0 %
adapters.base_ms              5        4.567    -                     -
prefill.per_token_ctx_ns      1.12     -        -                     -
request_overhead_ms           5        -        -                     -

not determined by the data, unchanged: prefill.per_token_ctx_ns,
  request_overhead_ms
at the physical minimum of the GPU: decode.base_ms
at its bound: lora.triton_us
less by the data than by the start: prefill.mixed_per_request_ms
`
	if got, _, _ := strings.Cut(b.String(), "\nerror of the fit"); got != want {
		t.Errorf("got\n%s\nexpected\n%s", got, want)
	}
	for line := range strings.Lines(b.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > textWidth {
			t.Errorf("%d columns, expected at most %d: %s", n, textWidth, line)
		}
	}
}
