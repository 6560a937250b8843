package gateway

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A reply is committed to the client with its first content. Until then the gateway holds the reply back: if the
// worker fails, another one takes over, and the client does not notice. vLLM sends the header of a stream some
// milliseconds after the request, and the first token after a queue and a prefill.

const (
	// earlyHeader is the age of a request at which the client gets the header of a stream without content, because
	// clients and proxies limit the wait for a header. The request can still change its worker. Comments of the worker
	// pass from then on.
	earlyHeader = 5 * time.Second
	// maxHeld is how much of a reply is held, bytes. A longer reply is passed on before its end has come.
	maxHeld = 64 << 10
)

var errNoContent = errors.New("the stream ended before its first token")

// hold reads a stream up to its first content, or the whole of a short reply that is no stream. It returns the error
// with which the worker failed before that, or the fault that a stream tells of in place of content. With final set,
// such a stream is passed on; the reply of another model and one that the worker has aborted never are.
func (a *answer) hold(resp *http.Response, final bool) (*fault, error) {
	n := resp.ContentLength
	if a.ReadCloser == http.NoBody || n == 0 {
		return nil, nil
	}
	json := strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json")
	if a.isStream() || n < 0 && (!json || a.d.parsed.stream) {
		f, err := a.holdStart(resp, final)
		a.forgetLength(resp)
		return f, err
	}
	held, err := a.holdWhole(n)
	if err != nil {
		return nil, err
	}
	if f := cmp.Or(a.checkWhole(held), a.checkAborted(held)); f != nil {
		return f, nil
	}
	if a.renamer != nil && int64(len(held)) == n {
		held = append(bytes.Clone(a.renamer.Piece(held)), a.renamer.End()...)
		a.renamer, resp.ContentLength = nil, int64(len(held))
		resp.Header.Set("Content-Length", strconv.Itoa(len(held)))
	}
	a.forgetLength(resp)
	a.ReadCloser = putBack(held, a.ReadCloser)
	return nil, nil
}

// forgetLength makes the length of a response unknown if the rename of its model is still to change it.
func (a *answer) forgetLength(resp *http.Response) {
	if a.renamer != nil {
		resp.ContentLength = -1
		resp.Header.Del("Content-Length")
	}
}

// holdWhole reads a reply of a known length, or of an unknown one (-1), up to maxHeld bytes.
func (a *answer) holdWhole(length int64) (held []byte, err error) {
	a.begun.Store(true)
	room := int64(bufferSize)
	if length >= 0 {
		room = min(length, maxHeld)
	}
	held = make([]byte, 0, room)
	for len(held) < maxHeld && int64(len(held)) != length {
		held = slices.Grow(held, 1)
		a.wait(a.d.g.cfg.Idle)
		n, err := a.ReadCloser.Read(held[len(held):cap(held)])
		a.waits.Store(false)
		held = held[:len(held)+n]
		if errors.Is(err, io.EOF) && (length < 0 || int64(len(held)) == length) {
			break
		} else if err != nil {
			return nil, a.why(err)
		}
	}
	return held, nil
}

// holdStart reads a stream up to the first event with content, or any other reply up to its first byte.
func (a *answer) holdStart(resp *http.Response, final bool) (f *fault, err error) {
	d := a.d
	early := d.announce(resp.Header)
	defer early.stop()
	buf, lines := buffers.Get(), eventLines{names: a.names}
	held, passed := buf[:0], false
	defer func() {
		a.waits.Store(false)
		if passed {
			a.ReadCloser = &resumed{start: held, buf: buf, ReadCloser: a.ReadCloser}
		} else {
			buffers.Put(buf)
		}
	}()
	for len(held) < len(buf) {
		if !a.isStream() || lines.within(held) {
			a.begun.Store(true)
			a.wait(d.g.cfg.Idle)
		}
		n, err := a.ReadCloser.Read(buf[len(held):])
		held = buf[:len(held)+n]
		switch v := a.judge(&lines, held, err); {
		case v == refused:
			if f = refusalOf(lines.data); f == nil || final || !d.goesOn(f) {
				passed = true
				return nil, nil
			}
			return f, nil
		case v == foreign:
			return a.otherModel(lines.other), nil
		case !a.aborts.None() && (v == aborted || v == ended && a.form == tokenForm):
			return a.aborted(v == aborted), nil
		case v != empty:
			passed = true
			return nil, nil
		case errors.Is(err, io.EOF):
			return nil, errNoContent
		case err != nil:
			return nil, a.why(err)
		}
		if d.booked {
			d.g.cfg.Fleet.Requests.Heard(&d.fr)
		}
		if early.done() {
			var comments []byte
			if held, comments = lines.takeComments(held); len(comments) > 0 {
				d.line.Write(comments) // what fails is the connection, which the next write sees
			}
		}
	}
	passed = true
	return nil, nil
}

// judge judges what has come of a reply: with the error of the latest read.
func (a *answer) judge(lines *eventLines, held []byte, err error) verdict {
	if !a.isStream() {
		if len(held) > 0 || errors.Is(err, io.EOF) {
			return content
		}
		return empty
	}
	v := lines.scan(held)
	if v == empty && errors.Is(err, io.EOF) { // a last line without an end
		v = lines.line(held[lines.at:], lines.at)
	}
	return v
}

// why is the reason for which an answer broke off: the gateway's own, if there is one.
func (a *answer) why(err error) error {
	if cause := a.cause(); cause != nil {
		return cause
	}
	return err
}

// resumed is a body of which the start has been read.
type resumed struct {
	start []byte
	buf   []byte // holds the start, and belongs to buffers; nil: to nobody
	io.ReadCloser
}

// putBack returns a body that begins with what was read of it.
func putBack(start []byte, body io.ReadCloser) io.ReadCloser {
	return &resumed{start: start, ReadCloser: body}
}

func (r *resumed) Read(p []byte) (int, error) {
	if len(r.start) == 0 {
		return r.ReadCloser.Read(p)
	}
	n := copy(p, r.start)
	if r.start = r.start[n:]; len(r.start) == 0 && r.buf != nil {
		buffers.Put(r.buf)
		r.buf = nil
	}
	return n, nil
}

// announcement sends the header of a stream to the client once the request is old enough, unless it is stopped before.
type announcement struct {
	timer *time.Timer

	mu         sync.Mutex // held while the header is sent
	over, sent bool
}

// announce begins the wait for the age at which the client gets a header.
func (d *dispatch) announce(header http.Header) *announcement {
	a := new(announcement)
	a.timer = time.AfterFunc(earlyHeader-time.Since(d.sent), func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.sent = !a.over; a.sent {
			d.line.begin(header)
		}
	})
	return a
}

// done reports whether the header has been sent.
func (a *announcement) done() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sent
}

// stop ends the wait. Afterwards the header is not sent.
func (a *announcement) stop() {
	a.timer.Stop()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = true
}

// begin sends the header of a stream. A later WriteHeader has no effect.
func (l *line) begin(header http.Header) {
	if l.early {
		return
	}
	l.early = true
	own := l.Header()
	endToEnd(own, header)
	own.Del("Content-Length")
	l.WriteHeader(http.StatusOK)
	l.flush() // what fails is the connection, which the next write sees
}

// fits reports whether a response can follow the header that the client has got early.
func (l *line) fits(resp *http.Response) bool {
	return !l.early || resp.StatusCode == http.StatusOK &&
		resp.Header.Get("Content-Type") == l.Header().Get("Content-Type")
}
