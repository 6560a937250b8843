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

	"lorasim/internal/textfile"
)

const progressStep = 1 << 20 // bytes between two calls of Progress

// progress adds up the bytes read from the files of one reader.
type progress struct {
	report      func(read, total int64) error
	read, total int64
	next        int64 // report when read reaches it
}

// file returns the progress function of the next file.
func (p *progress) file() func(bytesRead int64) error {
	if p.report == nil {
		return nil
	}
	before := p.read
	return func(n int64) error {
		p.read = before + n
		if p.read >= p.next || p.read == p.total {
			p.next = p.read + progressStep
			return p.report(p.read, p.total)
		}
		return nil
	}
}

// open opens a file, which may be plain text, gzip or rar, told apart by their
// first bytes or the ending of the name.
func open(name string, p *progress) (*textfile.File, error) {
	return textfile.OpenPacked(name, p.file(), func(r *bufio.Reader) (text io.Reader, format string, err error) {
		magic, _ := r.Peek(6)
		switch {
		case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}) || strings.HasSuffix(name, ".gz"):
			if text, err = gzip.NewReader(r); err != nil {
				return nil, "", fmt.Errorf("not a readable gzip file: %w", err)
			}
			return text, "gzip", nil
		case bytes.HasPrefix(magic, []byte("Rar!\x1a\x07")) || strings.HasSuffix(name, ".rar"):
			text, err = openRar(r)
			return text, "rar", err
		}
		return r, "", nil
	})
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

// badf returns the error of a fault in the line last read; SkipBadRows passes
// over one in a row.
func badf(f *textfile.File, format string, args ...any) error {
	return f.Bad("", fmt.Errorf(format, args...))
}

// badField returns the error of a field that is not what was expected.
func badField(f *textfile.File, column string, got []byte, expected string) error {
	const most = 60
	text := string(got)
	if len(text) > most {
		text = text[:most] + "..."
	}
	return badf(f, "column %s is %q, expected %s", column, text, expected)
}

// skippable says whether err is about one row alone.
func skippable(err error) bool {
	var row *textfile.RowError
	return errors.As(err, &row)
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
