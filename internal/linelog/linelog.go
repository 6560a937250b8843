// Package linelog writes log lines without blocking their authors. If the log is not read (a full pipe, a slow
// disk), lines are dropped and counted.
//
//	w := linelog.New(os.Stderr)
//	defer w.Close(time.Second)
//	logger := slog.New(slog.NewTextHandler(w, nil))
package linelog

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"time"
)

const (
	maxPending = 4 << 20 // limit of pending bytes; further lines are dropped
	// maxPiece is PIPE_BUF of Linux: a pipe takes a piece of at most this size whole
	// or not at all, so that no line is left half-written when the program ends.
	maxPiece = 4096
	gather   = 50 * time.Millisecond // how long a line waits for others to be written with it
)

// A Writer is an io.Writer for a log. Each call of Write passes one or more whole lines. Several goroutines may call
// its methods.
type Writer struct {
	wake chan struct{} // cap 1: there is something to do
	end  chan struct{} // closed by Close
	done chan struct{} // closed when the goroutine has ended

	mu      sync.Mutex
	pending bytes.Buffer
	next    io.Writer // replaces the destination before the next line
	dropped int64
	closed  bool
}

// New returns a Writer to a destination. Close ends its goroutine.
func New(to io.Writer) *Writer {
	w := &Writer{wake: make(chan struct{}, 1), end: make(chan struct{}), done: make(chan struct{})}
	go w.run(to)
	return w
}

// Write implements io.Writer. It never waits and never fails: it drops lines for which there is no room.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	if w.closed || w.pending.Len()+len(p) > maxPending {
		w.dropped++
		w.mu.Unlock()
		return len(p), nil
	}
	w.pending.Write(p)
	w.mu.Unlock()
	w.signal()
	return len(p), nil
}

func (w *Writer) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Dropped returns the number of lines that were not written.
func (w *Writer) Dropped() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dropped
}

// Redirect changes the destination of later lines and of lines that are not yet written.
func (w *Writer) Redirect(to io.Writer) {
	w.mu.Lock()
	w.next = to
	w.mu.Unlock()
	w.signal()
}

var errUnread = errors.New("the log is incomplete: its reader stopped reading")

// Close writes the pending lines, for at most the given time. Later lines are dropped.
func (w *Writer) Close(limit time.Duration) error {
	w.mu.Lock()
	if !w.closed {
		w.closed = true
		close(w.end)
	}
	w.mu.Unlock()
	w.signal()
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-w.done:
		return nil
	case <-t.C:
		return errUnread
	}
}

func (w *Writer) run(to io.Writer) {
	defer close(w.done)
	var text bytes.Buffer
	for range w.wake {
		select { // more lines may come: a goroutine that wakes for each costs more than the line
		case <-time.After(gather):
		case <-w.end:
		}
		w.mu.Lock()
		w.pending, text = text, w.pending
		if w.next != nil {
			to, w.next = w.next, nil
		}
		closed := w.closed
		w.mu.Unlock()
		if lost := writeLines(to, text.Bytes()); lost > 0 {
			w.mu.Lock()
			w.dropped += lost
			w.mu.Unlock()
		}
		if text.Reset(); text.Cap() > maxPending/4 {
			text = bytes.Buffer{} // memory of a burst
		}
		if closed {
			return
		}
	}
}

// writeLines writes lines in pieces and returns how many lines failed.
func writeLines(to io.Writer, text []byte) (lost int64) {
	for len(text) > 0 {
		n := len(text)
		if n > maxPiece {
			if n = bytes.LastIndexByte(text[:maxPiece], '\n') + 1; n == 0 { // one long line
				n = bytes.IndexByte(text, '\n') + 1
			}
			if n == 0 {
				n = len(text)
			}
		}
		if _, err := to.Write(text[:n]); err != nil {
			lost += int64(bytes.Count(text[:n], []byte{'\n'}))
		}
		text = text[n:]
	}
	return lost
}
