package validate

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"lorasim/internal/suggest"
)

// Run is one measured run: its set-up, and what was measured.
type Run struct {
	Line   int    // in the table
	Group  string // runs of one campaign
	Use    string // calibration: may be fitted; validation: only compared
	ID     string
	Policy string // policy spec of the router
	Trace  string

	Rate, CV   float64 // requests/s of all adapters, variation of the gaps
	Stride     int     // functions per block of the trace's mapping to adapters
	Requests   int
	Workers    int
	Adapters   int
	Ranks      []int // of the adapters; 0: not stated
	MaxLoras   int
	MaxRunning int

	Measured Values
	// Sent counts the requests that went to the first two workers; 0: unknown.
	Sent [2]int
}

// Uses of a run.
const (
	Calibration = "calibration"
	Validation  = "validation"
)

// column reads one field of a row into a run.
type column struct {
	name     string
	required bool
	read     func(r *Run, text string) error
}

func columns() []column {
	text := func(to func(*Run) *string) func(*Run, string) error {
		return func(r *Run, s string) error { *to(r) = s; return nil }
	}
	whole := func(to func(*Run) *int) func(*Run, string) error {
		return func(r *Run, s string) (err error) { *to(r), err = positiveInt(s); return err }
	}
	number := func(to func(*Run) *float64) func(*Run, string) error {
		return func(r *Run, s string) (err error) { *to(r), err = positive(s); return err }
	}
	measured := func(m Metric) func(*Run, string) error {
		return func(r *Run, s string) error {
			v, err := positive(s)
			if err == nil {
				r.Measured[m] = v
			}
			return err
		}
	}
	return []column{
		{"group", true, text(func(r *Run) *string { return &r.Group })},
		{"use", false, readUse},
		{"run_id", false, text(func(r *Run) *string { return &r.ID })},
		{"policy_file", true, func(r *Run, s string) error { return readPolicy(r, s, false) }},
		{"policy_actual", false, func(r *Run, s string) error { return readPolicy(r, s, true) }},
		{"trace", false, text(func(r *Run) *string { return &r.Trace })},
		{"total_rate", true, number(func(r *Run) *float64 { return &r.Rate })},
		{"cv", false, number(func(r *Run) *float64 { return &r.CV })},
		{"map_stride", true, whole(func(r *Run) *int { return &r.Stride })},
		{"num_prompts", true, whole(func(r *Run) *int { return &r.Requests })},
		{"num_instances", true, whole(func(r *Run) *int { return &r.Workers })},
		{"num_loras", true, whole(func(r *Run) *int { return &r.Adapters })},
		{"lora_ranks", false, func(r *Run, s string) error { r.Ranks = readRanks(s); return nil }},
		{"max_loras_per_batch", false, whole(func(r *Run) *int { return &r.MaxLoras })},
		{"max_running_requests", false, whole(func(r *Run) *int { return &r.MaxRunning })},
		{"duration_s", false, measured(Duration)},
		{"mean_e2e_ms", false, measured(MeanE2E)},
		{"median_e2e_ms", false, measured(MedianE2E)},
		{"p99_ttft_ms", false, measured(P99E2E)}, // clients that do not stream: TTFT = E2E
		{"inst0_requests", false, whole(func(r *Run) *int { return &r.Sent[0] })},
		{"inst1_requests", false, whole(func(r *Run) *int { return &r.Sent[1] })},
		{"p99_e2e_ms", false, measured(P99E2E)},
	}
}

// ReadRuns reads a table of measured runs: CSV with a header; columns that are
// not known are ignored, empty fields are unknown values. name is the file's
// name for errors, which give line and column.
func ReadRuns(in io.Reader, name string) ([]Run, error) {
	c := csv.NewReader(in)
	c.ReuseRecord = true
	header, err := c.Read()
	if errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: empty, expected a header line", name)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: expected CSV with a header line of measured runs: %w", name, err)
	}
	header = slices.Clone(header)
	header[0] = strings.TrimPrefix(header[0], "\ufeff")
	cols := columns()
	at := make([]int, len(cols))
	for i, col := range cols {
		at[i] = slices.Index(header, col.name)
		if at[i] < 0 && col.required {
			return nil, fmt.Errorf("%s:1: no column %q", name, col.name)
		}
	}
	var runs []Run
	for {
		row, err := c.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		line, _ := c.FieldPos(0)
		r := Run{Line: line, CV: 1, Measured: Values{}}
		for i, col := range cols {
			if at[i] < 0 {
				continue
			}
			text := strings.TrimSpace(row[at[i]])
			if text == "" {
				if col.required {
					return nil, fmt.Errorf("%s:%d: %s is empty", name, line, col.name)
				}
				continue
			}
			if err := col.read(&r, text); err != nil {
				return nil, fmt.Errorf("%s:%d: %s: %w", name, line, col.name, err)
			}
		}
		if len(r.Ranks) > r.Adapters {
			r.Ranks = r.Ranks[:r.Adapters]
		}
		runs = append(runs, r)
	}
	if len(runs) == 0 {
		return nil, fmt.Errorf("%s: no runs", name)
	}
	return runs, nil
}

func readUse(r *Run, s string) error {
	if s != Calibration && s != Validation {
		return suggest.Unknown("use", s, []string{Calibration, Validation})
	}
	r.Use = s
	return nil
}

// readPolicy turns a policy of the table into a spec of the router: policy_file
// is a name, policy_actual words that describe what was found to happen, which
// win where they are understood.
func readPolicy(r *Run, s string, words bool) error {
	s = strings.ToLower(s)
	for _, p := range []struct{ word, policy string }{
		{"static block", "static-block"}, {"static modulo", "static"},
		{"random", "random"}, {"least active", "least-loaded:ties=first"},
	} {
		if words && strings.Contains(s, p.word) {
			r.Policy = p.policy
			return nil
		}
	}
	switch {
	case words:
		return nil
	case s == "static":
		r.Policy = "static-block"
	case s == "least-loaded":
		r.Policy = "least-loaded:ties=first"
	default:
		r.Policy = s
	}
	return nil
}

// readRanks reads ranks such as 64|16|64|8 or 8x4|16x4; what is not a number is
// a rank that is not stated.
func readRanks(s string) []int {
	var ranks []int
	s = strings.TrimPrefix(s, "likely ")
	s, _, _ = strings.Cut(s, " ")
	for part := range strings.SplitSeq(s, "|") {
		rank, times, _ := strings.Cut(part, "x")
		n, err := strconv.Atoi(rank)
		if err != nil || n < 0 {
			n = 0
		}
		repeat, err := strconv.Atoi(times)
		if err != nil || repeat < 1 || repeat > maxAdapters {
			repeat = 1
		}
		for range repeat {
			ranks = append(ranks, n)
		}
	}
	return ranks
}

// Bounds of a run, so that a mistyped field does not fill the memory.
const (
	maxAdapters = 100_000
	maxCount    = 100_000_000
)

func positiveInt(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > maxCount {
		return 0, fmt.Errorf("%q, expected a whole number from 1 to %d", s, maxCount)
	}
	return n, nil
}

func positive(s string) (float64, error) {
	x, err := strconv.ParseFloat(s, 64)
	if err != nil || !(x > 0) || math.IsInf(x, 0) {
		return 0, fmt.Errorf("%q, expected a number > 0", s)
	}
	return x, nil
}
