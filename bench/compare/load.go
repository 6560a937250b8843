package compare

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"lorasim/bench/importer"
	"lorasim/bench/result"
	"lorasim/bench/result/records"
	"lorasim/bench/sweep"
	"lorasim/internal/record"
)

// Run is one column of a comparison: a run, or several of them that differ in
// their seed alone.
type Run struct {
	Name   string // short, unique within a comparison: "A", "B", ...
	Source string // sim, live, log, records or sweep
	File   string
	Line   int    // in a log; 0: none
	What   string // what the run was, in a few words
	Notes  []string
	// Streamed says whether replies were read as they came; if not, TTFT is E2E.
	Streamed record.Streaming
	Asked    bool // output tokens are those asked for, not those that came
	// Results is one result for each seed; nil for a sweep.
	Results []*result.Result
	Seeds   []string

	completed []sweep.Completion   // one for each seed
	values    map[string][]float64 // by metric: one for each seed
	order     []string             // names of values, as first seen
}

// Value estimates a metric over the seeds of the run.
func (r *Run) Value(name string) sweep.Estimate { return sweep.Mean(r.values[name]) }

// Load reads runs from files of any kind: result files and JSON lines, logs of
// serving benchmarks (each block is a run), files of request records, and
// folders of sweeps (each combination of settings and policy is a run). Results
// that differ in their seed alone become one run. Warnings say what in a log was
// not understood.
func Load(paths []string) (runs []*Run, warnings []string, err error) {
	for _, p := range paths {
		var rs []*Run
		switch kind, err := kindOf(p); {
		case err != nil:
			return nil, nil, err
		case kind == sweepFolder:
			rs, err = loadSweep(p)
			if err != nil {
				return nil, nil, err
			}
		case kind == recordsFile:
			r, err := loadRecords(p)
			if err != nil {
				return nil, nil, err
			}
			rs = []*Run{r}
		default:
			var ws []importer.Warning
			if rs, ws, err = loadResults(p); err != nil {
				return nil, nil, err
			}
			for _, w := range ws {
				warnings = append(warnings, w.String())
			}
		}
		runs = append(runs, rs...)
	}
	runs = joinSeeds(runs)
	for i, r := range runs {
		r.Name = letter(i)
	}
	return runs, warnings, nil
}

type kind int

const (
	resultsFile kind = iota
	recordsFile
	sweepFolder
)

// kindOf looks at a path: records have their own endings, but that JSON lines
// may be records or results.
func kindOf(path string) (kind, error) {
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("%s does not exist, expected the folder of a sweep, or a file of results or records", path)
	}
	if err != nil {
		return 0, err
	}
	if st.IsDir() {
		if sweep.IsDir(path) {
			return sweepFolder, nil
		}
		return 0, fmt.Errorf("%s is a folder without a sweep", path)
	}
	switch strings.ToLower(filepath.Ext(path)) {
	case ".parquet", ".arrow", ".csv":
		return recordsFile, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	line, err := bufio.NewReaderSize(f, 1<<16).ReadSlice('\n')
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
		return 0, err
	}
	var row map[string]json.RawMessage
	if json.Unmarshal(bytes.TrimSpace(line), &row) == nil && row["arrival_s"] != nil && row["adapter"] != nil {
		return recordsFile, nil
	}
	return resultsFile, nil
}

// letter names columns as spreadsheets do: A, ..., Z, AA, ...
func letter(i int) string {
	if i < 26 {
		return string(rune('A' + i))
	}
	return letter(i/26-1) + letter(i%26)
}

func loadResults(path string) ([]*Run, []importer.Warning, error) {
	imported, warnings, err := importer.Files([]string{path})
	if err != nil {
		return nil, nil, err
	}
	var runs []*Run
	for _, m := range imported {
		r := fromResult(m.Result, path)
		if m.Rows != nil { // a block; one result in a JSON file needs no line
			r.Line = m.Line
		}
		what := []string{r.What, "", m.Who(" / "), m.Strategy}
		if m.SectionRate != "" && m.RequestRate == 0 {
			what[1] = "rate " + m.SectionRate
		}
		r.What = strings.Join(slices.DeleteFunc(what, func(s string) bool { return s == "" }), ", ")
		r.Notes = append(r.Notes, m.Notes...)
		if n := sentRate(m); n > 0 && math.Abs(n/float64(m.RequestRate)-1) > 0.1 {
			r.Notes = append(r.Notes, fmt.Sprintf("not the stated rate but the trace governed: %.2f requests/s were sent", n))
		}
		runs = append(runs, r)
	}
	return runs, warnings, nil
}

// sentRate is the rate at which the log says that requests were sent, where it
// also states another; 0: it does not tell.
func sentRate(m *importer.Imported) float64 {
	n := int64(0)
	for _, c := range m.ModelCounts {
		n += c
	}
	if n == 0 || m.LastArrival <= 0 || !(m.RequestRate > 0) || math.IsInf(float64(m.RequestRate), 0) {
		return 0
	}
	return float64(n) / m.LastArrival
}

// loadRecords derives the metrics of a file of request records.
func loadRecords(path string) (*Run, error) {
	rd, err := records.Open(path)
	if err != nil {
		return nil, err
	}
	defer rd.Close()
	c := result.NewCollector(result.Options{})
	gaps := false
	streamed := map[record.Streaming]bool{}
	for {
		var q record.Request
		err := rd.Read(&q)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		gaps = gaps || q.Gaps != nil
		if q.Status == record.OK && q.Streamed == record.StreamingUnknown && q.FirstToken < q.Finish {
			q.Streamed = record.Streamed // it saw its first token before the last
		}
		streamed[q.Streamed] = true
		c.Done(&q)
		c.AddGaps(&q)
	}
	meta := result.Meta{}
	if streamed[record.Streamed] != streamed[record.NotStreamed] {
		meta.Streamed = record.StreamingIf(streamed[record.Streamed])
	}
	res := c.Result(meta, nil)
	if !gaps { // the times of tokens are not known: absent, not zero
		var ms result.Metrics
		for m := range result.NumMetrics {
			if v, ok := res.Metrics.Get(m); ok && (m < result.MeanITL || m > result.MaxITL) && m != result.MaxOutputTokensPerS {
				ms.Set(m, v)
			}
		}
		res.Metrics = ms
	}
	r := fromResult(res, path)
	r.Source, r.What = "records", "request records"
	return r, nil
}

// maxSweepRuns is the number of combinations of a sweep that can stand side by
// side.
const maxSweepRuns = 26

func loadSweep(path string) ([]*Run, error) {
	d, err := sweep.Open(path)
	if err != nil {
		return nil, err
	}
	if n := len(d.Cells) / len(d.Seeds); n > maxSweepRuns {
		return nil, fmt.Errorf("%s: %d combinations of settings and policy, at most %d fit side by side; see lorasim sweep merge", path, n, maxSweepRuns)
	}
	var runs []*Run
	var last *Run
	for i := range d.Cells {
		c := &d.Cells[i]
		if i%len(d.Seeds) == 0 {
			var parts []string
			for k, a := range d.Axes {
				parts = append(parts, a.Leaf()+" "+c.Values[k])
			}
			last = &Run{Source: "sweep", File: path, What: strings.Join(append(parts, c.Policy), ", "), values: map[string][]float64{}}
			runs = append(runs, last)
		}
		r, err := d.ReadCell(c)
		if err != nil {
			return nil, fmt.Errorf("%s is not complete (see lorasim sweep status): %w", path, err)
		}
		last.add(r.Values)
		last.Seeds = append(last.Seeds, strconv.FormatUint(c.Seed, 10))
	}
	return runs, nil
}
