package vllmruns

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"

	"lorasim/internal/suggest"
)

// Run is one measured hour: its set-up, and what was measured.
type Run struct {
	Line  int // in the table
	Use   string
	Name  string
	Model string
	Group string

	Slots   int       // max_loras
	MaxRank int       // max_lora_rank
	MaxSeqs int       // max_num_seqs
	Ranks   []int     // ranks that the adapters have in some order
	Rates   []float64 // requests/s of each adapter
	Window  float64   // s

	PoolPrompt, PoolOutput float64 // mean tokens of the prompts drawn beforehand; 0: unknown

	InRate, OutRate float64 // tokens/s of prompts and replies
	Waiting         float64 // mean requests that waited; NaN: unknown
	KVShare         float64 // mean share of the KV cache in use; NaN: unknown

	Measured  Values
	Completed float64 // requests; NaN: unknown
	Arrivals  float64 // as the authors recorded them; NaN: unknown
}

// Read reads a table of runs. Errors name the file, line and column.
func Read(path string) ([]Run, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return read(f, path)
}

func read(r io.Reader, name string) ([]Run, error) {
	t, err := newTable(r, name, runColumns...)
	if err != nil {
		return nil, err
	}
	var runs []Run
	for t.next() {
		runs = append(runs, t.run())
	}
	if t.err == nil && len(runs) == 0 {
		t.err = fmt.Errorf("%s: the table has no runs", name)
	}
	return runs, t.err
}

// runColumns are the columns that a table of runs must have.
var runColumns = []string{
	"use", "run", "model", "max_loras", "max_lora_rank", "rates", "adapter_rate_index", "window_s",
	"successful_requests", "in_tok_s", "out_tok_s", "ttft_mean_ms", "ttft_median_ms", "tpot_mean_ms", "itl_mean_ms",
}

// most bounds counts of a run, far beyond any server.
const most = 100_000

// run reads the row at hand.
func (t *table) run() Run {
	r := Run{
		Line: t.line, Use: t.text("use"), Name: t.text("run"), Model: t.text("model"), Group: t.text("group"),
		Slots: t.count("max_loras", 1), MaxRank: t.count("max_lora_rank", 1), MaxSeqs: 256,
		Window: t.positive("window_s"), Measured: Values{},
		Completed: t.number("successful_requests"), Arrivals: t.number("twin_arrivals"),
	}
	if t.text("max_num_seqs") != "" {
		r.MaxSeqs = t.count("max_num_seqs", 1)
	}
	for _, s := range strings.Fields(t.text("module_ranks")) {
		rank, err := strconv.Atoi(s)
		if err != nil || rank < 1 || rank > r.MaxRank {
			t.fail("module_ranks", fmt.Errorf("%q is not a rank from 1 to max_lora_rank (%d)", s, r.MaxRank))
		}
		r.Ranks = append(r.Ranks, rank)
	}
	r.Rates = t.rates()
	if n := t.number("pool_prompts"); n > 0 {
		r.PoolPrompt, r.PoolOutput = t.number("pool_input_tokens")/n, t.number("pool_output_tokens")/n
	}
	in, out := t.number("in_tok_s"), t.number("out_tok_s")
	r.InRate, r.OutRate, r.Waiting, r.KVShare = in, out, t.number("series_wait_mean"), t.number("series_kv_mean")
	for m, v := range map[Metric]float64{
		Throughput: in + out, TPOT: t.number("tpot_mean_ms"), ITL: t.number("itl_mean_ms"),
		TTFTMean: t.number("ttft_mean_ms"), TTFTMedian: t.number("ttft_median_ms"), Running: t.number("series_run_mean"),
	} {
		if v > 0 {
			r.Measured[m] = v
		}
	}
	return r
}

// rates are the rates of the adapters: one digit for each, an index into rates.
func (t *table) rates() []float64 {
	var levels []float64
	for _, s := range strings.Fields(t.text("rates")) {
		x, err := strconv.ParseFloat(s, 64)
		if err != nil || !(x >= 0 && x <= 1e6) {
			t.fail("rates", fmt.Errorf("%q is not a rate of 0 to 10^6 requests/s", s))
		}
		levels = append(levels, x)
	}
	index := t.text("adapter_rate_index")
	if len(index) == 0 || len(index) > most {
		t.fail("adapter_rate_index", fmt.Errorf("has %d digits, expected 1 to %d, one for each adapter", len(index), most))
		return nil
	}
	rates := make([]float64, len(index))
	for i, digit := range []byte(index) {
		k := int(digit) - '0'
		if k < 0 || k >= len(levels) {
			t.fail("adapter_rate_index", fmt.Errorf("digit %d is %q, expected an index into the %d rates", i+1, digit, len(levels)))
			return nil
		}
		rates[i] = levels[k]
	}
	return rates
}

// table reads a CSV file with a header by the names of its columns. The first
// error stays, and ends the reading.
type table struct {
	csv     *csv.Reader
	name    string
	columns map[string]int
	line    int
	row     []string
	err     error
}

func newTable(r io.Reader, name string, required ...string) (*table, error) {
	t := &table{csv: csv.NewReader(r), name: name, columns: map[string]int{}}
	t.csv.ReuseRecord = true
	header, err := t.csv.Read()
	if errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: empty, expected a header", name)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var known []string
	for i, h := range header {
		t.columns[h] = i
		known = append(known, strings.Clone(h))
	}
	for _, c := range required {
		if _, ok := t.columns[c]; !ok {
			return nil, fmt.Errorf("%s: column %q is missing: %w", name, c, suggest.Unknown("column", c, known))
		}
	}
	return t, nil
}

// next reads the next row; false at the end, or after an error.
func (t *table) next() bool {
	if t.err != nil {
		return false
	}
	row, err := t.csv.Read()
	if errors.Is(err, io.EOF) {
		return false
	}
	if err != nil {
		t.err = fmt.Errorf("%s: %w", t.name, err)
		return false
	}
	t.row = row
	t.line, _ = t.csv.FieldPos(0)
	return true
}

func (t *table) fail(column string, err error) {
	if t.err == nil {
		t.err = fmt.Errorf("%s:%d: %s: %w", t.name, t.line, column, err)
	}
}

// text is a field of the row, "" where the table has no such column.
func (t *table) text(column string) string {
	i, ok := t.columns[column]
	if !ok {
		return ""
	}
	return strings.Clone(strings.TrimSpace(t.row[i]))
}

// number is a field as a number; NaN where it is empty.
func (t *table) number(column string) float64 {
	s := t.text(column)
	if s == "" {
		return math.NaN()
	}
	x, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsInf(x, 0) {
		t.fail(column, fmt.Errorf("%q is not a number", s))
	}
	return x
}

func (t *table) positive(column string) float64 {
	x := t.number(column)
	if !(x > 0) {
		t.fail(column, fmt.Errorf("is %q, expected a number > 0", t.text(column)))
	}
	return x
}

// count is a whole number from low to most.
func (t *table) count(column string, low int) int {
	n, err := strconv.Atoi(t.text(column))
	if err != nil || n < low || n > most {
		t.fail(column, fmt.Errorf("is %q, expected a whole number from %d to %d", t.text(column), low, most))
	}
	return n
}
