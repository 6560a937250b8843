package replay

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"lorasim/internal/shareddata"
	"lorasim/trace"
	"lorasim/trace/azure"
)

// goldenCase is one run of the reference generator. Gaps are times since the
// request before.
type goldenCase struct {
	Params struct {
		TraceName    azure.Format `json:"trace_name"`
		StartTime    string       `json:"start_time"`
		EndTime      string       `json:"end_time"`
		NeedSort     bool         `json:"need_sort"`
		NumModels    int          `json:"num_models"`
		NumReqs      int          `json:"num_reqs"`
		Distribution string       `json:"arrival_distribution"`
		Interval     int          `json:"interval_minutes"`
		TotRate      float64      `json:"tot_rate"`
		CV           float64      `json:"cv"`
		MapStride    int          `json:"map_stride"`
	}
	NumFunctions   int              `json:"num_functions"`
	FunctionNames  []int            `json:"function_names"` // ranks in lexicographic order
	ModelFunctions map[string]int   `json:"model_functions"`
	Histograms     map[int][]int64  `json:"histograms"` // of the adapters with functions
	Counts         []int            `json:"per_model_counts"`
	NumWorkload    int              `json:"num_workload"`
	ModelHash      string           `json:"model_sequence_sha256_le_int32"`
	SequenceHash   string           `json:"sequence_sha256_le_int32_float64"` // adapters and gaps
	First          [][2]json.Number `json:"first"`                            // adapter, gap
	Last           [][2]json.Number `json:"last"`
	LastArrival    float64          `json:"last_arrival"`
	Error          *struct{ Type, Message string }
}

func instant(text string) azure.Instant {
	i, err := azure.ParseInstant(text)
	if err != nil {
		panic(err)
	}
	return i
}

func (c *goldenCase) config(dir string) DLoRA {
	p := c.Params
	return DLoRA{Trace: p.TraceName, Path: dir, Start: instant(p.StartTime), End: instant(p.EndTime),
		NeedSort:     p.NeedSort,
		Requests:     p.NumReqs,
		Distribution: p.Distribution, Interval: p.Interval, TotalRate: p.TotRate, CV: p.CV, MapStride: p.MapStride}
}

// histogram returns the golden histogram with a row for every adapter.
func (c *goldenCase) histogram() [][]int64 {
	h := make([][]int64, c.Params.NumModels)
	for k := range h {
		h[k] = c.Histograms[k]
		if h[k] == nil {
			h[k] = make([]int64, len(c.Histograms[0]))
		}
	}
	return h
}

func readGolden(t *testing.T, path string) map[string]*goldenCase {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Cases map[string]*goldenCase }
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Cases) == 0 {
		t.Fatalf("%s holds no cases", path)
	}
	return file.Cases
}

const timeTolerance = 1e-9 // relative

func checkSequence(t *testing.T, c *goldenCase, src trace.Source, s *Summary) {
	t.Helper()
	if src.Len() != int64(c.NumWorkload) {
		t.Errorf("%d requests announced, expected %d", src.Len(), c.NumWorkload)
	}
	w, err := trace.Collect(src)
	if err != nil {
		t.Fatal(err)
	}
	if len(w.Requests) != c.NumWorkload {
		t.Fatalf("%d requests, expected %d", len(w.Requests), c.NumWorkload)
	}
	models, sequence := sha256.New(), sha256.New()
	gaps := make([]float64, len(w.Requests))
	before := 0.0
	for i, r := range w.Requests {
		gaps[i], before = r.Arrival-before, r.Arrival
		model := binary.LittleEndian.AppendUint32(nil, uint32(r.Adapter))
		models.Write(model)
		sequence.Write(binary.LittleEndian.AppendUint64(model, math.Float64bits(gaps[i])))
		if r.ID != int64(i) {
			t.Fatalf("request %d has ID %d", i, r.ID)
		}
	}
	if got := hex.EncodeToString(models.Sum(nil)); got != c.ModelHash {
		t.Errorf("hash of the adapters is %s, expected %s", got, c.ModelHash)
	}
	// With CV > 1 gaps take powers, which are not those of the C library to the
	// last bit; the others are.
	if got := hex.EncodeToString(sequence.Sum(nil)); c.Params.CV <= 1 && got != c.SequenceHash {
		t.Errorf("hash of the sequence is %s, expected %s", got, c.SequenceHash)
	}
	// A gap is a difference of two times, so its error is relative to those.
	check := func(what string, at int, want [2]json.Number) {
		adapter, _ := want[0].Int64()
		gap, _ := want[1].Float64()
		if r := w.Requests[at]; int64(r.Adapter) != adapter || math.Abs(gaps[at]-gap) > timeTolerance*max(gap,
			r.Arrival*1e-3) {
			t.Errorf("%s: request %d is %d after %v s, expected %v after %v s", what, at, r.Adapter, gaps[at], adapter,
				gap)
		}
	}
	for i, want := range c.First {
		check("first", i, want)
	}
	for i, want := range c.Last {
		check("last", len(w.Requests)-len(c.Last)+i, want)
	}
	if !slices.Equal(s.Counts, c.Counts) {
		t.Errorf("counts %v, expected %v", s.Counts, c.Counts)
	}
	if math.Abs(s.LastArrival-c.LastArrival) > timeTolerance*c.LastArrival || s.LastArrival != before {
		t.Errorf("last arrival %v in the summary and %v in the source, expected %v", s.LastArrival, before,
			c.LastArrival)
	}
}

func TestDLoRAFromHistogram(t *testing.T) {
	for name, c := range readGolden(t, "testdata/dlora_histogram_golden.json") {
		t.Run(name, func(t *testing.T) {
			src, s, err := c.config("").ReplayHistogram(trace.Names(c.Params.NumModels, nil), c.histogram())
			if err != nil {
				t.Fatal(err)
			}
			checkSequence(t, c, src, s)
		})
	}
}

func TestDLoRAFromTrace(t *testing.T) {
	path := shareddata.Path(t, "golden/replay_golden.json")
	wantErrors := map[string]string{
		"err-v2-multiday":       "window 0.0.0 to 0.0.0",
		"err-v1-day1":           "invocations_per_function_md.anon.d02.csv",
		"err-v2-empty-interval": "interval 0 of the window (minutes 0 to 60 after its start) has no traffic",
	}
	for name, c := range readGolden(t, path) {
		t.Run(name, func(t *testing.T) {
			src, s, err := c.config(filepath.Dir(path)).Replay(t.Context(), trace.Names(c.Params.NumModels, nil))
			if c.Error != nil {
				if err == nil || wantErrors[name] == "" || !strings.Contains(err.Error(), wantErrors[name]) {
					t.Fatalf("error %v, expected one with %q where the reference raises %s", err, wantErrors[name],
						c.Error.Type)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.FunctionNames,
				lexicographicRanks(s.Functions, allOfTrace(t, c, filepath.Dir(path), s.Functions))); d != "" {
				t.Errorf("functions (-want +got):\n%s", d)
			}
			if len(s.Functions) != c.NumFunctions {
				t.Errorf("%d functions, expected %d", len(s.Functions), c.NumFunctions)
			}
			perAdapter := map[string]int{}
			for _, k := range s.AdapterOf {
				perAdapter[fmt.Sprint(k)]++
			}
			if d := cmp.Diff(c.ModelFunctions, perAdapter); d != "" {
				t.Errorf("functions per adapter (-want +got):\n%s", d)
			}
			if d := cmp.Diff(c.histogram(), s.Histogram); d != "" {
				t.Errorf("histogram (-want +got):\n%s", d)
			}
			checkSequence(t, c, src, s)
		})
	}
}

// lexicographicRanks returns the ranks of fs among the functions all.
func lexicographicRanks(fs, all []azure.Function) []int {
	sorted := slices.SortedFunc(slices.Values(all), azure.Function.Compare)
	ranks := make([]int, len(fs))
	for i, f := range fs {
		ranks[i], _ = slices.BinarySearchFunc(sorted, f, azure.Function.Compare)
	}
	return ranks
}

// allOfTrace returns the functions among which the golden file counts ranks:
// all of azure_v2, but only those with traffic of azure_v1.
func allOfTrace(t *testing.T, c *goldenCase, dir string, active []azure.Function) []azure.Function {
	if c.Params.TraceName == azure.V1 {
		return active
	}
	h, err := azure.ReadHistogram(t.Context(), dir, azure.Query{Format: azure.V2, Window: azure.Window{Start: 0,
		End: 1},
		Interval: 1}, azure.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return h.Functions
}

// TestDLoRARecordedRun repeats a run whose counts and last arrival were
// printed by a serving benchmark, to the last digit.
func TestDLoRARecordedRun(t *testing.T) {
	d := DLoRA{Requests: 1000, Distribution: "gamma", Interval: 60, TotalRate: 4, CV: 1}
	src, s, err := d.ReplayHistogram(trace.Names(4, nil), [][]int64{{111}, {159}, {58}, {291}})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(s.Counts); got != "[189 253 89 469]" {
		t.Errorf("counts %s", got)
	}
	if got := strconv.FormatFloat(s.LastArrival, 'g', -1, 64); got != "250.5046187369351" {
		t.Errorf("last arrival %s", got)
	}
	f, err := os.Open(shareddata.Path(t, "measured/seed_arrivals_stride1.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for i, row := range rows[1:] {
		r, err := src.Next()
		if err != nil {
			t.Fatal(err)
		}
		at, err := strconv.ParseFloat(row[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(r.Adapter) != row[2] || r.Arrival != at {
			t.Errorf("request %d: adapter %d at %v s, expected %s at %v s", i, r.Adapter, r.Arrival, row[2], at)
		}
	}
}
