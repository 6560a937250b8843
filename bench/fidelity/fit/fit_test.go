package fit

import (
	"context"
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"

	"lorasim/bench/fidelity/check"
	"lorasim/bench/fidelity/measured"
	"lorasim/internal/testutil"
	"lorasim/sim/profile"
	"lorasim/sim/record"
)

// line is a problem with a known solution: y = a + b*x with a = 2, b = 0.5 and
// measured values whose errors, of standard deviation sigma, cancel out.
func line(fit func(a, b, x float64) float64, params ...Param) problem {
	const sigma = 0.1
	var xs, ys []float64
	for i := range 20 {
		x := float64(i)
		for _, e := range []float64{sigma, -sigma} {
			xs, ys = append(xs, x), append(ys, 2+0.5*x+e)
		}
	}
	return problem{Params: params, Residuals: func(_ context.Context, p []float64) ([]float64, error) {
		r := make([]float64, len(xs))
		a, b := p[0], p[1]
		if math.IsNaN(b) {
			b = 0.5
		}
		for i, x := range xs {
			r[i] = (fit(a, b, x) - ys[i]) / sigma
		}
		return r, nil
	}}
}

// The fit finds the coefficients, and the standard errors are those of the
// textbook: sigma times the roots of the diagonal of inv(X'X).
func TestSolveLine(t *testing.T) {
	f, err := solve(context.Background(), line(func(a, b, x float64) float64 { return a + b*x },
		Param{Name: "a", Start: 1, Min: 0.01, Max: 100}, Param{Name: "b", Start: 1, Min: 0.01, Max: 100}))
	if err != nil {
		t.Fatal(err)
	}
	const n, sx, sxx = 40, 2 * 190, 2 * 2470 // sums over x = 0..19, each twice
	det := float64(n*sxx - sx*sx)
	for i, want := range []struct{ value, std float64 }{{2, 0.1 * math.Sqrt(sxx/det)}, {0.5, 0.1 * math.Sqrt(n/det)}} {
		e := f.Params[i]
		if math.Abs(e.Value/want.value-1) > 0.01 || math.Abs(e.RelStd/(want.std/want.value)-1) > 0.02 || e.Held ||
			e.AtBound {
			t.Errorf("%+v, expected %v with a standard error of %.4f", e, want.value, want.std/want.value)
		}
	}
	if math.Abs(f.Loss-1) > 0.01 || f.StartLoss < f.Loss {
		t.Errorf("loss %v, at the start %v, expected 1: the residuals are one standard deviation each",
			f.Loss, f.StartLoss)
	}
}

// Of two coefficients of which the data know only the sum, one is held.
func TestSolveHoldsWhatIsNotDetermined(t *testing.T) {
	f, err := solve(context.Background(), line(func(a, b, x float64) float64 { return a + b - 0.5 + 0.5*x },
		Param{Name: "a", Start: 1, Min: 0.01, Max: 100}, Param{Name: "b", Start: 1, Min: 0.01, Max: 100}))
	if err != nil {
		t.Fatal(err)
	}
	a, b := f.Params[0], f.Params[1]
	if a.Held == b.Held {
		t.Fatalf("held: %v and %v, expected one of them", a.Held, b.Held)
	}
	if b.Held && math.Abs(a.Value-2) > 0.02 {
		t.Errorf("a is %v, expected 2", a.Value)
	}
}

// Two coefficients of which the data know only the sum, both with priors: neither is held, and the sum is divided so
// that both deviate equally from their starts, in units of their priors. The error of each is that of its prior, less
// the little that the sum tells: by hand, with sum = a + b known, 1/sqrt(1/pa^2 + (a/b)^2/pb^2) for ln a.
func TestSolveWeighsPriors(t *testing.T) {
	const pa, pb = 0.1, 0.4
	f, err := solve(context.Background(), line(func(a, b, x float64) float64 { return a + b - 0.5 + 0.5*x },
		Param{Name: "a", Start: 1.2, Min: 0.01, Max: 100, Prior: pa},
		Param{Name: "b", Start: 0.9, Min: 0.01, Max: 100, Prior: pb}))
	if err != nil {
		t.Fatal(err)
	}
	a, b := f.Params[0], f.Params[1]
	testutil.Near(t, "sum", a.Value+b.Value, 2.5, 0.01)
	// least (ln a/1.2)^2/pa^2 + (ln b/0.9)^2/pb^2 on a + b = 2.5
	testutil.Near(t, "slopes", math.Log(a.Value/1.2)/(pa*pa*a.Value), math.Log(b.Value/0.9)/(pb*pb*b.Value), 0.3)
	testutil.Near(t, "error of a", a.RelStd, 1/math.Sqrt(1/(pa*pa)+math.Pow(a.Value/b.Value/pb, 2)), 0.005)
	if a.Held || b.Held || !a.Assumed || b.Assumed {
		t.Errorf("%+v, %+v: expected that a follows its prior, b the sum", a, b)
	}
}

// A solution beyond a bound is said to be at it.
func TestSolveSaysAtBound(t *testing.T) {
	f, err := solve(context.Background(), line(func(a, b, x float64) float64 { return a + b*x },
		Param{Name: "a", Start: 5, Min: 4, Max: 100}, Param{Name: "b", Start: 1, Min: 0.01, Max: 100}))
	if err != nil {
		t.Fatal(err)
	}
	if a := f.Params[0]; !a.AtBound || a.Value < 4 {
		t.Errorf("%+v, expected to be at the bound 4", a)
	}
}

func TestSolveFaults(t *testing.T) {
	ok := Param{Name: "a", Start: 1, Min: 0.1, Max: 10}
	for name, c := range map[string]struct {
		p    problem
		want string
	}{
		"none":   {problem{}, "no coefficient"},
		"bounds": {problem{Params: []Param{{Name: "a", Start: 1, Min: 2, Max: 3}}}, "a starts at 1 within [2, 3]"},
		"fails": {problem{Params: []Param{ok}, Residuals: func(context.Context, []float64) ([]float64, error) {
			return nil, errors.New("boom")
		}}, "boom"},
		"blind": {problem{Params: []Param{ok}, Residuals: func(context.Context, []float64) ([]float64, error) {
			return []float64{1, 2}, nil
		}}, "determine none"},
	} {
		if _, err := solve(context.Background(), c.p); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, expected an error with %q", name, err, c.want)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	linear := line(func(a, b, x float64) float64 { return a + b*x }, ok, Param{Name: "b", Start: 1, Min: 0.1, Max: 10})
	if _, err := solve(ctx, linear); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

// Blocks that the simulator made with known coefficients, at two concurrencies,
// give them back.
func TestBlocksRecover(t *testing.T) {
	want := truth()
	want.Engine.MaxRunningRequests = 64
	want.Latency.Prefill.FirstExtendMs = 1200
	want.Memory.KVTokens = 400_000
	var blocks []measured.Block
	for _, c := range []int{8, 32} {
		b := measured.Block{Requests: 4 * c, Concurrency: c, Input: 3000, Output: 200, Ratio: 0.2, Seed: 1}
		var err error
		if b.Measured, err = measured.PredictBlock(context.Background(), &b, want); err != nil {
			t.Fatal(err)
		}
		blocks = append(blocks, b)
	}
	start := away()
	start.Engine, start.Memory = want.Engine, want.Memory
	start.Latency.Prefill.FirstExtendMs = 500
	fit := []string{"decode.base_ms", "decode.per_request_ms", "prefill.per_token_us", "prefill.first_extend_ms"}
	start.Latency.Decode.PerKVTokenUs, start.Latency.Prefill.BaseMs, start.Latency.RequestOverheadMs =
		want.Latency.Decode.PerKVTokenUs, want.Latency.Prefill.BaseMs, want.Latency.RequestOverheadMs
	f, err := Blocks(context.Background(), blocks, nil, Options{Start: start, Fit: fit})
	if err != nil {
		t.Fatal(err)
	}
	cs, err := choose(fit, "")
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range cs {
		off := math.Abs(*c.of(f.Profile) / *c.of(want) - 1)
		t.Logf("%s: %.4g of %.4g, standard error %.1f %%",
			c.name, *c.of(f.Profile), *c.of(want), 100*f.Params[i].RelStd)
		if f.Params[i].Held || off > 0.05 {
			t.Errorf("%s is %g, expected %g (held: %v)", c.name, *c.of(f.Profile), *c.of(want), f.Params[i].Held)
		}
	}
	if f.Loss > 0.3 {
		t.Errorf("deviation %.2f, expected next to none", f.Loss)
	}
}

// A table of runs whose metrics the simulator made gives back the decode step,
// with the lengths known and with their mean to be found too; the row for
// validation has no part in it.
func TestRunsRecover(t *testing.T) {
	const head = "group,use,policy_file,total_rate,map_stride,num_prompts,num_instances,num_loras\n"
	runs, err := measured.ReadRuns(strings.NewReader(head+
		"mine,calibration,static,2,4,200,2,4\nmine,calibration,least-loaded,2,4,200,2,4\nmine,calibration,static,20,4,200,2,4\n"+
		"mine,calibration,static,3,16,200,2,4\nmine,validation,static,30,16,200,2,4\n"), "runs")
	if err != nil {
		t.Fatal(err)
	}
	hists := measured.Histograms{4: {10, 20, 30, 40}, 16: {40, 10, 10, 40}}
	groups := func(mean string) *measured.Groups {
		return &measured.Groups{Groups: map[string]measured.Group{
			"mine": {Lengths: "measured:output_mean=" + mean + ",output_sigma=1.2,output_cap=800"}},
			Other: measured.Group{Lengths: "measured-stride"}}
	}
	want, err := profile.Embedded("llama-2-7b-rtx-4090-sglang-0.5")
	if err != nil {
		t.Fatal(err)
	}
	ps, err := measured.PredictRuns(context.Background(), runs, hists, measured.RunOptions{
		Profile: want, Groups: groups("120"), Seeds: 4, FirstSeed: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range runs {
		runs[i].Measured = ps[i].Predicted
	}
	runs[4].Measured = measured.Values{measured.Duration: 1e6, measured.MeanE2E: 1e9}
	start := *want
	start.Latency.Decode.BaseMs *= 1.1
	for _, c := range []struct {
		name, mean string
		groups     bool
	}{{"lengths known", "120", false}, {"mean to be found", "105", true}} {
		o := RunsOptions{
			Options: Options{Start: &start, Fit: []string{"decode.base_ms"}, Evaluations: 60}, Groups: groups(c.mean),
			Seeds: 4, FirstSeed: 1, FitGroups: c.groups,
		}
		f, err := Runs(context.Background(), runs, hists, o)
		if err != nil {
			t.Fatal(err)
		}
		if off := f.Profile.Latency.Decode.BaseMs/want.Latency.Decode.BaseMs - 1; math.Abs(off) > 0.03 {
			t.Errorf("%s: decode.base_ms is off by %.1f %%", c.name, 100*off)
		}
		if got := f.Groups.Groups["mine"].Lengths; c.groups {
			_, rest, _ := strings.Cut(got, "output_mean=")
			text, _, _ := strings.Cut(rest, ",")
			if mean, err := strconv.ParseFloat(text, 64); err != nil || math.Abs(mean/120-1) > 0.03 {
				t.Errorf("the fitted lengths are %s, expected a mean of 120", got)
			}
		}
		if o.Groups.Groups["mine"].Lengths != groups(c.mean).Groups["mine"].Lengths {
			t.Error("the fit changed the groups that it was given")
		}
	}
	o := RunsOptions{
		Options: Options{Start: &start, Fit: []string{"decode.base_ms"}, Evaluations: 40}, Groups: groups("120"),
		Seeds: 4, FirstSeed: 1, Folds: 2,
	}
	left, err := o.crossValidate(context.Background(), forCalibration(runs), hists)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 4 {
		t.Errorf("%d runs left out in turn, expected 4", len(left))
	}
	if s := check.NewRunsReport(left).Summary[measured.Duration]; s.MaxAbsError > 0.03 {
		t.Errorf("a run left out is off by %.1f %%", 100*s.MaxAbsError)
	}
}

// BenchmarkResiduals is one evaluation of a fit to records.
func BenchmarkResiduals(b *testing.B) {
	p := truth()
	runs, err := newReplays([][]record.Request{recordsOf(b, p, 1000, 0, false)}, 0, 0)
	if err != nil {
		b.Fatal(err)
	}
	eqs := equations(runs[0], p)
	b.ReportAllocs()
	for b.Loop() {
		equationResiduals(eqs, p)
	}
}

// No fit passes what the card allows: bounds follow from the profile's gpu and model,
// and a start below them begins above. A card that is not known gives none.
func TestPhysicalBounds(t *testing.T) {
	p, err := profile.Embedded("llama-2-7b-rtx-4090-sglang-0.5")
	if err != nil {
		t.Fatal(err)
	}
	p.Latency.Decode.PerKVTokenUs, p.Latency.Prefill.BaseMs = 0.2, 5
	o := Options{Start: p}
	ks, err := o.knobs(runCoefficients, false)
	if err != nil {
		t.Fatal(err)
	}
	// by hand: 524288 bytes and 6.607e9 weights of 2 bytes over 1008 GB/s, 2 x 6.476e9 over 165.2 TFLOP/s
	want := map[string]float64{
		"decode.per_kv_token_us": 0.5201, "decode.base_ms": 13.11, "prefill.base_ms": 13.11,
		"prefill.per_token_us": 78.4}
	for _, k := range ks {
		least := want[k.Name]
		if least > 0 && math.Abs(k.Min/least-1) > 1e-3 || k.Start <= k.Min {
			t.Errorf("%s starts at %g within [%g, %g], expected at least %g", k.Name, k.Start, k.Min, k.Max, least)
		}
	}
	if l := &o.Start.Latency; l.Decode.PerKVTokenUs < 0.52 || l.Prefill.BaseMs < 13.1 || p.Latency.Prefill.BaseMs != 5 {
		t.Errorf("a fit that holds coefficients starts from %+v, the profile given has %+v",
			l.Prefill, p.Latency.Prefill)
	}
	p.GPU = "a card of ours"
	o = Options{Start: p}
	if ks, err = o.knobs(runCoefficients, false); err != nil || ks[1].Min > 0.1 {
		t.Errorf("an unknown card bounds %s to %g (%v)", ks[1].Name, ks[1].Min, err)
	}
}
