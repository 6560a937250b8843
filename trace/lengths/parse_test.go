package lengths_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"lorasim/trace/lengths"
)

func TestParseLogNormal(t *testing.T) {
	d := parse(t, "lognormal:prompt_mean=1366,prompt_sigma=1,output_mean=184,output_sigma=0.5").(lengths.LogNormal)
	near(t, "prompt mean", d.Prompt.Mean(), 1366, 1e-9)
	near(t, "prompt mu", d.Prompt.Mu, math.Log(1366)-0.5, 1e-6) // without a cap: mean = exp(mu + sigma^2/2)
	near(t, "output mu", d.Output.Mu, math.Log(184)-0.125, 1e-6)
	d = parse(t, "lognormal:output_cap=200,output_median=184,output_sigma=2,prompt_sigma=0,prompt_mean=7,prompt_cap=9").(lengths.LogNormal)
	near(t, "output median", d.Output.Quantile(0.5), 184, 1e-9)
	if d.Output.Cap != 200 || d.Prompt.Cap != 9 {
		t.Errorf("caps %d and %d", d.Prompt.Cap, d.Output.Cap)
	}
	if p, _ := d.Draw(rand.New(rand.NewPCG(1, 1))); p != 7 {
		t.Errorf("drew %d where sigma is 0, expected 7", p)
	}
}

func TestParseErrors(t *testing.T) {
	const ok = "prompt_mean=5,prompt_sigma=1,output_mean=5,output_sigma=1"
	for spec, want := range map[string]string{
		"":                                     `unknown lengths "" (known: azure-conv, azure-code, sharegpt`,
		"sharegp":                              `unknown lengths "sharegp", did you mean "sharegpt"?`,
		"azure":                                "(known: azure-conv, azure-code",
		"sharegpt:8k":                          `lengths sharegpt: "8k", expected no options`,
		"measured-rate4:":                      "expected options after the colon",
		"constant":                             "lengths constant: prompt is missing (prompt length), expected a whole number >= 1",
		"constant:1":                           "output is missing",
		"constant:1,2,3":                       `"3" has no option left, expected prompt,output`,
		"constant:0,2":                         `prompt: "0" is not a whole number >= 1`,
		"constant:1,x":                         `output: "x" is not`,
		"constant:1,3000000000":                `output: "3000000000" is not`,
		"random:1,2,1.5":                       `ratio: "1.5" is not a number from 0 to 1`,
		"random:1,2,x":                         `ratio: "x" is not`,
		"random:1,2,-0.1":                      `ratio: "-0.1" is not`,
		"random:1,2,0,1":                       `"1" has no option left`,
		"lognormal:":                           "prompt_sigma is missing",
		"lognormal:prompt_mean=5":              "prompt_sigma is missing",
		"lognormal:5":                          `"5" is not of the form key=value`,
		"lognormal:" + ok + ",x=1":             `unknown option "x"`,
		"lognormal:promt_mean=5":               `did you mean "prompt_mean"?`,
		"lognormal:" + ok + "," + ok:           "prompt_mean is given twice",
		"lognormal:" + ok + ",output_median=3": "both output_mean and output_median are given",
		"lognormal:" + ok + ",output_cap=3":    "output: mean is 5 tokens, expected 1 to the cap (3)",
		"lognormal:" + ok + ",output_cap=0.5":  `output_cap: "0.5" is not a whole number >= 1`,
		"lognormal:prompt_mean=0.5,prompt_sigma=1,output_mean=5,output_sigma=1": "prompt: mean is 0.5 tokens",
		"lognormal:prompt_mean=5,prompt_sigma=-1,output_mean=5,output_sigma=1":  `prompt_sigma: "-1" is not a number from 0 to 10`,
		"lognormal:prompt_mean=5,prompt_sigma=1,output_mean=nan,output_sigma=1": `output_mean: "nan" is not a number > 0`,
		"lognormal:prompt_median=5,prompt_sigma=1,output_median=5":              "output_sigma is missing",
		"lognormal:prompt_median=5,prompt_sigma=1,output_sigma=1":               "output_mean is missing",
		"table":                  "file is missing",
		"table:/none/of/that":    "lengths table: stat /none/of/that: no such file",
		"random:" + "9,,":        `output: "" is not`,
		"lognormal:prompt_mean=": `prompt_mean: "" is not a number > 0`,
	} {
		_, err := lengths.Parse(t.Context(), spec)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, expected %q in it", spec, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"sharegpt", "azure-conv", "constant:1024,128", "random:1024,128,0.0", "measured-stride",
		"lognormal:prompt_mean=1366,prompt_sigma=1,output_mean=184,output_sigma=1,output_cap=900",
		"lognormal:prompt_median=1,prompt_sigma=1",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, spec string) {
		if strings.HasPrefix(spec, "table:") {
			return // reads a file; see FuzzTable
		}
		s, err := lengths.Parse(t.Context(), spec)
		if (s == nil) != (err != nil) {
			t.Fatalf("sampler %v, error %v", s, err)
		}
		if err != nil {
			return
		}
		r := rand.New(rand.NewPCG(1, 1))
		for range 10 {
			if p, o := s.Draw(r); p < 1 || o < 1 {
				t.Fatalf("drew %d, %d", p, o)
			}
		}
	})
}
