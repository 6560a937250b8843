package store

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"lorasim/trace"
	"lorasim/trace/internal/textfile"
)

// required columns of CSV and JSONL, in the order in which they are written.
var required = []string{idColumn, arrivalColumn, adapterColumn, promptColumn, outputColumn}

// textColumns are all columns of CSV and JSONL.
var textColumns = append(required[:len(required):len(required)], maxNewColumn, rankColumn)

// textRow is one row of a CSV or JSONL file.
type textRow struct {
	trace.Request
	name  []byte // of the adapter, where named; empty: base model
	named bool   // the adapter is a name, not an index
	rank  int32  // -1: not stated
}

// textParser reads the next row of a file, or io.EOF.
type textParser func(*textRow) error

// textReader reads a CSV or JSONL file.
type textReader struct {
	file  *textfile.File
	parse textParser
	names *names
	check checker
	row   textRow
}

var _ Reader = (*textReader)(nil)

func openText(path string, o ReadOptions, newParser func(*textfile.File) (textParser, error)) (Reader, error) {
	n := &names{adapters: o.Adapters, fixed: o.Adapters != nil}
	if !n.fixed {
		if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() && !info.IsDir() {
			return nil, fmt.Errorf("%s: cannot be read twice to find its adapters; state them", path)
		}
		first, err := newTextReader(path, o, newParser, n)
		if err != nil {
			return nil, err
		}
		err = first.findAdapters()
		first.Close()
		if err != nil {
			return nil, err
		}
		n.fixed = true
	}
	n.start()
	return newTextReader(path, o, newParser, n)
}

func newTextReader(path string, o ReadOptions, newParser func(*textfile.File) (textParser, error), n *names) (*textReader, error) {
	file, err := textfile.Open(path, o.Progress)
	if err != nil {
		return nil, err
	}
	parse, err := newParser(file)
	if err != nil {
		file.Close()
		return nil, err
	}
	return &textReader{file: file, parse: parse, names: n, check: checker{adapters: len(n.adapters)}}, nil
}

func (t *textReader) findAdapters() error {
	for {
		if err := t.parse(&t.row); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := t.names.add(&t.row); err != nil {
			return t.file.Bad(adapterColumn, err)
		}
	}
}

func (t *textReader) Adapters() []trace.Adapter { return t.names.adapters }

func (t *textReader) Close() error { return t.file.Close() }

func (t *textReader) Next() (trace.Request, error) {
	err := t.parse(&t.row)
	if errors.Is(err, io.EOF) && t.check.n == 0 {
		return trace.Request{}, fmt.Errorf("%s: %w", t.file.Path(), errEmpty)
	}
	if err != nil {
		return trace.Request{}, err
	}
	if err := t.names.resolve(&t.row); err != nil {
		return trace.Request{}, t.file.Bad(adapterColumn, err)
	}
	if err := t.check.check(t.row.Request); err != nil {
		return trace.Request{}, t.file.Bad("", err)
	}
	return t.row.Request, nil
}

// appendSeconds writes the shortest decimal that reads back as x, without an
// exponent at usual sizes.
func appendSeconds(b []byte, x float64) []byte {
	if x == 0 || 1e-7 <= x && x < 1e15 {
		return strconv.AppendFloat(b, x, 'f', -1, 64)
	}
	return strconv.AppendFloat(b, x, 'e', -1, 64)
}

// textWriter writes CSV or JSONL.
type textWriter struct {
	w        *bufio.Writer
	adapters []trace.Adapter
	o        WriteOptions
	add      appendRow
	line     []byte
}

// appendRow appends the row of a request whose adapter has the given rank.
type appendRow func(b []byte, r trace.Request, rank int, o WriteOptions) []byte

func newTextWriter(w io.Writer, adapters []trace.Adapter, o WriteOptions, add appendRow) *textWriter {
	return &textWriter{w: bufio.NewWriterSize(w, 1<<20), adapters: adapters, o: o, add: add}
}

func (t *textWriter) write(r trace.Request) error {
	if r.MaxNew != 0 && r.MaxNew != r.Output && !t.o.MaxNew {
		return fmt.Errorf("%s is %d and output_tokens %d, but the file has no column for it: set WriteOptions.MaxNew",
			maxNewColumn, r.MaxNew, r.Output)
	}
	rank := 0
	if r.Adapter >= 0 {
		rank = t.adapters[r.Adapter].Rank
	}
	t.line = t.add(t.line[:0], r, rank, t.o)
	_, err := t.w.Write(t.line)
	return err
}

func (t *textWriter) close() error { return t.w.Flush() }
