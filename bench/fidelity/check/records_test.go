package check

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"lorasim/bench/fidelity/measured"
	"lorasim/bench/result/records"
	"lorasim/internal/shareddata"
	"lorasim/sim/profile"
	"lorasim/trace/columnar"
)

// The intervals and the errors that the embedded profile states are those of the recorded runs that it was not fitted
// to, each once (the repeats on a second server are left out).
func TestEmbeddedProfileOfRecordedRuns(t *testing.T) {
	dir := shareddata.Path(t, "vllm_h100_qwen3_14b")
	p, err := profile.Embedded("qwen3-14b-h100-vllm-0.23")
	if err != nil {
		t.Fatal(err)
	}
	var runs []*measured.Recording
	for _, name := range []string{"rate6-vanilla", "tenants1-vanilla", "tenants4-vanilla", "w5-rate12", "w7-rate18"} {
		rs, _, err := records.ReadAll(t.Context(), columnar.Files(), dir+"/"+name+".csv.gz")
		if err != nil {
			t.Fatal(err)
		}
		run, err := measured.NewRecording(name, rs, 256)
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, run)
	}
	r, err := Records(t.Context(), runs, p, nil)
	if err != nil {
		t.Fatal(err)
	}
	in, validation := r.Intervals().One(), summarize(r.Runs).Validation(measured.RecordingMetrics,
		"recorded runs not fitted")
	if len(in.Settings) == 0 { // a file has no empty map
		in.Settings = nil
	}
	if !reflect.DeepEqual(in, p.Intervals) || !reflect.DeepEqual(validation, p.Validation) {
		text, err := yaml.Marshal(map[string]any{"intervals": in, "validation": validation})
		t.Errorf("%v, the runs give:\n%s", err, text)
	}
	for m, most := range map[string]float64{"ttft_mean": 0.06, "tpot_mean": 0.05, "e2e_mean": 0.05, "duration": 0.03} {
		for metric, s := range r.Summary {
			if string(metric) == m && (s.Runs != len(runs) || s.MaxAbsError > most) {
				t.Errorf("%s: %+v, expected at most %v", m, s, most)
			}
		}
	}
}

func TestRecordsReport(t *testing.T) {
	base := profile.Default()
	rows := make([]measured.PredictedRecording, 3)
	for i := range rows {
		seen, predicted := measured.Values{}, measured.Values{}
		for _, m := range measured.RecordingMetrics {
			seen[m], predicted[m] = 100, 100+4*float64(i+1)
		}
		rows[i].Run, rows[i].Measured = string(rune('a'+i)), seen
		rows[i].Predict(predicted)
		rows[i].Ran = measured.Ran{Base: &base, Alike: rows[i].Run,
			ValidatedRun: profile.ValidatedRun{Workers: 1, Profile: &base, Requests: 300}}
	}
	r := newRecordsReport(rows, "p")
	if s := r.Summary[measured.TPOTMean]; s.Runs != 3 || math.Abs(s.MedianAbsError-0.08) > 1e-9 ||
		math.Abs(s.MaxAbsError-0.12) > 1e-9 {
		t.Errorf("errors of 4, 8 and 12 %%: %+v", s)
	}
	var text, picture bytes.Buffer
	if err := r.WriteText(&text); err != nil || !strings.Contains(text.String(), "tpot_p99") {
		t.Errorf("%v: %s", err, text.String())
	}
	if err := r.Plot(&picture); err != nil || !strings.Contains(picture.String(), "<svg") {
		t.Errorf("%v: no picture", err)
	}
	var decoded struct {
		Summary map[string]struct {
			Runs   int
			Median float64 `json:"median_abs_error"`
			Worst  float64 `json:"max_abs_error"`
		}
		Runs []struct{ Measured, Predicted, Error map[string]float64 }
	}
	data, err := json.Marshal(r)
	if err == nil {
		err = json.Unmarshal(data, &decoded)
	}
	for _, m := range measured.RecordingMetrics {
		if decoded.Summary[string(m)].Runs != 3 {
			t.Errorf("%v: %s is not in the summary: %s", err, m, data)
		}
	}
	if len(decoded.Runs) != 3 || decoded.Runs[0].Measured["duration"] == 0 {
		t.Errorf("runs: %+v", decoded.Runs)
	}
	if in := r.Intervals().One(); in == nil || len(in.Bands) == 0 || in.Workload.Requests != 300 {
		t.Errorf("intervals: %+v", in)
	}
}
