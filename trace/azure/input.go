package azure

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/nwaples/rardecode/v2"
)

const (
	progressStep = 1 << 20 // bytes between two calls of Progress
	bufferSize   = 1 << 18 // bytes of read buffer
	maxLine      = 1 << 20 // bytes of the longest line accepted
)

// progress counts the bytes read from the files of one reader.
type progress struct {
	report      func(read, total int64)
	read, total int64
	next        int64 // report when read reaches it
}

// counter reports the bytes that go through it.
type counter struct {
	r io.Reader
	p *progress
}

func (c counter) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.p.read += int64(n)
	if c.p.report != nil && (c.p.read >= c.p.next || errors.Is(err, io.EOF)) {
		c.p.next = c.p.read + progressStep
		c.p.report(c.p.read, c.p.total)
	}
	return n, err
}

// input is the text of one trace file, line by line.
type input struct {
	name string
	line int // number of the line last read
	text *bufio.Reader
	long []byte   // a line that did not fit the buffer
	file *os.File // nil: none to close
}

// open opens a file, which may be plain text, gzip or rar, told apart by their
// first bytes or the ending of the name.
func open(name string, p *progress) (*input, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	text, err := decompress(name, bufio.NewReaderSize(counter{f, p}, bufferSize))
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	in := newInput(name, text)
	in.file = f
	return in, nil
}

func newInput(name string, r io.Reader) *input {
	return &input{name: name, text: bufio.NewReaderSize(r, bufferSize)}
}

func decompress(name string, r *bufio.Reader) (io.Reader, error) {
	magic, _ := r.Peek(6)
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}) || strings.HasSuffix(name, ".gz"):
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, fmt.Errorf("not a readable gzip file: %w", err)
		}
		return z, nil
	case bytes.HasPrefix(magic, []byte("Rar!\x1a\x07")) || strings.HasSuffix(name, ".rar"):
		return openRar(r)
	}
	return r, nil
}

// openRar returns the first .txt or .csv file of a rar archive.
func openRar(r io.Reader) (io.Reader, error) {
	archive, err := rardecode.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("not a readable rar archive: %w", err)
	}
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil, errors.New("the rar archive holds no .txt or .csv file")
		}
		if err != nil {
			return nil, fmt.Errorf("not a readable rar archive: %w", err)
		}
		if ext := path.Ext(h.Name); !h.IsDir && (ext == ".txt" || ext == ".csv") {
			return archive, nil
		}
	}
}

// close closes the file, once.
func (in *input) close() error {
	if in.file == nil {
		return nil
	}
	err := in.file.Close()
	in.file = nil
	return err
}

// next returns the next line that is not empty, without its end, or io.EOF. It
// is valid until the next call.
func (in *input) next() ([]byte, error) {
	for {
		row, err := in.readLine()
		if err != nil && !(errors.Is(err, io.EOF) && len(row) > 0) {
			return nil, in.wrap(err)
		}
		in.line++
		row = bytes.TrimSuffix(row, []byte("\n"))
		row = bytes.TrimSuffix(row, []byte("\r"))
		if in.line == 1 {
			row = bytes.TrimPrefix(row, []byte("\ufeff"))
		}
		if len(row) > 0 {
			return row, nil
		}
	}
}

var errLongLine = fmt.Errorf("a line is longer than %d bytes", maxLine)

func (in *input) readLine() ([]byte, error) {
	row, err := in.text.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return row, err
	}
	in.long = append(in.long[:0], row...)
	for errors.Is(err, bufio.ErrBufferFull) {
		if len(in.long) > maxLine {
			return nil, errLongLine
		}
		row, err = in.text.ReadSlice('\n')
		in.long = append(in.long, row...)
	}
	return in.long, err
}

// wrap says where reading failed.
func (in *input) wrap(err error) error {
	switch {
	case errors.Is(err, io.EOF):
		return io.EOF
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%s:%d: the compressed file is truncated: %w", in.name, in.line+1, err)
	}
	return fmt.Errorf("%s:%d: %w", in.name, in.line+1, err)
}

// errorf returns an error at the line last read.
func (in *input) errorf(format string, args ...any) error {
	return fmt.Errorf("%s:%d: %w", in.name, in.line, fmt.Errorf(format, args...))
}

// rowError is what is wrong with a row; SkipBadRows passes over it.
type rowError struct{ error }

func (e rowError) Unwrap() error { return e.error }

// badField returns the error of a field that is not what was expected.
func (in *input) badField(column string, got []byte, expected string) error {
	const most = 60
	text := string(got)
	if len(text) > most {
		text = text[:most] + "..."
	}
	return rowError{in.errorf("column %s is %q, expected %s", column, text, expected)}
}

// find returns the first of the names that exists in the folder dir.
func find(dir string, names ...string) (string, error) {
	for _, n := range names {
		p := filepath.Join(dir, n)
		if _, err := os.Stat(p); err == nil {
			return p, nil
		}
	}
	return "", fmt.Errorf("%s: expected a file %s there: %w", dir, strings.Join(names, " or "), os.ErrNotExist)
}

// size returns the size of the files together, for Progress.
func size(files []string) int64 {
	var total int64
	for _, f := range files {
		if info, err := os.Stat(f); err == nil {
			total += info.Size()
		}
	}
	return total
}
