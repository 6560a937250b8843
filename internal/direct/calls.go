//go:build linux && (amd64 || arm64) && !race

package direct

import (
	"io"
	"syscall"
	"unsafe"
)

const isDirect = true

// receive reads what has come. It is not done if that is nothing.
func (t *transfer) receive(fd uintptr) (done bool) {
	n, err := Receive(fd, t.p)
	if err == syscall.EAGAIN {
		return false
	}
	if t.n, t.err = n, err; n == 0 && err == nil {
		t.err = io.EOF
	}
	return true
}

// send writes as much as there is room for. It is done at the end.
func (t *transfer) send(fd uintptr) (done bool) {
	for t.n < len(t.p) {
		n, err := call(syscall.SYS_SENDTO, fd, t.p[t.n:], syscall.MSG_DONTWAIT|syscall.MSG_NOSIGNAL)
		if err == syscall.EAGAIN {
			return false
		} else if err != nil {
			t.err = err
			return true
		}
		t.n += n
	}
	return true
}

// Receive reads what has come on a socket, without a wait. The error is syscall.EAGAIN if that is nothing.
func Receive(fd uintptr, p []byte) (int, error) {
	return call(syscall.SYS_RECVFROM, fd, p, syscall.MSG_DONTWAIT)
}

// call makes a system call that does not block. P has at least one byte.
func call(number, fd uintptr, p []byte, flags uintptr) (int, error) {
	for {
		n, _, errno := syscall.RawSyscall6(number, fd, uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)), flags, 0, 0)
		switch errno {
		case 0:
			return int(n), nil
		case syscall.EINTR:
		default:
			return 0, errno
		}
	}
}
