package compare

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"lorasim/bench/result"
	"lorasim/bench/result/importer"
	"lorasim/bench/study/sweep"
	"lorasim/internal/textfile"
	"lorasim/trace"
)

// Load reads runs from files of any kind: result files and JSON lines, logs of serving benchmarks (one run per block),
// request records, and folders of sweeps (one run per combination of settings and policy). Results that differ only in
// their seed become one run. slo applies to requests in the files. The warnings state what Load could not read in a
// log.
func Load(ctx context.Context, files trace.Files, paths []string,
	slo result.SLO) (runs []*Run, warnings []string, err error) {
	for _, p := range paths {
		var rs []*Run
		kind, err := kindOf(p)
		switch {
		case err != nil:
		case kind == sweepFolder:
			rs, err = loadSweep(files, p)
		case kind == recordsFile:
			var left []string
			rs, left, err = loadRecords(ctx, files, p, slo)
			warnings = append(warnings, left...)
		default:
			var ws []importer.Warning
			rs, ws, err = loadResults(ctx, files, p, slo)
			for _, w := range ws {
				warnings = append(warnings, w.String())
			}
		}
		if err != nil {
			return nil, nil, err
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

// kindOf returns the kind of a file by its path. Request records have their own endings, except that JSON lines may be
// records or results.
func kindOf(path string) (kind, error) {
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return 0, err
	case sweep.IsDir(path):
		return sweepFolder, nil
	case st.IsDir():
		return 0, fmt.Errorf("%s is a folder without a sweep", path)
	case slices.Contains([]string{".parquet", ".arrow", ".csv"}, strings.ToLower(filepath.Ext(path))):
		return recordsFile, nil
	case !st.Mode().IsRegular():
		return resultsFile, nil // a pipe can be read only once
	}
	f, err := textfile.OpenFile(path)
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

func loadResults(ctx context.Context, files trace.Files, path string,
	slo result.SLO) ([]*Run, []importer.Warning, error) {
	imported, warnings, err := importer.Files(ctx, files, []string{path})
	if err != nil {
		return nil, nil, err
	}
	var runs []*Run
	for _, m := range imported {
		m.Result.CountGood(slo)
		r := FromResult("", m.Result)
		r.File = path
		if m.Layout != "" { // a block; one result in a JSON file needs no line
			r.Line = m.Line
		}
		rate := ""
		if m.SectionRate != "" && m.RequestRate == 0 {
			rate = "rate " + m.SectionRate
		}
		r.What = joinKnown(r.What, rate, m.Who(" / "), m.Strategy)
		r.Notes = append(r.Notes, m.Notes...)
		n := sentRate(m)
		if n > 0 {
			r.measured = n
		}
		if n > 0 && math.Abs(n/float64(m.RequestRate)-1) > 0.1 {
			r.Notes = append(r.Notes,
				fmt.Sprintf("the trace set the rate, not the stated rate: %.2f requests/s were sent", n))
		}
		runs = append(runs, r)
	}
	return runs, warnings, nil
}

func joinKnown(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), ", ")
}

// sentRate is the request rate that the log states as sent, if it also states another rate; 0: not stated.
func sentRate(m *importer.Imported) float64 {
	n := int64(0)
	for _, c := range m.ModelCounts {
		n += c
	}
	if m.LastArrival <= 0 || !(m.RequestRate > 0) || m.RequestRate == result.Unlimited() {
		return 0
	}
	return float64(n) / m.LastArrival
}

// loadRecords derives the metrics of a file of request records, and says which rows it left out.
func loadRecords(ctx context.Context, files trace.Files, path string,
	slo result.SLO) (runs []*Run, left []string, err error) {
	m, err := importer.Records(ctx, files, path, result.Options{SLO: slo})
	if err != nil {
		return nil, nil, err
	}
	r := FromResult("", m.Result)
	r.File = path
	r.Source, r.What = "records", "request records"
	return []*Run{r}, m.Left.Lines(), nil
}

// maxSweepRuns is the number of combinations of a sweep that can stand side by
// side.
const maxSweepRuns = 26

func loadSweep(files trace.Files, path string) (runs []*Run, err error) {
	d, err := sweep.Open(files, path)
	if err != nil {
		return nil, err
	}
	if n := len(d.Cells) / len(d.Seeds); n > maxSweepRuns {
		return nil, fmt.Errorf(
			"%s: %d combinations of settings and policy, at most %d fit side by side; see lorasim sweep merge", path, n,
			maxSweepRuns)
	}
	var last *Run
	for i := range d.Cells {
		c := &d.Cells[i]
		if i%len(d.Seeds) == 0 {
			var parts []string
			for k, a := range d.Axes {
				parts = append(parts, a.Leaf()+" "+c.Values[k])
			}
			last = FromValues("", nil, nil)
			last.Definitions = (&result.Result{Meta: result.Meta{Source: result.Sim}}).Definitions()
			last.File, last.What = path, strings.Join(append(parts, c.Policy), ", ")
			if sc, err := d.ScenarioOf(c); err == nil {
				last.warmup = sc.Warmup() != result.Warmup{}
				last.sampling, last.stated = sc.Sampling(), max(float64(sc.Meta(last.dataset).RequestRate), 0)
			}
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
