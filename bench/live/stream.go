package live

import (
	"bytes"
	"errors"
	"io"
	"time"
)

// eventReader splits a stream of server-sent events into the data of its
// events, and knows when the bytes of each arrived.
type eventReader struct {
	r     io.Reader
	buf   []byte
	begin int       // of what is not consumed
	end   int       // of what was read
	at    time.Time // when the bytes read last arrived
	err   error
	seen  func() // called after each read that brought bytes
}

// maxEvent limits the length of one line.
const maxEvent = 16 << 20

var (
	errLongEvent = errors.New("an event of the stream is longer than 16 MiB")
	dataPrefix   = []byte("data:")
)

func newEventReader(r io.Reader, seen func()) *eventReader {
	return &eventReader{r: r, buf: make([]byte, 4096), seen: seen}
}

// next returns the data of the next event, without "data:" and the space after
// it, valid until the next call; io.EOF at the end of the stream. Other fields
// of events (event:, id:, comments) are skipped. The engines send one line of
// data per event.
func (e *eventReader) next() ([]byte, error) {
	for {
		line, err := e.line()
		if err != nil {
			return nil, err
		}
		if data, ok := bytes.CutPrefix(line, dataPrefix); ok {
			return bytes.TrimSpace(data), nil
		}
	}
}

// line returns the next line. A last line without an end is no line: it was cut
// off.
func (e *eventReader) line() ([]byte, error) {
	from := e.begin
	for {
		if k := bytes.IndexByte(e.buf[from:e.end], '\n'); k >= 0 {
			line := e.buf[e.begin : from+k]
			e.begin = from + k + 1
			return line, nil
		}
		from = e.end
		if e.err != nil {
			return nil, e.err
		}
		moved := e.makeRoom()
		from -= moved
		if e.end == len(e.buf) {
			return nil, errLongEvent
		}
		n, err := e.r.Read(e.buf[e.end:])
		if n > 0 {
			e.at = time.Now()
			e.end += n
			if e.seen != nil {
				e.seen()
			}
		}
		e.err = err
	}
}

// makeRoom makes sure that there is room to read into, and returns by how much
// what is in the buffer moved forward.
func (e *eventReader) makeRoom() int {
	if e.end < len(e.buf) {
		return 0
	}
	moved := e.begin
	if e.begin == 0 && len(e.buf) < maxEvent {
		grown := make([]byte, 2*len(e.buf))
		copy(grown, e.buf)
		e.buf = grown
		return 0
	}
	copy(e.buf, e.buf[e.begin:e.end])
	e.end -= e.begin
	e.begin = 0
	return moved
}

// reset makes the reader read another stream.
func (e *eventReader) reset(r io.Reader, seen func()) {
	*e = eventReader{r: r, buf: e.buf, seen: seen}
}
