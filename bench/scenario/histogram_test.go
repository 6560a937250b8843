package scenario

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzReadHistogram: a list of numbers, or of lists of them, or an error that names the file.
func FuzzReadHistogram(f *testing.F) {
	for _, s := range []string{"[1,2]", "[[1,2],[3]]", "[]", "[[]]", "{}", "[1e999]", "[" + strings.Repeat("[", 100)} {
		f.Add([]byte(s))
	}
	path := filepath.Join(f.TempDir(), "h.json")
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := readHistogram(t.Context(), path); err != nil && !strings.HasPrefix(err.Error(), path+":") {
			t.Errorf("the error does not name the file: %v", err)
		}
	})
}
