package textfile_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"lorasim/internal/testutil"
	"lorasim/internal/textfile"
)

// lines reads all lines and the error that ended them.
func lines(tb testing.TB, path string) ([]string, error) {
	tb.Helper()
	f, err := textfile.Open(context.Background(), path, nil)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []string
	for {
		line, err := f.Line()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, string(line))
	}
}

func TestLine(t *testing.T) {
	long := strings.Repeat("x", 1_000_000)
	for _, c := range []struct {
		name, content string
		want          []string
	}{
		{"plain", "a\nb\n", []string{"a", "b"}},
		{"no line end at the end", "a\nb", []string{"a", "b"}},
		{"carriage returns", "a\r\nb\r\n", []string{"a", "b"}},
		{"empty lines", "\na\n\n\r\nb\n\n", []string{"a", "b"}},
		{"byte order mark", "\xef\xbb\xbfa\n", []string{"a"}},
		{"empty", "", nil},
		{"longer than the buffer", "a\n" + long + "\nb\n" + long, []string{"a", long, "b", long}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for name, content := range map[string][]byte{
				"f.csv": []byte(c.content), "f.csv.gz": testutil.Gzip(t, c.content),
			} {
				got, err := lines(t, testutil.File(t, name, content))
				if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
					t.Errorf("%s: error %v, difference:\n%.300s", name, err, diff)
				}
			}
		})
	}
}

func TestTruncatedGzip(t *testing.T) {
	whole := testutil.Gzip(t, strings.Repeat("1,2,3\n", 100_000))
	path := testutil.File(t, "f.csv.gz", whole[:len(whole)/2])
	got, err := lines(t, path)
	if err == nil || !strings.HasPrefix(err.Error(), path+":") || !strings.Contains(err.Error(), "truncated") {
		t.Errorf("error %v after %d lines, expected one that names the file and line and says truncated", err, len(got))
	}
	var row *textfile.RowError
	if errors.As(err, &row) {
		t.Error("a truncated file must not pass for a bad row, which can be skipped")
	}
	_, err = lines(t, testutil.File(t, "g.gz", whole[:5]))
	if err == nil || !strings.Contains(err.Error(), "gzip header") {
		t.Errorf("error %v, expected one about the gzip header", err)
	}
}

func TestProgress(t *testing.T) {
	path := testutil.File(t, "f.csv", bytes.Repeat([]byte("1,2\n"), 500_000))
	var told []int64
	f, err := textfile.Open(t.Context(), path, func(n int64) error { told = append(told, n); return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for {
		if _, err := f.Line(); err != nil {
			break
		}
	}
	if len(told) < 3 || told[len(told)-1] != 2_000_000 {
		t.Errorf("told %v, expected several numbers up to 2000000", told)
	}
}

// TestLongestLine: a file without line ends ends in an error, not in all memory.
func TestLongestLine(t *testing.T) {
	endless := io.MultiReader(strings.NewReader("a\n"), zeros{})
	f := textfile.New("f.csv", endless)
	if line, err := f.Line(); string(line) != "a" || err != nil {
		t.Fatalf("%q, %v", line, err)
	}
	if _, err := f.Line(); err == nil || err.Error() != "f.csv:2: line is longer than 64 MiB" {
		t.Errorf("error %v, expected that line 2 is too long", err)
	}
}

// zeros reads as zeros without end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func TestRar(t *testing.T) {
	path := testutil.File(t, "f.rar", []byte("no rar\n"))
	if _, err := textfile.Open(t.Context(), path, nil); err == nil ||
		!strings.HasPrefix(err.Error(), path+": not a readable rar archive") {
		t.Errorf("error %v", err)
	}
}

func TestOpenFolder(t *testing.T) {
	if _, err := textfile.Open(t.Context(), t.TempDir(), nil); err == nil || !strings.Contains(err.Error(), "folder") {
		t.Errorf("error %v, expected one that says it is a folder", err)
	}
	if _, err := textfile.Open(t.Context(), filepath.Join(t.TempDir(), "none.csv"), nil); !errors.Is(err,
		os.ErrNotExist) {
		t.Errorf("error %v, expected that the file does not exist", err)
	}
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"BurstGPT_1.csv.gz", "readme.md", "a.jsonl", "b.jsonl"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := textfile.Find(dir, "other*.csv", "BurstGPT*.csv"); err != nil ||
		got != filepath.Join(dir, "BurstGPT_1.csv.gz") {
		t.Errorf("got %q, %v", got, err)
	}
	file := filepath.Join(dir, "readme.md")
	if got, err := textfile.Find(file, "*.csv"); err != nil || got != file {
		t.Errorf("a file must be taken whatever its name: got %q, %v", got, err)
	}
	for pattern, want := range map[string]string{"*.jsonl": "name one of them: a.jsonl, b.jsonl",
		"*.txt": "no file here matches *.txt"} {
		if _, err := textfile.Find(dir, pattern); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, expected %q in it", pattern, err, want)
		}
	}
}

func TestClose(t *testing.T) {
	f, err := textfile.Open(t.Context(), testutil.File(t, "f.csv", bytes.Repeat([]byte("1,2\n"), 1<<20)), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = f.Line()
	}
	if !errors.Is(err, os.ErrClosed) {
		t.Errorf("reading a closed file ends with %v", err)
	}
	if err := f.Close(); err != nil {
		t.Errorf("closing twice: %v", err)
	}
}

// Only a packed file that ends too early is truncated.
func TestReadErrors(t *testing.T) {
	whole := testutil.Gzip(t, "1,2\n")
	whole[len(whole)-8] ^= 1 // checksum
	path := testutil.File(t, "f.csv.gz", whole)
	if _, err := lines(t, path); err == nil || !strings.HasPrefix(err.Error(), path+":2: gzip: invalid checksum") {
		t.Errorf("error %v, expected a wrong checksum", err)
	}
	f := textfile.New("f.csv", io.MultiReader(strings.NewReader("a\n"), iotest.ErrReader(io.ErrUnexpectedEOF)))
	f.Line()
	if _, err := f.Line(); err == nil || err.Error() != "f.csv:2: unexpected EOF" {
		t.Errorf("error %v", err)
	}
}
