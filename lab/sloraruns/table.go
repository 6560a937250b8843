package main

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"lorasim/bench/fidelity/measured"
	"lorasim/internal/table"
)

// Systems of the table whose rules the scheduler slora has.
const (
	SLoRA      = "slora"
	SLoRAAbort = "slora-abort" // early abort
	SLoRALIFO  = "slora-lifo"  // last come, first served
)

// Figures are the compared figures: times in s, attainment and aborted as shares of the requests. TotalTime
// begins with the benchmark, a gap before the first request (run_exp in benchmarks/run_exp.py), and ends with
// the last answer.
type Figures struct {
	TotalTime  float64 `json:"total_time"`
	Latency    float64 `json:"avg_latency"`     // mean over the completed requests
	FirstToken float64 `json:"avg_first_token"` // mean TTFT of the completed requests
	Attainment float64 `json:"attainment"`      // share of requests with a first token within Objective
	Aborted    float64 `json:"aborted"`         // share of requests that the server gave up; NaN: unknown
}

// Objective is the TTFT below which a request is within the SLO, s.
const Objective = 6

// Run is one published run.
type Run struct {
	Line                                    int
	Use, Status, System, GPU, Setting, Mode string
	Model                                   string
	Ranks                                   []int // assigned to the adapters in turn
	KVTokens                                int64 // 0: unknown
	Adapters                                int   // 0: base model only
	Alpha, Rate, CV, Duration               float64
	Input, Output                           [2]int32 // range of tokens, [low, high)
	Measured                                Figures
}

// Read reads a table of runs. An error has the name, the line and the column.
func Read(in io.Reader, name string) (runs []Run, err error) {
	required := []string{"use", "status", "system", "gpu", "setting", "model", "ranks", "kv_tokens", "mode", "adapters",
		"alpha", "rate", "cv", "duration", "input", "output", "total_time", "avg_latency", "avg_first_token",
		"attainment"}
	err = table.ReadCSV(in, name, required, func(t *table.CSVRow) {
		r := Run{Line: t.Line, Use: t.Text("use"), Status: t.Text("status"), System: t.Text("system"),
			GPU: t.Text("gpu"), Setting: t.Text("setting"), Mode: t.Text("mode"), Model: t.Text("model")}
		if r.skipped() == "" {
			r.read(t)
		}
		runs = append(runs, r)
	})
	return runs, err
}

// read reads the columns of a row with a system that can be simulated.
func (r *Run) read(t *table.CSVRow) {
	for s := range strings.FieldsSeq(t.Text("ranks")) {
		rank, err := strconv.Atoi(s)
		if err != nil || rank < 1 || rank > 1024 {
			t.Fail("ranks", "%q, expected ranks from 1 to 1024", s)
		}
		r.Ranks = append(r.Ranks, rank)
	}
	if t.Has("kv_tokens") {
		r.KVTokens = int64(t.Count("kv_tokens", 1, 1e9))
	}
	r.Adapters = t.Count("adapters", 0, 1e6)
	r.Alpha, r.Rate, r.CV = t.Positive("alpha"), t.Positive("rate"), t.Positive("cv")
	r.Duration = t.Positive("duration")
	if n := r.Rate * r.Duration; !(n >= 1 && n <= 1e6) {
		t.Fail("rate", "%v requests/s for %v s, expected 1 to 10^6 requests", r.Rate, r.Duration)
	}
	r.Input, r.Output = span(t, "input"), span(t, "output")
	r.Measured = Figures{TotalTime: t.Positive("total_time"), Latency: t.Positive("avg_latency"),
		FirstToken: t.Positive("avg_first_token"), Attainment: t.Number("attainment"), Aborted: math.NaN()}
	if n := int(r.Rate * r.Duration); t.Has("aborted") {
		r.Measured.Aborted = float64(t.Count("aborted", 0, n)) / float64(max(n, 1))
	}
	if a := r.Measured.Attainment; !math.IsNaN(a) && (a < 0 || a > 1) {
		t.Fail("attainment", "%v, expected 0 to 1", a)
	}
}

// span reads a range of tokens such as 8-512.
func span(t *table.CSVRow, column string) (out [2]int32) {
	low, high, _ := strings.Cut(t.Text(column), "-")
	a, errA := strconv.ParseInt(low, 10, 32)
	b, errB := strconv.ParseInt(high, 10, 32)
	if errA != nil || errB != nil || a < 1 || b <= a || b > 1e6 {
		t.Fail(column, "%q, expected LOW-HIGH in tokens, 1 <= LOW < HIGH <= 10^6", t.Text(column))
		return out
	}
	return [2]int32{int32(a), int32(b)}
}

// skipped returns the reason why no profile can simulate a run, or "".
func (r *Run) skipped() string {
	switch {
	case !slices.Contains(Systems(), r.System):
		return "system " + r.System + " is not simulated"
	case r.Status != "paper":
		return "status " + r.Status
	case r.Mode != "synthetic":
		return "mode " + r.Mode + ": its requests were not published"
	case r.Setting == "":
		return "setting unknown"
	}
	return ""
}

// Choice selects runs of a table.
type Choice struct {
	Use    string // "": all
	System string // one of Systems
	GPU    string
	Model  string // model of the profile; begins with the model of the run
}

// Of returns the selected runs, and the number of skipped runs by reason. Runs of another use do
// not count.
func (c Choice) Of(runs []Run) (taken []Run, skipped Skipped) {
	skipped = Skipped{}
	for _, r := range runs {
		if c.Use != "" && r.Use != c.Use {
			continue
		}
		why := r.skipped()
		switch {
		case why != "":
		case r.System != c.System:
			why = "system " + r.System
		case r.GPU != c.GPU:
			why = "GPU " + r.GPU
		case !strings.HasPrefix(strings.ToLower(c.Model), r.Model):
			why = "model " + r.Model
		case r.KVTokens == 0:
			why = "size of the memory unknown"
		}
		if why != "" {
			skipped[why]++
			continue
		}
		taken = append(taken, r)
	}
	return taken, skipped
}

// Skipped counts skipped runs by reason.
type Skipped map[string]int

// Text returns the counts, one per line.
func (s Skipped) Text() string {
	var b strings.Builder
	for _, why := range slices.Sorted(maps.Keys(s)) {
		fmt.Fprintf(&b, "skipped: %d runs: %s\n", s[why], why)
	}
	return b.String()
}

// Uses returns the names of the uses of runs.
func Uses() []string { return []string{measured.Calibration, measured.Validation, measured.Held} }

// Systems returns the names of the systems whose runs are simulated.
func Systems() []string { return []string{SLoRA, SLoRAAbort, SLoRALIFO} }
