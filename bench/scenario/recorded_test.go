package scenario

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"lorasim/bench/stats"
	"lorasim/internal/testutil"
	"lorasim/trace"
)

// savedLog is a saved workload of 400 requests to 4 adapters with ranks, at 2
// requests/s, whose gaps alternate between 0.2 and 0.8 s.
func savedLog(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("id,arrival_s,adapter,prompt_tokens,output_tokens,rank\n")
	at := 1.0
	for i := range 400 {
		fmt.Fprintf(&b, "%d,%.1f,%s,%d,5,%d\n", i, at, []string{"alice", "bob", "carol", "dave"}[i%4], 10+i, 8)
		at += []float64{0.2, 0.8}[i%2]
	}
	return testutil.File(t, "log.csv", b.String())
}

func TestScalesOfSavedWorkload(t *testing.T) {
	file := "workload=" + savedLog(t)
	was, err := requestsOf(t, file)
	if err != nil || len(was) != 400 {
		t.Fatal(len(was), err)
	}
	for _, c := range []struct {
		settings string
		factor   float64 // of times
		cv       float64 // of the coefficient of variation of the gaps
	}{
		{"rate_scale=2", 0.5, 1}, {"rate_scale=0.25", 4, 1}, {"cv_scale=0.5", 1, 0.5},
		{"rate_scale=4 cv_scale=0.25", 0.25, 0.25},
	} {
		got, err := requestsOf(t, append(strings.Fields(c.settings), file)...)
		if err != nil || len(got) != len(was) {
			t.Fatalf("%s: %d requests, %v", c.settings, len(got), err)
		}
		last := len(was) - 1
		if got[0].Arrival != was[0].Arrival*c.factor || math.Abs(got[last].Arrival-was[last].Arrival*c.factor) > 1e-9 {
			t.Errorf("%s: from %v to %v", c.settings, got[0].Arrival, got[last].Arrival)
		}
		if is, want := gapCV(got), gapCV(was)*c.cv; math.Abs(is-want) > 1e-6 {
			t.Errorf("%s: the gaps have a coefficient of variation of %v, want %v", c.settings, is, want)
		}
		for i, r := range got {
			if r.Arrival = was[i].Arrival; r != was[i] {
				t.Fatalf("%s: request %d is %+v, want %+v", c.settings, i, r, was[i])
			}
		}
	}
}

func gapCV(rs []trace.Request) float64 {
	sum, squares, n := 0.0, 0.0, float64(len(rs)-1)
	for i := 1; i < len(rs); i++ {
		g := rs[i].Arrival - rs[i-1].Arrival
		sum, squares = sum+g, squares+g*g
	}
	return math.Sqrt(squares/n-sum/n*sum/n) / (sum / n)
}

// Draws come first, then scales, then num_prompts.
func TestResampleOfSavedWorkload(t *testing.T) {
	file := "workload=" + savedLog(t)
	get := func(settings ...string) []trace.Request {
		t.Helper()
		rs, err := requestsOf(t, append(settings, file)...)
		if err != nil {
			t.Fatal(err)
		}
		return rs
	}
	a, b := get("resample=block:10", "seed=1"), get("resample=block:10", "seed=2")
	if slices.Equal(a, b) || !slices.Equal(a, get("resample=block:10", "seed=1")) {
		t.Error("a seed must give one workload, and another seed another")
	}
	twice := get("resample=block:10", "rate_scale=2", "num_prompts=100")
	if len(twice) != 100 || twice[99].Arrival != a[99].Arrival/2 || twice[99].Prompt != a[99].Prompt {
		t.Errorf("%d requests, the last is %+v, want %+v", len(twice), twice[99], a[99])
	}
	in, err := func() (*Input, error) {
		sc := Default()
		sc.Workload.File = strings.TrimPrefix(file, "workload=")
		testutil.Set(t, &sc, "resample", "adapters")
		return sc.OpenWorkload(t.Context(), nil)
	}()
	if err != nil || len(in.Adapters()) != 4 || in.Adapters()[0].Rank != 8 {
		t.Fatal(in, err)
	}
	in.Close()
	for settings, want := range map[string]string{
		"resample=block:0":                                 `seconds: "0" is not a number`,
		"resample=sessions " + file:                        "give sessions:SECONDS",
		"resample=block:300 " + file:                       "expected at most half of that",
		"resample=block:10":                                "generated requests differ by seed",
		"resample=block:10 compat=slora":                   "generated requests differ by seed",
		"resample=adapters trace_histogram=5,6":            "generated requests differ by seed",
		"resample=adapters trace_histogram=5 compat=dlora": "generated requests differ by seed",
		"resample=block:10 trace_name=mooncake trace_path=x use_trace_timestamps=false": "replace",
	} {
		if _, err := requestsOf(t, strings.Fields(settings)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", settings, err, want)
		}
	}
}

// Sampling says what a comparison of the workloads of two seeds shows.
func TestSampling(t *testing.T) {
	file := "workload=" + savedLog(t)
	var llm, functions strings.Builder
	llm.WriteString("TIMESTAMP,ContextTokens,GeneratedTokens\n")
	functions.WriteString("app,func,end_timestamp,duration\n")
	for i := range 50 {
		fmt.Fprintf(&llm, "2023-11-16 18:01:%02d.9799600,%d,9\n", i, 100+i)
		fmt.Fprintf(&functions, "a,f%d,%d.5,0.5\n", i%5, i+1)
	}
	azure := "trace_name=azure_llm trace_path=" + testutil.File(t, "llm.csv", llm.String())
	invocations := "trace_name=azure_v2 trace_path=" + testutil.File(t, "f.txt", functions.String())
	for settings, want := range map[string]stats.Sampling{
		"":                                         stats.Fresh,
		"compat=slora popularity=powerlaw:1":       stats.Fresh,
		"compat=vllm-lora":                         stats.Fresh,
		"trace_histogram=50,60":                    stats.Fresh,
		file:                                       stats.OneWorkload,
		file + " rate_scale=2":                     stats.OneWorkload,
		file + " lora_ranks=8,16":                  stats.OneWorkload,
		file + " max_new_tokens=x2":                stats.OneWorkload,
		file + " resample=block:20":                stats.Resampled,
		file + " resample=adapters":                stats.Resampled,
		file + " lora_ranks=drawn:8=1,64=1":        stats.Fresh,
		file + " max_new_tokens=uniform:100,900":   stats.Fresh,
		azure:                                      stats.Fresh,
		azure + " num_adapters=1":                  stats.OneWorkload,
		azure + " lora_names=one":                  stats.OneWorkload,
		azure + " num_adapters=1 lengths=sharegpt": stats.Fresh,
		azure + " num_adapters=1 lengths=constant:50,60":                          stats.OneWorkload,
		azure + " num_adapters=1 use_trace_timestamps=false":                      stats.Fresh,
		azure + " num_adapters=4 resample=block:5":                                stats.Resampled,
		invocations + " num_adapters=3":                                           stats.Fresh,
		invocations + " num_adapters=3 trace_replay=vanilla":                      stats.Fresh, // its lengths are drawn
		invocations + " num_adapters=3 trace_replay=vanilla lengths=constant:5,6": stats.OneWorkload,
		"trace_histogram=50,60 compat=dlora":                                      stats.Fresh,
		"trace_histogram=50,60 compat=dlora lengths=constant:5,6":                 stats.OneWorkload,
	} {
		sc := Default()
		for _, s := range strings.Fields("num_prompts=40 " + settings) {
			key, value, _ := strings.Cut(s, "=")
			if err := sc.Set(key, value); err != nil {
				t.Fatal(err)
			}
		}
		if got := sc.Sampling(); got != want {
			t.Errorf("%s: %q, want %q", settings, got, want)
		}
		other := sc
		other.Seed++
		a, err1 := sc.Collect(t.Context())
		b, err2 := other.Collect(t.Context())
		if err1 != nil || err2 != nil {
			t.Errorf("%s: %v, %v", settings, err1, err2)
			continue
		}
		same := slices.Equal(a.Workload.Requests, b.Workload.Requests) &&
			slices.Equal(a.Workload.Adapters, b.Workload.Adapters)
		if same != (want == stats.OneWorkload) {
			t.Errorf("%s: two seeds have the same workload: %v", settings, same)
		}
	}
}

func TestIgnoredSettings(t *testing.T) {
	note := func(settings, given, prefix string) []string {
		sc := Default()
		for _, s := range strings.Fields(settings) {
			key, value, _ := strings.Cut(s, "=")
			if err := sc.Set(key, value); err != nil {
				t.Fatal(err)
			}
		}
		return sc.Ignored(func(f Field) string {
			if slices.Contains(strings.Fields(given), f.Leaf()) {
				return prefix + f.Leaf()
			}
			return ""
		})
	}
	const scales = "rate_scale cv_scale"
	const redrawn = "trace_total_rate trace_speed"
	for _, c := range []struct{ settings, given, noted string }{
		{"workload=w.csv", scales + " num_prompts max_new_tokens prefix_block resample", ""},
		{"workload=w.csv",
			redrawn + " trace_map trace_start_time use_trace_timestamps trace_sort skip_bad_rows trace_replay",
			redrawn + " trace_map trace_start_time use_trace_timestamps trace_sort trace_replay skip_bad_rows"},
		{"workload=w.csv", "request_rate lengths drift arrivals", "request_rate drift lengths arrivals"},
		{"trace_name=mooncake trace_path=x", scales + " trace_sort", ""},
		{"trace_name=mooncake trace_path=x", redrawn + " request_rate drift arrivals",
			"request_rate drift arrivals " + redrawn},
		{"trace_name=mooncake trace_path=x use_trace_timestamps=false", scales + " request_rate arrivals", scales},
		{"trace_name=azure_v2 trace_path=x", scales + " " + redrawn + " trace_map drift arrivals", ""},
		{"trace_name=azure_v2 trace_path=x", "request_rate", "request_rate"},
		{"trace_name=azure_v2 trace_path=x trace_replay=vanilla", scales + " trace_total_rate arrivals",
			"trace_total_rate arrivals"},
		{"trace_histogram=5,6", scales + " trace_total_rate arrivals", ""},
		{"trace_histogram=5,6 compat=dlora", scales + " trace_speed trace_total_rate arrivals",
			scales + " trace_speed"},
		{"", scales + " request_rate trace_total_rate arrivals", "trace_total_rate " + scales},
	} {
		var got []string
		for _, n := range note(c.settings, c.given, "") {
			key, _, ok := strings.Cut(n, " has no effect: ")
			if !ok {
				t.Errorf("%s: %q", c.settings, n)
			}
			got = append(got, key)
		}
		want := strings.Fields(c.noted)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s, given %s: noted %v, want %v", c.settings, c.given, got, want)
		}
	}
	// What the note names is spelled as the user spelled the setting.
	for prefix, want := range map[string]string{
		"--":                  "--arrivals has no effect: the saved workload states its arrivals (see --rate-scale, --cv-scale)",
		"s.yaml:7: workload.": "s.yaml:7: workload.arrivals has no effect: the saved workload states its arrivals (see rate_scale, cv_scale)",
	} {
		if got := note("workload=w.csv", "arrivals", prefix); len(got) != 1 || got[0] != want {
			t.Errorf("%q, expected %q", got, want)
		}
	}
	if got, want := note("", "prefix_block", "--"), "see --workload"; len(got) != 1 || !strings.Contains(got[0], want) {
		t.Errorf("%q, expected %q", got, want)
	}
}
