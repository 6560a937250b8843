package recorded

import (
	"reflect"
	"testing"

	"github.com/goccy/go-yaml"

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
	var runs []*Run
	for _, name := range []string{"rate6-vanilla", "tenants1-vanilla", "tenants4-vanilla", "w5-rate12", "w7-rate18"} {
		rs, _, err := records.ReadAll(t.Context(), columnar.Files(), dir+"/"+name+".csv.gz")
		if err != nil {
			t.Fatal(err)
		}
		run, err := New(name, rs, 256)
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, run)
	}
	r, err := Compare(t.Context(), runs, p, nil)
	if err != nil {
		t.Fatal(err)
	}
	in, validation := r.Intervals().One(), r.Validation("recorded runs not fitted")
	if len(in.Settings) == 0 { // a file has no empty map
		in.Settings = nil
	}
	if !reflect.DeepEqual(in, p.Intervals) || !reflect.DeepEqual(validation, p.Validation) {
		text, err := yaml.Marshal(map[string]any{"intervals": in, "validation": validation})
		t.Errorf("%v, the runs give:\n%s", err, text)
	}
	for m, most := range map[string]float64{"ttft_mean": 0.06, "tpot_mean": 0.05, "e2e_mean": 0.05, "duration": 0.03} {
		for metric, s := range r.Summary {
			if string(metric) == m && (s.Runs != len(runs) || s.WorstAbsError > most) {
				t.Errorf("%s: %+v, expected at most %v", m, s, most)
			}
		}
	}
}
