package textfile

import (
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"lorasim/internal/testutil"
)

// TestFileSystem: the same functions read files of the operating system and of a file system that is handed in.
func TestFileSystem(t *testing.T) {
	const text = "a\nb\n"
	packed := testutil.Gzip(t, text)
	memory := fstest.MapFS{"logs/l.csv": {Data: []byte(text)}, "logs/l.csv.gz": {Data: packed}}
	for _, c := range []struct {
		fsys fs.FS
		path string
	}{
		{memory, "logs/l.csv"}, {memory, "logs/l.csv.gz"},
		{nil, testutil.File(t, "l.csv", text)}, {nil, testutil.File(t, "l.csv.gz", packed)},
	} {
		f, err := OpenIn(t.Context(), c.fsys, c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if line, err := f.Line(); string(line) != "a" || err != nil {
			t.Errorf("%s: line %q, %v", c.path, line, err)
		}
		f.Close()
		plain, err := OpenText(t.Context(), c.fsys, c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if all, err := io.ReadAll(plain); string(all) != text || err != nil {
			t.Errorf("%s: text %q, %v", c.path, all, err)
		}
		plain.Close()
		info, err := Stat(c.fsys, c.path)
		if err != nil {
			t.Fatal(err)
		}
		random, size, err := OpenFileIn(c.fsys, c.path)
		if err != nil || size != info.Size() {
			t.Fatalf("%s: %d bytes, %v; expected %d", c.path, size, err, info.Size())
		}
		last := make([]byte, 1)
		if _, err := random.ReadAt(last, size-1); err != nil {
			t.Errorf("%s: %v", c.path, err)
		}
		random.Close()
	}
	if _, err := OpenIn(t.Context(), memory, "logs", nil); err == nil || !strings.Contains(err.Error(), "is a folder") {
		t.Errorf("a folder: %v", err)
	}
	for name, open := range map[string]func() error{
		"OpenIn":     func() error { _, err := OpenIn(t.Context(), memory, "none", nil); return err },
		"OpenFileIn": func() error { _, _, err := OpenFileIn(memory, "none"); return err },
		"Stat":       func() error { _, err := Stat(memory, "none"); return err },
	} {
		if err := open(); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v, expected that the file does not exist", name, err)
		}
	}
}
