package scenario

import (
	"context"
	"math"
	"strings"
	"testing"

	"lorasim/bench/result"
)

// intervalsOf runs a scenario of the measured kind with changes.
func intervalsOf(t *testing.T, settings ...string) (*result.Result, *result.Intervals) {
	t.Helper()
	sc := Default()
	for _, s := range append([]string{"num_prompts=500", "num_workers=2", "num_adapters=4", "request_rate=4", "policy=least-loaded"}, settings...) {
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
	if in.Profile != "llama2-7b-24gb" || in.Without != nil || len(in.Figures) < 3 || in.Waiting > 0.05 {
		t.Fatalf("%+v", in)
	}
	f := in.Figures[0]
	duration, _ := res.Metrics.Get(result.Duration)
	if f.Metric != "duration" || f.Predicted != duration || math.Abs(f.Most[0]-0.9361*duration) > 1e-9 || math.Abs(f.Half[1]-1.0359*duration) > 1e-9 || f.Level != 0.87 || f.Runs != 6.9 {
		t.Errorf("%+v of %v", f, duration)
	}
	var b strings.Builder
	if err := res.WriteExtra(&b); err != nil || !strings.Contains(b.String(), " 87 %  6.9\n") || !strings.Contains(b.String(), "too few runs") {
		t.Errorf("%v\n%s", err, &b)
	}
}

// Where a run leaves what was validated there are none, and it is said why.
func TestIntervalsBeyond(t *testing.T) {
	for settings, want := range map[string]string{
		"num_workers=3":                          "3 workers, validated with at most 2",
		"policy=p2c":                             "policy p2c, validated with",
		"inference_architecture=dlora":           "policy dlora_period_mig",
		"scheduler=vllm":                         "engine.scheduler vllm",
		"page_size=16":                           "engine.page_size 16, validated with 1",
		"max_concurrency=8":                      "max_concurrency 8",
		"outages=1@1-2":                          "outages 1@1-2",
		"lengths=constant:5000,10":               "500 of 500 requests failed or were refused",
		"profile=llama2-7b-24gb,llama2-7b-dlora": "workers of several profiles",
		"profile=analytic:llama-2-7b,rtx-4090":   "has no intervals",
		"profile=deepseek-v3-tp8-triton":         "has no intervals",
		"elastic=min=1,max=2,target=6":           "elastic min=1,max=2,target=6",
		"view_staleness=1":                       "view_staleness 1",
		"num_adapters=9":                         "9 adapters, validated with at most 4",
		"window=50":                              "a run of a window",
		"profile=qwen-2.5-7b-h100 lora_ranks=8":  "validated with runs of a window",
		"num_prompts=60":                         "60 requests, validated with 1000 and more",
		"lengths=constant:5,120":                 "prompts of 5 tokens in the mean, validated with 343 to 344",
		"lengths=constant:300,1":                 "outputs of 1 tokens in the mean, validated with 100 to 148",
	} {
		if _, in := intervalsOf(t, strings.Fields(settings)...); len(in.Figures) > 0 || !strings.Contains(strings.Join(in.Without, "; "), want) {
			t.Errorf("%s: %+v, expected %q", settings, in, want)
		}
	}
}

// Up to one request of a hundred may fail: the measured runs had such, too.
func TestIntervalsOfFailures(t *testing.T) {
	sc := Default()
	for rejected, want := range map[int64]int{0: 0, 5: 0, 6: 1} {
		res := &result.Result{Extra: &result.Extra{Endings: result.Endings{Requests: 1000, Rejected: rejected, Failed: 3, Aborted: 2, Unfinished: 500}}}
		if why := sc.beyond(res); len(why) != want {
			t.Errorf("%d of 1000 rejected: %q, expected %d reasons", rejected, why, want)
		}
	}
}
