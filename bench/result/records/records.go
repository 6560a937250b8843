// Package records reads and writes files of per-request records, one row per
// request, in the format that the file's extension names: .parquet, .arrow
// (Arrow IPC file), .csv or .jsonl.
//
//	w, err := records.Create("run.parquet", workload.Adapters)
//	defer w.Abort()         // leaves nothing behind unless Close succeeded
//	err = w.Write(&request) // for each request
//	err = w.Close()
//
//	r, err := records.Open("run.parquet")
//	defer r.Close()
//	for err = r.Read(&request); err == nil; err = r.Read(&request) { ... }
//
// The columns are id, adapter (index, -1: base model), adapter_name, rank,
// arrival_s, sent_s, first_token_s, finish_s, prompt_tokens, output_tokens,
// requested_output_tokens, worker_first, worker_last (-1: none), migrations,
// cold_load_s, client_queue_s (sent - arrival), status, error, streamed (whether
// the client read replies as they came: yes, no, or nothing where that is not
// known) and, except in CSV, token_gaps_s. A time that never came is null, in CSV an empty field. The
// same records give the same bytes. Both directions hold only one batch of rows
// in memory.
package records

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"lorasim/internal/arrowfile"
	"lorasim/internal/atomicfile"
	"lorasim/internal/record"
	"lorasim/trace"
)

// encoder writes rows in one format.
type encoder interface {
	encode(*row) error
	finish() error
}

// decoder reads rows in one format; decode returns io.EOF after the last one.
// Its errors say where in the file they arose.
type decoder interface {
	decode(*row) error
}

// Extensions lists the file extensions of the formats.
func Extensions() []string { return []string{".parquet", ".arrow", ".csv", ".jsonl"} }

func unknownFormat(path string) error {
	return fmt.Errorf("%s: unknown format %q: expected a name that ends in %s",
		path, filepath.Ext(path), strings.Join(Extensions(), ", "))
}

// Writer writes a file of records. It is not safe for concurrent use.
type Writer struct {
	path     string
	file     *atomicfile.File
	out      *bufio.Writer
	enc      encoder
	adapters []trace.Adapter
	row      row
	done     bool
}

// Create begins a file of records; adapters give the names of column
// adapter_name. The file appears under its name only when Close succeeds.
func Create(path string, adapters []trace.Adapter) (*Writer, error) {
	f, err := atomicfile.Create(path)
	if err != nil {
		return nil, err
	}
	w := &Writer{path: path, file: f, out: bufio.NewWriterSize(f, 1<<16), adapters: adapters}
	switch strings.ToLower(filepath.Ext(path)) {
	case ".parquet":
		w.enc, err = newParquetEncoder(w.out)
	case ".arrow":
		w.enc, err = newArrowEncoder(f)
	case ".csv":
		w.enc = newCSVEncoder(w.out)
	case ".jsonl":
		w.enc = &jsonEncoder{w: w.out}
	default:
		err = unknownFormat(path)
	}
	if err != nil {
		w.Abort()
		return nil, err
	}
	return w, nil
}

// Write adds a record. Text is stored as valid UTF-8 with \n as the end of a
// line; a time or gap that is infinite, or a gap that is NaN, is an error.
func (w *Writer) Write(r *record.Request) error {
	if w.done {
		return fs.ErrClosed
	}
	w.row.set(r, w.adapters)
	if err := w.row.check(); err != nil {
		return fmt.Errorf("%s: request %d: %w", w.path, r.ID, err)
	}
	if err := w.enc.encode(&w.row); err != nil {
		return fmt.Errorf("%s: %w", w.path, err)
	}
	return nil
}

// Close completes the file and gives it its name. After an error nothing is
// left behind.
func (w *Writer) Close() error {
	if w.done {
		return fs.ErrClosed
	}
	defer w.Abort()
	err := w.enc.finish()
	if err == nil {
		err = w.out.Flush()
	}
	if err == nil {
		err = w.file.Commit()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", w.path, err)
	}
	return nil
}

// Abort drops an unfinished file; after Close it does nothing.
func (w *Writer) Abort() {
	w.done = true
	w.file.Abort()
}

// Reader reads a file of records. It is not safe for concurrent use.
type Reader struct {
	file  io.Closer
	dec   decoder
	row   row
	names map[int32]string
}

// Open begins to read a file of records.
func Open(path string) (*Reader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	dec, err := newDecoder(f, path)
	if err != nil {
		f.Close()
		return nil, err
	}
	return &Reader{file: f, dec: dec, names: map[int32]string{}}, nil
}

func newDecoder(f arrowfile.Source, path string) (dec decoder, err error) {
	switch strings.ToLower(filepath.Ext(path)) {
	case ".parquet":
		return newParquetDecoder(f, path)
	case ".arrow":
		return newArrowDecoder(f, path)
	case ".csv":
		return newCSVDecoder(f, path)
	case ".jsonl":
		return newJSONDecoder(f, path), nil
	}
	return nil, unknownFormat(path)
}

// guard calls f and names the file, and the row unless it is 0, in its error,
// also where the Arrow library panics.
func guard(name string, row int64, f func() error) error {
	err := arrowfile.Guard(f)
	switch {
	case err == nil || err == io.EOF:
		return err
	case row > 0:
		return fmt.Errorf("%s: row %d: %w", name, row, err)
	}
	return fmt.Errorf("%s: %w", name, err)
}

// Read fills in the next record, or returns io.EOF after the last one. Its Gaps
// are new for each record. Errors name the file, the row and the column.
func (r *Reader) Read(q *record.Request) error {
	r.row.reset()
	if err := r.dec.decode(&r.row); err != nil {
		return err
	}
	*q = r.row.Request
	q.Streamed = record.ParseStreaming(string(q.Streamed))
	if _, seen := r.names[q.Adapter]; !seen && r.row.adapterName != "" {
		r.names[q.Adapter] = strings.Clone(r.row.adapterName)
	}
	return nil
}

// Close ends the reading.
func (r *Reader) Close() error { return r.file.Close() }

// ReadAll reads a whole file: its records and the names of their adapters, by
// index.
func ReadAll(path string) ([]record.Request, map[int32]string, error) {
	r, err := Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer r.Close()
	var rs []record.Request
	for {
		var q record.Request
		err := r.Read(&q)
		if errors.Is(err, io.EOF) {
			return rs, r.names, nil
		}
		if err != nil {
			return nil, nil, err
		}
		rs = append(rs, q)
	}
}
