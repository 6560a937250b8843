package textfile

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// The functions of this file read from a file system that the caller hands in. With nil they read files and pipes of
// the operating system, as the functions without a file system do.

// OpenIn opens a file of fsys as [Open] does.
func OpenIn(ctx context.Context, fsys fs.FS, path string, progress func(bytesRead int64) error) (*File, error) {
	file, err := openInputIn(ctx, fsys, path)
	if err != nil {
		return nil, err
	}
	return open(path, file, progress)
}

// openInputIn opens an input as [openInput] does, or a file of fsys.
func openInputIn(ctx context.Context, fsys fs.FS, path string) (io.ReadCloser, error) {
	if fsys == nil {
		return openInput(ctx, path)
	}
	f, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err == nil && info.IsDir() {
		f.Close()
		return nil, fmt.Errorf("%s: is a folder, expected a file", path)
	}
	return f, nil
}

// Stat describes a file.
func Stat(fsys fs.FS, path string) (fs.FileInfo, error) {
	if fsys == nil {
		return os.Stat(path)
	}
	return fs.Stat(fsys, path)
}

// A RandomFile is an open regular file.
type RandomFile interface {
	io.Reader
	io.ReaderAt
	io.Closer
}

// OpenFileIn opens a regular file, and returns its size in bytes.
func OpenFileIn(fsys fs.FS, path string) (f RandomFile, size int64, err error) {
	if fsys == nil {
		in, err := OpenFile(path)
		if err != nil {
			return nil, 0, err
		}
		return in, in.Size, nil
	}
	info, err := fs.Stat(fsys, path)
	if err != nil {
		return nil, 0, err
	}
	file, err := openInputIn(context.Background(), fsys, path)
	if err != nil {
		return nil, 0, err
	}
	f, ok := file.(RandomFile)
	if !ok {
		file.Close()
		return nil, 0, fmt.Errorf("%s: has no random access", path)
	}
	return f, info.Size(), nil
}
