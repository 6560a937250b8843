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
	"os/signal"
	"syscall"
	"time"
)

// Bounds on files that are read into memory as a whole.
const (
	MaxSettings = 1 << 20   // bytes of a file that people write: settings, certificates, keys
	MaxData     = 256 << 20 // bytes of a file that programs write: results, tables, recordings
)

// Input is a file or a pipe that a user named, open for reading.
type Input struct {
	*os.File
	Size int64 // bytes of a regular file; -1: a pipe, which does not say
	stop func()
}

// OpenInput opens what a user named as an input: a regular file, a pipe (also /dev/stdin
// and the /dev/fd/63 of a shell's <(...)), a terminal, or the null device. Other devices
// have no end (/dev/zero) or are disks; they are refused, and so are folders and sockets.
//
// An interrupt (SIGINT, SIGTERM) ends the wait for a pipe that nobody writes to; the error
// is context.Canceled then.
func OpenInput(path string) (*Input, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if err := usable(path, info); err != nil {
		return nil, err
	}
	f, err := openNow(path)
	if err != nil {
		return nil, err
	}
	in := &Input{File: f, Size: -1, stop: func() {}}
	if info, err = f.Stat(); err == nil { // another file may have taken the name
		err = usable(path, info)
	}
	switch {
	case err != nil:
	case info.Mode().IsRegular():
		in.Size = info.Size()
	default:
		in.endOnInterrupt()
		if info.Mode()&fs.ModeNamedPipe != 0 {
			err = in.awaitWriter()
		}
	}
	if err != nil {
		in.Close()
		return nil, err
	}
	return in, nil
}

// OpenFile opens a regular file, and refuses what else a path may name.
func OpenFile(path string) (*Input, error) {
	f, err := OpenInput(path)
	if err == nil && f.Size < 0 {
		f.Close()
		return nil, fmt.Errorf("%s: is not a regular file", path)
	}
	return f, err
}

// usable says why a path is no input.
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

// endOnInterrupt has an interrupt end reads that wait.
func (in *Input) endOnInterrupt() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	unset := context.AfterFunc(ctx, func() { in.SetReadDeadline(time.Unix(1, 0)) })
	in.stop = func() { unset(); stop() }
}

func (in *Input) interrupted(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("%s: interrupted while waiting for the pipe: %w", in.Name(), context.Canceled)
	}
	return err
}

// Read reads as an [os.File] does.
func (in *Input) Read(p []byte) (int, error) {
	n, err := in.File.Read(p)
	return n, in.interrupted(err)
}

// Close closes the file.
func (in *Input) Close() error {
	in.stop()
	return in.File.Close()
}

// ReadFile reads an input as [OpenInput] takes it into memory. More than most bytes are an
// error, which names the path.
func ReadFile(path string, most int64) ([]byte, error) {
	f, err := OpenInput(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if f.Size > most {
		return nil, tooLarge(path, most)
	}
	return ReadAll(f, path, most)
}

// ReadAll reads r to its end. More than most bytes are an error, which begins with the name.
func ReadAll(r io.Reader, name string, most int64) ([]byte, error) {
	var b bytes.Buffer // grows by what came
	_, err := b.ReadFrom(Limit(r, name, most))
	return b.Bytes(), err
}

// Limit reads from r, and fails where more than most bytes come; the error begins with the
// name.
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
