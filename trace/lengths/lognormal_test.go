package lengths_test

import (
	"math"
	"testing"

	"gonum.org/v1/gonum/stat"
	"pgregory.net/rapid"

	"lorasim/internal/shareddata"
	"lorasim/trace"
	"lorasim/trace/lengths"
	"lorasim/trace/llm"
)

// TestMeanByIntegration compares the formula of the mean with the integral of
// the quantile function.
func TestMeanByIntegration(t *testing.T) {
	for _, d := range []lengths.Tokens{
		{Mu: 5, Sigma: 1, Cap: 1000}, {Mu: 3, Sigma: 2.12, Cap: 638}, {Mu: 7, Sigma: 0.3, Cap: lengths.NoCap},
		{Mu: -2, Sigma: 1.5, Cap: 50}, {Mu: 9, Sigma: 0.5, Cap: 4090}, {Mu: 4, Sigma: 0, Cap: 100},
		{Mu: 4, Sigma: 0, Cap: 10},
	} {
		const n = 300_000
		sum := 0.0
		for i := range n {
			sum += d.Quantile((float64(i) + 0.5) / n)
		}
		near(t, "mean", d.Mean(), sum/n, 2e-4)
	}
}

func TestFromMean(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int32Range(10, 1_000_000).Draw(t, "cap")
		want := rapid.Float64Range(1.5, 0.95*float64(limit)).Draw(t, "mean")
		d, err := lengths.FromMean(want, rapid.Float64Range(0, 3).Draw(t, "sigma"), limit)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(d.Mean()/want-1) > 1e-9 {
			t.Fatalf("mean is %v, expected %v (%+v)", d.Mean(), want, d)
		}
	})
}

func TestFromMedian(t *testing.T) {
	d, err := lengths.FromMedian(100, 1.2, 5000)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "median", d.Quantile(0.5), 100, 1e-12)
}

// presetTable is the table of the presets' documentation: target and outcome.
var presetTable = []struct {
	spec           string
	output         bool
	limit          int32
	mean, p50, p95 float64 // of the trace
	gotP50, gotP95 float64
}{
	{"azure-conv", false, 4142, 1155, 1020, 4083, 820, 3632},
	{"azure-conv", true, 1000, 211, 129, 451, 166, 526},
	{"azure-code", false, 7437, 2048, 1469, 7303, 1382, 7042},
	{"azure-code", true, 1899, 28, 13, 90, 13, 99},
	{"sharegpt", false, 8141, 2340, 1730, 6563, 1769, 6597},
	{"sharegpt", true, 1024, 438.7, 415, 920, 392, 907},
}

// TestPresetDraws: half a million draws have the mean of the trace, the quantiles
// that the documentation states, and no correlation.
func TestPresetDraws(t *testing.T) {
	for i := 0; i < len(presetTable); i += 2 {
		spec := presetTable[i].spec
		prompts, outputs := draws(parse(t, spec), 500_000)
		for k, x := range [][]float64{prompts, outputs} {
			want := presetTable[i+k]
			near(t, spec+" mean", mean(x), want.mean, 0.005)
			if p50 := quantile(x, 0.5); math.Abs(p50-want.gotP50) > 0.005*want.gotP50+1 {
				t.Errorf("%s: median %v, documented %v", spec, p50, want.gotP50)
			}
			if p95 := quantile(x, 0.95); math.Abs(p95-want.gotP95) > 0.01*want.gotP95+1 {
				t.Errorf("%s: 95th percentile %v, documented %v", spec, p95, want.gotP95)
			}
			if top := quantile(x, 1); top > float64(want.limit) {
				t.Errorf("%s: %v tokens exceed the cap of %d", spec, top, want.limit)
			}
		}
		if r := stat.Correlation(prompts, outputs, nil); math.Abs(r) > 0.007 { // five standard errors
			t.Errorf("%s: correlation %v, expected none", spec, r)
		}
	}
}

// TestPresetFit repeats the fit: no other sigma comes nearer to median and 95th
// percentile at the trace's mean.
func TestPresetFit(t *testing.T) {
	for _, c := range presetTable {
		preset := parse(t, c.spec).(lengths.LogNormal)
		d := preset.Prompt
		if c.output {
			d = preset.Output
		}
		if d.Cap != c.limit {
			t.Errorf("%s: cap %d, expected %d", c.spec, d.Cap, c.limit)
		}
		best, bestError := 0.0, math.Inf(1)
		for i := 20; i <= 300; i++ {
			sigma := float64(i) / 100
			try, err := lengths.FromMean(c.mean, sigma, c.limit)
			if err != nil {
				t.Fatal(err)
			}
			e := math.Pow(math.Log(try.Quantile(0.5)/c.p50), 2) + math.Pow(math.Log(try.Quantile(0.95)/c.p95), 2)
			if e < bestError {
				best, bestError = sigma, e
			}
		}
		if d.Sigma != best {
			t.Errorf("%s (output: %v): sigma %v, the fit gives %v", c.spec, c.output, d.Sigma, best)
		}
	}
}

// TestPresetTargets: the targets are those of the traces, whose caps are the
// largest length or, for prompts of the conversation trace, its 99th percentile.
func TestPresetTargets(t *testing.T) {
	for i := 0; i < len(presetTable); i += 2 {
		spec := presetTable[i].spec
		prompts, outputs := source(t, spec)
		for k, x := range [][]float64{prompts, outputs} {
			want := presetTable[i+k]
			near(t, spec+" mean", mean(x), want.mean, 0.005)
			near(t, spec+" median", quantile(x, 0.5), want.p50, 0.005)
			near(t, spec+" 95th percentile", quantile(x, 0.95), want.p95, 0.005)
			top := quantile(x, 1)
			if spec == "azure-conv" && k == 0 {
				top = quantile(x, 0.99)
			}
			near(t, spec+" cap", top, float64(want.limit), 1e-9)
		}
	}
}

// source returns the lengths that a preset was fitted to.
func source(t *testing.T, spec string) (prompts, outputs []float64) {
	if spec == "sharegpt" {
		for _, row := range tableRows(t,
			shareddata.Path(t, "lengths/sharegpt_8k_filtered_stats_llama2_tokenizer.csv")) {
			prompts, outputs = append(prompts, row[0]), append(outputs, row[1])
		}
		return prompts, outputs
	}
	name := map[string]string{"azure-conv": "conv", "azure-code": "code"}[spec]
	r, err := llm.Open(t.Context(), llm.AzureLLM, shareddata.Path(t,
		"azure_llm_2023/AzureLLMInferenceTrace_"+name+".csv"),
		llm.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	w, err := trace.Collect(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range w.Requests {
		prompts, outputs = append(prompts, float64(q.Prompt)), append(outputs, float64(q.Output))
	}
	return prompts, outputs
}
