// Package importer reads the output of benchmarks as results, to compare measured runs with
// simulated ones. It reads logs with result blocks, the files of the benchmarks in the table clients, and lorasim's own
// results and per-request records.
//
//	runs, warnings, err := importer.Files(ctx, columnar.Files(), []string{"bench.log", "out.jsonl"})
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
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/text/encoding/unicode"

	"lorasim/bench/result"
	"lorasim/bench/result/records"
	"lorasim/internal/format"
	"lorasim/internal/textfile"
	"lorasim/trace"
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
	// Left lists the requests in the file that cannot be requests.
	Left records.LeftOut

	seen     map[string]bool // rows and titles of the block
	failures int64           // requests that failed, as the block states
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

// String returns the warning as FILE:LINE: TEXT, or TEXT alone if it names its place.
func (w Warning) String() string {
	if w.File == "" {
		return w.Text
	}
	return fmt.Sprintf("%s:%d: %s", w.File, w.Line, w.Text)
}

// maxFile is the largest size of a file, in bytes. It also limits endless files, such as
// pipes.
const maxFile = 1 << 30

// Files reads the runs of the files at paths, in order: text as Read does, which may be compressed, and files of
// request records. A file without a result is an error.
func Files(ctx context.Context, files trace.Files, paths []string) (runs []*Imported, warnings []Warning, err error) {
	for _, path := range paths {
		var rs []*Imported
		var ws []Warning
		if records.Has(ctx, files, path) {
			var m *Imported
			if m, err = Records(ctx, files, path, result.Options{KeepRecords: true}); err == nil {
				rs = []*Imported{m}
			}
		} else {
			rs, ws, err = readText(ctx, files, path)
		}
		if err != nil {
			return nil, nil, err
		}
		for _, m := range rs {
			for _, line := range m.Left.Lines() {
				ws = append(ws, Warning{Text: line})
			}
		}
		runs, warnings = append(runs, rs...), append(warnings, ws...)
	}
	return runs, warnings, nil
}

func readText(ctx context.Context, files trace.Files, path string) ([]*Imported, []Warning, error) {
	f, err := textfile.OpenText(ctx, files.FS, path, nil)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	return readResults(textfile.Limit(f, path, maxFile), path)
}

// readResults reads the runs of a text: JSON if it begins with an object or an array of objects, a table if it begins
// with the names of columns of a client, else a log. name is the file's name for messages. A line that is not
// understood gives a warning. A read failure, unknown JSON, or a file without a result is an error.
func readResults(r io.Reader, name string) (runs []*Imported, warnings []Warning, err error) {
	in := asUTF8(bufio.NewReaderSize(r, 1<<16))
	head, _ := in.Peek(1 << 12) // an error is returned again by the next read
	head = bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\xef\xbb\xbf")), " \t\r\n")
	switch {
	case in.Buffered() == 0:
		if _, err = in.ReadByte(); errors.Is(err, io.EOF) {
			err = errors.New("the file is empty")
		}
		err = fmt.Errorf("%s: %w", name, err)
	case jsonStart.Match(head):
		runs, err = readJSON(in, name)
	case isTable(head):
		runs, err = readTable(in, name)
	default:
		runs, warnings, err = readLog(in, name)
	}
	if err != nil {
		return nil, nil, err
	}
	if len(runs) == 0 {
		return nil, nil, fmt.Errorf("%s: no result found: expected a block that begins with %q, or a file of %s",
			name, result.BlockStart(), clientNames())
	}
	return runs, warnings, nil
}

// asUTF8 turns UTF-16 with a byte order mark, as PowerShell's > writes it, into UTF-8.
func asUTF8(in *bufio.Reader) *bufio.Reader {
	if mark, _ := in.Peek(2); string(mark) == "\xff\xfe" || string(mark) == "\xfe\xff" {
		decoder := unicode.UTF16(unicode.LittleEndian, unicode.UseBOM).NewDecoder()
		return bufio.NewReaderSize(decoder.Reader(in), 1<<16)
	}
	return in
}

// jsonStart matches the beginning of a JSON object, or of an array of objects or of nothing.
var jsonStart = regexp.MustCompile(`^(\[\s*)*(\{|\])`)

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
