package validate

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"lorasim/internal/shareddata"
	"lorasim/internal/textfile"
	"lorasim/sim/profile"
)

// measuredRuns are those of the shared table, and its histograms.
func measuredRuns(t *testing.T) ([]Run, Histograms) {
	t.Helper()
	runs, err := textfile.Read(t.Context(), shareddata.Path(t, "measured/lora_runs.csv"), ReadRuns)
	if err != nil {
		t.Fatal(err)
	}
	hists, err := textfile.Read(t.Context(), shareddata.Path(t, "measured/seed_workload.json"), ReadHistograms)
	if err != nil {
		t.Fatal(err)
	}
	return runs, hists
}

func llama(t *testing.T) *profile.Profile {
	t.Helper()
	p, err := profile.Embedded("llama-2-7b-rtx-4090-sglang-0.5")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The fidelity targets of the project on runs that nothing was fitted to.
func TestMeasuredRuns(t *testing.T) {
	runs, hists := measuredRuns(t)
	runs = slices.DeleteFunc(runs, func(r Run) bool { return r.Use != Validation })
	ps, err := Simulate(context.Background(), runs, hists, Options{Profile: llama(t), Seeds: 32, FirstSeed: 1})
	if err != nil {
		t.Fatal(err)
	}
	r := NewReport(ps)
	for _, c := range []struct {
		m      Quantity
		median float64
	}{{Duration, 0.03}, {MeanE2E, 0.06}, {MedianE2E, 0.12}, {P99E2E, 0.16}} {
		s := r.Summary[c.m]
		t.Logf("%s: %d runs, median %.1f %%, P90 %.1f %%, max %.1f %%",
			c.m, s.Runs, 100*s.MedianAbsError, 100*s.P90AbsError, 100*s.MaxAbsError)
		if s.Runs == 0 || s.MedianAbsError > c.median {
			t.Errorf("%s: median error %.1f %% of %d runs, expected at most %.0f %%",
				c.m, 100*s.MedianAbsError, s.Runs, 100*c.median)
		}
	}
	if max := r.Summary[Duration].MaxAbsError; max > 0.12 {
		t.Errorf("a duration is off by %.1f %%, expected at most 12 %%", 100*max)
	}
	if max := r.Clear[MeanE2E].MaxAbsError; max > 0.20 {
		t.Errorf("away from saturation a mean is off by %.1f %%, expected at most 20 %%", 100*max)
	}
	if r.Ratio == nil || r.Ratio.Pairs < 10 || r.Ratio.SignRight != 1 {
		t.Errorf("policy ratio %+v, expected the right sign in every pair", r.Ratio)
	}
}

// The requests that the static policies of the measured runs sent to each
// worker follow from the replayed arrivals: that checks the workloads
// themselves, apart from any latency.
func TestWorkloadsAreTheMeasuredOnes(t *testing.T) {
	runs, hists := measuredRuns(t)
	o := Options{Profile: llama(t), Groups: DefaultGroups(), Seeds: 1}
	checked := 0
	for i := range runs {
		r := &runs[i]
		if r.Sent[0] == 0 || !strings.HasPrefix(r.Policy, "static") || len(hists[r.Stride]) != r.Adapters {
			continue
		}
		p, _, err := newPlan(t.Context(), r, hists, o)
		if err != nil {
			t.Fatal(err)
		}
		var got [2]int
		for _, q := range p.workload.Requests {
			if r.Policy == "static" {
				got[q.Adapter%2]++
			} else {
				got[q.Adapter/2]++
			}
		}
		if got != r.Sent {
			t.Errorf("line %d, stride %d, rate %g: %v requests to the workers, measured %v",
				r.Line, r.Stride, r.Rate, got, r.Sent)
		}
		checked++
	}
	if checked < 20 {
		t.Errorf("%d runs checked, expected at least 20", checked)
	}
}

// Closed loops: fitted to concurrency 32, the runs with concurrency 16 were not
// seen.
func TestMeasuredBlocks(t *testing.T) {
	blocks, err := ReadLogs(t.Context(), filepath.Dir(shareddata.Path(t, "logs/deepseek_v3_flashinfer_vs_triton.log")))
	if err != nil {
		t.Fatal(err)
	}
	r, err := CompareBlocks(context.Background(), blocks, nil)
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for i := range r.Runs {
		row := &r.Runs[i]
		if row.Predicted == nil {
			continue
		}
		seen++
		for m, limit := range map[Quantity]float64{
			MeanE2E: 0.05, MedianE2E: 0.05, MeanITL: 0.05, MedianITL: 0.05, MeanTTFT: 0.2,
		} {
			if e, ok := row.Error[m]; !ok || math.Abs(e) > limit {
				t.Errorf("%s:%d %s: %s is off by %.1f %%, expected at most %.0f %%",
					row.Group, row.Line, row.ID, m, 100*e, 100*limit)
			}
		}
	}
	if seen != 4 {
		t.Errorf("%d blocks predicted, expected 4", seen)
	}
	for _, s := range r.Servers {
		if math.Abs(s.Error) > 0.02 {
			t.Errorf("%s at concurrency %d: ratio %.4f, measured %.4f",
				s.Servers, s.Concurrency, s.Predicted, s.Measured)
		}
	}
	if len(r.Servers) != 2 {
		t.Errorf("%d ratios of servers, expected 2", len(r.Servers))
	}
}

// small is a table that needs no shared data: two runs of a stride that the
// shared table lacks, at a rate that it lacks.
const small = `group,use,policy_file,policy_actual,trace,total_rate,cv,map_stride,num_prompts,num_instances,num_loras,lora_ranks,max_running_requests,duration_s,mean_e2e_ms,median_e2e_ms
mine,validation,static,static modulo,azure_v2,3.0,1.0,64,60,2,4,8|8|8|8,16,20,1500,900
mine,validation,least-loaded,,azure_v2,3.0,1.0,64,60,2,4,8|8|8|8,16,20,1200,800
mine,calibration,least-loaded,,azure_v2,3.0,1.0,2,60,2,4,8|8|8|8,16,20,1200,800
`

const smallHists = `{"histograms_by_stride": {"64": [10, 20, 30, 40]}}`

func smallReport(t *testing.T) (*Report, []byte) {
	t.Helper()
	runs, err := ReadRuns(strings.NewReader(small), "small.csv")
	if err != nil {
		t.Fatal(err)
	}
	hists, err := ReadHistograms(strings.NewReader(smallHists), "small.json")
	if err != nil {
		t.Fatal(err)
	}
	ps, err := Simulate(context.Background(), runs, hists, Options{Profile: llama(t), Seeds: 3, FirstSeed: 1})
	if err != nil {
		t.Fatal(err)
	}
	r := NewReport(ps)
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
		if s, ok := v.Summary[m]; !ok || s.Median != r.Summary[Quantity(m)].MedianAbsError || s.P90 < s.Median {
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

func TestReadRunsNamesTheFault(t *testing.T) {
	head, row, _ := strings.Cut(small, "\n")
	row, _, _ = strings.Cut(row, "\n")
	change := func(old, new string) string { return head + "\n" + strings.Replace(row, old, new, 1) + "\n" }
	for name, c := range map[string]struct{ text, want string }{
		"empty":  {"", "t.csv: file is empty"},
		"none":   {head + "\n", "no rows"},
		"column": {strings.Replace(small, "total_rate", "rate", 1), `t.csv:1: no column "total_rate"`},
		"use":    {change("validation", "validatoin"), "t.csv:2: use: unknown use"},
		"rate":   {change("3.0", "fast"), `t.csv:2: total_rate: "fast"`},
		"stride": {change(",64,", ",0,"), "t.csv:2: map_stride"},
		"group":  {change("mine", ""), "t.csv:2: group: is empty"},
		"fields": {change(",20,", ","), "t.csv"},
		"number": {change(",1500,", ",-1,"), "t.csv:2: mean_e2e_ms"},
	} {
		if _, err := ReadRuns(strings.NewReader(c.text), "t.csv"); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, expected an error with %q", name, err, c.want)
		}
	}
	for name, c := range map[string]struct{ text, want string }{
		"not json": {"[", "t.json: expected a JSON object"},
		"nothing":  {"{}", "no histogram"},
		"stride":   {`{"histograms_by_stride": {"x": [1]}}`, `key "x"`},
		"run":      {`{"runs": {"a": {"map_stride": 0, "histogram": [1]}}}`, "runs.a: map_stride"},
		"empty":    {`{"histograms_by_stride": {"4": [0, 0]}}`, "histogram of stride 4: no invocations"},
		"negative": {`{"histograms_by_stride": {"4": [1, -2]}}`, "adapter 1 has -2"},
	} {
		if _, err := ReadHistograms(strings.NewReader(c.text), "t.json"); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, expected an error with %q", name, err, c.want)
		}
	}
	for text, want := range map[string]string{
		"groups: {a: {lengths: nonsense}}":                        "groups.a",
		"other: {lengths: sharegpt}\nx: 1":                        `g.yaml:2: unknown key "x"`,
		"other: {lengths: sharegpt, first_worker: {azure_v1: 2}}": "first_worker of azure_v1 is 2",
	} {
		if _, err := ReadGroups(strings.NewReader(text), "g.yaml"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, expected an error with %q", text, err, want)
		}
	}
}

func TestReadRanks(t *testing.T) {
	for text, want := range map[string][]int{
		"64|16|64|?(llava-lightning)": {64, 16, 64, 0},
		"8x4|16x2":                    {8, 8, 8, 8, 16, 16},
		"likely 8|8 (twice the same)": {8, 8},
		"":                            {0},
	} {
		if got := readRanks(text); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %v, expected %v", text, got, want)
		}
	}
}

func FuzzReadRuns(f *testing.F) {
	f.Add(small)
	f.Add("group,policy_file,total_rate,map_stride,num_prompts,num_instances,num_loras\na,static,1,1,1,1,1\n")
	f.Fuzz(func(t *testing.T, s string) {
		runs, err := ReadRuns(strings.NewReader(s), "fuzz")
		if err != nil {
			return
		}
		for _, r := range runs {
			if !(r.Rate > 0) || r.Requests < 1 || r.Workers < 1 || r.Adapters < 1 || len(r.Ranks) > r.Adapters {
				t.Errorf("accepted %+v", r)
			}
		}
	})
}

func FuzzReadHistograms(f *testing.F) {
	f.Add(smallHists)
	f.Add(`{"runs": {"a": {"map_stride": 1, "histogram": [1, 2]}}}`)
	f.Fuzz(func(t *testing.T, s string) {
		hs, err := ReadHistograms(strings.NewReader(s), "fuzz")
		for stride, counts := range hs {
			if err == nil && (stride < 1 || checkCounts(counts) != nil) {
				t.Errorf("accepted stride %d: %v", stride, counts)
			}
		}
	})
}

func FuzzReadGroups(f *testing.F) {
	f.Add(embeddedGroups)
	f.Fuzz(func(t *testing.T, s string) {
		if strings.Contains(s, "table") { // would open files
			return
		}
		g, err := ReadGroups(strings.NewReader(s), "fuzz")
		if err != nil {
			return
		}
		if out, err := g.YAML(); err != nil {
			t.Error(err)
		} else if _, err := ReadGroups(bytes.NewReader(out), "again"); err != nil {
			t.Errorf("does not read back: %v\n%s", err, out)
		}
	})
}
