package textfile

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"testing"

	"lorasim/internal/testutil"
)

func packed(t testing.TB, chunk []byte, times int) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	for range times {
		if _, err := w.Write(chunk); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A packed file that unpacks to far more than any real one ends in an error, soon.
func TestBomb(t *testing.T) {
	for text, want := range map[string]string{
		"1,2\n": "unpacks to more than 300 times its size", "\n": "more than 1048576 empty lines in a row",
		"\x00": "unpacks to more than 300 times its size",
	} {
		path := testutil.File(t, "f.csv.gz", packed(t, bytes.Repeat([]byte(text), 1<<20/len(text)), 80))
		f, err := Open(t.Context(), path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for err == nil {
			_, err = f.Line()
		}
		if !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), path+":") {
			t.Errorf("%q: %v, expected %s", text, err, want)
		}
		f.Close()
	}
}

// A pipe that gives empty lines without end does, too.
func TestEmptyLines(t *testing.T) {
	f := New("f.csv", lineEnds{})
	if _, err := f.Line(); err == nil || err.Error() != "f.csv:1048577: more than 1048576 empty lines in a row" {
		t.Error(err)
	}
}

type lineEnds struct{}

func (lineEnds) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '\n'
	}
	return len(p), nil
}

// FuzzUnpack reads damaged packed files: no panic, and an error that names the file.
func FuzzUnpack(f *testing.F) {
	f.Add(packed(f, []byte("a,b\n1,2\n"), 2), false)
	f.Add([]byte("Rar!\x1a\x07\x00"), true)
	f.Add([]byte("Rar!\x1a\x07\x01\x00"), true)
	f.Add([]byte("a,b\n"), false)
	f.Fuzz(func(t *testing.T, data []byte, rar bool) {
		name := "f.csv"
		if rar {
			name = "f.rar"
		}
		path := testutil.File(t, name, data)
		file, err := Open(t.Context(), path, nil)
		if err == nil {
			defer file.Close()
			for err == nil {
				_, err = file.Line()
			}
		}
		if !errors.Is(err, io.EOF) && !strings.HasPrefix(err.Error(), path+":") {
			t.Errorf("the error does not name the file: %v", err)
		}
	})
}
