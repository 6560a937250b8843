package bench

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMap compares the package comment with the folders.
func TestMap(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	packages := 0
	err = filepath.WalkDir(".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() || path == "." {
			return err
		}
		files, err := filepath.Glob(filepath.Join(path, "*.go"))
		if len(files) > 0 {
			packages++
			link := "[lorasim/bench/" + filepath.ToSlash(path) + "]: "
			if strings.Count(string(text), link) != 1 {
				t.Errorf("doc.go does not list %s once", link)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if listed := strings.Count(string(text), "[lorasim/bench/"); listed != packages {
		t.Errorf("doc.go lists %d folders, of %d", listed, packages)
	}
}
