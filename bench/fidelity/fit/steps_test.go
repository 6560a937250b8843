package fit

import (
	"context"
	"math"
	"strings"
	"testing"

	"lorasim/bench/fidelity/measured"
	"lorasim/internal/testutil"
	"lorasim/sim/profile"
	"lorasim/sim/record"
)

// lawTruth is a profile of the law by distinct adapters.
func lawTruth(scheduler string) *profile.Profile {
	p := truth()
	p.Latency = profile.Latency{Law: profile.LawAdapters, LoRA: profile.LoRA{Backend: profile.BackendNative},
		RequestOverheadMs: 6,
		Adapters: profile.AdapterLaw{BaseMs: 9, PerRequestMs: 0.8, PerPromptMs: 4, PerTokenUs: 90, PerKVTokenUs: 2,
			ByRank: []profile.RankCost{{Rank: 16, PerAdapterMs: 2.5}}}}
	p.Engine.Scheduler, p.Engine.MaxLoraRank, p.Engine.MaxLorasPerBatch = scheduler, 16, 3
	p.Engine.ChunkedPrefillSize = 2048
	return p
}

// The coefficients come back from the times of the tokens, within the stated
// error and to 3 % (the overhead, which few steps tell: 15 %),
// and unseen requests are predicted, whichever scheduler it is: nothing is
// assumed of it but whether prompts have steps of their own.
func TestStepsRecoverTheLaw(t *testing.T) {
	for _, scheduler := range []string{profile.SchedulerSGLang, profile.SchedulerVLLM} {
		t.Run(scheduler, func(t *testing.T) {
			want := lawTruth(scheduler)
			low, high := recordsOf(t, want, 150, 0, true), recordsOf(t, want, 400, 0, true)
			start := lawTruth(scheduler)
			start.Latency.Adapters = profile.AdapterLaw{
				BaseMs: 20, PerTokenUs: 20, ByRank: []profile.RankCost{{Rank: 16, PerAdapterMs: 0.5}},
			}
			start.Latency.RequestOverheadMs = 1
			fit, err := Records(context.Background(), [][]record.Request{low, high}, RecordsOptions{
				Options: Options{Start: start}, Holdout: 0.25,
			})
			if err != nil {
				t.Fatal(err)
			}
			cs, err := choose(stepCoefficients, profile.LawAdapters)
			if err != nil {
				t.Fatal(err)
			}
			for i, c := range cs {
				limit := 0.03
				if strings.HasPrefix(c.name, "load") { // there are none
					continue
				}
				if strings.HasPrefix(c.name, "request") {
					limit = 0.15
				}
				e, is, was := fit.Params[i], *c.of(fit.Profile), *c.of(want)
				if off := math.Abs(math.Log(is / was)); e.Held || !(off < limit) {
					t.Errorf("%s is %.4g, expected %.4g: off by %.1f %%, standard error %.1f %% (held: %v)",
						c.name, is, was, 100*off, 100*e.RelStd, e.Held)
				}
			}
			for _, v := range fit.Profile.Validation {
				if v.MedianAbsError > 0.05 {
					t.Errorf("%s: median error %.1f %% on held-out requests, expected below 5 %%",
						v.Metric, 100*v.MedianAbsError)
				}
			}
			if start.Latency.Adapters.ByRank[0].PerAdapterMs != 0.5 {
				t.Error("the fit changed the profile that it started from")
			}
		})
	}
}

// What one worker with one slot did, by hand: whether it held the adapter of z,
// which comes first, is not known; after that, what it holds is. Request a, of
// no adapter, finds it idle; b comes at 0.115, its prompt has the step that ends at
// 0.160, and they decode together until the client stops to read: at 0.250 it
// reads two steps in one.
func TestStepsByHand(t *testing.T) {
	z := record.Request{ID: 0, Adapter: 0, Rank: 8, Sent: 0.001, FirstToken: 0.020, Prompt: 5, Output: 1}
	a := record.Request{ID: 1, Adapter: -1, Sent: 0.050, FirstToken: 0.100, Prompt: 30, Output: 7,
		Gaps: []float64{0.010, 0.010, 0.060, 0.070, 0.0006, 0.020}}
	b := record.Request{
		ID: 2, Adapter: 1, Rank: 16, Sent: 0.115, FirstToken: 0.160, Prompt: 50, Output: 4,
		Gaps: []float64{0.0201, 0.0701, 0.0006},
	}
	for _, r := range []*record.Request{&z, &a, &b} {
		r.Finish = r.FirstToken
		for _, g := range r.Gaps {
			r.Finish += g
		}
	}
	e := profile.Default().Engine
	e.MaxLorasPerBatch = 1
	run := &replay{&measured.Recording{Measured: []record.Request{z, a, b}, Workers: 1}, 3}
	got := stepsOf(run, &profile.Profile{Engine: e})
	want := []struct {
		seconds                                              float64
		batch, kv, prompts, tokens, adapters, loads, arrival int
		waits                                                float64
	}{
		{0.050, 0, 0, 1, 30, 0, 0, 0, 1},
		{0.010, 1, 31, 0, 0, 0, 0, 0, 0},
		{0.010, 1, 32, 0, 0, 0, 0, 1, 0},
		{0.040, 0, 0, 1, 50, 1, 1, 0, 0},
		{0.020, 2, 33 + 51, 0, 0, 1, 0, 0, 0},
		{0.020, 1, 36, 0, 0, 0, 0, 0, 0},
	}
	if len(got) != len(want) {
		t.Fatalf("%d steps, expected %d: %+v", len(got), len(want), got)
	}
	for i, w := range want {
		g := got[i]
		k := g.work
		if math.Abs(g.seconds-w.seconds) > 1e-9 || int(k.Batch) != w.batch || int(k.KV) != w.kv ||
			int(k.Prompts) != w.prompts || int(k.Tokens) != w.tokens ||
			int(k.Adapters) != w.adapters || len(g.loads) != w.loads || int(g.arrivals) != w.arrival ||
			g.waits != w.waits {
			t.Errorf("step %d is %+v, expected %+v", i, g, w)
		}
	}
}

// Without the times of all tokens the law by distinct adapters is fitted to the figures of
// the runs, in whole simulations.
func TestAdapterLawWithoutTokenTimes(t *testing.T) {
	rs := recordsOf(t, lawTruth(profile.SchedulerVLLM), 300, 0, false)
	start := lawTruth(profile.SchedulerVLLM)
	want := start.Latency.Adapters.BaseMs
	start.Latency.Adapters.BaseMs *= 1.3
	fit, err := Records(context.Background(), [][]record.Request{rs}, RecordsOptions{
		Options: Options{Start: start, Fit: []string{"adapters.base_ms"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	testutil.Near(t, "base, ms", fit.Profile.Latency.Adapters.BaseMs, want, 0.01*want)
	_, err = Records(context.Background(), [][]record.Request{rs}, RecordsOptions{
		Options: Options{Start: truth(), Fit: []string{"adapters.base_ms"}},
	})
	testutil.ExpectError(t, err, "latency.law")
}
