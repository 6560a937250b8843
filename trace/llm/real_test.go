package llm_test

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"lorasim/internal/shareddata"
	"lorasim/trace"
	"lorasim/trace/llm"
)

// same compares two workloads, arrivals to 1e-9 s.
func same(t *testing.T, got, want []trace.Request) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d requests, expected %d", len(got), len(want))
	}
	for i := range want {
		g, w := got[i], want[i]
		if !(math.Abs(g.Arrival-w.Arrival) <= 1e-9) {
			t.Fatalf("request %d arrives at %v, expected %v", i, g.Arrival, w.Arrival)
		}
		g.Arrival, w.Arrival = 0, 0
		if g != w {
			t.Fatalf("request %d is %+v, expected %+v", i, g, w)
		}
	}
}

// TestAzure2023 reads the complete traces and compares every row with slow
// standard parsers.
func TestAzure2023(t *testing.T) {
	for name, rows := range map[string]int{"conv": 19366, "code": 8819} { // as published
		t.Run(name, func(t *testing.T) {
			path := shareddata.Path(t, "azure_llm_2023/AzureLLMInferenceTrace_"+name+".csv")
			got, stats, err := read(llm.AzureLLM, path, llm.Options{})
			if err != nil || stats.Bad != 0 {
				t.Fatal(err, stats)
			}
			file, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			lines, err := csv.NewReader(file).ReadAll()
			if err != nil {
				t.Fatal(err)
			}
			var want []trace.Request
			var first time.Time
			for i, line := range lines[1:] {
				at, err := time.Parse("2006-01-02 15:04:05.0000000", line[0])
				if err != nil {
					t.Fatal(err)
				}
				if i == 0 {
					first = at
				}
				prompt, _ := strconv.Atoi(line[1])
				output, _ := strconv.Atoi(line[2])
				want = append(want, request(int64(i), at.Sub(first).Seconds(), int32(prompt), int32(output)))
			}
			if len(want) != rows {
				t.Fatalf("%d rows in the file, expected %d", len(want), rows)
			}
			same(t, got, want)
		})
	}
}

func TestMooncakeConversation(t *testing.T) {
	path := shareddata.Path(t, "mooncake/conversation_trace.jsonl")
	got, _, err := read(llm.Mooncake, path, llm.Options{})
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var want []trace.Request
	for dec := json.NewDecoder(file); ; {
		var row struct {
			Timestamp float64 `json:"timestamp"`
			Input     int32   `json:"input_length"`
			Output    int32   `json:"output_length"`
			IDs       []int64 `json:"hash_ids"`
		}
		if err := dec.Decode(&row); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if ids := got[len(want)].Text.IDs(); !slices.Equal(ids, row.IDs) {
			t.Fatalf("request %d has the ids %v, expected %v", len(want), ids, row.IDs)
		}
		got[len(want)].Text = nil
		want = append(want, request(int64(len(want)), row.Timestamp/1000, row.Input, row.Output))
	}
	if len(want) != 12031 {
		t.Fatalf("%d rows in the file, expected 12031", len(want))
	}
	same(t, got, want)
}
