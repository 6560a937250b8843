package textfile_test

import (
	"bytes"
	"encoding/csv"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"lorasim/internal/textfile"
)

// table reads all rows of a CSV file.
func table(content io.Reader, multiline bool) ([][]string, error) {
	f := textfile.New("f.csv", content)
	t, err := f.Header()
	if err != nil {
		return nil, err
	}
	t.Multiline = multiline
	var rows [][]string
	for {
		fields, err := t.Row()
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return rows, err
		}
		row := make([]string, len(fields))
		for i, b := range fields {
			row[i] = string(b)
		}
		rows = append(rows, row)
	}
}

func TestRows(t *testing.T) {
	const text = "a,b,c\n1,,3\n\"x,y\",\"say \"\"hi\"\"\",\"\"\r\n,,\n"
	for _, multiline := range []bool{false, true} {
		got, err := table(strings.NewReader(text), multiline)
		want := [][]string{{"1", "", "3"}, {"x,y", `say "hi"`, ""}, {"", "", ""}}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("error %v, difference:\n%s", err, diff)
		}
	}
}

// Quoted fields span lines where they may; a reader's error in one is not its end.
func TestMultiline(t *testing.T) {
	const text = "a,b\n\"1\r\n\n\"\"2\"\"\",3\n4,\"5\n\"\n\"6\n"
	got, err := table(strings.NewReader(text+"7\",8\n"), true)
	want := [][]string{{"1\n\n\"2\"", "3"}, {"4", "5\n"}, {"6\n7", "8"}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("error %v, difference:\n%s", err, diff)
	}
	if got, err = table(strings.NewReader(text), true); err == nil ||
		!strings.Contains(err.Error(), "quote is not closed") || len(got) != 2 {
		t.Errorf("%d rows and %v, expected an open quote after 2", len(got), err)
	}
	broken := errors.New("broken")
	if got, err = table(io.MultiReader(strings.NewReader(text), iotest.ErrReader(broken)), true); !errors.Is(err,
		broken) || len(got) != 2 {
		t.Errorf("%d rows and %v, expected the reader's error after 2", len(got), err)
	}
	endless := io.MultiReader(strings.NewReader("a,b\n\"1\n"), rows{})
	if _, err = table(endless, true); err == nil || !strings.Contains(err.Error(), "row is longer than 64 MiB") {
		t.Errorf("a row without end: %v", err)
	}
}

// rows reads as long lines without end.
type rows struct{}

func (rows) Read(p []byte) (int, error) {
	clear(p)
	p[len(p)-1] = '\n'
	return len(p), nil
}

func TestTableErrors(t *testing.T) {
	for content, want := range map[string]string{
		"":                     "file is empty",
		"a,b,a\n":              `:1: column "a": appears twice`,
		"a,b\n1,2\n\n1,2,3\n":  ":4: row has 3 fields, expected 2 (a,b)",
		"a,b\n1\n":             ":2: row has 1 fields, expected 2",
		"a,b\n\"1,2\n":         ":2: quote is not closed",
		"a,b\n\"1\n2\",3\n":    ":2: quote is not closed",
		"a,b\n\"1\"x,2\n":      ":2: expected a comma after the closing quote",
		"\"a\",\"a\"\n\"1,2\n": "appears twice",
	} {
		if _, err := table(strings.NewReader(content), false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, expected %q in it", content, err, want)
		}
	}
}

// FuzzRows compares with encoding/csv, which allows quotes that span lines and
// trims nothing either.
func FuzzRows(f *testing.F) {
	f.Add([]byte("a,b\n1,2\n"), false)
	f.Add([]byte("a,b\n\"1,\"\"\",2\r\n\n,\n"), true)
	f.Add([]byte("\xef\xbb\xbfa\n\"\"\n"), false)
	f.Add([]byte("a,b\n\"1\n2\",3\n"), true)
	f.Fuzz(func(t *testing.T, content []byte, multiline bool) {
		got, err := table(bytes.NewReader(content), multiline)
		if err != nil {
			return
		}
		r := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(content, []byte("\xef\xbb\xbf"))))
		want, err := r.ReadAll()
		if err != nil || bytes.Contains(content, []byte("\r")) {
			return // bare quotes and carriage returns are taken differently
		}
		if diff := cmp.Diff(want[1:], append([][]string{}, got...)); diff != "" {
			t.Errorf("differs from encoding/csv:\n%s", diff)
		}
	})
}
