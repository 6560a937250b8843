package textfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Table reads the rows of a CSV file by the names of its columns. Fields may be
// quoted as in RFC 4180, but not span lines unless Multiline says so.
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

// Column returns the index of a column that must be there.
func (t *Table) Column(name string) (int, error) {
	i := slices.Index(t.names, name)
	if i < 0 {
		return 0, t.file.Bad("", fmt.Errorf("no column %q; the header has %s", name, clip(strings.Join(t.names, ","))))
	}
	return i, nil
}

// Optional returns the index of a column, or -1.
func (t *Table) Optional(name string) int { return slices.Index(t.names, name) }

// Only checks that the table has no other columns than the given ones.
func (t *Table) Only(known ...string) error {
	for _, name := range t.names {
		if !slices.Contains(known, name) {
			return t.file.Bad("", Unknown("column", name, known))
		}
	}
	return nil
}

// Row returns the fields of the next row, valid until the next call, or io.EOF
// after the last one.
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
			len(t.fields), len(t.names), clip(strings.Join(t.names, ","))))
	}
	return t.fields, nil
}

// join appends lines to one with an open quote until it is closed, if it ever is.
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
	t.fields, t.quoted = t.fields[:0], t.quoted[:0]
	// Without reallocation, so that fields of this row stay valid.
	t.quoted = slices.Grow(t.quoted, len(line))
	for {
		if len(line) == 0 || line[0] != '"' {
			end := bytes.IndexByte(line, ',')
			if end < 0 {
				t.fields = append(t.fields, line)
				return nil
			}
			t.fields = append(t.fields, line[:end:end])
			line = line[end+1:]
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
		if len(line) == 0 {
			return nil
		}
		if line[0] != ',' {
			return errors.New("expected a comma after the closing quote")
		}
		line = line[1:]
	}
}
