//go:build unix

package store_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"lorasim/trace"
	"lorasim/trace/store"
)

func TestReadPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w.csv")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Skip(err)
	}
	if _, err := read(path, store.ReadOptions{Files: files}); err == nil ||
		!strings.Contains(err.Error(), "cannot be read twice to find its adapters; give --num-adapters") {
		t.Errorf("error %v", err)
	}
	go os.WriteFile(path, []byte(head+"0,0,1,1,1\n"), 0)
	got, err := read(path, store.ReadOptions{Files: files, Adapters: trace.Names(2, nil)})
	if err != nil || len(got.Requests) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}
