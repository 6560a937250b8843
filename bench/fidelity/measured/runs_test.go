package measured

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"lorasim/internal/shareddata"
	"lorasim/sim/profile"
)

// The requests that the static policies of the measured runs sent to each
// worker follow from the replayed arrivals: that checks the workloads
// themselves, apart from any latency.
func TestWorkloadsAreTheMeasuredOnes(t *testing.T) {
	runs := shareddata.Read(t, "measured/lora_runs.csv", ReadRuns)
	hists := shareddata.Read(t, "measured/seed_workload.json", ReadHistograms)
	p, err := profile.Embedded("llama-2-7b-rtx-4090-sglang-0.5")
	if err != nil {
		t.Fatal(err)
	}
	o := RunOptions{Profile: p, Groups: DefaultGroups(), Seeds: 1}
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

// small is a table that needs no shared data: two runs of a stride that the
// shared table lacks, at a rate that it lacks.
const small = `group,use,policy_file,policy_actual,trace,total_rate,cv,map_stride,num_prompts,num_instances,num_loras,lora_ranks,max_running_requests,duration_s,mean_e2e_ms,median_e2e_ms
mine,validation,static,static modulo,azure_v2,3.0,1.0,64,60,2,4,8|8|8|8,16,20,1500,900
mine,validation,least-loaded,,azure_v2,3.0,1.0,64,60,2,4,8|8|8|8,16,20,1200,800
mine,calibration,least-loaded,,azure_v2,3.0,1.0,2,60,2,4,8|8|8|8,16,20,1200,800
`

const smallHists = `{"histograms_by_stride": {"64": [10, 20, 30, 40]}}`

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
