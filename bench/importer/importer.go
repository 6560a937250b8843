// Package importer reads what the reference benchmark and its relatives leave
// behind, logs with result blocks and the JSON of sglang, vLLM, AIPerf and
// GuideLLM, as results, so that measured runs can be compared with simulated ones.
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
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"lorasim/bench/result"
)

// Imported is one run found in a file.
type Imported struct {
	*result.Result
	Context
	File string
	Line int // of the block's title, or of the JSON object
	// Layout is the layout of the block; "" for JSON.
	Layout result.Layout
	// Rows are the rows of the block in the order found; nil for JSON.
	Rows []Row
	// Truncated: the block has no end.
	Truncated bool

	// These are of JSON files.
	Models   []string // that requests named
	Strategy string   // by which they were sent, in the client's words
	Notes    []string // on what the client counts in a way of its own
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

// Row is one row of a block.
type Row struct {
	result.Row
	Text    string // the line as found, without its end
	Unknown bool   // no layout has it; Kind and Metric mean nothing
	// Verbatim: the text is printed again as it is, because the row is unknown
	// or its value would not print like it.
	Verbatim bool
	// Trimmed: the log lost the spaces at the end of the line.
	Trimmed bool
}

// Warning is something in a file that was not understood, or kept as it is.
type Warning struct {
	File string
	Line int
	Text string
}

func (w Warning) String() string { return fmt.Sprintf("%s:%d: %s", w.File, w.Line, w.Text) }

// Files reads files one after the other. A file without a result is an error.
func Files(paths []string) ([]*Imported, []Warning, error) {
	var runs []*Imported
	var warnings []Warning
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return nil, nil, err
		}
		rs, ws, err := Read(f, path)
		f.Close()
		if err != nil {
			return nil, nil, err
		}
		runs, warnings = append(runs, rs...), append(warnings, ws...)
	}
	return runs, warnings, nil
}

// Read reads a log, or JSON if the first character is {. name is the name of the
// file for messages. Lines that are not understood give warnings; an error is a
// failure to read, JSON of another kind, or a file without any result.
func Read(r io.Reader, name string) ([]*Imported, []Warning, error) {
	in := bufio.NewReaderSize(r, 1<<16)
	var runs []*Imported
	var warnings []Warning
	var err error
	if startsWithBrace(in) {
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

// startsWithBrace says whether the first character, white space aside, is {.
func startsWithBrace(in *bufio.Reader) bool {
	head, _ := in.Peek(1 << 10) // an error comes again when reading
	head = bytes.TrimPrefix(head, []byte("\xef\xbb\xbf"))
	return bytes.HasPrefix(bytes.TrimLeft(head, " \t\r\n"), []byte("{"))
}

// Print prints the block again as it was found, with values from the result; a
// run from JSON prints in the current layout, and below it what else is to be
// said.
func (m *Imported) Print(w io.Writer) error {
	var b bytes.Buffer
	if m.Rows == nil {
		if err := m.WriteBlock(&b, result.SGLang); err != nil {
			return err
		}
		for _, line := range append(m.percentiles(), m.remarks()...) {
			b.WriteString("note: " + line + "\n")
		}
		_, err := w.Write(b.Bytes())
		return err
	}
	b.WriteString("\n" + result.BlockStart() + "\n")
	for _, row := range m.Rows {
		text := row.Text
		if !row.Verbatim {
			value, _ := m.Value(row.Row)
			text = result.FormatRow(row.Row, value)
		}
		if row.Trimmed {
			text = strings.TrimRight(text, " ")
		}
		b.WriteString(text + "\n")
	}
	if !m.Truncated {
		b.WriteString(result.BlockEnd() + "\n")
	}
	_, err := w.Write(b.Bytes())
	return err
}

// maxLine bounds a line of a log; the longest known are argument lists of a few
// kilobytes.
const maxLine = 1 << 20

// lineReader splits a log into lines at \n and at \r, by which progress bars
// overwrite themselves.
type lineReader struct {
	s      *bufio.Scanner
	name   string
	number int  // of the line of the last piece
	ended  bool // the last piece ended the line
}

func newLineReader(r io.Reader, name string) *lineReader {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, 1<<16), maxLine)
	s.Split(func(data []byte, atEOF bool) (int, []byte, error) {
		if i := bytes.IndexAny(data, "\r\n"); i >= 0 {
			return i + 1, data[:i+1], nil
		}
		if atEOF && len(data) > 0 {
			return len(data), data, nil
		}
		return 0, nil, nil
	})
	return &lineReader{s: s, name: name, ended: true}
}

// next returns the next piece without its end, or io.EOF.
func (l *lineReader) next() (string, error) {
	if l.ended {
		l.number++
		l.ended = false
	}
	if !l.s.Scan() {
		switch err := l.s.Err(); {
		case err == nil:
			return "", io.EOF
		case errors.Is(err, bufio.ErrTooLong):
			return "", fmt.Errorf("%s:%d: the line is longer than %d bytes: expected a text file", l.name, l.number, maxLine)
		default:
			return "", fmt.Errorf("%s:%d: %w", l.name, l.number, err)
		}
	}
	text := l.s.Text()
	l.ended = strings.HasSuffix(text, "\n")
	return strings.TrimRight(text, "\r\n"), nil
}
