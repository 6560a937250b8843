package check

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"lorasim/bench/fidelity/measured"
	"lorasim/internal/shareddata"
	"lorasim/sim/profile"
)

// measuredRuns are those of the shared table, and its histograms.
func measuredRuns(t *testing.T) ([]measured.Run, measured.Histograms) {
	t.Helper()
	return shareddata.Read(t, "measured/lora_runs.csv", measured.ReadRuns),
		shareddata.Read(t, "measured/seed_workload.json", measured.ReadHistograms)
}

func llamaProfile(t *testing.T) *profile.Profile {
	t.Helper()
	p, err := profile.Embedded("llama-2-7b-rtx-4090-sglang-0.5")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// small is a table that needs no shared data: two runs of a stride that the
// shared table lacks, at a rate that it lacks.
const small = `group,use,policy_file,policy_actual,trace,total_rate,cv,map_stride,num_prompts,num_instances,num_loras,lora_ranks,max_running_requests,duration_s,mean_e2e_ms,median_e2e_ms
mine,validation,static,static modulo,azure_v2,3.0,1.0,64,60,2,4,8|8|8|8,16,20,1500,900
mine,validation,least-loaded,,azure_v2,3.0,1.0,64,60,2,4,8|8|8|8,16,20,1200,800
mine,calibration,least-loaded,,azure_v2,3.0,1.0,2,60,2,4,8|8|8|8,16,20,1200,800
`

const smallHists = `{"histograms_by_stride": {"64": [10, 20, 30, 40]}}`

// The fidelity targets of the project on runs that nothing was fitted to.
func TestMeasuredRuns(t *testing.T) {
	runs, hists := measuredRuns(t)
	runs = slices.DeleteFunc(runs, func(r measured.Run) bool { return r.Use != measured.Validation })
	ps, err := measured.PredictRuns(context.Background(), runs, hists, measured.RunOptions{Profile: llamaProfile(t),
		Seeds: 32, FirstSeed: 1})
	if err != nil {
		t.Fatal(err)
	}
	r := NewRunsReport(ps)
	for _, c := range []struct {
		m      measured.Metric
		median float64
	}{{measured.Duration, 0.03}, {measured.MeanE2E, 0.06}, {measured.MedianE2E, 0.12}, {measured.P99E2E, 0.16}} {
		s := r.Summary[c.m]
		t.Logf("%s: %d runs, median %.1f %%, P90 %.1f %%, max %.1f %%",
			c.m, s.Runs, 100*s.MedianAbsError, 100*s.P90AbsError, 100*s.MaxAbsError)
		if s.Runs == 0 || s.MedianAbsError > c.median {
			t.Errorf("%s: median error %.1f %% of %d runs, expected at most %.0f %%",
				c.m, 100*s.MedianAbsError, s.Runs, 100*c.median)
		}
	}
	if max := r.Summary[measured.Duration].MaxAbsError; max > 0.12 {
		t.Errorf("a duration is off by %.1f %%, expected at most 12 %%", 100*max)
	}
	if max := r.Clear[measured.MeanE2E].MaxAbsError; max > 0.20 {
		t.Errorf("away from saturation a mean is off by %.1f %%, expected at most 20 %%", 100*max)
	}
	if r.Ratio == nil || r.Ratio.Pairs < 10 || r.Ratio.SignRight != 1 {
		t.Errorf("policy ratio %+v, expected the right sign in every pair", r.Ratio)
	}
}

func smallReport(t *testing.T) (*RunsReport, []byte) {
	t.Helper()
	runs, err := measured.ReadRuns(strings.NewReader(small), "small.csv")
	if err != nil {
		t.Fatal(err)
	}
	hists, err := measured.ReadHistograms(strings.NewReader(smallHists), "small.json")
	if err != nil {
		t.Fatal(err)
	}
	ps, err := measured.PredictRuns(context.Background(), runs, hists, measured.RunOptions{Profile: llamaProfile(t),
		Seeds: 3, FirstSeed: 1})
	if err != nil {
		t.Fatal(err)
	}
	r := NewRunsReport(ps)
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return r, text
}

// Strides and rates of one's own work, rows without a histogram are skipped
// with a reason, and the JSON has the documented keys.
func TestOwnTable(t *testing.T) {
	r, text := smallReport(t)
	if r.Runs[0].Policy != "static" || r.Runs[1].Policy != "least-loaded:ties=first" {
		t.Errorf("policies %q and %q", r.Runs[0].Policy, r.Runs[1].Policy)
	}
	if !strings.Contains(r.Runs[2].Skipped, "stride 2") || r.Runs[2].Predicted != nil {
		t.Errorf("the run without a histogram: %+v", r.Runs[2])
	}
	var v struct {
		Summary map[string]struct {
			Median float64 `json:"median_abs_error"`
			P90    float64 `json:"p90_abs_error"`
		} `json:"summary"`
		Ratio struct {
			Sign   float64 `json:"sign_right"`
			Median float64 `json:"median_abs_error"`
		} `json:"policy_ratio"`
	}
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	for _, m := range []string{"duration", "mean_e2e", "median_e2e"} {
		if s, ok := v.Summary[m]; !ok || s.Median != r.Summary[measured.Metric(m)].MedianAbsError || s.P90 < s.Median {
			t.Errorf("summary.%s: %+v", m, v.Summary[m])
		}
	}
	want := 0.0
	if (r.Ratio.Rows[0].Predicted < 1) == (1200.0/1500 < 1) {
		want = 1
	}
	if v.Ratio.Sign != want || v.Ratio.Median != math.Abs(r.Ratio.Rows[0].Predicted/0.8-1) {
		t.Errorf("policy_ratio %+v, rows %+v", v.Ratio, r.Ratio.Rows)
	}
}

// The report does not depend on the number of processors.
func TestReportIsDeterministic(t *testing.T) {
	_, a := smallReport(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	_, b := smallReport(t)
	if !bytes.Equal(a, b) {
		t.Error("another report on one processor")
	}
}

func TestText(t *testing.T) {
	r, _ := smallReport(t)
	r.Profile = "llama-2-7b-rtx-4090-sglang-0.5"
	var b bytes.Buffer
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"skipped: no histogram of stride 2", "Errors of llama-2-7b-rtx-4090-sglang-0.5",
		"least-loaded over static", "right sign in",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	b.Reset()
	if err := r.Plot(&b); err != nil || !strings.Contains(b.String(), "<svg") {
		t.Errorf("plot: %v", err)
	}
}
