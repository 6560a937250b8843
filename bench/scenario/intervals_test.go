package scenario

import (
	"context"
	"math"
	"strings"
	"testing"

	"lorasim/bench/result"
	"lorasim/internal/testutil"
)

// intervalsOf runs a scenario of the measured kind with changes.
func intervalsOf(t *testing.T, settings ...string) (*result.Result, *result.Intervals) {
	t.Helper()
	sc := Default()
	for _, s := range append([]string{"num_prompts=500", "num_workers=2", "num_adapters=4", "request_rate=4",
		"policy=least-loaded"}, settings...) {
		key, v, _ := strings.Cut(s, "=")
		if err := sc.Set(key, v); err != nil {
			t.Fatal(err)
		}
	}
	res, err := sc.Simulate(context.Background(), RunOptions{Intervals: true})
	if err != nil {
		t.Fatal(err)
	}
	return res, res.Extra.Intervals
}

// The bounds are the profile's factors times the figure.
func TestIntervals(t *testing.T) {
	res, in := intervalsOf(t)
	if in.Profile != "llama-2-7b-rtx-4090-sglang-0.5" || in.Without != nil || len(in.Figures) < 3 || in.Waiting > 0.05 {
		t.Fatalf("%+v", in)
	}
	f := in.Figures[0]
	duration, _ := res.Metrics.Get(result.Duration)
	if f.Metric != "duration" || f.Predicted != duration || math.Abs(f.Most[0]-0.9361*duration) > 1e-9 ||
		math.Abs(f.Half[1]-1.0359*duration) > 1e-9 || f.Level != 0.87 || f.Runs != 6.9 {
		t.Errorf("%+v of %v", f, duration)
	}
	var b strings.Builder
	if err := res.WriteExtra(&b); err != nil || !strings.Contains(b.String(), " 87 %  6.9\n") ||
		!strings.Contains(b.String(), "too few runs") {
		t.Errorf("%v\n%s", err, &b)
	}
}

// Where a run leaves what was validated the ranges are wider, and it is said why.
func TestIntervalsExtrapolated(t *testing.T) {
	res, in := intervalsOf(t)
	narrow := in.Figures
	for settings, want := range map[string]string{
		"num_workers=3":                "3 workers (validated with 2)",
		"policy=p2c":                   "policy p2c (validated with least-loaded, random, static-block)",
		"inference_architecture=dlora": "policy dlora_period_mig (validated with",
		"page_size=16":                 "engine.page_size 16 (validated with 1)",
		"view_staleness=1":             "view_staleness 1 (validated without)",
		"num_adapters=9":               "9 adapters (validated with 4)",
		"window=150 num_prompts=5000":  "a run that ends after its window (validated with runs until all requests end)",
		"num_prompts=300":              "300 requests (validated with 1000 and more)",
		"lengths=constant:100,120":     "a mean prompt of 100 tokens (validated with 343 to 344)",
	} {
		_, in := intervalsOf(t, strings.Fields(settings)...)
		if in.Without != nil || len(in.Figures) < 3 || !strings.Contains(strings.Join(in.Extrapolated, "; "), want) {
			t.Errorf("%s: %+v, expected %q", settings, in, want)
		}
	}
	_, in = intervalsOf(t, "view_staleness=1e-9", "num_workers=2")
	for i, f := range in.Figures {
		if w := f.Most[1] / f.Predicted; math.Abs(w-math.Pow(narrow[i].Most[1]/narrow[i].Predicted, 2)) > 1e-9 ||
			f.Half != nil && f.Half[0] > f.Predicted {
			t.Errorf("%+v, within what was validated %+v", f, narrow[i])
		}
	}
	res.Extra.Intervals = in
	var b strings.Builder
	if err := res.WriteExtra(&b); err != nil ||
		!strings.Contains(b.String(), "extrapolated: view_staleness 1e-09 (validated without)\nThe ranges are therefore twice as wide") {
		t.Errorf("%v\n%s", err, &b)
	}
}

// Every embedded profile that was validated answers the default run of its kind.
func TestIntervalsOfDefaults(t *testing.T) {
	for _, name := range []string{
		"llama-2-7b-rtx-4090-sglang-0.5", "llama-3.1-8b-h100-64gb-vllm-0.8.5", "qwen2.5-7b-h100-64gb-vllm-0.8.5",
	} {
		sc := Default()
		testutil.Set(t, &sc, "profile", name)
		res, err := sc.Simulate(t.Context(), RunOptions{Intervals: true})
		if err != nil {
			t.Fatal(err)
		}
		if in := res.Extra.Intervals; len(in.Figures) < 3 || len(in.Extrapolated) == 0 {
			t.Errorf("%s: %+v", name, in)
		}
	}
}

// Where the validated runs say nothing there are none, and whole sentences say why.
func TestIntervalsRefused(t *testing.T) {
	for settings, want := range map[string]string{
		"scheduler=vllm":                           "The run has engine.scheduler vllm, with which the profile was not validated (sglang).",
		"lora_backend=triton":                      "The run has latency.lora.backend triton, with which the profile was not validated (csgmv).",
		"max_concurrency=8":                        "The run has max_concurrency 8, which no validated run had.",
		"outages=1@1-2":                            "The run has outages 1@1-2, which",
		"lengths=constant:5000,10":                 "500 of 500 requests failed or were rejected",
		"profile=rtx-4090,qwen3-14b-h100":          "The workers have several profiles, and",
		"profile=analytic:llama-2-7b,rtx-4090":     "is computed, and no measured run was compared with it: fit it to runs of your server with lorasim profile fit.",
		"profile=deepseek-v3-8xh200-sglang-triton": "has no intervals, because too few held-out runs were compared with it",
		"elastic=min=1,max=2,target=6":             "The run has elastic min=1,max=2,target=6, which",
		"num_prompts=60":                           "The run has 60 requests, less than a quarter of the 1000 of the shortest validated run.",
		"lengths=constant:5,120":                   "The mean prompt has 5 tokens, more than 4 times off the 343 to 344 of the validated runs.",
		"lengths=constant:300,1":                   "The mean output has 1 tokens, more than",
	} {
		_, in := intervalsOf(t, strings.Fields(settings)...)
		if len(in.Figures) > 0 || !strings.Contains(strings.Join(in.Without, " "), want) {
			t.Errorf("%s: %+v, expected %q", settings, in, want)
		}
		for _, why := range in.Without {
			if !strings.HasSuffix(why, ".") && !strings.HasSuffix(why, ".)") && !strings.HasSuffix(why, ").") {
				t.Errorf("%s: %q is no whole sentence", settings, why)
			}
		}
	}
}

// Up to one request of a hundred may fail: the measured runs had such, too.
func TestIntervalsOfFailures(t *testing.T) {
	sc := Default()
	for rejected, want := range map[int64]int{0: 0, 5: 0, 6: 1} {
		res := &result.Result{Extra: &result.Extra{Endings: result.Endings{Requests: 1000, Rejected: rejected,
			Failed: 3, Aborted: 2, Unfinished: 500}}}
		if why := sc.refuses(res); len(why) != want {
			t.Errorf("%d of 1000 rejected: %q, expected %d reasons", rejected, why, want)
		}
	}
}
