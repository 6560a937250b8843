// Package importer reads the output of other benchmarks as results: logs with result blocks, and the JSON of
// sglang, vLLM, AIPerf and GuideLLM. So measured runs can be compared with simulated ones.
//
//	runs, warnings, err := importer.Files([]string{"bench.log", "out.jsonl"})
//	importer.WriteTable(os.Stdout, runs)
//	runs[0].Print(os.Stdout) // the block again, byte for byte
//
// A log may hold several blocks among progress bars, server output and the
// headers of whoever ran it. Metrics without a row are absent from the result.
// What a log tells of a run beside the block, such as the Namespace(...) line
// with its arguments, is kept in the result's metadata and in Context.
package importer

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"lorasim/bench/result"
	"lorasim/internal/format"
	"lorasim/internal/textfile"
)

// Imported is one run found in a file.
type Imported struct {
	*result.Result
	Context
	File string
	Line int // of the block's title, or of the JSON object
	// Layout is the layout of the block; "" for JSON.
	Layout result.Layout
	// Block are the rows of the block as found.
	Block string
	// Truncated: the block has no end.
	Truncated bool

	// These are of JSON files.
	Models   []string // that requests named
	Strategy string   // by which they were sent, in the client's words
	Notes    []string // on what the client counts in a way of its own

	seen map[string]bool // rows and titles of the block
}

// Context is what a log says of a run beside its block. Zero values are not
// known.
type Context struct {
	Server, Client string  // of the combination of server and client that ran, or the client and its version
	SectionRate    string  // as in the header "# request rate = 2"
	InputTokens    int64   // planned, from "#Input tokens:"
	OutputTokens   int64   // planned, from "#Output tokens:"
	ModelCounts    []int64 // requests for each adapter of a trace
	LastArrival    float64 // s, of a trace
}

// Who returns the names of the server and the client, as far as they are known.
func (c *Context) Who(separator string) string { return joinKnown(separator, c.Server, c.Client) }

// Warning is something in a file that was not understood, or kept as it is.
type Warning struct {
	File string
	Line int
	Text string
}

func (w Warning) String() string { return fmt.Sprintf("%s:%d: %s", w.File, w.Line, w.Text) }

// maxFile bounds a file, in bytes, and with it what one without end can take.
const maxFile = 1 << 30

// Files reads files one after the other. A file without a result is an error.
func Files(paths []string) ([]*Imported, []Warning, error) {
	var runs []*Imported
	var warnings []Warning
	for _, path := range paths {
		f, err := textfile.OpenInput(path)
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

// Read reads a log, or JSON if the first character is {. name is the name of the
// file for messages. Lines that are not understood give warnings; an error is a
// failure to read, JSON of another kind, or a file without any result.
func Read(r io.Reader, name string) (runs []*Imported, warnings []Warning, err error) {
	in := bufio.NewReaderSize(r, 1<<16)
	head, _ := in.Peek(1 << 10) // an error comes again when reading
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

// Print prints the block again as it was found; a run from JSON prints in the
// current layout, and below it what else is to be said.
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

// WriteTable lists runs, one per line, in aligned columns, those alone that some
// run has a value in; below it stands what JSON files do not tell.
func WriteTable(w io.Writer, runs []*Imported) error {
	head := []string{"FILE", "LINE", "LAYOUT", "BACKEND", "RATE", "CONC"}
	metrics := []result.Metric{result.Completed, result.Duration, result.MeanE2E, result.MedianE2E, result.MeanTTFT}
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

// note tells runs of one log apart.
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

// clip shortens text of a file for a line.
func clip(s string) string { return format.Clip(s, 60) }

// joinKnown joins the texts that are not empty.
func joinKnown(separator string, texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), separator)
}

// remarks are what the file does not tell, in one line, and what its client
// counts in another way.
func (m *Imported) remarks() []string {
	if miss := m.missing(); miss != "" {
		return append([]string{"not in the file: " + miss}, m.Notes...)
	}
	return m.Notes
}

var percentileKey = regexp.MustCompile(`^p([0-9.]+)_(e2e_latency|ttft|tpot|itl)_ms$`)

// percentiles lists those that the block has no row for, a line per latency.
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

// missing names the rows of the block that the file does not tell: a latency of
// which it tells nothing by its name alone.
func (m *Imported) missing() string {
	optional := []result.Metric{result.TotalInputTextTokens, result.TotalInputVisionTokens,
		result.TotalOutputTokensRetokenized, result.AcceptLength}
	var list []string
	none := false // of the latency whose rows these are
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
