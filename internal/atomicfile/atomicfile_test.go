package atomicfile_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"lorasim/internal/atomicfile"
)

var errBroken = errors.New("broken")

// checkOnly checks that a folder holds one file, and what that holds.
func checkOnly(t *testing.T, path, content string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil || string(got) != content || len(entries) != 1 {
		t.Errorf("the file holds %q (%v) and lies among %v, expected %q alone", got, err, entries, content)
	}
}

// old returns the path of a file in a folder of its own.
func old(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "f.csv")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestWrite(t *testing.T) {
	path := old(t)
	err := atomicfile.Write(path, func(f *atomicfile.File) error {
		_, err := io.WriteString(f, "new old")
		if text, _ := os.ReadFile(path); string(text) != "old" {
			t.Errorf("half-way the file holds %q", text)
		}
		if _, err := f.Seek(4, io.SeekStart); err != nil {
			t.Error(err)
		}
		io.WriteString(f, "new")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	checkOnly(t, path, "new new")
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("mode %v, %v; expected that others may read the file", info.Mode(), err)
	}
}

func TestFailureLeavesTheOldFile(t *testing.T) {
	path := old(t)
	err := atomicfile.Write(path, func(f *atomicfile.File) error {
		io.WriteString(f, "new")
		return errBroken
	})
	if err != errBroken {
		t.Errorf("error %v, expected that of the caller", err)
	}
	checkOnly(t, path, "old")

	func() {
		defer func() {
			if p := recover(); p != errBroken {
				t.Errorf("recovered %v", p)
			}
		}()
		atomicfile.Write(path, func(*atomicfile.File) error { panic(errBroken) })
	}()
	checkOnly(t, path, "old")
}

// A file that cannot get its name leaves nothing behind.
func TestNameIsTaken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "taken")
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.Write(path, func(*atomicfile.File) error { return nil }); err == nil ||
		!strings.Contains(err.Error(), path) {
		t.Errorf("error %v, expected one that names the folder in the way", err)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

// What is no file is not replaced by one.
func TestLinksAndDevices(t *testing.T) {
	file := old(t)
	link := filepath.Join(t.TempDir(), "link.csv")
	if err := os.Symlink(file, link); err != nil {
		t.Skip(err)
	}
	write := func(path string, fails error) error {
		return atomicfile.Write(path, func(f *atomicfile.File) error {
			io.WriteString(f, "new")
			return fails
		})
	}
	if err := write(link, errBroken); err != errBroken {
		t.Error(err)
	}
	checkOnly(t, file, "old")
	if err := write(link, nil); err != nil {
		t.Error(err)
	}
	checkOnly(t, file, "new")
	checkOnly(t, link, "new")
	if info, err := os.Lstat(link); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("the link is now %v, %v", info.Mode(), err)
	}
	if err := write(filepath.Dir(link), nil); err == nil ||
		!strings.Contains(err.Error(), filepath.Dir(link)+": is a directory") {
		t.Error(err)
	}

	pipe := filepath.Join(t.TempDir(), "pipe") // stands for devices, which a wrong test would replace
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skip(err)
	}
	for _, fails := range []error{nil, errBroken} {
		read := make(chan string, 1)
		go func() {
			text, _ := os.ReadFile(pipe)
			read <- string(text)
		}()
		if err := write(pipe, fails); err != fails {
			t.Error(err)
		}
		if got := <-read; got != "new" {
			t.Errorf("read %q", got)
		}
		if info, err := os.Lstat(pipe); err != nil || info.Mode()&fs.ModeNamedPipe == 0 {
			t.Errorf("the pipe is gone: %v", err)
		}
	}
}

func TestNowhere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none", "f.csv")
	_, err := atomicfile.Create(path)
	if !os.IsNotExist(err) || !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v, expected that the folder of %s does not exist", err, path)
	}
}

func TestOrderOfCalls(t *testing.T) {
	path := old(t)
	f, err := atomicfile.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Commit(); err != nil {
		t.Fatal(err)
	}
	f.Abort() // too late
	checkOnly(t, path, "")
	if err := f.Commit(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("second Commit: %v", err)
	}
	if _, err := f.Write([]byte("x")); !errors.Is(err, fs.ErrClosed) || !strings.Contains(err.Error(), path) {
		t.Errorf("Write after Commit: %v", err)
	}

	f, err = atomicfile.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	f.Abort()
	f.Abort()
	if err := f.Commit(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("Commit after Abort: %v", err)
	}
	checkOnly(t, path, "")
}
