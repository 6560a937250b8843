package wire

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// conn is a connection, which one request at a time has to itself.
type conn struct {
	net.Conn
	of    *Client
	addr  string
	in    *bufio.Reader
	since time.Time // when it became idle
}

const (
	bufferSize = 4096
	maxHead    = 1 << 20 // bytes of a reply before its body
)

var (
	errNoReply  = errors.New("the connection was closed before a reply came")
	errLongHead = fmt.Errorf("the head of the reply is longer than %d bytes", maxHead)
)

func newConn(nc net.Conn, of *Client, addr string) *conn {
	return &conn{Conn: nc, of: of, addr: addr, in: bufio.NewReaderSize(nc, bufferSize)}
}

// expire ends what waits for the connection.
func (c *conn) expire() { c.SetDeadline(time.Unix(1, 0)) }

// freshness is how long an idle connection is taken to be open without a look:
// servers close those that are idle for seconds.
const freshness = 100 * time.Millisecond

// usable says whether an idle connection can serve again: its server has not
// closed it, and has sent nothing that nobody asked for.
func (c *conn) usable() bool {
	sc, ok := c.Conn.(syscall.Conn)
	if !ok || time.Since(c.since) < freshness {
		return true
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	var b [1]byte
	var rerr error
	err = raw.Read(func(fd uintptr) bool {
		_, rerr = syscall.Read(int(fd), b[:])
		return true // do not wait
	})
	return err == nil && errors.Is(rerr, syscall.EAGAIN)
}

var requests = sync.Pool{New: func() any { return new([]byte) }}

// exchange sends a request and reads the head of its reply.
func (c *conn) exchange(t *Target, body []byte, r *Reply) error {
	buf := requests.Get().(*[]byte)
	b := strconv.AppendInt(append((*buf)[:0], t.head...), int64(len(body)), 10)
	b = append(append(b, "\r\n\r\n"...), body...)
	_, werr := c.Write(b)
	*buf = b
	requests.Put(buf)
	// even if that failed: a server may refuse a request, and close, before it has read it
	for {
		h, err := c.head()
		if err != nil {
			if werr != nil {
				err = werr
			}
			return err
		}
		if h.status >= 200 {
			r.Status, r.body, r.keep = h.status, h.body(c.in), !h.close && werr == nil
			return nil
		}
	}
}

// head is what matters of the head of a reply.
type head struct {
	status  int
	length  int64 // of the body; -1: unknown
	chunked bool
	close   bool // the connection ends with the reply
}

// head reads the head of a reply (RFC 9112, sections 4 to 6).
func (c *conn) head() (head, error) {
	h := head{length: -1}
	left := maxHead
	line, err := c.line(&left)
	if err != nil {
		if err == io.EOF {
			err = errNoReply
		}
		return h, err
	}
	if err := h.statusLine(line); err != nil {
		return h, err
	}
	for {
		if line, err = c.line(&left); err != nil {
			return h, unexpected(err)
		}
		if len(line) == 0 {
			break
		}
		if err := h.field(line); err != nil {
			return h, err
		}
	}
	switch {
	case h.chunked:
		h.length = -1
	case h.status < 200, h.status == http.StatusNoContent, h.status == http.StatusNotModified:
		h.length = 0
	case h.length < 0:
		h.close = true
	}
	return h, nil
}

// line reads a line without its end. Of one that is longer than the buffer it
// returns the beginning. It is valid until the next read.
func (c *conn) line(left *int) ([]byte, error) {
	line, err := c.in.ReadSlice('\n')
	*left -= len(line)
	if err == bufio.ErrBufferFull {
		line = bytes.Clone(line)
		for err == bufio.ErrBufferFull && *left >= 0 {
			var more []byte
			more, err = c.in.ReadSlice('\n')
			*left -= len(more)
		}
	}
	if *left < 0 {
		return nil, errLongHead
	}
	if err != nil {
		if len(line) > 0 {
			err = unexpected(err)
		}
		return nil, err
	}
	return bytes.TrimRight(line, "\r\n"), nil
}

func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// statusLine reads "HTTP/1.1 200 OK".
func (h *head) statusLine(line []byte) error {
	version, rest, _ := bytes.Cut(line, []byte(" "))
	code, _, _ := bytes.Cut(rest, []byte(" "))
	n, err := strconv.ParseUint(string(code), 10, 16)
	if err != nil || len(code) != 3 || n < 100 || !bytes.HasPrefix(version, []byte("HTTP/1.")) {
		return fmt.Errorf("the reply begins with %.40q, expected the status line of HTTP/1.1", line)
	}
	h.status, h.close = int(n), string(version) == "HTTP/1.0"
	return nil
}

// field reads a field of the header.
func (h *head) field(line []byte) error {
	name, value, ok := bytes.Cut(line, []byte(":"))
	if !ok && line[0] != ' ' && line[0] != '\t' { // else it goes on with the one before, which are not those that matter
		return fmt.Errorf("the header of the reply has the line %.40q, expected NAME: VALUE", line)
	}
	value = bytes.TrimSpace(value)
	switch {
	case is(name, "content-length"):
		n, err := strconv.ParseUint(string(value), 10, 62)
		if err != nil || h.length >= 0 && h.length != int64(n) {
			return fmt.Errorf("the reply's Content-Length is %.40q, expected one number", value)
		}
		h.length = int64(n)
	case is(name, "transfer-encoding"):
		if h.chunked || !is(value, "chunked") {
			return fmt.Errorf("the reply's Transfer-Encoding is %.40q, expected chunked", value)
		}
		h.chunked = true
	case is(name, "connection"):
		for option := range bytes.SplitSeq(value, []byte(",")) {
			h.close = h.close || is(bytes.TrimSpace(option), "close")
		}
	}
	return nil
}

func is(text []byte, lower string) bool {
	return len(text) == len(lower) && bytes.EqualFold(text, []byte(lower))
}

// body is the body that follows a head.
func (h *head) body(in *bufio.Reader) io.Reader {
	switch {
	case h.chunked:
		return &chunks{Reader: httputil.NewChunkedReader(in), in: in}
	case h.length >= 0:
		return &sized{in, h.length}
	}
	return in
}

// chunks is a chunked body with the trailer after it.
type chunks struct {
	io.Reader
	in *bufio.Reader
}

func (c *chunks) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if err != io.EOF {
		return n, err
	}
	left := maxHead
	for {
		line, err := c.in.ReadSlice('\n')
		if left -= len(line); left < 0 {
			return n, errLongHead
		}
		if err != nil && err != bufio.ErrBufferFull {
			return n, unexpected(err)
		}
		if len(bytes.TrimRight(line, "\r\n")) == 0 {
			return n, io.EOF
		}
	}
}

// sized is a body of known length.
type sized struct {
	in   *bufio.Reader
	left int64
}

func (s *sized) Read(p []byte) (int, error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	n, err := s.in.Read(p[:min(int64(len(p)), s.left)])
	if s.left -= int64(n); s.left > 0 {
		return n, unexpected(err)
	}
	return n, nil
}
