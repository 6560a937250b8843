// Package importer reads the output of benchmarks as results, to compare measured runs with
// simulated ones. It reads logs with result blocks, and the JSON of sglang, vLLM, AIPerf,
// GuideLLM, inference-perf and lorasim.
//
//	runs, warnings, err := importer.Files(ctx, []string{"bench.log", "out.jsonl"})
//	importer.WriteTable(os.Stdout, runs)
//	runs[0].Print(os.Stdout) // the block again, byte for byte
//
// A log may hold several blocks among progress bars, server output and headers of scripts.
// Metrics without a row are absent from the result. Other information on a run, such as
// the Namespace(...) line with its arguments, goes to the result's metadata and to Context.
package importer

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"lorasim/bench/result"
	"lorasim/internal/format"
	"lorasim/internal/textfile"
)

// An Imported is one run found in a file.
type Imported struct {
	*result.Result
	Context
	File string // name of the file
	Line int    // line of the block's title, or of the JSON object
	// Layout is the layout of the block; "" for JSON.
	Layout result.Layout
	// Block holds the rows of the block, unchanged.
	Block string
	// Truncated reports whether the block has no end.
	Truncated bool

	// The fields below are set for JSON files only.
	Models   []string // models of the requests
	Strategy string   // how requests were sent, in the client's terms
	Notes    []string // remarks, such as definitions that differ from the reference benchmark's

	seen map[string]bool // rows and titles of the block
}

// Context is information on a run beside its block. Zero values mean unknown.
type Context struct {
	Server, Client string  // names; for JSON, Client is the client with its version
	SectionRate    string  // from the header "# request rate = 2"
	InputTokens    int64   // planned prompt tokens, from "#Input tokens:"
	OutputTokens   int64   // planned output tokens, from "#Output tokens:"
	ModelCounts    []int64 // number of requests by adapter of a trace
	LastArrival    float64 // time of the last arrival of a trace, s
}

// Who returns the names of the server and the client, if known, with separator between
// them.
func (c *Context) Who(separator string) string { return joinKnown(separator, c.Server, c.Client) }

// A Warning describes text in a file that was not understood, or was kept unchanged.
type Warning struct {
	File string
	Line int
	Text string
}

// String returns the warning as FILE:LINE: TEXT.
func (w Warning) String() string { return fmt.Sprintf("%s:%d: %s", w.File, w.Line, w.Text) }

// maxFile is the largest size of a file, in bytes. It also limits endless files, such as
// pipes.
const maxFile = 1 << 30

// Files reads the files at paths with Read, in order. A file without a result is an error. fsys has the files; nil: the
// operating system.
func Files(ctx context.Context, fsys fs.FS, paths []string) ([]*Imported, []Warning, error) {
	var runs []*Imported
	var warnings []Warning
	for _, path := range paths {
		f, err := textfile.OpenInputIn(ctx, fsys, path)
		if err != nil {
			return nil, nil, err
		}
		rs, ws, err := Read(textfile.Limit(f, path, maxFile), path)
		if f.Close(); err != nil {
			return nil, nil, err
		}
		runs, warnings = append(runs, rs...), append(warnings, ws...)
	}
	return runs, warnings, nil
}

// Read reads the runs of a log, or of JSON if the first character is {. name is the file's
// name for messages. A line that is not understood gives a warning. A read failure,
// unknown JSON, or a file without a result is an error.
func Read(r io.Reader, name string) (runs []*Imported, warnings []Warning, err error) {
	in := bufio.NewReaderSize(r, 1<<16)
	head, _ := in.Peek(1 << 10) // an error is returned again by the next read
	if head = bytes.TrimPrefix(head, []byte("\xef\xbb\xbf")); bytes.HasPrefix(bytes.TrimLeft(head, " \t\r\n"),
		[]byte("{")) {
		runs, err = readJSON(in, name)
	} else {
		runs, warnings, err = readLog(in, name)
	}
	if err != nil {
		return nil, nil, err
	}
	if len(runs) == 0 {
		return nil, nil, fmt.Errorf("%s: no result found: expected a block that begins with %q, or JSON of a benchmark",
			name, result.BlockStart())
	}
	return runs, warnings, nil
}

// Print writes the block as it was found in the file. A run from JSON is written in the
// current layout, followed by notes.
func (m *Imported) Print(w io.Writer) error {
	var b bytes.Buffer
	switch {
	case m.Layout == "":
		if err := m.WriteBlock(&b, result.SGLang); err != nil {
			return err
		}
		for _, line := range append(m.percentiles(), m.remarks()...) {
			b.WriteString("note: " + line + "\n")
		}
	case m.Truncated:
		b.WriteString("\n" + result.BlockStart() + "\n" + m.Block)
	default:
		b.WriteString("\n" + result.BlockStart() + "\n" + m.Block + result.BlockEnd() + "\n")
	}
	_, err := b.WriteTo(w)
	return err
}

// WriteTable writes a table of runs, one per line. It omits columns without a value. For
// runs from JSON files, lines below the table list the missing metrics and the notes.
func WriteTable(w io.Writer, runs []*Imported) error {
	head := []string{"FILE", "LINE", "LAYOUT", "BACKEND", "RATE", "CONC"}
	metrics := []result.ID{result.Completed, result.Duration, result.MeanE2E, result.MedianE2E, result.MeanTTFT}
	rows := [][]string{append(head, "COMPLETED", "DURATION s", "MEAN E2E ms", "MEDIAN E2E ms", "MEAN TTFT ms", "NOTE")}
	for _, m := range runs {
		row := []string{filepath.Base(m.File), strconv.Itoa(m.Line), string(m.Layout), m.Backend,
			m.RequestRate.String(), ""}
		if m.Layout == "" {
			row[2] = "json"
		}
		if m.MaxConcurrency > 0 {
			row[5] = strconv.Itoa(m.MaxConcurrency)
		}
		for _, k := range metrics {
			text, _ := m.Value(result.Row{Metric: k})
			if !m.Metrics.Has(k) {
				text = ""
			}
			row = append(row, text)
		}
		row = append(row, m.note())
		for i := range row {
			row[i] = clip(row[i])
		}
		rows = append(rows, row)
	}
	for i := len(rows[0]) - 1; i >= 0; i-- {
		if !slices.ContainsFunc(rows[1:], func(row []string) bool { return row[i] != "" }) {
			for k := range rows {
				rows[k] = slices.Delete(rows[k], i, i+1)
			}
		}
	}
	if err := format.Table(w, rows); err != nil {
		return err
	}
	said := map[string]bool{}
	for _, m := range runs {
		for _, line := range m.remarks() {
			line = fmt.Sprintf("%s: %s\n", filepath.Base(m.File), line)
			if m.Layout != "" || said[line] {
				continue
			}
			said[line] = true
			if _, err := io.WriteString(w, line); err != nil {
				return err
			}
		}
	}
	return nil
}

// note returns a text that identifies a run within its file.
func (m *Imported) note() string {
	rate, cut := "", ""
	if m.SectionRate != "" {
		rate = "rate " + m.SectionRate
	}
	if m.Truncated {
		cut = "cut short"
	}
	return joinKnown(", ", m.Who("/"), m.Strategy, strings.Join(m.Models, " "), rate, cut)
}

// clip shortens text from a file to 60 characters.
func clip(s string) string { return format.Clip(s, 60) }

// joinKnown joins the non-empty texts.
func joinKnown(separator string, texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), separator)
}

// remarks returns a line with the metrics missing from the file, if any, and the notes.
func (m *Imported) remarks() []string {
	if miss := m.missing(); miss != "" {
		return append([]string{"not in the file: " + miss}, m.Notes...)
	}
	return m.Notes
}

var percentileKey = regexp.MustCompile(`^p([0-9.]+)_(e2e_latency|ttft|tpot|itl)_ms$`)

// percentiles returns the percentiles without a row in the block, a line per latency.
func (m *Imported) percentiles() (lines []string) {
	type percentile struct{ p, v float64 }
	by := map[string][]percentile{}
	for key, v := range m.Config {
		k := percentileKey.FindStringSubmatch(key)
		v, isNumber := v.(float64)
		if k == nil || !isNumber {
			continue
		}
		if p, err := strconv.ParseFloat(k[1], 64); err == nil && p != 50 {
			by[k[2]] = append(by[k[2]], percentile{p, v})
		}
	}
	for _, name := range []string{"e2e_latency", "ttft", "tpot", "itl"} {
		slices.SortFunc(by[name], func(a, b percentile) int { return cmp.Compare(a.p, b.p) })
		var parts []string
		for _, p := range by[name] {
			parts = append(parts, fmt.Sprintf("P%g %.2f", p.p, p.v))
		}
		if parts != nil {
			label := strings.ToUpper(strings.TrimSuffix(name, "_latency"))
			lines = append(lines, "further percentiles of "+label+" (ms): "+strings.Join(parts, ", "))
		}
	}
	return lines
}

// missing lists the rows of the block that the file lacks. A latency without any value is
// listed only by its name.
func (m *Imported) missing() string {
	optional := []result.ID{result.TotalInputTextTokens, result.TotalInputVisionTokens,
		result.TotalOutputTokensRetokenized, result.AcceptLength}
	var list []string
	none := false // the latency of the current rows has no value
	for _, row := range result.SGLang.Rows() {
		if row.Kind != result.MetricRow {
			none = false
			continue
		}
		label, _, _ := strings.Cut(strings.TrimSuffix(row.Label, ":"), " (")
		if isLatency(row.Metric) && !m.Metrics.Has(row.Metric) {
			none = true
			list = append(list, strings.TrimPrefix(label, "Mean "))
		}
		if !none && !m.Metrics.Has(row.Metric) && !slices.Contains(optional, row.Metric) {
			list = append(list, label)
		}
	}
	return strings.Join(list, ", ")
}
