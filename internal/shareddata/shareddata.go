// Package shareddata finds traces, logs and measurements that lie beside the repository and are not part of it.
// Tests that need them skip if they are absent.
package shareddata

import (
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"lorasim/internal/textfile"
)

// Dir returns the folder of shared data: $LORASIM_DATA, or ../shared/data from the root of the repository.
func Dir() string {
	if d := os.Getenv("LORASIM_DATA"); d != "" {
		return d
	}
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..", "..", "shared", "data")
}

// Path returns the path of a shared file. It skips the test if the file is absent.
func Path(tb testing.TB, name string) string {
	tb.Helper()
	p := filepath.Join(Dir(), filepath.FromSlash(name))
	if _, err := os.Stat(p); err != nil {
		tb.Skipf("shared data %s is not here (set LORASIM_DATA to its folder): %v", name, err)
	}
	return p
}

// Read reads a shared file. It skips the test if the file is absent.
func Read[T any](tb testing.TB, name string, read func(in io.Reader, name string) (T, error)) T {
	tb.Helper()
	v, err := textfile.Read(tb.Context(), Path(tb, name), read)
	if err != nil {
		tb.Fatal(err)
	}
	return v
}
