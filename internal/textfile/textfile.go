// Package textfile reads text formats line by line: plain or gzip-compressed
// files, CSV rows by column name, flat JSON objects, and numbers without
// allocating. Its errors name the file, line and column.
//
//	f, err := textfile.Open("trace.csv.gz", nil)
//	defer f.Close()
//	table, err := f.Header()
//	arrival, err := table.Column("arrival_s")
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
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

const bufferSize = 256 << 10

// MaxLine is the length of the longest line accepted, in bytes. It bounds the
// memory that a file without line ends can take.
const MaxLine = 64 << 20

// RowError is a fault of one row. Other errors, such as a truncated file, end
// the reading.
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

// File is a text file open for reading.
type File struct {
	path   string
	file   *os.File // nil: none to close
	packed string   // the format that the text is packed in; "": none
	reader *bufio.Reader
	line   int
	long   []byte // holds lines longer than the reader's buffer
}

// New returns a file that reads r, whatever lies at path.
func New(path string, r io.Reader) *File {
	return &File{path: path, reader: bufio.NewReaderSize(r, bufferSize)}
}

// Open opens a plain or gzip-compressed file (told apart by its first bytes).
// progress, unless nil, is called now and then with the number of bytes read
// from the disk so far; its error ends the reading.
func Open(path string, progress func(bytesRead int64) error) (*File, error) {
	return OpenPacked(path, progress, func(r *bufio.Reader) (io.Reader, string, error) {
		if magic, _ := r.Peek(2); !bytes.Equal(magic, []byte{0x1f, 0x8b}) {
			return r, "", nil
		}
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, "", fmt.Errorf("bad gzip header: %w", err)
		}
		return z, "gzip", nil
	})
}

// Unpacker returns the text that is packed in r and the name of the format, or
// r itself and no name if it is plain.
type Unpacker func(r *bufio.Reader) (text io.Reader, format string, err error)

// OpenPacked opens a file that unpack knows to unpack.
func OpenPacked(path string, progress func(bytesRead int64) error, unpack Unpacker) (*File, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if info, err := file.Stat(); err == nil && info.IsDir() {
		file.Close()
		return nil, fmt.Errorf("%s: is a folder, expected a file", path)
	}
	var src io.Reader = file
	if progress != nil {
		src = &counter{r: file, hook: progress}
	}
	text, format, err := unpack(bufio.NewReaderSize(src, bufferSize))
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f := New(path, text)
	f.file, f.packed = file, format
	return f, nil
}

// Path returns the path the file was opened with.
func (f *File) Path() string { return f.path }

// Where returns the path and the number of the line last read, for messages.
func (f *File) Where() string { return fmt.Sprintf("%s:%d", f.path, f.line) }

// Close closes the file. To close it again does nothing.
func (f *File) Close() error {
	if f.file == nil {
		return nil
	}
	err := f.file.Close()
	f.file = nil
	return err
}

// Line returns the next line that is not empty, without its line end; it is
// valid until the next call. The error at the end of the file is io.EOF.
func (f *File) Line() ([]byte, error) {
	for {
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
		return nil, fmt.Errorf("%s:%d: %s file is truncated: %w", f.path, f.line+1, f.packed, err)
	default:
		return nil, fmt.Errorf("%s:%d: %w", f.path, f.line+1, err)
	}
}

// Bad returns the error of a fault in the current line.
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
	if stop := c.hook(c.n); stop != nil {
		return 0, stop
	}
	return n, err
}

// Find returns path itself unless it is a folder, and then the one file in it
// that matches one of the patterns of [filepath.Match], with or without ".gz".
func Find(path string, patterns ...string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		return path, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return "", err
	}
	var found []string
	for _, e := range entries {
		for _, p := range patterns {
			if ok, _ := filepath.Match(p, strings.TrimSuffix(e.Name(), ".gz")); ok && !e.IsDir() {
				found = append(found, e.Name())
				break
			}
		}
	}
	switch len(found) {
	case 1:
		return filepath.Join(path, found[0]), nil
	case 0:
		return "", fmt.Errorf("%s: no file here matches %s", path, strings.Join(patterns, " or "))
	default:
		return "", fmt.Errorf("%s: %d files match, name one of them: %s", path, len(found), strings.Join(found, ", "))
	}
}
