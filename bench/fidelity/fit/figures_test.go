package fit

import (
	"context"
	"math"
	"testing"

	"lorasim/internal/testutil"
	"lorasim/sim/profile"
	"lorasim/sim/record"
)

// rooflineTruth is the profile of law roofline that the records of these tests come from.
func rooflineTruth() *profile.Profile {
	p := truth()
	p.Engine.UseVLLM()
	p.Latency.Law = profile.LawRoofline
	p.Latency.Decode = profile.Decode{BaseMs: 11, PerRequestMs: 0.3, PerKVTokenUs: 0.4}
	p.Latency.Prefill = profile.Prefill{PerTokenUs: 43, MixedMs: 2}
	p.Latency.RequestOverheadMs = 15
	return p
}

var rooflineFit = []string{"decode.base_ms", "decode.per_request_ms", "prefill.per_token_us", "request_overhead_ms"}

// Whole simulations of two runs, none of whose times of tokens are known, give back the
// coefficients of law roofline, each with its uncertainty.
func TestFiguresRecoverTheTruth(t *testing.T) {
	low, high := recordsOf(t, rooflineTruth(), 300, 0, false), recordsOf(t, rooflineTruth(), 1200, 0, false)
	start := rooflineTruth()
	// as far off as computed profiles are: see figurePriors
	start.Latency.Decode.BaseMs, start.Latency.Decode.PerRequestMs = 12.2, 0.22
	start.Latency.Prefill.PerTokenUs, start.Latency.RequestOverheadMs = 47.5, 9
	fit, err := Records(context.Background(), [][]record.Request{low, high}, RecordsOptions{
		Options: Options{Start: start, Fit: rooflineFit}, Holdout: 0.25})
	if err != nil {
		t.Fatal(err)
	}
	cs, err := choose(rooflineFit, profile.LawRoofline)
	if err != nil {
		t.Fatal(err)
	}
	want := rooflineTruth()
	for i, k := range cs {
		e := fit.Params[i]
		off := math.Abs(math.Log(*k.of(fit.Profile) / *k.of(want)))
		if e.Held || off > min(0.25, 3*e.RelStd) || !(e.RelStd > 0 && e.RelStd < 0.3) {
			t.Errorf("%s is %g, expected %g; standard error %.1f %% (held: %v)", k.name, *k.of(fit.Profile),
				*k.of(want), 100*e.RelStd, e.Held)
		}
	}
	if v := fit.Profile.Validation[0]; v.MedianAbsError > 0.01 {
		t.Errorf("held-out requests are off by %v", v.MedianAbsError)
	}
}

// Under law phases a step that takes prompts along gives tokens, too, and has the base of
// a prefill step: the base of a decode step is not counted for it a second time.
func TestEquationsOfMixedSteps(t *testing.T) {
	for name, change := range map[string]func(*profile.Engine){
		"vllm":        func(e *profile.Engine) { e.UseVLLM() },
		"mixed chunk": func(e *profile.Engine) { e.MixedChunk = true },
	} {
		mixed := func(p *profile.Profile) *profile.Profile { change(&p.Engine); return p }
		rs := recordsOf(t, mixed(truth()), 600, 0, true)
		fit, err := Records(context.Background(), [][]record.Request{rs}, RecordsOptions{
			Options: Options{Start: mixed(away()), Fit: recovered}, Holdout: 0.25})
		if err != nil {
			t.Fatal(err)
		}
		l := &fit.Profile.Latency
		testutil.Near(t, name+": decode.base_ms", l.Decode.BaseMs, 18, 0.5)
		testutil.Near(t, name+": prefill.base_ms", l.Prefill.BaseMs, 12, 2)
		testutil.Near(t, name+": request_overhead_ms", l.RequestOverheadMs, 15, 2)
		if v := fit.Profile.Validation[0]; v.MedianAbsError > 0.01 {
			t.Errorf("%s: held-out E2E is off by %v", name, v.MedianAbsError)
		}
	}
}

// Coefficients that a law does not have are none of its defaults, and cannot be asked for.
func TestLawsHaveTheirCoefficients(t *testing.T) {
	for _, c := range []struct {
		law, name string
		want      bool
	}{
		{"", "prefill.base_ms", true}, {"", "prefill.mixed_ms", false}, {"", "adapters.base_ms", false},
		{profile.LawRoofline, "prefill.base_ms", false}, {profile.LawRoofline, "prefill.first_extend_ms", false},
		{profile.LawRoofline, "prefill.mixed_ms", true}, {profile.LawRoofline, "decode.base_ms", true},
		{profile.LawAdapters, "decode.base_ms", false}, {profile.LawAdapters, "adapters.base_ms", true},
		{profile.LawAdapters, "request_overhead_ms", true}, {profile.LawRoofline, "memory.pool_gib", true},
	} {
		if got := inLaw(c.law, c.name); got != c.want {
			t.Errorf("law %q, %s: %v", c.law, c.name, got)
		}
	}
	o := Options{Start: rooflineTruth()}
	knobs, err := o.knobs(blockCoefficients, false)
	if err != nil || len(knobs) != len(blockCoefficients)-2 {
		t.Errorf("%d of %d coefficients of blocks (%v), expected all but two", len(knobs), len(blockCoefficients), err)
	}
}
