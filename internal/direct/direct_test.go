package direct_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"lorasim/internal/direct"
)

// pair returns the two ends of a connection.
func pair(t *testing.T) (near, far *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialled := make(chan net.Conn, 1)
	go func() {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Error(err)
		}
		dialled <- c
	}()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	near, far = c.(*net.TCPConn), (<-dialled).(*net.TCPConn)
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

var errStuck = errors.New("it waits")

// within calls do, and returns errStuck if that takes too long.
func within(do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		return err
	case <-time.After(20 * time.Second):
		return errStuck
	}
}

// cases are what may happen to a connection. Each returns what its user sees.
var cases = map[string]func(near net.Conn, far *net.TCPConn) (any, error){
	"read what is there": func(near net.Conn, far *net.TCPConn) (any, error) {
		far.Write([]byte("abc"))
		p := make([]byte, 2)
		n, err := io.ReadFull(near, p)
		return fmt.Sprint(n, string(p)), err
	},
	"read what comes later": func(near net.Conn, far *net.TCPConn) (any, error) {
		go func() {
			near.SetReadDeadline(time.Now().Add(time.Hour)) // while the other waits
			far.Write([]byte("abc"))
		}()
		p := make([]byte, 3)
		n, err := io.ReadFull(near, p)
		return fmt.Sprint(n, string(p)), err
	},
	"read nothing": func(near net.Conn, _ *net.TCPConn) (any, error) { return near.Read(nil) },
	"read the end": func(near net.Conn, far *net.TCPConn) (any, error) {
		far.CloseWrite()
		return near.Read(make([]byte, 5))
	},
	"read after a reset": func(near net.Conn, far *net.TCPConn) (any, error) {
		far.SetLinger(0)
		far.Close()
		return near.Read(make([]byte, 5))
	},
	"read after the deadline": func(near net.Conn, far *net.TCPConn) (any, error) {
		far.Write([]byte("abc"))
		near.SetReadDeadline(time.Unix(1, 0))
		return near.Read(make([]byte, 5))
	},
	"a deadline that comes while it reads": func(near net.Conn, _ *net.TCPConn) (any, error) {
		go near.SetReadDeadline(time.Unix(1, 0))
		return near.Read(make([]byte, 5))
	},
	"closed while it reads": func(near net.Conn, _ *net.TCPConn) (any, error) {
		go near.Close()
		return near.Read(make([]byte, 5))
	},
	"read when closed": func(near net.Conn, _ *net.TCPConn) (any, error) {
		near.Close()
		return near.Read(make([]byte, 5))
	},
	"write": func(near net.Conn, far *net.TCPConn) (any, error) {
		n, err := near.Write([]byte("abc"))
		p := make([]byte, 3)
		io.ReadFull(far, p)
		return fmt.Sprint(n, string(p)), err
	},
	"write nothing": func(near net.Conn, _ *net.TCPConn) (any, error) { return near.Write(nil) },
	"write when closed": func(near net.Conn, _ *net.TCPConn) (any, error) {
		near.Close()
		return near.Write([]byte("abc"))
	},
	"write after the deadline": func(near net.Conn, _ *net.TCPConn) (any, error) {
		near.SetWriteDeadline(time.Unix(1, 0))
		return near.Write([]byte("abc"))
	},
	"write after a reset": func(near net.Conn, far *net.TCPConn) (any, error) {
		far.SetLinger(0)
		far.Close()
		near.Read(make([]byte, 1)) // takes the reset
		return near.Write([]byte("abc"))
	},
	"a deadline that comes while it writes": func(near net.Conn, _ *net.TCPConn) (any, error) {
		go near.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		n, err := near.Write(make([]byte, 64<<20)) // more than there is room for
		return n > 0 && n < 64<<20, err
	},
	"closed while it writes": func(near net.Conn, far *net.TCPConn) (any, error) {
		go func() {
			io.ReadFull(far, make([]byte, 1<<20))
			near.Close()
		}()
		n, err := near.Write(make([]byte, 64<<20))
		return n >= 1<<20 && n < 64<<20, err
	},
}

// TestAsNet compares with connections of net: the same happens, with the same errors.
func TestAsNet(t *testing.T) {
	for name, do := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var seen [2]string
			for i, wrap := range []func(c *net.TCPConn) net.Conn{
				func(c *net.TCPConn) net.Conn { return c },
				func(c *net.TCPConn) net.Conn { return direct.New(c) },
			} {
				near, far := pair(t)
				var got any
				err := within(func() (err error) {
					got, err = do(wrap(near), far)
					return err
				})
				text := fmt.Sprint(err)
				for _, a := range []net.Addr{near.LocalAddr(), near.RemoteAddr()} {
					text = strings.ReplaceAll(text, a.String(), "ADDRESS")
				}
				seen[i] = fmt.Sprint(got, " ", text, " ", err == io.EOF, errors.Is(err, net.ErrClosed),
					errors.Is(err, os.ErrDeadlineExceeded))
				if e, ok := errors.AsType[net.Error](err); ok {
					seen[i] += fmt.Sprint(" timeout ", e.Timeout())
				}
			}
			if seen[0] != seen[1] || strings.Contains(seen[1], errStuck.Error()) {
				t.Errorf("%q, expected %q", seen[1], seen[0])
			}
		})
	}
}

// TestManyBytes sends more than a socket takes, from several goroutines at once: each write stays whole.
func TestManyBytes(t *testing.T) {
	a, b := pair(t)
	near, far := direct.New(a), direct.New(b)
	const writers, parts, size = 4, 8, 300_000
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			for range parts {
				if n, err := near.Write(bytes.Repeat([]byte{'a' + byte(i)}, size)); n != size || err != nil {
					t.Errorf("%d, %v", n, err)
				}
			}
		})
	}
	p, count := make([]byte, size), map[byte]int{}
	for range writers * parts {
		if _, err := io.ReadFull(far, p); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(p, bytes.Repeat(p[:1], size)) {
			t.Fatal("a part has bytes of another one")
		}
		count[p[0]]++
	}
	wg.Wait()
	for c, n := range count {
		if n != parts {
			t.Errorf("%d parts of %q, expected %d", n, c, parts)
		}
	}
}

// TestReceive does not wait.
func TestReceive(t *testing.T) {
	near, far := pair(t)
	raw, err := near.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	look := func(wait bool) (n int, err error) {
		if cerr := raw.Read(func(fd uintptr) bool {
			n, err = direct.Receive(fd, make([]byte, 5))
			return !wait || err != syscall.EAGAIN
		}); cerr != nil {
			t.Fatal(cerr)
		}
		return n, err
	}
	if n, err := look(false); n > 0 || err != syscall.EAGAIN {
		t.Errorf("%d, %v of a connection without bytes", n, err)
	}
	far.Write([]byte("abc"))
	if n, err := look(true); n != 3 || err != nil {
		t.Errorf("%d, %v of three bytes", n, err)
	}
	far.CloseWrite()
	if n, err := look(true); n != 0 || err != nil {
		t.Errorf("%d, %v at the end", n, err)
	}
}
