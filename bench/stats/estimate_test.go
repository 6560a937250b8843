package stats

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// Student's t for 95 % from printed tables: 12.706 (1 degree of freedom),
// 2.776 (4), 2.262 (9).
func TestMean(t *testing.T) {
	for _, c := range []struct {
		values           []float64
		mean, std, width float64
	}{
		{[]float64{1, 3}, 2, math.Sqrt2, 12.706 * math.Sqrt2 / math.Sqrt(2)},
		{[]float64{2, 4, 4, 4, 6}, 4, math.Sqrt2, 2.776 * math.Sqrt2 / math.Sqrt(5)},
		{[]float64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 4.5, 3.02765, 2.262 * 3.02765 / math.Sqrt(10)},
		{[]float64{5, 5, 5}, 5, 0, 0},
	} {
		e := Mean(c.values)
		if e.N != len(c.values) || math.Abs(e.Mean-c.mean) > 1e-12 || math.Abs(e.Std-c.std) > 1e-5 ||
			math.Abs(e.Half()-c.width) > 1e-3 {
			t.Errorf("%v: %+v", c.values, e)
		}
	}
	if e := Mean([]float64{7, math.NaN()}); e.N != 1 || e.Mean != 7 || !math.IsNaN(e.Low) || e.String() != "7" {
		t.Errorf("%+v", e)
	}
	if e := Mean(nil); e.N != 0 || !math.IsNaN(e.Mean) || e.String() != "-" {
		t.Errorf("%+v", e)
	}
}

// Of 2000 intervals from 5 normal values each, 95 % hold the true mean, to 3
// standard errors of that share (1.5 %).
func TestMeanCovers(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	inside, paired := 0, 0
	const n = 2000
	for range n {
		xs, ys := make([]float64, 5), make([]float64, 5)
		for i := range xs {
			common := 100 * rng.NormFloat64()
			xs[i], ys[i] = common+3+rng.NormFloat64(), common+2+rng.NormFloat64()
		}
		if e := Mean(xs); e.Low <= 3 && 3 <= e.High {
			inside++
		}
		d := Paired(xs, ys)
		if d.Low <= 1 && 1 <= d.High {
			paired++
		}
		if d.Half() > Mean(xs).Half() {
			t.Fatal("the paired interval is not the narrower one")
		}
	}
	if share := float64(inside) / n; math.Abs(share-0.95) > 0.015 {
		t.Errorf("mean: %.3f of the intervals hold the true value", share)
	}
	if share := float64(paired) / n; share < 0.935 || share > 0.98 { // the end away from 0 is farther than Student's
		t.Errorf("paired difference: %.3f of the intervals hold the true value", share)
	}
}

// TestPairedDifferencesAreSkewed: differences of 5 pairs that are a share of a skewed wait. Student's intervals hold
// fewer than 92 % of the means; the end away from 0 mends that. The end towards 0 stays, and so does P.
func TestPairedDifferencesAreSkewed(t *testing.T) {
	rng := rand.New(rand.NewPCG(43, 5))
	const n = 4000
	for _, sign := range []float64{1, -1} {
		student, held := 0, 0
		for range n {
			xs, ys, ds := make([]float64, 5), make([]float64, 5), make([]float64, 5)
			for i := range xs {
				wait := 10 * rng.ExpFloat64()
				xs[i] = 60 + sign*wait
				ys[i] = 60
				ds[i] = xs[i] - ys[i]
			}
			own, e := Mean(ds), Paired(xs, ys)
			if own.Low <= 10*sign && 10*sign <= own.High {
				student++
			}
			if e.Low <= 10*sign && 10*sign <= e.High {
				held++
			}
			if (e.P() < 0.05) != (e.Low > 0 || e.High < 0) || e.P() != own.P() {
				t.Fatalf("p %v of %+v, Student's %v", e.P(), e, own.P())
			}
		}
		if student > n*92/100 || held < n*92/100 || held > n*98/100 {
			t.Errorf("Student's intervals hold %d of %d means, the longer ones %d", student, n, held)
		}
	}
}

// Student's own data of 1908, the additional hours of sleep of ten patients under
// two drugs: t = 4.0621 with 9 degrees of freedom, p = 0.00283.
var (
	sleepA = []float64{0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0}
	sleepB = []float64{1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4}
)

func TestPairedP(t *testing.T) {
	e := Paired(sleepB, sleepA)
	if p := e.P(); math.Abs(p-0.002833) > 1e-6 {
		t.Error(p)
	}
	if h := e.HalfAt(0.05); math.Abs(e.Mean-h-0.7001) > 1e-4 { // R: 0.7001142 2.4598858
		t.Error(e.Mean - h)
	}
	if p := Paired(sleepA, sleepA).P(); p != 1 {
		t.Error(p)
	}
	if p := Mean([]float64{3, 3}).P(); p != 0 {
		t.Error(p)
	}
	if p := Mean([]float64{3}).P(); !math.IsNaN(p) {
		t.Error(p)
	}
}

// Intervals from resamples are for the truth, not for the recorded workload: where
// a recorded workload's mean is a normal sample of the truth, and resamples are
// normal samples of the recorded mean with the same deviation, 95 % of the intervals
// hold the truth, to 3 standard errors of that share (1.5 %); and tests at 5 % reject
// it as often. Intervals as of fresh draws would hold it in 59 % (5 resamples) and
// 31 % (20).
func TestResampledMeanCovers(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	const n = 2000
	for _, resamples := range []int{2, 5, 20, 100} {
		inside, rejected, fresh := 0, 0, 0
		for range n {
			recorded := 7 + rng.NormFloat64()
			xs := make([]float64, resamples)
			for i := range xs {
				xs[i] = recorded + rng.NormFloat64()
			}
			if e := MeanOf(Resampled, xs); e.Low <= 7 && 7 <= e.High {
				inside++
			}
			if e := Mean(xs); e.Low <= 7 && 7 <= e.High {
				fresh++
			}
			zeros := make([]float64, resamples)
			for i := range zeros {
				zeros[i] = 7
			}
			if PairedOf(Resampled, xs, zeros).P() < Level {
				rejected++
			}
		}
		if share := float64(inside) / n; math.Abs(share-0.95) > 0.015 {
			t.Errorf("%d resamples: %.3f of the intervals hold the truth", resamples, share)
		}
		if rejected != n-inside {
			t.Errorf("%d resamples: %d tests reject the truth, %d intervals do not hold it",
				resamples, rejected, n-inside)
		}
		if resamples == 20 && math.Abs(float64(fresh)/n-0.31) > 0.04 {
			t.Errorf("intervals as of fresh draws: %d of %d", fresh, n)
		}
	}
}

// A difference of single runs is tested by its interval: one that reaches 0 with an end
// has p = 5 %, whatever its sign.
func TestWithinRuns(t *testing.T) {
	for _, sign := range []float64{1, -1} {
		e := Estimate{N: 1, Mean: 3 * sign, Low: 3*sign - 3, High: 3*sign + 3, Of: WithinRuns}
		if p := e.P(); math.Abs(p-0.05) > 1e-12 || !e.HasInterval() {
			t.Errorf("p %v of %+v", p, e)
		}
	}
	wide := Estimate{N: 1, Mean: 1, Low: -2, High: 4, Of: WithinRuns}
	if p := wide.P(); math.Abs(p-0.5135) > 1e-3 { // 2 x Phi(-1.96 / 3)
		t.Errorf("p %v of %+v", p, wide)
	}
}

// TestEndsAbove: an interval holds its mean, is longer upward, and grows with the spread.
func TestEndsAbove(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mean := rapid.Float64Range(1, 1000).Draw(t, "mean")
		above := mean * rapid.Float64Range(0, 1).Draw(t, "above")
		spread := rapid.Float64Range(0, 3).Draw(t, "spread")
		low, high := EndsAbove(mean, above, spread, spread)
		if low < mean-above-1e-9 || low > mean+1e-9 || high-mean < mean-low-1e-9 || math.IsInf(high, 0) {
			t.Fatalf("%v to %v around %v", low, high, mean)
		}
		if l, h := EndsAbove(mean, above, spread/2, spread/2); l < low-1e-9 || h > high+1e-9 {
			t.Fatalf("half the spread: %v to %v, not within %v to %v", l, h, low, high)
		}
	})
	if low, high := EndsAbove(10, 2, 0.1, 0.1); math.Abs(low-9.8097) > 1e-4 || math.Abs(high-10.2222) > 1e-4 {
		t.Errorf("%v to %v", low, high)
	}
}

// TestMeanAboveCovers: the interval of 5 values that are skewed above a floor, as the mean waits of short runs are,
// holds the mean in about 95 % of the cases, Student's in fewer.
func TestMeanAboveCovers(t *testing.T) {
	const repetitions, floor, mean = 4000, 50, 60
	rng := rand.New(rand.NewPCG(43, 2))
	student, above := 0, 0
	for range repetitions {
		values := make([]float64, 5)
		for i := range values {
			values[i] = floor + (mean-floor)*(rng.ExpFloat64()+rng.ExpFloat64()+rng.ExpFloat64())/3
		}
		for _, c := range []struct {
			e    Estimate
			held *int
		}{{Mean(values), &student}, {MeanAbove(Fresh, values, floor, 1.25), &above}} {
			if c.e.Low <= mean && mean <= c.e.High {
				*c.held++
			}
		}
	}
	if student > repetitions*94/100 || above < repetitions*94/100 || above > repetitions*98/100 {
		t.Errorf("Student's intervals hold %d of %d means, those above a floor %d", student, repetitions, above)
	}
	values := []float64{1, 2, 4}
	if a, b := MeanAbove(Fresh, values, math.NaN(), 1), Mean(values); a != b {
		t.Errorf("without a floor %+v, expected %+v", a, b)
	}
}
