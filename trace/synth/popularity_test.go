package synth

import (
	"math"
	"strings"
	"testing"

	"lorasim/internal/testutil"

	"gonum.org/v1/gonum/stat/distuv"
	"pgregory.net/rapid"
)

func shares(t testing.TB, spec string, k int) []float64 {
	t.Helper()
	p, err := ParsePopularity(spec)
	if err != nil {
		t.Fatal(err)
	}
	s, err := p.Shares(k)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// top is the share of the n most popular adapters.
func top(shares []float64, n int) float64 {
	sum := 0.0
	for _, s := range shares[:n] {
		sum += s
	}
	return sum
}

func TestShares(t *testing.T) {
	const h = 1 + 0.5358867312681466 + 0.3720410580113015 + 0.2871745887492587 // sum of i^-0.9 for i = 1 to 4
	for _, test := range []struct {
		spec string
		want []float64
	}{
		{"uniform", []float64{0.25, 0.25, 0.25, 0.25}},
		{"zipf:1", []float64{12.0 / 25, 6.0 / 25, 4.0 / 25, 3.0 / 25}},
		{"zipf:0", []float64{0.25, 0.25, 0.25, 0.25}},
		{"zipf", []float64{1 / h, 0.5358867312681466 / h, 0.3720410580113015 / h, 0.2871745887492587 / h}},
		{"powerlaw:1", []float64{0.25, 0.25, 0.25, 0.25}},
		{"powerlaw:0.5", []float64{0.5, math.Sqrt(0.5) - 0.5, math.Sqrt(0.75) - math.Sqrt(0.5), 1 - math.Sqrt(0.75)}},
		{"powerlaw:2", []float64{1.0 / 16, 3.0 / 16, 5.0 / 16, 7.0 / 16}},
		{"explicit:5,3,1,1", []float64{0.5, 0.3, 0.1, 0.1}},
	} {
		got := shares(t, test.spec, 4)
		for i := range got {
			testutil.Near(t, test.spec, got[i], test.want[i], 1e-9)
		}
	}
}

// PowerLaw against the draw it stands for, int(U^(1/alpha) * K).
func TestPowerLawMatchesItsDraw(t *testing.T) {
	const k, n = 20, 400_000
	want := shares(t, "powerlaw:0.3", k)
	r := stream(1, forPick, 0)
	counts := make([]float64, k)
	for range n {
		counts[int(math.Pow(r.Float64(), 1/0.3)*k)]++
	}
	for i, c := range counts {
		testutil.Near(t, "share", c/n, want[i], 5*math.Sqrt(want[i]/n))
	}
	testutil.Near(t, "share of the first 20 %", top(want, k/5), 0.617, 1e-3)
}

func TestMAF2(t *testing.T) {
	measured := map[int]float64{1: 0.27, 2: 0.436, 5: 0.723, 10: 0.839, 20: 0.925, 50: 0.994, 119: 1}
	apps := shares(t, "maf2", 119)
	for n, want := range measured {
		testutil.Near(t, "share of the top apps", top(apps, n), want, 1e-12)
	}
	// Fewer adapters: app i goes to adapter i mod K.
	folded := make([]float64, 32)
	for i, s := range apps {
		folded[i%32] += s
	}
	for i, s := range shares(t, "maf2", 32) {
		testutil.Near(t, "folded share", s, folded[i], 1e-12)
	}
	// More adapters: the top x % keep their share.
	for n, want := range measured {
		testutil.Near(t, "share of the top apps, stretched", top(shares(t, "maf2", 1190), 10*n), want, 1e-12)
	}
	testutil.Near(t, "one adapter", shares(t, "maf2", 1)[0], 1, 0)
}

func TestSharesFallAndAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := rapid.IntRange(1, 500).Draw(t, "k")
		p := Popularity{Kind: rapid.SampledFrom([]string{Uniform, Zipf, PowerLaw, MAF2}).Draw(t, "kind")}
		p.Param = rapid.Float64Range(0.01, 1).Draw(t, "param")
		s, err := p.Shares(k)
		if err != nil {
			t.Fatal(err)
		}
		sum := 0.0
		for i, x := range s {
			if x < 0 || i > 0 && x > s[i-1]*(1+1e-9) {
				t.Fatalf("%v of %d: share %d is %v after %v", p, k, i, x, s[i-1])
			}
			sum += x
		}
		if math.Abs(sum-1) > 1e-12 {
			t.Fatalf("%v of %d: shares add up to %v", p, k, sum)
		}
	})
}

// The probabilities an alias table encodes are the shares it was made from.
func TestAliasTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := rapid.SliceOfN(rapid.Float64Range(0, 1), 1, 200).Draw(t, "weights")
		weights[0] += 1e-3
		p := Popularity{Kind: Explicit, Weights: weights}
		want, err := p.Shares(len(weights))
		if err != nil {
			t.Fatal(err)
		}
		got := make([]float64, len(want))
		for i, c := range newAlias(want) {
			keep := float64(c.keep) / (1 << 64)
			got[i] += keep / float64(len(want))
			got[c.other] += (1 - keep) / float64(len(want))
		}
		for i := range want {
			if math.Abs(got[i]-want[i]) > 1e-12 {
				t.Fatalf("adapter %d has probability %v, expected %v", i, got[i], want[i])
			}
		}
	})
}

// chiSquareP is the p-value of observed counts under the expected shares.
func chiSquareP(counts, shares []float64) float64 {
	n, chi := 0.0, 0.0
	for _, c := range counts {
		n += c
	}
	for i, c := range counts {
		d := c - n*shares[i]
		chi += d * d / (n * shares[i])
	}
	return distuv.ChiSquared{K: float64(len(counts) - 1)}.Survival(chi)
}

func TestAssigner(t *testing.T) {
	const k, n = 32, 200_000
	p := Popularity{Kind: Zipf, Param: 0.9}
	draw, err := p.Assigner(k, stream(7, forPick, 0))
	if err != nil {
		t.Fatal(err)
	}
	counts := make([]float64, k)
	for range n {
		counts[draw()]++
	}
	want, _ := p.Shares(k)
	if p := chiSquareP(counts, want); p < 1e-3 {
		t.Errorf("the draws do not have the shares: p = %v", p)
	}
	if allocs := testing.AllocsPerRun(100, func() { draw() }); allocs != 0 {
		t.Errorf("a draw allocates %v times", allocs)
	}
}

func TestPopularityErrors(t *testing.T) {
	for _, test := range []struct{ spec, want string }{
		{"", `unknown popularity ""`},
		{"zpif:0.9", `did you mean "zipf"?`},
		{"Zipf", `did you mean "zipf"?`},
		{"zipf:-1", `popularity zipf: s: "-1" is not a number from 0 to 100`},
		{"zipf:x", `s: "x" is not a number`},
		{"zipf:1,2", `"2" has no option left, expected s`},
		{"powerlaw:0", `alpha: "0" is not a number > 0 and <= 100`},
		{"uniform:3", `popularity uniform: "3", expected no options`},
		{"explicit", "weights is missing"},
		{"explicit:1,-1", `weights: "1,-1" is not a list of numbers >= 0`},
		{"explicit:0,0", "weights add up to 0"},
		{"zipf:NaN", `s: "NaN" is not a number`},
	} {
		_, err := ParsePopularity(test.spec)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: error %v, expected %q", test.spec, err, test.want)
		}
	}
	_, err := Popularity{Kind: Explicit, Weights: []float64{1, 2}}.Shares(3)
	if err == nil || !strings.Contains(err.Error(), "2 weights for 3 adapters") {
		t.Errorf("too few weights: error %v", err)
	}
}
