package lengths_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/stat"

	"lorasim/internal/testutil"
	"lorasim/trace/lengths"
)

// twoBins has simple marginals: prompts even from 100 to 200 with probability
// 1/4 and from 200 to 400 else, outputs even from 0 to 1000.
const twoBins = "what,lo,hi,count\nprompt,100,200,1\nprompt,200,400,3\nprompt,400,800,0\noutput,0,1000,7\n"

// TestCopulaMarginals: whatever the correlation, prompts and outputs have the
// moments of their histograms, times the scale.
func TestCopulaMarginals(t *testing.T) {
	file := testutil.File(t, "t.csv", twoBins)
	for _, rho := range []float64{-1, -0.4, 0, 0.8} {
		p, o := draws(parse(t, fmt.Sprintf("copula:%s,rho=%g,prompt_scale=2,output_scale=10", file, rho)), 200_000)
		// Mean: (150 + 3*300)/4 = 262.5. Second moment of an even law on [a, b]: (a²+ab+b²)/3.
		second := ((100*100+100*200+200*200)/3.0 + 3*(200*200+200*400+400*400)/3.0) / 4
		near(t, "mean prompt", mean(p), 2*262.5, 0.003)
		near(t, "sd of prompts", stat.StdDev(p, nil), 2*math.Sqrt(second-262.5*262.5), 0.005)
		near(t, "mean output", mean(o), 5000, 0.005)
		near(t, "sd of outputs", stat.StdDev(o, nil), 10_000/math.Sqrt(12), 0.005)
		if low, high := slices.Min(p), slices.Max(p); low < 200 || low > 210 || high > 800 || high < 790 {
			t.Errorf("prompts lie between %v and %v, expected all of 200 to 800", low, high)
		}
		near(t, "share of the first bin", share(p, 400), 0.25, 0.02)
	}
}

func share(xs []float64, below float64) float64 {
	n := 0
	for _, x := range xs {
		if x < below {
			n++
		}
	}
	return float64(n) / float64(len(xs))
}

// TestCopulaCorrelation: the rank correlation of a Gaussian copula is
// 6/pi asin(rho/2) (Kruskal 1958). Both marginals even from 0 to 10^6, the rank
// of a length is the length.
func TestCopulaCorrelation(t *testing.T) {
	file := testutil.File(t, "t.csv", "what,lo,hi,count\nprompt,1,1000000,1\noutput,1,1000000,1\n")
	for _, rho := range []float64{-1, -0.377, 0, 0.3, 1} {
		p, o := draws(parse(t, fmt.Sprintf("copula:%s,rho=%g", file, rho)), 200_000)
		want := 6 / math.Pi * math.Asin(rho/2)
		if got := stat.Correlation(p, o, nil); math.Abs(got-want) > 0.01 {
			t.Errorf("rho %v: rank correlation %v, expected %v", rho, got, want)
		}
	}
}

// TestCopulaLimits: no pair lies outside, and each limit is reached.
func TestCopulaLimits(t *testing.T) {
	file := testutil.File(t, "t.csv", "what,lo,hi,count\nprompt,0,40,1\noutput,0,40,1\n")
	p, o := draws(parse(t, "copula:"+file+",prompt_min=3,prompt_max=30,output_min=5,output_max=20,sum_max=40"), 100_000)
	largest := 0.0
	for i := range p {
		largest = max(largest, p[i]+o[i])
	}
	got := []float64{slices.Min(p), slices.Max(p), slices.Min(o), slices.Max(o), largest}
	if want := []float64{3, 30, 5, 20, 40}; !slices.Equal(got, want) {
		t.Errorf("lengths reach %v, expected %v", got, want)
	}
}

// TestCopulaEOS: each token ends the reply with probability eos, so that of
// replies of n tokens the mean is (1-(1-eos)^n)/eos, and a share eos has one.
func TestCopulaEOS(t *testing.T) {
	file := testutil.File(t, "t.csv", "what,lo,hi,count\nprompt,10,11,1\noutput,99.9,100.1,1\n")
	const eos = 0.01
	_, o := draws(parse(t, "copula:"+file+",eos=0.01"), 400_000)
	near(t, "mean output", mean(o), (1-math.Pow(1-eos, 100))/eos, 0.003)
	near(t, "share of single tokens", share(o, 1.5), eos, 0.05)
	near(t, "share of whole replies", 1-share(o, 99.5), math.Pow(1-eos, 99), 0.01)
	if slices.Max(o) != 100 {
		t.Errorf("a reply has %v tokens, expected 100 at most", slices.Max(o))
	}
}

// TestCopulaPresets: the pools' means and what was served of them.
func TestCopulaPresets(t *testing.T) {
	for _, c := range []struct {
		name                   string
		prompt, output, served float64
	}{{"sharegpt-llama3", 223.0, 196.4, 0.990}, {"sharegpt-qwen2", 222.9, 200.0, 0.957}} {
		law := parse(t, c.name).(*lengths.Copula)
		q, served := draws(law, 300_000)
		law.EOS = 0
		p, o := draws(law, 300_000)
		near(t, "mean prompt", mean(p), c.prompt, 0.006)
		near(t, "mean output", mean(o), c.output, 0.006)
		near(t, "served", mean(served)/mean(o), c.served, 0.004)
		near(t, "sd of prompts", stat.StdDev(p, nil), 246, 0.02)
		near(t, "sd of outputs", stat.StdDev(o, nil), 205, 0.05)
		// KV tokens of a running request, seen at a random moment of its decoding,
		// and half a block of 16 that is not yet full: 359 in the measured runs.
		kv, sum := 0.0, 0.0
		for i := range q {
			kv += (q[i] + served[i]/2 + 8) * served[i]
			sum += served[i]
		}
		near(t, "KV tokens per running request", kv/sum, 359, 0.015)
	}
	scaled := parse(t, "sharegpt-llama3").(*lengths.Copula).Scaled(0.5, 0.25)
	p, o := draws(scaled, 100_000)
	if !(mean(p) < 120 && mean(p) > 105 && mean(o) < 52 && mean(o) > 47) {
		t.Errorf("scaled by 1/2 and 1/4 the means are %v and %v", mean(p), mean(o))
	}
}

func TestCopulaErrors(t *testing.T) {
	good := testutil.File(t, "t.csv", twoBins)
	for spec, want := range map[string]string{
		"copula:":           "file is missing",
		"copula:/none/such": "no such file",
		"copula:" + good +
			",rho": `"rho" has no option left, expected file,key=value`,
		"copula:" + good + ",rho=2":       `rho: "2" is not a number from -1 to 1`,
		"copula:" + good + ",rho=-1.5":    `rho: "-1.5" is not`,
		"copula:" + good + ",rho=0,rho=0": "rho is given twice",
		"copula:" + good + ",roh=0":       `did you mean "rho"?`,
		"copula:" + good +
			",eos=1": `eos: "1" is not a number >= 0 and < 1`,
		"copula:" + good +
			",prompt_scale=0": `prompt_scale: "0" is not a number > 0`,
		"copula:" + good + ",output_scale=x": `output_scale: "x" is not`,
		"copula:" + good +
			",prompt_min=0": `prompt_min: "0" is not a whole number >= 1`,
		"copula:" + good +
			",prompt_min=500": "not one of 1000 drawn pairs of lengths lies within the limits",
		"copula:" + testutil.File(t, "t.csv", "what,lo,hi\n"): "count",
		"copula:" +
			testutil.File(t, "t.csv", "what,lo,hi,count\n"): "the prompt histogram has no counts",
		"copula:" + testutil.File(t, "t.csv",
			twoBins+"x,1,2,3\n"): `:6: column "what": is "x", expected prompt or output`,
		"copula:" + testutil.File(t, "t.csv",
			twoBins+"output,1,2,3"): `the bin begins at 1, within the one before, which ends at 1000`,
		"copula:" + testutil.File(t, "t.csv",
			"what,lo,hi,count\nprompt,3,3,1\n"): "the bin is 3 to 3, expected 0 <= lo < hi <= 1e+12",
		"copula:" + testutil.File(t, "t.csv", "what,lo,hi,count\nprompt,3,4,-1\n"): "count is -1, expected 0 to 1e+12",
		"copula:" +
			testutil.File(t, "t.csv", "what,lo,hi,count\nprompt,3,4,1\n"): "the output histogram has no counts",
	} {
		if _, err := lengths.Parse(t.Context(), spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, expected one with %q", spec, err, want)
		}
	}
}

// FuzzMarginals: a file is refused, or its quantiles rise from bin to bin.
func FuzzMarginals(f *testing.F) {
	f.Add(twoBins, 0.5)
	f.Add("what,lo,hi,count\nprompt,1e300,2e300,1e-300\noutput,0,1e-300,1e300\n", 0.999)
	f.Fuzz(func(t *testing.T, content string, p float64) {
		prompt, output, err := lengths.ReadMarginals(t.Context(), testutil.File(t, "t.csv", content))
		if err != nil || !(p >= 0 && p < 1) {
			return
		}
		for _, m := range []lengths.Marginal{prompt, output} {
			low, at, high := m.Quantile(0), m.Quantile(p), m.Quantile(1)
			if !(low <= at && at <= high) {
				t.Errorf("quantiles 0, %v, 1 are %v, %v, %v", p, low, at, high)
			}
		}
	})
}
