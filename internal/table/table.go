// Package table writes and reads files of rows with typed columns. The extension of the file name selects the
// format: .csv, .jsonl (one JSON object per line), .parquet or .arrow (Arrow IPC file). Text files to read may be
// compressed by gzip (.csv.gz, .jsonl.gz). A caller lists its [Column] values, each with a pointer to the cell of
// the current row. A [Writer] writes rows and a [Reader] reads them:
//
//	var row struct {
//		id   int64
//		time float64
//	}
//	columns := []table.Column{{Name: "id", Value: &row.id}, {Name: "time_s", Value: &row.time}}
//
//	w, err := table.Create("t.parquet", columns, table.Options{})
//	defer w.Abort() // leaves nothing behind unless Close succeeded
//	row.id, row.time = 1, 0.5
//	err = w.Write()
//	err = w.Close()
//
//	r, err := table.Open("t.parquet", columns, table.Options{})
//	defer r.Close()
//	for err = r.Read(); err == nil; err = r.Read() { ... } // io.EOF at the end
//
// The same rows give the same bytes. Both directions stream. Files may be damaged or malicious: every length, count
// or position in a file is checked before it determines memory or time. Errors name the file, the line (in Parquet
// and Arrow files the row, from 1), the column and the expected value.
package table

import (
	"bufio"
	"encoding/binary"
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

	"lorasim/internal/atomicfile"
	"lorasim/internal/suggest"
	"lorasim/internal/textfile"
)

// A Column is one column of a file.
type Column struct {
	Name string
	// Value points to the cell of the current row and gives the column its type: *int64, *int32, *float64,
	// *string, *[]float64 (nil: absent; not in CSV), or *Raw to read text.
	Value    any
	Nullable bool // numbers of a *float64 may be absent, as NaN
	Optional bool // the column may be missing or a CSV field empty; the cell is then unchanged
	Decimal  bool // text formats write numbers of usual size without exponent
}

// Raw is a field of a text file as written, valid until the next row. A CSV field is without its quotes (see
// [Unquoted]); the value of a JSON string keeps them.
type Raw []byte

// Options are the options of Create and Open.
type Options struct {
	// Meta is the metadata of a Parquet or Arrow file to write: pairs of key and value. The keys must be
	// different.
	Meta [][2]string
	// Strict rejects files with columns that are not listed.
	Strict bool
	// Progress, if not nil, is called with the number of bytes read so far. If it returns an error, reading ends
	// with this error.
	Progress func(bytesRead int64) error
}

// batchRows is the number of rows of a written Arrow record batch or Parquet row group.
const batchRows = 1 << 16

// Extensions returns the file name extensions of all formats.
func Extensions() []string { return []string{".csv", ".jsonl", ".parquet", ".arrow"} }

func unknownFormat(path string) error {
	ext := filepath.Ext(path)
	if ext == "" {
		return fmt.Errorf("%s: no extension to tell the format, expected .csv, .jsonl, .parquet or .arrow", path)
	}
	return fmt.Errorf("%s: %w", path, suggest.Unknown("file format", ext, Extensions()))
}

func formatOf(path string) string { return strings.ToLower(filepath.Ext(path)) }

// encoder writes rows in one format.
type encoder interface {
	write() error // the row that the columns point to
	close() error // what is held back, and the end of the file
}

// newEncoder begins a file in one of the formats. Arrow files are written to f
// itself, others through out.
func newEncoder(ext string, f io.WriteSeeker, out *bufio.Writer, columns []Column, o Options) (encoder, error) {
	if ext == ".parquet" || ext == ".arrow" {
		return newBinaryEncoder(ext, f, out, columns, o)
	}
	return newTextEncoder(out, ext == ".jsonl", columns)
}

// A Writer writes a file. It is not safe for concurrent use.
type Writer struct {
	path string
	file *atomicfile.File
	out  *bufio.Writer
	enc  encoder
	done bool
}

// Create creates a file. It appears under its name only when Close succeeds.
func Create(path string, columns []Column, o Options) (*Writer, error) {
	ext := formatOf(path)
	if !slices.Contains(Extensions(), ext) {
		return nil, unknownFormat(path)
	}
	f, err := atomicfile.Create(path)
	if err != nil {
		return nil, err
	}
	w := &Writer{path: path, file: f, out: bufio.NewWriterSize(f, 1<<18)}
	if w.enc, err = newEncoder(ext, f, w.out, columns, o); err != nil {
		w.Abort()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return w, nil
}

// Write adds a row with the values that the columns point to.
func (w *Writer) Write() error {
	if w.done {
		return fs.ErrClosed
	}
	if err := w.enc.write(); err != nil {
		return fmt.Errorf("%s: %w", w.path, err)
	}
	return nil
}

// Close completes the file and gives it its name. After an error nothing is left behind.
func (w *Writer) Close() error {
	if w.done {
		return fs.ErrClosed
	}
	defer w.Abort()
	err := w.enc.close()
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

// Abort removes an unfinished file; after Close it does nothing.
func (w *Writer) Abort() {
	w.done = true
	w.file.Abort()
}

// decoder reads rows in one format. Its methods may panic where a file is damaged.
type decoder interface {
	read() error          // fills the cells; io.EOF after the last row
	rows() (int64, error) // of the whole file; -1: not known
	meta() [][2]string
	bad(column string, err error) error // names the place of the row at hand
}

// A Reader reads a file. It is not safe for concurrent use.
type Reader struct {
	dec  decoder
	text *textDecoder // dec, if it is one
	file io.Closer
}

// Open opens a file for reading.
func Open(path string, columns []Column, o Options) (*Reader, error) {
	switch ext := formatOf(strings.TrimSuffix(path, ".gz")); ext {
	case ".csv", ".jsonl":
		return openText(path, ext == ".jsonl", columns, o)
	}
	if !slices.Contains(Extensions(), formatOf(path)) {
		return nil, unknownFormat(path)
	}
	f, err := textfile.OpenFile(path)
	if err != nil {
		return nil, err
	}
	r, err := openBinary(&source{File: f.File, size: f.Size, progress: o.Progress}, path, columns, o)
	if err != nil {
		f.Close()
		return nil, err
	}
	return r, nil
}

// openBinary opens a Parquet or Arrow file.
func openBinary(src *source, path string, columns []Column, o Options) (*Reader, error) {
	r := &Reader{file: src}
	err := guard(func() (err error) {
		r.dec, err = newBinaryDecoder(src, path, columns, o.Strict)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	src.read = 0 // opening reads the end of the file first
	return r, nil
}

// Meta returns the metadata of a Parquet or Arrow file as pairs of key and value; none for text formats.
func (r *Reader) Meta() [][2]string { return r.dec.meta() }

// Rows returns the number of rows according to the file, -1 in text formats. A damaged file may hold a wrong number,
// but not one that the file size rules out.
func (r *Reader) Rows() (int64, error) {
	var n int64
	err := guard(func() (err error) { n, err = r.dec.rows(); return err })
	if src, ok := r.file.(*source); ok {
		src.read = 0
		if err == nil && (n < 0 || n > src.size*1024) {
			err = fmt.Errorf("states %d rows, more than its %d bytes can hold", n, src.size)
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", src.Name(), err)
		}
	}
	return n, err
}

// Read fills the cells with the next row, or returns io.EOF after the last one.
func (r *Reader) Read() (err error) {
	if r.text != nil { // what follows would take a tenth of the time
		return r.text.read()
	}
	defer func() {
		if p := recover(); p != nil {
			err = r.dec.bad("", damaged(p))
		}
	}()
	return r.dec.read()
}

// Bad returns the error of a fault in the row last read; column may be empty.
func (r *Reader) Bad(column string, err error) error { return r.dec.bad(column, err) }

// Close closes the file.
func (r *Reader) Close() error { return r.file.Close() }

// guard calls f and returns its error. It turns a panic of a library, caused by a damaged file, into an error.
func guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = damaged(p)
		}
	}()
	return f()
}

func damaged(p any) error { return fmt.Errorf("damaged file: %v", p) }

// source is a file that counts the bytes read.
type source struct {
	*os.File
	size, read int64
	progress   func(int64) error
}

func (s *source) ReadAt(p []byte, at int64) (int, error) {
	n, err := s.File.ReadAt(p, at)
	if s.progress != nil {
		s.read += int64(n)
		if stop := s.progress(s.read); stop != nil {
			return 0, stop
		}
	}
	return n, err
}

// bind returns the index of each column among the names in a file, or -1.
func bind(columns []Column, names []string, strict bool) ([]int, error) {
	var missing []string
	index := make([]int, len(columns))
	for i, c := range columns {
		at := slices.Index(names, c.Name)
		if index[i] = at; at < 0 && !c.Optional {
			missing = append(missing, strconv.Quote(c.Name))
		}
		if at >= 0 && slices.Contains(names[at+1:], c.Name) {
			return nil, fmt.Errorf("column %q appears twice", c.Name)
		}
	}
	for _, n := range names {
		if strict && !slices.ContainsFunc(columns, func(c Column) bool { return c.Name == n }) {
			return nil, unknown("column", n, columns)
		}
	}
	if missing != nil {
		return nil, fmt.Errorf("no column %s; the file has %s", strings.Join(missing, ", "),
			suggest.Clip(strings.Join(names, ",")))
	}
	return index, nil
}

func unknown(what, name string, columns []Column) error {
	var known []string
	for _, c := range columns {
		known = append(known, c.Name)
	}
	return suggest.Unknown(what, name, known)
}

var (
	errNull  = errors.New("is null, expected a value")
	errShort = errors.New("ends before the row group does")

	errDamaged = errors.New("damaged file: impossible length or count")
)

// readFooter reads the footer of a file. The file begins with the magic bytes, possibly followed by more, and ends
// with the footer, its length and the magic bytes. what is the name of the format with its article.
func readFooter(src io.ReaderAt, size int64, what, magic string, begin int64) ([]byte, error) {
	tail := make([]byte, 4+len(magic))
	room := size - begin - int64(len(tail))
	if room < 0 {
		return nil, fmt.Errorf("not %s file: too short", what)
	}
	if _, err := src.ReadAt(tail, size-int64(len(tail))); err != nil {
		return nil, err
	}
	if string(tail[4:]) != magic {
		return nil, fmt.Errorf("not %s file, or cut short: it does not end in %s", what, magic)
	}
	n := int64(binary.LittleEndian.Uint32(tail))
	if n > room {
		return nil, errDamaged
	}
	footer := make([]byte, n)
	_, err := src.ReadAt(footer, size-int64(len(tail))-n)
	return footer, err
}

// null sets the cell to absent.
func (c *Column) null() error {
	if !c.mayLack() {
		return errNull
	}
	switch p := c.Value.(type) {
	case *[]float64:
		*p = nil
	case *float64:
		*p = math.NaN()
	}
	return nil
}

// setInt puts a whole number into the cell.
func (c *Column) setInt(x int64) error {
	switch p := c.Value.(type) {
	case *int64:
		*p = x
	case *int32:
		if *p = int32(x); int64(*p) != x {
			return outOfRange(x)
		}
	}
	return nil
}

func outOfRange(x int64) error { return fmt.Errorf("%d is out of range, expected a 32-bit number", x) }

// mayLack reports whether values of the column may be absent.
func (c *Column) mayLack() bool {
	switch c.Value.(type) {
	case *float64:
		return c.Nullable
	case *[]float64:
		return true
	}
	return false
}

// texts interns short repeated texts, so that reading them takes no memory.
type texts map[string]string

func (t texts) of(b []byte) string {
	if s, ok := t[string(b)]; ok {
		return s
	}
	s := string(b)
	if len(t) < 1<<12 && len(s) < 1<<8 {
		t[s] = s
	}
	return s
}
