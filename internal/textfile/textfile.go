// Package textfile reads text formats line by line: CSV rows by column name, flat JSON objects, and numbers without
// allocation. A [File] may be plain or compressed. [openInput] opens files and pipes that a user named. Errors name
// the file, line and column.
//
//	f, err := textfile.Open(ctx, "trace.csv.gz", nil)
//	defer f.Close()
//	table, err := f.Header()
//	arrival := slices.Index(table.Names(), "arrival_s")
//	for {
//		row, err := table.Row() // io.EOF at the end
//		x, err := textfile.Float(row[arrival])
//		if err != nil {
//			return f.Bad("arrival_s", err)
//		}
//	}
package textfile

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/nwaples/rardecode/v2"

	"lorasim/internal/suggest"
)

const bufferSize = 256 << 10

// MaxLine is the length limit of a line, bytes. It bounds the memory that a file without line ends can take.
const MaxLine = 64 << 20

// maxBlank is the limit of consecutive empty lines, which a reader skips. A pipe may send nothing else.
const maxBlank = 1 << 20

// A RowError is an error in one row. Other errors, such as a truncated file, end the reading.
type RowError struct {
	File   string
	Line   int    // from 1
	Column string // name of the column or key; "": the row as a whole
	Err    error
}

func (e *RowError) Error() string {
	if e.Column == "" {
		return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err)
	}
	return fmt.Sprintf("%s:%d: column %q: %v", e.File, e.Line, e.Column, e.Err)
}

func (e *RowError) Unwrap() error { return e.Err }

// A File is a text file open for reading.
type File struct {
	path   string
	file   io.Closer // nil: none to close
	packed string    // the format that the text is packed in; "": none
	reader *bufio.Reader
	line   int
	long   []byte // holds lines longer than the reader's buffer

	json    bytes.Buffer // see Object
	plain   []byte       // see plainJSON
	decoder jsontext.Decoder
}

// New returns a File that reads r. Errors name the path; the file system is not used.
func New(path string, r io.Reader) *File {
	return &File{path: path, reader: bufio.NewReaderSize(r, bufferSize)}
}

// Open opens a file that is plain or compressed by gzip or rar, detected by its first bytes or the extension .rar. ctx
// ends the wait for a pipe, as in [openInput].
// progress, if not nil, is called from time to time with the number of bytes read from the disk so far. If it
// returns an error, reading ends with this error.
func Open(ctx context.Context, path string, progress func(bytesRead int64) error) (*File, error) {
	return OpenIn(ctx, nil, path, progress)
}

// open reads a file that is plain or compressed.
func open(path string, file io.ReadCloser, progress func(bytesRead int64) error) (*File, error) {
	src := &counter{r: file, hook: progress}
	text, format, err := unpack(path, bufio.NewReaderSize(src, bufferSize))
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if format != "" {
		text = &unpacked{r: text, packed: src}
	}
	f := New(path, text)
	f.file, f.packed = file, format
	return f, nil
}

// unpack returns the text of r and its compression format.
func unpack(path string, r *bufio.Reader) (text io.Reader, format string, err error) {
	magic, _ := r.Peek(6)
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		if text, err = gzip.NewReader(r); err != nil {
			err = fmt.Errorf("bad gzip header: %w", err)
		}
		return text, "gzip", err
	case bytes.HasPrefix(magic, []byte("Rar!\x1a\x07")) || strings.HasSuffix(path, ".rar"):
		text, err = unpackRar(r)
		return text, "rar", err
	}
	return r, "", nil
}

// unpackRar returns the first .txt or .csv file of a rar archive.
func unpackRar(r io.Reader) (io.Reader, error) {
	archive, err := rardecode.NewReader(r)
	for err == nil {
		var h *rardecode.FileHeader
		if h, err = archive.Next(); err != nil {
			break
		}
		if ext := path.Ext(h.Name); !h.IsDir && (ext == ".txt" || ext == ".csv") {
			return archive, nil
		}
	}
	if errors.Is(err, io.EOF) {
		return nil, errors.New("the rar archive holds no .txt or .csv file")
	}
	return nil, fmt.Errorf("not a readable rar archive: %w", err)
}

// Read opens an input as by [openInput] and returns the result of read. The input is limited to [MaxData] bytes.
// read gets the path as the name for its errors.
func Read[T any](ctx context.Context, path string, read func(in io.Reader, name string) (T, error)) (out T, err error) {
	f, err := openInput(ctx, path)
	if err != nil {
		return out, err
	}
	defer f.Close()
	return read(Limit(f, path, MaxData), path)
}

// Path returns the path the file was opened with.
func (f *File) Path() string { return f.path }

// Where returns the path and the number of the last line read, for messages.
func (f *File) Where() string { return fmt.Sprintf("%s:%d", f.path, f.line) }

// Number returns the number of the last line read, from 1.
func (f *File) Number() int { return f.line }

// Close closes the file. Further calls do nothing.
func (f *File) Close() error {
	if f.file == nil {
		return nil
	}
	err := f.file.Close()
	f.file = nil
	return err
}

// Line returns the next line that is not empty, without its line end. The slice is valid until the next call. At the
// end of the file the error is io.EOF.
func (f *File) Line() ([]byte, error) {
	for blank := 0; ; blank++ {
		if blank > maxBlank {
			return nil, fmt.Errorf("%s:%d: more than %d empty lines in a row", f.path, f.line, maxBlank)
		}
		line, err := f.next()
		if err != nil {
			return nil, err
		}
		line = bytes.TrimSuffix(line, []byte("\r"))
		if f.line == 1 {
			line = bytes.TrimPrefix(line, []byte("\ufeff")) // byte order mark
		}
		if len(line) > 0 {
			return line, nil
		}
	}
}

// next returns the next line without its line feed.
func (f *File) next() ([]byte, error) {
	line, err := f.reader.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		f.long = f.long[:0]
		for errors.Is(err, bufio.ErrBufferFull) {
			f.long = append(f.long, line...)
			if len(f.long) > MaxLine {
				return nil, fmt.Errorf("%s:%d: line is longer than %d MiB", f.path, f.line+1, MaxLine>>20)
			}
			line, err = f.reader.ReadSlice('\n')
		}
		f.long = append(f.long, line...)
		line = f.long
	}
	switch {
	case err == nil:
		f.line++
		return line[:len(line)-1], nil
	case errors.Is(err, io.EOF) && len(line) > 0: // no line end at the end of the file
		f.line++
		return line, nil
	case errors.Is(err, io.EOF):
		return nil, io.EOF
	case f.packed != "" && errors.Is(err, io.ErrUnexpectedEOF):
		err = fmt.Errorf("%s file is truncated: it ends in the middle of its %[1]s stream: %w", f.packed, err)
	}
	return nil, fmt.Errorf("%s:%d: %w", f.path, f.line+1, err)
}

// Bad returns a RowError for the current line. column may be "".
func (f *File) Bad(column string, err error) error {
	return &RowError{File: f.path, Line: f.line, Column: column, Err: err}
}

type counter struct {
	r    io.Reader
	n    int64
	hook func(int64) error
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	if c.hook != nil {
		if stop := c.hook(c.n); stop != nil {
			return 0, stop
		}
	}
	return n, err
}

// unpacked is the text of a compressed file. gzip compresses by a factor of up to 1032; traces and logs reach less
// than 100. From some size on, a factor above maxRatio means that the file was made to cost time.
type unpacked struct {
	r      io.Reader
	n      int64
	packed *counter
}

const (
	maxRatio  = 300
	freeRatio = 64 << 20 // bytes that may have any
)

func (u *unpacked) Read(p []byte) (int, error) {
	n, err := u.r.Read(p)
	if u.n += int64(n); u.n > freeRatio && u.n/maxRatio > u.packed.n {
		return 0, fmt.Errorf("unpacks to more than %d times its size", maxRatio)
	}
	return n, err
}

// Find returns path itself unless it is a folder. For a folder it returns the one file in it that matches one of the
// patterns of [filepath.Match], with or without ".gz". No match, or more than one, is an error.
func Find(path string, patterns ...string) (string, error) {
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		return path, err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return "", err
	}
	var found []string
	for _, e := range entries {
		if !e.IsDir() && slices.ContainsFunc(patterns, func(p string) bool {
			ok, _ := filepath.Match(p, strings.TrimSuffix(e.Name(), ".gz"))
			return ok
		}) {
			found = append(found, e.Name())
		}
	}
	switch len(found) {
	case 1:
		return filepath.Join(path, found[0]), nil
	case 0:
		return "", fmt.Errorf("%s: no file here matches %s", path, strings.Join(patterns, " or "))
	}
	return "", fmt.Errorf("%s: %d files match, name one of them: %s", path, len(found), strings.Join(found, ", "))
}

// A Table reads the rows of a CSV file. Fields may be quoted as in RFC 4180, but span lines only with Multiline.
type Table struct {
	// Multiline lets quoted fields span lines; empty lines in them stay.
	Multiline bool

	file   *File
	names  []string
	fields [][]byte
	quoted []byte // unquoted contents of the current row's quoted fields
	joined []byte // lines of the current row, where there are several
}

// Header reads the first line of a CSV file as the names of its columns.
func (f *File) Header() (*Table, error) {
	line, err := f.Line()
	if errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: file is empty, expected a header line", f.path)
	}
	if err != nil {
		return nil, err
	}
	t := &Table{file: f}
	if err := t.split(line); err != nil {
		return nil, f.Bad("", err)
	}
	for _, b := range t.fields {
		name := string(b)
		if slices.Contains(t.names, name) {
			return nil, f.Bad(name, errors.New("appears twice in the header"))
		}
		t.names = append(t.names, name)
	}
	return t, nil
}

// Names returns the names of the columns.
func (t *Table) Names() []string { return t.names }

// Row returns the fields of the next row, or io.EOF after the last one. The fields are valid until the next call.
func (t *Table) Row() ([][]byte, error) {
	line, err := t.file.Line()
	if err != nil {
		return nil, err
	}
	if err := t.split(line); err != nil {
		return nil, t.file.Bad("", err)
	}
	if len(t.fields) != len(t.names) {
		return nil, t.file.Bad("", fmt.Errorf("row has %d fields, expected %d (%s)",
			len(t.fields), len(t.names), suggest.Clip(strings.Join(t.names, ","))))
	}
	return t.fields, nil
}

// join appends further lines to a line with an open quote until the quote is closed.
func (t *Table) join(line []byte) ([]byte, error) {
	t.joined = append(t.joined[:0], line...)
	for {
		next, err := t.file.next()
		if errors.Is(err, io.EOF) {
			return t.joined, nil
		}
		if err == nil && len(t.joined)+len(next) > MaxLine {
			err = fmt.Errorf("row is longer than %d MiB", MaxLine>>20)
		}
		if err != nil {
			return nil, err
		}
		t.joined = append(append(t.joined, '\n'), bytes.TrimSuffix(next, []byte("\r"))...)
		if bytes.Count(next, []byte{'"'})%2 == 1 {
			return t.joined, nil
		}
	}
}

func (t *Table) split(line []byte) (err error) {
	if bytes.IndexByte(line, '"') >= 0 {
		if t.Multiline && bytes.Count(line, []byte{'"'})%2 == 1 {
			if line, err = t.join(line); err != nil {
				return err
			}
		}
		return t.splitQuoted(line)
	}
	t.fields = t.fields[:0]
	start := 0
	for i, c := range line {
		if c == ',' {
			t.fields = append(t.fields, line[start:i:i])
			start = i + 1
		}
	}
	t.fields = append(t.fields, line[start:])
	return nil
}

func (t *Table) splitQuoted(line []byte) error {
	t.fields = t.fields[:0]
	t.quoted = slices.Grow(t.quoted[:0], len(line)) // fields of this row stay valid
	for {
		if len(line) == 0 || line[0] != '"' {
			field, rest, more := bytes.Cut(line, []byte{','})
			t.fields = append(t.fields, field)
			if !more {
				return nil
			}
			line = rest
			continue
		}
		start := len(t.quoted)
		for line = line[1:]; ; {
			end := bytes.IndexByte(line, '"')
			if end < 0 {
				return errors.New("quote is not closed on its line")
			}
			t.quoted = append(t.quoted, line[:end]...)
			line = line[end+1:]
			if len(line) == 0 || line[0] != '"' {
				break
			}
			t.quoted = append(t.quoted, '"') // a doubled quote
			line = line[1:]
		}
		t.fields = append(t.fields, t.quoted[start:len(t.quoted):len(t.quoted)])
		switch {
		case len(line) == 0:
			return nil
		case line[0] != ',':
			return errors.New("expected a comma after the closing quote")
		}
		line = line[1:]
	}
}

// stream is the text of a file, and the file to close.
type stream struct {
	io.Reader
	io.Closer
}

// OpenText opens a file of fsys as OpenIn does, for readers that do not read line by line.
func OpenText(ctx context.Context, fsys fs.FS, path string,
	progress func(bytesRead int64) error) (io.ReadCloser, error) {
	f, err := OpenIn(ctx, fsys, path, progress)
	if err != nil {
		return nil, err
	}
	return stream{f.reader, f}, nil
}
