package main

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"lorasim/bench/fidelity/measured"
	"lorasim/internal/shareddata"
	"lorasim/internal/textfile"
	"lorasim/sim/profile"
	"lorasim/trace"
)

const header = "use,status,system,gpu,setting,model,ranks,kv_tokens,mode,adapters,alpha,rate,cv,duration,input,output," +
	"total_time,avg_latency,avg_first_token,attainment\n"

const row = "calibration,paper,slora,a10g,S2,llama-7b,64 32,14500,synthetic,3,1,2,1,20,8-512,8-512,30,5,0.4,0.9\n"

func read(t *testing.T, rows string) []Run {
	t.Helper()
	runs, err := Read(strings.NewReader(header+rows), "runs.csv")
	if err != nil {
		t.Fatal(err)
	}
	return runs
}

func TestReadErrors(t *testing.T) {
	for _, k := range []struct{ old, new, want string }{
		{"30,5,", "x,5,", "runs.csv:2: total_time"},
		{"64 32", "64 x", "runs.csv:2: ranks"},
		{"8-512", "512-8", "runs.csv:2: input"},
		{",2,1,20,", ",-2,1,20,", "runs.csv:2: rate"},
		{"0.4,0.9", "0.4,1.9", "runs.csv:2: attainment"},
	} {
		_, err := Read(strings.NewReader(header+strings.Replace(row, k.old, k.new, 1)), "runs.csv")
		if err == nil || !strings.Contains(err.Error(), k.want) {
			t.Errorf("%s: error %v, expected %q", k.new, err, k.want)
		}
	}
}

// What cannot be simulated is counted by reason; the columns of such rows are not read.
func TestChoiceSkips(t *testing.T) {
	var rows strings.Builder
	rows.WriteString(row)
	for _, k := range [][2]string{{",slora,", ",slora-bmm,"}, {"paper", "backup"}, {"synthetic,3", "real,"},
		{"S2", ""}, {"a10g", "a100-80"}, {"llama-7b", "llama-13b"}, {"14500", ""}, {"calibration", "validation"}} {
		rows.WriteString(strings.Replace(row, k[0], k[1], 1))
	}
	choice := Choice{Use: measured.Calibration, System: SLoRA, GPU: "a10g", Model: "Llama-7b fp16"}
	taken, skipped := choice.Of(read(t, rows.String()))
	if len(taken) != 1 || len(skipped) != 7 || skipped["system slora-bmm is not simulated"] != 1 {
		t.Errorf("%d runs taken, expected 1; skipped %v, expected 7 reasons", len(taken), skipped)
	}
}

// Without adapters the requests are those of one adapter, for the base model.
func TestWorkloadWithoutAdapters(t *testing.T) {
	with := read(t, strings.Replace(row, "synthetic,3", "synthetic,1", 1))[0]
	without := with
	without.Adapters = 0
	a, err := with.Workload()
	if err != nil {
		t.Fatal(err)
	}
	b, err := without.Workload()
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Requests) != 40 || len(b.Adapters) != 0 || len(b.Requests) != 40 {
		t.Fatalf("%d and %d requests, expected 40", len(a.Requests), len(b.Requests))
	}
	for i, r := range a.Requests {
		if r.Adapter = trace.BaseModel; r != b.Requests[i] {
			t.Fatalf("request %d is %+v without adapters, expected %+v", i, b.Requests[i], r)
		}
	}
}

// A prompt has two tokens more than the drawn number of words, and the total time begins before the gap to the first
// request: with one request, its latency and the gap make the total time.
func TestTotalTimeBeginsWithTheBenchmark(t *testing.T) {
	r := read(t, strings.Replace(row, "1,2,1,20,8-512,8-512", "1,1,1,1,8-9,8-9", 1))[0]
	w, err := r.Workload()
	if err != nil {
		t.Fatal(err)
	}
	first := w.Requests[0]
	if len(w.Requests) != 1 || first.Prompt != 8+2 || first.Output != 8 || first.Arrival < 0.01 {
		t.Fatalf("requests %+v, expected one of 10 + 8 tokens after a gap", w.Requests)
	}
	p, err := profile.Embedded("llama-7b-a10g-s-lora")
	if err != nil {
		t.Fatal(err)
	}
	got, err := Predict(context.Background(), []Run{r}, p, nil)
	if err != nil {
		t.Fatal(err)
	}
	if f := got[0]; math.Abs(f.TotalTime-f.Latency-first.Arrival) > 1e-9 {
		t.Errorf("total time %v and latency %v, expected a difference of %v", f.TotalTime, f.Latency, first.Arrival)
	}
}

func TestReportIsJSON(t *testing.T) {
	runs := read(t, strings.Replace(row, "0.4,0.9", "0.4,", 1))
	r := &Report{Profile: "p", Runs: runs, Predicted: []Figures{{33, 5, 0.2, 1, 0}}}
	var out struct {
		Summary map[string]struct {
			Runs  int
			Worst float64 `json:"max_abs_error"`
		}
	}
	data, err := json.Marshal(r)
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	s := out.Summary
	if math.Abs(s["total_time"].Worst-0.1) > 1e-9 || math.Abs(s["avg_first_token"].Worst-0.5) > 1e-9 ||
		s["attainment"].Runs != 0 {
		t.Errorf("summary %+v, expected errors of 0.1 and 0.5, and no attainment", s)
	}
}

// The embedded profile predicts the runs on the A10G that it was not fitted to as lab/docs/s-lora.md says.
func TestPublishedRuns(t *testing.T) {
	all, err := textfile.Read(t.Context(), shareddata.Path(t, "slora_runs/runs.csv"), Read)
	if err != nil {
		t.Fatal(err)
	}
	p, err := profile.Embedded("llama-7b-a10g-s-lora")
	if err != nil {
		t.Fatal(err)
	}
	type most struct{ median, worst float64 }
	for _, k := range []struct {
		system, use string
		runs        int
		most        map[string]most
	}{
		{SLoRA, measured.Validation, 9, map[string]most{"total_time": {0.01, 0.04}, "avg_latency": {0.03, 0.12},
			"avg_first_token": {0.05, 0.25}, "attainment": {0.02, 0.06}}},
		{SLoRALIFO, "", 5, map[string]most{"total_time": {0.01, 0.04}, "avg_latency": {0.03, 0.12},
			"avg_first_token": {0.05, 0.25}, "attainment": {0.02, 0.06}}},
		{SLoRAAbort, "", 8, map[string]most{"total_time": {0.01, 0.04}, "avg_latency": {0.03, 0.12},
			"avg_first_token": {0.1, 0.25}, "attainment": {0.02, 0.06}, "aborted": {0.02, 0.06}}},
	} {
		runs, _ := Choice{Use: k.use, System: k.system, GPU: "a10g", Model: p.Model}.Of(all)
		predicted, err := Predict(context.Background(), runs, p, nil)
		if err != nil {
			t.Fatal(err)
		}
		r := &Report{Profile: p.Name, System: k.system, Runs: runs, Predicted: predicted}
		for metric, most := range k.most {
			s := r.Summary(metric)
			if s.Runs != k.runs || s.MedianAbsError > most.median || s.MaxAbsError > most.worst {
				t.Errorf("%s, %s: errors %v in the median, %v at worst of %d runs, expected at most %v of %d", k.system,
					metric, s.MedianAbsError, s.MaxAbsError, s.Runs, most, k.runs)
			}
		}
		var text bytes.Buffer
		if err := r.WriteText(&text); err != nil || strings.Count(text.String(), "\n") != k.runs+4+len(k.most) {
			t.Errorf("%s: %v, %d lines, expected %d:\n%s", k.system, err, strings.Count(text.String(), "\n"),
				k.runs+4+len(k.most), text.String())
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(header + row)
	f.Add(header + strings.Replace(row, "64 32", "64,32", 1))
	f.Fuzz(func(t *testing.T, data string) {
		runs, err := Read(strings.NewReader(data), "f")
		if err != nil {
			return
		}
		for _, r := range runs {
			if r.skipped() == "" && !(r.Rate*r.Duration >= 1 && r.Input[0] >= 1 && r.Output[1] > r.Output[0]) {
				t.Errorf("accepted %+v", r)
			}
		}
	})
}

func TestOptions(t *testing.T) {
	o, err := parse([]string{"fit", "runs.csv", "--output", "mine.yaml", "--gpu", "a100-80"})
	if err != nil || o.command != "fit" || o.table != "runs.csv" || o.output != "mine.yaml" || o.gpu != "a100-80" {
		t.Errorf("%+v, %v", o, err)
	}
	for args, want := range map[string]string{
		"check":                        "expected check or fit, and a table",
		"look runs.csv":                `"look": expected check or fit`,
		"fit runs.csv":                 "--output is missing",
		"check runs.csv --system nosy": `--system "nosy": expected slora, slora-abort, slora-lifo`,
		"check runs.csv --use some":    `--use "some": expected calibration`,
		"check runs.csv --gpu a100-80": "--gpu a100-80 needs --profile: the embedded profile llama-7b-a10g-s-lora",
	} {
		if _, err := parse(strings.Fields(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, expected %q", args, err, want)
		}
	}
}
