package check

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"lorasim/bench/fidelity/measured"
	"lorasim/bench/result"
	"lorasim/sim/profile"
)

// logs are residuals that are whole percents.
func logs(percents ...float64) (rs []residual) {
	for _, p := range percents {
		rs = append(rs, residual{metric: result.Duration, log: math.Log1p(p / 100), weight: 1})
	}
	return rs
}

// Of 19 values and one to come, each is as likely to be the least or the largest:
// the ends hold it 18 times of 20. Of 18 the largest to either side does 18 times
// of 19, of 9 exactly 9 of 10, of 8 only 8 of 9, and a single one 1 of 2.
func TestConformalByHand(t *testing.T) {
	up := func(n int) (ps []float64) {
		for i := range n {
			ps = append(ps, float64(i-4))
		}
		return ps
	}
	for _, c := range []struct {
		n                int
		low, high, level float64
		halfLow, halfTop float64
	}{
		{19, 0.96, 1.14, 0.9, 1.00, 1.10}, // half: the 5th from either end, 10 of 20
		{39, 0.97, 1.33, 0.9, 1.05, 1.25}, // two out at each end: 36 of 40
		{18, 1 / 1.13, 1.13, 0.9, 0.99, 1.10},
		{9, 1 / 1.0417, 1.0417, 0.9, 0.97, 1.03},  // -4 % is further than +4 %
		{8, 1 / 1.0417, 1.0417, 0.88, 0.97, 1.02}, // half: the 7th of 9 from either end
		{3, 1 / 1.0417, 1.0417, 0.75, 0.96, 0.98},
		{2, 1 / 1.0417, 1.0417, 0.66, 0, 0},
		{1, 1 / 1.0417, 1.0417, 0.5, 0, 0},
	} {
		b := band(class{result.Duration, 0}, logs(up(c.n)...))
		if b.Level != c.level || b.Runs != float64(c.n) || (b.Half == nil) != (c.n < 3) {
			t.Errorf("%d values: %+v", c.n, b)
		}
		if c.n == 18 && b.Most[0] > c.low { // rounded outwards
			t.Errorf("%d values: %v holds not all of %v", c.n, *b.Most, c.low)
		}
		if b.Half == nil {
			b.Half = &[2]float64{}
		}
		for i, want := range []float64{c.low, c.high, c.halfLow, c.halfTop} {
			if got := []float64{b.Most[0], b.Most[1], b.Half[0], b.Half[1]}[i]; math.Abs(got-want) > 2e-4 {
				t.Errorf("%d values: bound %d is %v, expected %v", c.n, i, got, want)
			}
		}
	}
}

// A run of several draws counts once, and each draw for its share.
func TestConformalOfDraws(t *testing.T) {
	var once, drawn []residual
	for i := range 40 {
		r := residual{log: math.Sin(float64(i)), weight: 1}
		once = append(once, r)
		r.weight = 0.25
		drawn = append(drawn, r, r, r, r)
	}
	if a, b := conformal(once, 0.9), conformal(drawn, 0.9); *a != *b {
		t.Errorf("%v of runs, %v of four equal draws each", *a, *b)
	}
}

// What residuals of one law give holds nine in ten more of it, however few they are.
func TestConformalCovers(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	draw := func() residual { return residual{log: rng.ExpFloat64() - 0.3, weight: 1} }
	for _, n := range []int{9, 18, 19, 50} {
		const trials = 4000
		var c Covered
		for range trials {
			rs := make([]residual, n)
			for i := range rs {
				rs[i] = draw()
			}
			c.add([]residual{draw()}, conformal(rs, 0.9))
		}
		if c.done(); c.Share < 0.885 || c.Share > 0.97 {
			t.Errorf("%d residuals: %.3f are held, expected 0.9 or somewhat more", n, c.Share)
		}
	}
}

// Where runs of a kind err alike, the range that holds half of the known ones holds
// fewer of those of a further kind: the one that is widened holds half of them.
func TestWideCovers(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	kind := func(name string, n int) (rs []residual) {
		at := rng.NormFloat64()
		for range n {
			rs = append(rs, residual{log: at + rng.NormFloat64()/4, weight: 1, alike: name})
		}
		return rs
	}
	var plain, widened Covered
	for range 300 {
		var rs []residual
		for i := range 6 {
			rs = append(rs, kind(fmt.Sprint(i), 12)...)
		}
		further := kind("further", 4)
		plain.add(further, conformal(rs, 0.5))
		widened.add(further, wide(rs, 0.5))
	}
	plain.done()
	if widened.done(); plain.Share > 0.48 || widened.Share < 0.5 || widened.Share > 0.55 {
		t.Errorf("%.3f of a further kind are within half-ranges, %.3f within widened ones", plain.Share, widened.Share)
	}
}

// Where workers keep up runs are within 5 %, near saturation from -1 to +9 %, which is
// narrower, and saturated ones within 1 %: near saturation the range takes in that of
// others. Of another metric it is wider as it is, of a third there is no other.
func TestBandsWidenNearSaturation(t *testing.T) {
	var rs []residual
	add := func(m result.ID, load int, ends ...float64) {
		for _, r := range logs(slices.Repeat(ends, 10)...) {
			r.metric, r.load = m, load
			rs = append(rs, r)
		}
	}
	want := []class{
		{result.Duration, 0}, {result.Duration, 1}, {result.Duration, 2}, {result.MeanE2E, 0}, {result.MeanE2E, 1},
		{result.MedianE2E, 1},
	}
	for i, ends := range [][]float64{{-5, 5}, {-1, 9}, {-1, 1}, {-5, 5}, {-1, 10}, {-1, 1}} {
		add(want[i].metric, want[i].load, ends...)
	}
	if b := bands(rs[len(rs)-20:]); len(b) != 1 || b[0].Metric != result.MedianE2E.String() {
		t.Errorf("of the edge alone: %+v", b)
	}
	got := bands(rs)
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i, r := range [][2]float64{{0.95, 1.05}, {0.95, 1.09}, {0.99, 1.01}, {0.95, 1.05}, {0.99, 1.1}, {0.99, 1.01}} {
		b := got[i]
		if b.Metric != want[i].metric.String() || b.Waiting != loads[want[i].load] || math.Abs(b.Most[0]-r[0]) > 2e-4 ||
			math.Abs(b.Most[1]-r[1]) > 2e-4 || *b.Half != *b.Most {
			t.Errorf("band %d: %+v, expected %v", i, b, r)
		}
	}
}

// Two kinds of ten runs, +-1 % and +-5 %: the first is within what the second says,
// the second never within what the first says.
func TestCoverageByHand(t *testing.T) {
	var rs []residual
	for i := range 20 {
		r := logs([]float64{1, -1, 5, -5}[i%2+2*(i/10)])[0]
		r.alike = fmt.Sprint(i / 10)
		rs = append(rs, r)
	}
	cover := func(rs []residual) Coverage { return coverage(rs, bands(rs))[0] }
	if got := cover(rs); got.Most.Runs != 20 || got.Most.Share != 0.5 || got.Half.Share != 0.5 ||
		math.Abs(got.Most.Width-(0.02+0.1026)/2) > 3e-4 {
		t.Errorf("%+v", got)
	}
	if got := cover(rs[:12]); got.Most.Runs != 12 || got.Most.Share != 10.0/12 || got.Half.Runs != 2 ||
		got.Half.Share != 0 {
		t.Errorf("ten and two runs, of which two give no range of half: %+v", got)
	}
}

// Runs of several draws, of profiles and loads, and one that was not predicted.
func TestIntervals(t *testing.T) {
	base := profile.Default()
	base.Name = "base"
	with := func(slots int) *profile.Profile {
		p := base
		p.Engine.MaxLorasPerBatch = slots
		return &p
	}
	rows := []measured.PredictedRun{{}}
	for i := range 19 {
		waiting := 0.01
		if i < 2 {
			waiting = 0.97 // in one draw of two
		}
		rows = append(rows, measured.PredictedRun{Comparison: measured.Comparison{
			Measured:  measured.Values{measured.Duration: 100, measured.MeanE2E: 50},
			Predicted: measured.Values{measured.Duration: 77},
			Ran: measured.Ran{ValidatedRun: profile.ValidatedRun{Workers: 1 + i%2, Policy: "static:x=1",
				Profile:  with(8 + i),
				Requests: 100 - i}, Base: &base, Alike: "a",
				Draws: []measured.Values{{measured.Duration: 100 / (1 + float64(i)/100), measured.WaitingShare: 0.01},
					{measured.Duration: 50, measured.WaitingShare: waiting}}},
		}})
	}
	rows[1].Use = measured.Calibration
	report := (&RunsReport{Runs: rows}).Intervals()
	in := report.One()
	if in == nil || in.Workers != 2 || !reflect.DeepEqual(in.Policies, []string{"static"}) ||
		in.Workload.Requests != 82 || len(in.Settings) != 1 ||
		!reflect.DeepEqual(in.Settings["engine.max_loras_per_batch"], []string{"9", "26"}) {
		t.Fatalf("%+v", in)
	}
	// 18 runs are left, half a draw of one in the class of saturation: too little for a band
	if len(in.Bands) != 1 || in.Bands[0].Runs != 17.5 || in.Bands[0].Metric != "duration" ||
		in.Bands[0].Waiting != loads[0] || math.Abs(in.Bands[0].Most[1]-2) > 2e-4 {
		t.Errorf("%+v", in.Bands)
	}
	// of two repeats, of ten, and six runs without, of which one has half its draws here
	for i := 2; i < len(rows); i++ {
		rows[i].Ran.Repeat = []string{"", "a", "a", "", "", "", "", "", "ten"}[min(i-2, 8)]
	}
	if b := (&RunsReport{Runs: rows}).Intervals().One().Bands[0]; b.Runs != 7.5 || b.Level != 0.88 {
		t.Errorf("with runs that were repeated: %+v", b)
	}
	var b strings.Builder
	if err := report.WriteText(&b); err != nil || !strings.Contains(b.String(), "PROFILE base") ||
		!strings.Contains(b.String(), "-50.0 to +100.0 %") {
		t.Errorf("%v\n%s", err, &b)
	}
	if r := (&RunsReport{Runs: rows[:2]}).Intervals(); r.One() != nil {
		t.Errorf("a run that was fitted has %+v", r)
	}
}

// The embedded intervals are those of the measured runs, and those of other kinds
// of runs hold about as many of them as they say.
func TestEmbeddedIntervals(t *testing.T) {
	runs, hists := measuredRuns(t)
	p := llamaProfile(t)
	runs = unfitted(runs, func(r *measured.Run) string { return r.Use })
	rows, err := measured.PredictRuns(context.Background(), runs, hists, measured.RunOptions{Profile: p, Seeds: 64,
		FirstSeed: 1, NoLoad: true})
	if err != nil {
		t.Fatal(err)
	}
	report := NewRunsReport(rows).Intervals()
	if got := report.One(); !reflect.DeepEqual(got, p.Intervals) {
		t.Errorf("the runs give %+v, the profile has %+v", got, p.Intervals)
	}
	covered, all := 0.0, 0.0
	for _, c := range report.Profiles[0].Coverage {
		covered += c.Most.Share * c.Most.Runs
		all += c.Most.Runs
	}
	if all < 80 || covered/all < 0.9 {
		t.Errorf("%.0f of %.0f figures of other kinds of runs are within their intervals, expected nine in ten",
			covered, all)
	}
}

// Of two policies one errs by up to 10 %, the other by 15 %: the ranges of the first
// hold none of the second, and widened ones, up to 21 %, all; those of the second hold
// all of the first. Runs with more than twice the adapters are held out, too.
func TestExtrapolationsByHand(t *testing.T) {
	var rs []residual
	add := func(policy string, adapters int, ends ...float64) {
		p := profile.Default()
		ran := &measured.Ran{ValidatedRun: profile.ValidatedRun{Policy: policy, Adapters: adapters, Profile: &p}}
		for _, r := range logs(slices.Repeat(ends, 10)...) {
			r.ran = ran
			rs = append(rs, r)
		}
	}
	add("static:x=1", 4, -10, 10)
	add("p2c", 17, -15, 15)
	var got []string
	for _, x := range extrapolations(rs) {
		got = append(got, fmt.Sprintf("%s: %.0f, half %.0f %.0f, most %.0f %.0f", x.HeldOut, x.Figures,
			100*x.Half[0].Share, 100*x.Half[1].Share, 100*x.Most[0].Share, 100*x.Most[1].Share))
	}
	want := []string{
		"policy static: 20, half 100 100, most 100 100",
		"policy p2c: 20, half 0 100, most 0 100",
		"9 to 17 adapters, from up to 4: 20, half 0 100, most 0 100",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, expected %q", got, want)
	}
	r := IntervalReport{
		Profiles: []ProfileIntervals{{Profile: "x", Intervals: &profile.Intervals{}, Extrapolated: extrapolations(rs)}},
	}
	var b strings.Builder
	if err := r.WriteText(&b); err != nil || !strings.Contains(b.String(), "HELD OUT") ||
		!strings.Contains(b.String(), "\npolicy p2c ") {
		t.Errorf("%v\n%s", err, &b)
	}
}
