// Package atomicfile writes files that appear under their name only when they are complete. So no program reads half
// a file, and a failed run leaves the earlier file as it was. [Write] writes a file in one call:
//
//	err := atomicfile.Write("plot.svg", func(f *atomicfile.File) error {
//		_, err := canvas.WriteTo(f)
//		return err
//	})
//
// A [File] can be written in several steps:
//
//	f, err := atomicfile.Create("run.parquet")
//	defer f.Abort() // does nothing after Commit
//	_, err = f.Write(data)
//	err = f.Commit()
//
// Symbolic links stay: the file that they point to is replaced. Devices, pipes and the program's own output
// (/dev/stdout) are written directly.
package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// A File is a file being written under a temporary name, in the folder of its final name, so that the final rename
// is atomic.
type File struct {
	temp   *os.File
	path   string
	direct bool // temp is the target itself: there is no file to replace
	done   bool
}

// Create creates a temporary file that Commit renames to path.
func Create(path string) (*File, error) {
	if info, err := os.Stat(path); err == nil {
		switch {
		case info.IsDir():
			return nil, &fs.PathError{Op: "open", Path: path, Err: syscall.EISDIR}
		case !info.Mode().IsRegular() || path == "/dev/stdout" || path == "/dev/stderr" ||
			strings.HasPrefix(path, "/dev/fd/"):
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			return &File{temp: f, path: path, direct: true}, err
		}
		if path, err = filepath.EvalSymlinks(path); err != nil {
			return nil, err
		}
	}
	temp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.tmp")
	if err != nil {
		return nil, named(err, path)
	}
	return &File{temp: temp, path: path}, nil
}

// named replaces the temporary name in an error by the name that the user gave.
func named(err error, path string) error {
	var e *fs.PathError
	if errors.As(err, &e) {
		return &fs.PathError{Op: e.Op, Path: path, Err: e.Err}
	}
	return err
}

// Write writes b to the file, unbuffered.
func (f *File) Write(b []byte) (int, error) {
	n, err := f.temp.Write(b)
	if err != nil {
		err = named(err, f.path)
	}
	return n, err
}

// Seek sets the position of the next Write, as [os.File.Seek] does.
func (f *File) Seek(offset int64, whence int) (int64, error) { return f.temp.Seek(offset, whence) }

// Commit completes the file and gives it its name, with mode 0644. After an error the temporary file is removed.
func (f *File) Commit() error {
	if f.done {
		return fs.ErrClosed
	}
	if f.direct {
		f.done = true
		return f.temp.Close()
	}
	defer f.Abort()
	if err := f.temp.Chmod(0o644); err != nil { // CreateTemp lets only the owner in
		return named(err, f.path)
	}
	if err := f.temp.Close(); err != nil {
		return named(err, f.path)
	}
	if err := os.Rename(f.temp.Name(), f.path); err != nil {
		return err
	}
	f.done = true
	return nil
}

// Abort removes the temporary file. After Commit or Abort it does nothing.
func (f *File) Abort() {
	if f.done {
		return
	}
	f.done = true
	f.temp.Close()
	if !f.direct {
		os.Remove(f.temp.Name())
	}
}

// Write creates the file path with the content that fill writes. If fill returns an error or panics, nothing is left
// behind.
func Write(path string, fill func(*File) error) error {
	f, err := Create(path)
	if err != nil {
		return err
	}
	defer f.Abort()
	if err := fill(f); err != nil {
		return err
	}
	return f.Commit()
}
