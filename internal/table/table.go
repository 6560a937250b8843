// Package table writes and reads files of rows with typed columns. The extension of the file name selects the
// format: .csv, .jsonl (one JSON object per line), .parquet or .arrow (Arrow IPC file). Text files to read may be
// compressed by gzip (.csv.gz, .jsonl.gz). The caller hands in what reads and writes Parquet and Arrow files ([Files]),
// because their libraries are most of a program. A caller lists its [Column] values, each with a pointer to the cell of
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
//	r, err := table.Open(ctx, "t.parquet", columns, table.Options{})
//	defer r.Close()
//	for err = r.Read(); err == nil; err = r.Read() { ... } // io.EOF at the end
//
// The same rows give the same bytes. Both directions stream. Files may be damaged or malicious: every length, count
// or position in a file is checked before it determines memory or time. Errors name the file, the line (in Parquet
// and Arrow files the row, from 1), the column and the expected value.
package table

import (
	"bufio"
	"context"
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
	"unicode"
	"unicode/utf8"

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
	Files    Files
}

// Files are the files that a program can read and write, as in trace.Files. New files are always the operating
// system's.
type Files struct {
	FS     fs.FS                              // the files to read; nil: those of the operating system
	Binary interface{ Extensions() []string } // a [Binary]; nil: text formats only
}

// Binary reads and writes binary formats. Its functions may panic where a file is damaged.
type Binary interface {
	Extensions() []string
	// NewEncoder begins a file of the format with the given extension. Arrow files are written to f, others to out.
	NewEncoder(ext string, f io.WriteSeeker, out *bufio.Writer, columns []Column, meta [][2]string) (Encoder, error)
	NewDecoder(ext string, src *Source, path string, columns []Column, strict bool) (Decoder, error)
	// Columns and Scan implement [ParquetColumns] and [ScanParquet].
	Columns(src *Source) (names []string, err error)
	Scan(src *Source, visit func(i int64, names, values []string) error) error
}

var errNoBinary = errors.New("this program does not read or write Parquet and Arrow files (package lorasim/trace/columnar does), expected .csv or .jsonl")

// binary returns the binary formats.
func (f Files) binary() (Binary, error) {
	if b, ok := f.Binary.(Binary); ok {
		return b, nil
	}
	return nil, errNoBinary
}

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

// An Encoder writes rows in one format.
type Encoder interface {
	Write() error // the row that the columns point to
	Close() error // what is held back, and the end of the file
}

// NewEncoder begins a file in one of the formats. Arrow files are written to f
// itself, others through out.
func NewEncoder(ext string, f io.WriteSeeker, out *bufio.Writer, columns []Column, o Options) (Encoder, error) {
	if isText(ext) {
		return newTextEncoder(out, ext == ".jsonl", columns)
	}
	b, err := o.Files.binary()
	if err != nil {
		return nil, err
	}
	return b.NewEncoder(ext, f, out, columns, o.Meta)
}

func isText(ext string) bool { return ext == ".csv" || ext == ".jsonl" }

// A Writer writes a file. It is not safe for concurrent use.
type Writer struct {
	path string
	file *atomicfile.File
	out  *bufio.Writer
	enc  Encoder
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
	if w.enc, err = NewEncoder(ext, f, w.out, columns, o); err != nil {
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
	if err := w.enc.Write(); err != nil {
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
	err := w.enc.Close()
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

// A Decoder reads rows in one format. Its methods may panic where a file is damaged.
type Decoder interface {
	Read() error          // fills the cells; io.EOF after the last row
	Rows() (int64, error) // of the whole file; -1: not known
	Meta() [][2]string
	Bad(column string, err error) error // names the place of the row at hand
}

// A Reader reads a file. It is not safe for concurrent use.
type Reader struct {
	dec  Decoder
	text *textDecoder // dec, if it is one
	file io.Closer
}

// Open opens a file for reading.
func Open(ctx context.Context, path string, columns []Column, o Options) (*Reader, error) {
	if ext := formatOf(strings.TrimSuffix(path, ".gz")); isText(ext) {
		return openText(ctx, path, ext == ".jsonl", columns, o)
	}
	if !slices.Contains(Extensions(), formatOf(path)) {
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			return nil, fmt.Errorf("%s: is a folder, expected a file", path)
		}
		return nil, unknownFormat(path)
	}
	b, src, err := o.Files.open(path)
	if errors.Is(err, errNoBinary) {
		err = fmt.Errorf("%s: %w", path, err)
	}
	if err != nil {
		return nil, err
	}
	src.progress = o.Progress
	r := &Reader{file: src}
	err = Guard(func() (err error) {
		r.dec, err = b.NewDecoder(formatOf(path), src, path, columns, o.Strict)
		return err
	})
	if err != nil {
		src.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	src.read = 0 // opening reads the end of the file first
	return r, nil
}

// open opens a file of a binary format.
func (f Files) open(path string) (Binary, *Source, error) {
	b, err := f.binary()
	if err != nil {
		return nil, nil, err
	}
	file, size, err := textfile.OpenFileIn(f.FS, path)
	if err != nil {
		return nil, nil, err
	}
	return b, &Source{SectionReader: io.NewSectionReader(file, 0, size), path: path, file: file}, nil
}

// Meta returns the metadata of a Parquet or Arrow file as pairs of key and value; none for text formats.
func (r *Reader) Meta() [][2]string { return r.dec.Meta() }

// Rows returns the number of rows according to the file, -1 in text formats. A damaged file may hold a wrong number,
// but not one that the file size rules out.
func (r *Reader) Rows() (int64, error) {
	var n int64
	err := Guard(func() (err error) { n, err = r.dec.Rows(); return err })
	if src, ok := r.file.(*Source); ok {
		src.read = 0
		if err == nil && (n < 0 || n > src.Size()*1024) {
			err = fmt.Errorf("states %d rows, more than its %d bytes can hold", n, src.Size())
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", src.path, err)
		}
	}
	return n, err
}

// Read fills the cells with the next row, or returns io.EOF after the last one.
func (r *Reader) Read() (err error) {
	if r.text != nil { // what follows would take a tenth of the time
		return r.text.Read()
	}
	defer func() {
		if p := recover(); p != nil {
			err = r.dec.Bad("", damaged(p))
		}
	}()
	return r.dec.Read()
}

// Bad returns the error of a fault in the row last read; column may be empty.
func (r *Reader) Bad(column string, err error) error { return r.dec.Bad(column, err) }

// Close closes the file.
func (r *Reader) Close() error { return r.file.Close() }

// Guard calls f and returns its error. It turns a panic of a library, caused by a damaged file, into an error.
func Guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = damaged(p)
		}
	}()
	return f()
}

func damaged(p any) error { return fmt.Errorf("damaged file: %v", p) }

// A Source is an open file of a binary format. ReadAt counts the bytes read; the embedded reader does not.
type Source struct {
	*io.SectionReader
	path     string
	file     io.Closer
	read     int64
	progress func(int64) error
}

// ReadAt implements io.ReaderAt.
func (s *Source) ReadAt(p []byte, at int64) (int, error) {
	n, err := s.SectionReader.ReadAt(p, at)
	if s.progress != nil {
		s.read += int64(n)
		if stop := s.progress(s.read); stop != nil {
			return 0, stop
		}
	}
	return n, err
}

// Close closes the file.
func (s *Source) Close() error { return s.file.Close() }

// Bind returns the index of each column among the names in a file, or -1.
func Bind(columns []Column, names []string, strict bool) ([]int, error) {
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
		if !areText(names) {
			return nil, errors.New("the file is not text, expected CSV with the names of the columns in its first line")
		}
		return nil, fmt.Errorf("no column %s; the file has %s", strings.Join(missing, ", "),
			suggest.Clip(strings.Join(names, ",")))
	}
	return index, nil
}

// areText reports whether names of columns are UTF-8 without control characters.
func areText(names []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool {
		return !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl)
	})
}

func unknown(what, name string, columns []Column) error {
	var known []string
	for _, c := range columns {
		known = append(known, c.Name)
	}
	return suggest.Unknown(what, name, known)
}

var errNull = errors.New("is null, expected a value")

// Null sets the cell to absent.
func (c *Column) Null() error {
	if !c.MayLack() {
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

// SetInt puts a whole number into the cell.
func (c *Column) SetInt(x int64) error {
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

// MayLack reports whether values of the column may be absent.
func (c *Column) MayLack() bool {
	switch c.Value.(type) {
	case *float64:
		return c.Nullable
	case *[]float64:
		return true
	}
	return false
}

// Texts interns short repeated texts, so that reading them takes no memory.
type Texts map[string]string

// Of returns a text as a string.
func (t Texts) Of(b []byte) string {
	if s, ok := t[string(b)]; ok {
		return s
	}
	s := string(b)
	if len(t) < 1<<12 && len(s) < 1<<8 {
		t[s] = s
	}
	return s
}
