package lengths

import (
	"math"
	"strings"
	"testing"
)

// A changed preset keeps its promise: a whole workload has the stated means,
// and a spec with the preset's own numbers draws what the preset draws.
func TestMeasuredSpec(t *testing.T) {
	s, err := Parse("measured:output_mean=80,output_sigma=1.1,output_cap=500,prompt_mean=300")
	if err != nil {
		t.Fatal(err)
	}
	prompts, outputs := s.(Measured).Rescaled(1000, 3)
	mean := func(xs []int32, below int32) float64 {
		sum, n := 0.0, 0
		for _, x := range xs {
			if x < below {
				sum, n = sum+float64(x), n+1
			}
		}
		return sum / float64(n)
	}
	if got := mean(outputs, math.MaxInt32); math.Abs(got-80) > 0.01 {
		t.Errorf("outputs have mean %v, expected 80", got)
	}
	if got := mean(prompts, 4096); math.Abs(got-300) > 0.01 {
		t.Errorf("prompts within the limit have mean %v, expected 300", got)
	}
	same, err := Parse("measured:output_mean=157.9,output_sigma=1.41,output_cap=1236")
	if err != nil {
		t.Fatal(err)
	}
	preset, _ := measured("measured-stride")
	if same != Sampler(preset) {
		t.Errorf("%+v, expected the preset %+v", same, preset)
	}
	for spec, want := range map[string]string{
		"measured":                             "expected measured:",
		"measured:output_mean":                 "not of the form",
		"measured:output_mean=1,output_mean=2": "given twice",
		"measured:output_men=1":                `did you mean "output_mean"`,
		"measured:output_cap=1.5":              "whole number",
		"measured:output_mean=9999":            "mean is 9999",
		"measured:output_sigma=x":              "output_sigma",
	} {
		if _, err := Parse(spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, expected an error with %q", spec, err, want)
		}
	}
}
