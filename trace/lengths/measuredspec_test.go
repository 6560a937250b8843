package lengths

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lorasim/trace/settings"
)

// A changed preset keeps its promise: a whole workload has the stated means,
// and a spec with the preset's own numbers draws what the preset draws.
func TestMeasuredSpec(t *testing.T) {
	s, err := Parse(t.Context(), "measured:output_mean=80,output_sigma=1.1,output_cap=500,prompt_mean=300")
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
	same, err := Parse(t.Context(), "measured:output_mean=157.9,output_sigma=1.41,output_cap=1236")
	if err != nil {
		t.Fatal(err)
	}
	if preset := measured(measuredPrompts, measuredOutputs); same != Sampler(preset) {
		t.Errorf("%+v, expected the preset %+v", same, preset)
	}
	for spec, want := range map[string]string{
		"measured:":                            "expected options after the colon",
		"measured:output_mean":                 "not of the form key=value",
		"measured:output_mean=1,output_mean=2": "given twice",
		"measured:output_men=1":                `did you mean "output_mean"`,
		"measured:output_cap=1.5":              "whole number",
		"measured:output_mean=9999":            "mean is 9999",
		"measured:output_sigma=x":              `output_sigma: "x" is not a number from 0 to 10`,
	} {
		if _, err := Parse(t.Context(), spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, expected an error with %q", spec, err, want)
		}
	}
}

// TestSpecs: every spec in the list is understood.
func TestSpecs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "t.csv")
	if err := os.WriteFile(file, []byte("num_prefill_tokens,num_decode_tokens,what,lo,hi,count\n1,2,prompt,1,2,1\n1,2,output,1,2,1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	given := map[string]string{"prompt": "10", "output": "5", "prompt_mean": "50", "output_mean": "50", "file": file,
		"prompt_sigma": "1", "output_sigma": "1"}
	for _, f := range Forms() {
		if err := f.Verify(); err != nil {
			t.Error(err)
		}
		var options settings.Given
		for _, field := range f.Fields() {
			if text, ok := given[field.Key]; ok {
				options = append(options, settings.Option{Key: field.Key, Text: text})
			}
		}
		spec := f.Text(options)
		law, err := Parse(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		if p, o := law.Draw(rand.New(rand.NewPCG(1, 1))); p < 1 || o < 1 {
			t.Errorf("%s: drew %d, %d", spec, p, o)
		}
	}
	for _, f := range BudgetForms() {
		if err := f.Verify(); err != nil {
			t.Error(err)
		}
	}
}
