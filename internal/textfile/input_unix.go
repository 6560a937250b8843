//go:build unix

package textfile

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// openNow opens a file without waiting. Without O_NONBLOCK, opening a named pipe would wait in the kernel for a
// writer.
func openNow(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// isNull reports whether a device is the null device, under any name.
func isNull(info fs.FileInfo) bool {
	null, err := os.Stat(os.DevNull)
	return err == nil && sameDevice(info, null)
}

func sameDevice(a, b fs.FileInfo) bool {
	x, ok := a.Sys().(*syscall.Stat_t)
	y, also := b.Sys().(*syscall.Stat_t)
	return ok && also && x.Rdev == y.Rdev
}

func isTerminal(path string) bool {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	return term.IsTerminal(int(f.Fd()))
}

// awaitWriter returns when a pipe has something to read, or had a writer that is gone.
func (in *Input) awaitWriter() error {
	conn, err := in.SyscallConn()
	if err != nil {
		return err
	}
	// A read of a pipe that never had a writer would return the end of the file.
	return in.interrupted(conn.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n != 0 || err != nil && !errors.Is(err, unix.EINTR)
	}))
}
