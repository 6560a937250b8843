package textfile_test

import (
	"bytes"
	"encoding/csv"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"lorasim/internal/textfile"
)

// table reads all rows of a CSV file.
func table(content []byte) ([][]string, error) {
	f := textfile.New("f.csv", bytes.NewReader(content))
	t, err := f.Header()
	if err != nil {
		return nil, err
	}
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
	got, err := table([]byte("a,b,c\n1,,3\n\"x,y\",\"say \"\"hi\"\"\",\"\"\r\n,,\n"))
	want := [][]string{{"1", "", "3"}, {"x,y", `say "hi"`, ""}, {"", "", ""}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("error %v, difference:\n%s", err, diff)
	}
}

func TestTableErrors(t *testing.T) {
	for content, want := range map[string]string{
		"":                     "file is empty",
		"a,b,a\n":              `:1: column "a": appears twice`,
		"a,b\n1,2\n\n1,2,3\n":  ":4: row has 3 fields, expected 2 (a,b)",
		"a,b\n1\n":             ":2: row has 1 fields, expected 2",
		"a,b\n\"1,2\n":         ":2: quote is not closed",
		"a,b\n\"1\"x,2\n":      ":2: expected a comma after the closing quote",
		"\"a\",\"a\"\n\"1,2\n": "appears twice",
	} {
		if _, err := table([]byte(content)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, expected %q in it", content, err, want)
		}
	}
}

// FuzzRows compares with encoding/csv, which allows quotes that span lines and
// trims nothing either.
func FuzzRows(f *testing.F) {
	f.Add([]byte("a,b\n1,2\n"))
	f.Add([]byte("a,b\n\"1,\"\"\",2\r\n\n,\n"))
	f.Add([]byte("\xef\xbb\xbfa\n\"\"\n"))
	f.Add([]byte("a,b\n\"1\n2\",3\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		got, err := table(content)
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
