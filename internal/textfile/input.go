package textfile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"time"
)

// Limits of files that are read into memory as a whole.
const (
	MaxSettings = 1 << 20   // size limit of files that people write, bytes: settings, certificates, keys
	MaxData     = 256 << 20 // size limit of files that programs write, bytes: results, tables, recordings
)

// An Input is an open file or pipe that a user named.
type Input struct {
	*os.File
	Size int64 // size of a regular file, bytes; -1: a pipe of unknown size
	ctx  context.Context
	stop func() bool // detaches the input from ctx
}

// openInput opens an input that a user named: a regular file, a pipe (also /dev/stdin and the /dev/fd/63 of a
// shell's <(...)), a terminal, or the null device. It returns an error for other devices, which have no end
// (/dev/zero) or are disks, and for folders and sockets.
//
// ctx ends the wait for the writer of a pipe, and reads of a pipe that wait; the error is then that of ctx. It has no
// effect on regular files.
func openInput(ctx context.Context, path string) (*Input, error) {
	in, mode, err := openAtOnce(ctx, path)
	if err != nil || mode&fs.ModeNamedPipe == 0 {
		return in, err
	}
	if err := in.awaitWriter(); err != nil {
		in.Close()
		return nil, err
	}
	return in, nil
}

// OpenFile opens a regular file. It returns an error for anything else, and never waits.
func OpenFile(path string) (*Input, error) {
	in, mode, err := openAtOnce(context.Background(), path)
	if err == nil && !mode.IsRegular() {
		in.Close()
		return nil, fmt.Errorf("%s: is not a regular file", path)
	}
	return in, err
}

// openAtOnce opens an input without waiting for a writer, and returns its mode.
func openAtOnce(ctx context.Context, path string) (*Input, fs.FileMode, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, 0, err
	}
	if err := usable(path, info); err != nil {
		return nil, 0, err
	}
	f, err := openNow(path)
	if err != nil {
		return nil, 0, err
	}
	if info, err = f.Stat(); err == nil { // another file may have taken the name
		err = usable(path, info)
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	in := &Input{File: f, Size: -1, ctx: ctx, stop: func() bool { return true }}
	switch {
	case info.Mode().IsRegular():
		in.Size = info.Size()
	case ctx.Err() != nil:
		f.Close()
		return nil, 0, in.interrupted(os.ErrDeadlineExceeded)
	default:
		in.stop = context.AfterFunc(ctx, func() { f.SetReadDeadline(time.Unix(1, 0)) })
	}
	return in, info.Mode(), nil
}

// usable returns an error if a path cannot be an input.
func usable(path string, info fs.FileInfo) error {
	mode, what := info.Mode(), "a special file"
	switch {
	case mode.IsRegular(), mode&fs.ModeNamedPipe != 0:
		return nil
	case mode.IsDir():
		return fmt.Errorf("%s: is a folder, expected a file", path)
	case mode&fs.ModeCharDevice != 0 && (isNull(info) || isTerminal(path)):
		return nil
	case mode&fs.ModeDevice != 0:
		what = "a device"
	case mode&fs.ModeSocket != 0:
		what = "a socket"
	}
	return fmt.Errorf("%s: is %s, expected a regular file or a pipe", path, what)
}

// interrupted replaces the error of a read that ctx ended.
func (in *Input) interrupted(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) && in.ctx.Err() != nil {
		return fmt.Errorf("%s: interrupted while waiting for the pipe: %w", in.Name(), in.ctx.Err())
	}
	return err
}

// Read reads as [os.File.Read] does.
func (in *Input) Read(p []byte) (int, error) {
	n, err := in.File.Read(p)
	return n, in.interrupted(err)
}

// Close closes the input.
func (in *Input) Close() error {
	in.stop()
	return in.File.Close()
}

// ReadFile reads an input, opened as by [openInput], into memory. If it holds more than most bytes, ReadFile returns
// an error, which names the path.
func ReadFile(ctx context.Context, path string, most int64) ([]byte, error) {
	f, err := openInput(ctx, path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.readAll(path, most)
}

// ReadRegular reads a regular file into memory, as [ReadFile] does. It never waits.
func ReadRegular(path string, most int64) ([]byte, error) {
	f, err := OpenFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.readAll(path, most)
}

func (in *Input) readAll(path string, most int64) ([]byte, error) {
	if in.Size > most {
		return nil, tooLarge(path, most)
	}
	return ReadAll(in, path, most)
}

// ReadAll reads r to its end. If r holds more than most bytes, ReadAll returns an error, which begins with the name.
func ReadAll(r io.Reader, name string, most int64) ([]byte, error) {
	var b bytes.Buffer // grows by what came
	_, err := b.ReadFrom(Limit(r, name, most))
	return b.Bytes(), err
}

// Limit returns a reader of r that fails after most bytes. The error begins with the name.
func Limit(r io.Reader, name string, most int64) io.Reader { return &limited{r, name, most, most} }

type limited struct {
	r          io.Reader
	name       string
	most, left int64
}

func (l *limited) Read(p []byte) (int, error) {
	if l.left < 0 {
		return 0, tooLarge(l.name, l.most)
	}
	if int64(len(p)) > l.left && l.left < math.MaxInt64 {
		p = p[:l.left+1] // a byte more tells the end from too much
	}
	n, err := l.r.Read(p)
	if l.left -= int64(n); l.left < 0 {
		return n - 1, tooLarge(l.name, l.most)
	}
	return n, err
}

func tooLarge(name string, most int64) error {
	size := fmt.Sprintf("%d bytes", most)
	switch {
	case most >= 1<<20:
		size = fmt.Sprintf("%d MiB", most>>20)
	case most >= 1<<10:
		size = fmt.Sprintf("%d KiB", most>>10)
	}
	return fmt.Errorf("%s: is larger than %s, the most that is read", name, size)
}
