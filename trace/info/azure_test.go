package info

import (
	"encoding/csv"
	"math"
	"os"
	"strconv"
	"testing"
	"time"

	"lorasim/internal/shareddata"
	"lorasim/trace"
)

// readAzureLLM reads a file of the Azure LLM inference trace of 2023.
func readAzureLLM(t *testing.T, path string) *trace.Workload {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	w := &trace.Workload{}
	var start time.Time
	for i, row := range rows[1:] {
		at, err := time.Parse("2006-01-02 15:04:05.9999999", row[0])
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			start = at
		}
		prompt, _ := strconv.Atoi(row[1])
		output, _ := strconv.Atoi(row[2])
		w.Requests = append(w.Requests, trace.Request{
			ID: int64(i), Arrival: at.Sub(start).Seconds(), Adapter: trace.BaseModel,
			Prompt: int32(prompt), Output: int32(output)})
	}
	return w
}

// What others have measured on the public traces.
func TestAzureLLM(t *testing.T) {
	for _, test := range []struct {
		file                         string
		requests                     int64
		cv                           float64
		prompt, promptP50, promptP95 float64
		output, outputP50, outputP95 float64
	}{
		{"conv", 19366, 1.1, 1155, 1020, 4083, 211, 129, 451},
		{"code", 8819, 13, 2048, 1469, 7303, 28, 13, 90},
	} {
		s := summarize(t, readAzureLLM(t, shareddata.Path(t,
			"azure_llm_2023/AzureLLMInferenceTrace_"+test.file+".csv")), 0)
		if s.Requests != test.requests {
			t.Errorf("%s: %d requests, expected %d", test.file, s.Requests, test.requests)
		}
		near(t, "cv", s.CV, test.cv, 0.02*test.cv)
		for _, n := range []struct {
			what string
			got  Number
			want float64
		}{
			{"mean prompt", s.Prompt.Mean, test.prompt}, {"p50 prompt", s.Prompt.P50, test.promptP50},
			{"p95 prompt", s.Prompt.P95, test.promptP95},
			{"mean output", s.Output.Mean, test.output}, {"p50 output", s.Output.P50, test.outputP50},
			{"p95 output", s.Output.P95, test.outputP95},
		} {
			near(t, test.file+" "+n.what, Number(math.Round(float64(n.got))), n.want, 0)
		}
	}
}
