package lengths

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"lorasim/trace"
)

func TestBudgetLaws(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct {
		spec         string
		output, want int32
	}{
		{"exact", 77, 77}, {"2048", 77, 2048}, {"constant:512", 700, 512},
		{"x1.5", 77, 116}, {"factor:2", 77, 154}, {"x1", 77, 77}, {"x1000000", math.MaxInt32, math.MaxInt32},
		{"uniform:9,9", 77, 9}, {"mix:300=2", 77, 300}, {"lognormal:mean=40,sigma=0", 1, 40},
	} {
		b, err := ParseBudget(c.spec)
		if err != nil {
			t.Errorf("%s: %v", c.spec, err)
			continue
		}
		if got := b(c.output, r); got != c.want {
			t.Errorf("%s of an output of %d: %d, want %d", c.spec, c.output, got, c.want)
		}
	}
}

// Means by hand: uniform (256+2048)/2 = 1152; mix (256 + 3*1024 + 2048)/5 = 1075.2;
// the log-normal's mean is the one asked for. 40,000 draws, within 2 %.
func TestBudgetMeans(t *testing.T) {
	for spec, want := range map[string]float64{"uniform:256,2048": 1152, "mix:256=1,1024=3,2048=1": 1075.2,
		"lognormal:mean=600,sigma=0.5,cap=4096": 600} {
		b, err := ParseBudget(spec)
		if err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(3, 4))
		sum, least, most := 0.0, int32(math.MaxInt32), int32(0)
		for range 40000 {
			n := b(1, r)
			sum, least, most = sum+float64(n), min(least, n), max(most, n)
		}
		if mean := sum / 40000; math.Abs(mean/want-1) > 0.02 || least < 1 || most > 4096 {
			t.Errorf("%s: mean %g from %d to %d, want %g", spec, mean, least, most, want)
		}
	}
}

func TestBudgetFaults(t *testing.T) {
	for spec, want := range map[string]string{
		"": `unknown max_new_tokens ""`, "exakt": `did you mean "exact"?`, "exact:1": `"1", expected no options`,
		"0": `max_new_tokens constant: tokens: "0" is not a whole number >= 1`, "constant": "tokens is missing",
		"x0.5": `factor: "0.5" is not a number from 1 to 1000000`, "factor:nan": `factor: "nan" is not a number`,
		"uniform:5": "high is missing", "uniform:9,5": "high (5) is below low (9)",
		"mix:5": `"5" is not N=WEIGHT`, "mix:5=0": `"5=0" is not N=WEIGHT`, "mix:x=1": `"x=1" is not N=WEIGHT`,
		"lognormal:mean=5": "sigma is missing", "lognormal:mean=5,mean=6,sigma=1": "mean is given twice",
		"lognormal:sigma=1": "mean is missing", "9999999999": "is not a whole number up to 2147483647",
	} {
		if _, err := ParseBudget(spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, expected %s", spec, err, want)
		}
	}
}

// The output ends at its budget, or the budget gives way; either way the output
// never exceeds it, the rest of the request stays, and so does the length.
func TestWithBudget(t *testing.T) {
	w := &trace.Workload{Requests: []trace.Request{{ID: 1, Prompt: 3, Output: 100},
		{ID: 2, Arrival: 1, Adapter: -1, Prompt: 4, Output: 900, MaxNew: 950}}}
	b, err := ParseBudget("512")
	if err != nil {
		t.Fatal(err)
	}
	for _, keep := range []bool{false, true} {
		src := WithBudget(w.Source(), b, keep, 1)
		if n := src.Len(); n != 2 {
			t.Errorf("length %d", n)
		}
		got, err := trace.Collect(src)
		if err != nil {
			t.Fatal(err)
		}
		want := []trace.Request{w.Requests[0], w.Requests[1]}
		want[0].MaxNew = 512
		want[1].MaxNew, want[1].Output = 512, 512
		if keep {
			want[1].MaxNew, want[1].Output = 900, 900
		}
		for i := range want {
			if got.Requests[i] != want[i] {
				t.Errorf("keep %v: %+v, want %+v", keep, got.Requests[i], want[i])
			}
		}
	}
}

func FuzzParseBudget(f *testing.F) {
	for _, s := range []string{"exact", "2048", "x2", "factor:1.5", "uniform:1,2", "mix:1=1,2=3",
		"lognormal:mean=600,sigma=0.8,cap=4096"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, spec string) {
		b, err := ParseBudget(spec)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("error of several lines: %q", err)
			}
			return
		}
		r := rand.New(rand.NewPCG(1, 1))
		for _, output := range []int32{1, 100, math.MaxInt32} {
			if n := b(output, r); n < 1 {
				t.Errorf("%s: budget %d", spec, n)
			}
		}
	})
}
