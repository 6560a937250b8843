package textfile

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestOpenInput(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	if err := os.WriteFile(file, []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	loop, link := filepath.Join(dir, "loop"), filepath.Join(dir, "link")
	if err := errors.Join(os.Symlink(loop, loop), os.Symlink(file, link)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/dev/zero": "is a device, expected a regular file or a pipe", "/dev/urandom": "is a device",
		"/dev/full": "is a device",
		dir:         "is a folder, expected a file", loop: "too many levels of symbolic links",
		filepath.Join(dir, "none"): "no such file",
		file:                       "", link: "", os.DevNull: "",
	} {
		in, err := openInput(t.Context(), path)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), path)) {
			t.Errorf("%s: %v, expected %q", path, err, want)
		}
		if err == nil {
			in.Close()
		}
	}
}

func TestReadFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	if b, err := ReadFile(t.Context(), file, 4); string(b) != "text" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := ReadFile(t.Context(), file, 3); err == nil ||
		err.Error() != file+": is larger than 3 bytes, the most that is read" {
		t.Error(err)
	}
	for _, most := range []int64{0, 3} {
		if b, err := ReadAll(strings.NewReader("text"), "stdin", most); err == nil || int64(len(b)) > most {
			t.Errorf("%d: %q, %v", most, b, err)
		}
	}
	if b, err := ReadAll(strings.NewReader("text"), "stdin", 4); string(b) != "text" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := ReadAll(zeros{}, "stdin", 1<<20); err == nil ||
		err.Error() != "stdin: is larger than 1 MiB, the most that is read" {
		t.Error(err)
	}
}

// zeros reads as zeros without end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// A named pipe is read from the first byte to the last, whenever its writer comes.
func TestNamedPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "p")
	if err := syscall.Mkfifo(pipe, 0o644); err != nil {
		t.Skip(err)
	}
	for _, wait := range []time.Duration{0, 50 * time.Millisecond} {
		failed := make(chan error, 1)
		go func() {
			time.Sleep(wait)
			w, err := os.OpenFile(pipe, os.O_WRONLY, 0)
			if err == nil {
				_, err = io.WriteString(w, "one")
				time.Sleep(wait)
				_, e := io.WriteString(w, " two")
				err = errors.Join(err, e, w.Close())
			}
			failed <- err
		}()
		if b, err := ReadFile(t.Context(), pipe, 100); string(b) != "one two" || err != nil {
			t.Errorf("%q, %v", b, err)
		}
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
}

// What <(...) of a shell gives: the name of a pipe that is open already, whose writer may
// be gone.
func TestOpenPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	io.WriteString(w, "text")
	w.Close()
	path := filepath.Join("/dev/fd", strconv.Itoa(int(r.Fd())))
	if _, err := os.Stat(path); err != nil {
		t.Skip(err)
	}
	if b, err := ReadFile(t.Context(), path, 100); string(b) != "text" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
}

// The end of the context ends the wait for a writer, the wait for more from a silent writer, and the opening of a
// pipe, if the context ended before.
func TestCanceledPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "p")
	if err := syscall.Mkfifo(pipe, 0o644); err != nil {
		t.Skip(err)
	}
	for _, wait := range []time.Duration{0, 100 * time.Millisecond} {
		for _, written := range []string{"", "text"} {
			var w *os.File
			if written != "" {
				var err error
				if w, err = os.OpenFile(pipe, os.O_RDWR, 0); err != nil {
					t.Fatal(err)
				}
				io.WriteString(w, written)
			}
			ctx, cancel := context.WithCancel(t.Context())
			if wait > 0 {
				time.AfterFunc(wait, cancel)
			} else {
				cancel()
			}
			if _, err := ReadFile(ctx, pipe, 100); !errors.Is(err, context.Canceled) ||
				!strings.Contains(err.Error(), pipe) {
				t.Errorf("canceled after %v, %q written: %v", wait, written, err)
			}
			cancel()
			if w != nil {
				w.Close()
			}
		}
	}
}

// A regular file is read whatever the context, and a pipe is no regular file, whether it has a writer or not.
func TestRegular(t *testing.T) {
	dir := t.TempDir()
	file, pipe := filepath.Join(dir, "f"), filepath.Join(dir, "p")
	if err := errors.Join(os.WriteFile(file, []byte("text"), 0o644), syscall.Mkfifo(pipe, 0o644)); err != nil {
		t.Skip(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if b, err := ReadFile(ctx, file, 4); string(b) != "text" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	if b, err := ReadRegular(file, 4); string(b) != "text" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := ReadRegular(file, 3); err == nil || !strings.Contains(err.Error(), "is larger than 3 bytes") {
		t.Error(err)
	}
	if _, err := ReadRegular(pipe, 4); err == nil || err.Error() != pipe+": is not a regular file" {
		t.Error(err)
	}
}
