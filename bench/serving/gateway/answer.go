package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"lorasim/bench/serving/fleet"
	"lorasim/bench/serving/httpapi"
	"lorasim/bench/serving/metrics"
	"lorasim/bench/serving/wire"
)

// answer is the body of a worker's answer. It is counted as it passes.
type answer struct {
	io.ReadCloser
	d       *dispatch
	ctx     context.Context
	w       int
	status  int
	cancel  context.CancelCauseFunc
	timer   *time.Timer // of the time limit on the next bytes; nil: there was none
	waits   atomic.Bool // the gateway waits for bytes
	begun   atomic.Bool // it is not the first byte of a stream that it waits for
	form    form
	tail    [48]byte      // the latest bytes; an abort's mark fits
	said    []byte        // the beginning of an event with an error; nil: there was none
	last    []byte        // what the client gets beyond what the worker sent
	process fleet.Process // that it is asked of
	meant   wire.Process  // the same, for the connection
	names   httpapi.ModelNames
	aborts  httpapi.AbortMark
	// renamer gives the client the name of the model that it used; nil: that is the worker's
	renamer *httpapi.Renamer
	rest    []byte // renamed, but not read yet
	err     error  // how the answer ended; nil: it has not
	events  int
	usage   httpapi.Counts
	over    bool // the answer has ended
}

func (a *answer) Read(p []byte) (int, error) {
	if a.err != nil || len(a.rest) > 0 {
		return a.drain(p)
	}
	if a.events > 0 || !a.isStream() { // the start of a stream is there already
		a.begun.Store(true)
		a.wait(a.d.g.cfg.Idle)
	}
	n, err := a.ReadCloser.Read(p)
	a.waits.Store(false)
	if at := a.abortedAt(p[:n]); at >= 0 {
		n, err = at, errAborted
	}
	if n > 0 {
		a.count(p[:n])
		a.note(p[:n])
	}
	if a.renamer != nil {
		n = a.rename(p, n, err)
	}
	if err == nil {
		return n, nil
	}
	a.finish(err)
	if n > 0 {
		return n, nil
	}
	return a.drain(p)
}

var dataMark = []byte("data:")

// count counts each event as a token, and also each part without an event.
func (a *answer) count(part []byte) {
	d := a.d
	events := max(bytes.Count(part, dataMark), 1)
	if d.booked {
		d.g.cfg.Fleet.Requests.Tokens(&d.fr, events, a.events == 0)
	}
	if a.events == 0 {
		d.begun = time.Now()
		d.line.firstByte = d.begun.Sub(d.sent)
		d.g.metrics.FirstByte(d.adapter, d.line.firstByte)
		if d.parsed.sent.Load() {
			d.parsed.release()
		}
	}
	a.events += events
	d.line.events = a.events
}

// end notes how the answer ended. Only the first call has an effect.
func (a *answer) end(err error) {
	if a.over {
		return
	}
	a.over = true
	d := a.d
	d.line.told(a)
	result := metrics.Complete
	switch {
	case errors.Is(err, io.EOF):
		if fault := a.fault(); fault != nil {
			result = metrics.Broken
			d.g.cfg.Fleet.Requests.Failed(&d.fr, a.w, fault)
		} else if a.events > 0 && a.said == nil && a.status == http.StatusOK && d.booked && d.computes() {
			took := time.Since(d.begun).Seconds()
			d.g.cfg.Fleet.Requests.Finished(&d.fr, a.w, took, took)
		}
	case err == nil || d.r.Context().Err() != nil || d.parsed.failed() != nil:
		result = metrics.ClientGone
	default:
		result = metrics.Broken
		d.g.cfg.Fleet.Requests.Failed(&d.fr, a.w, err)
	}
	d.g.metrics.Ended(metrics.Request{Worker: d.line.url, Adapter: d.adapter, Code: a.status, Result: result,
		Prompt: int64(d.line.prompt), Output: d.line.output, Duration: time.Since(d.sent)})
}

// Close implements io.Closer. The proxy closes what it does not read to the end
// when it cannot write it: the client has gone.
func (a *answer) Close() error {
	defer a.leave() // also if what follows panics
	defer a.end(nil)
	return a.ReadCloser.Close()
}

// leave removes the request from its worker.
func (a *answer) leave() {
	if a.timer != nil {
		a.timer.Stop()
	}
	a.cancel(nil)
	if a.d.booked {
		a.d.g.cfg.Fleet.Requests.Left(&a.d.fr)
	}
}

// bufferPool has the buffers through which answers are copied.
type bufferPool struct{ sync.Pool }

const bufferSize = 16 << 10

var buffers = bufferPool{sync.Pool{New: func() any { return new([bufferSize]byte) }}}

func (p *bufferPool) Get() []byte  { return p.Pool.Get().(*[bufferSize]byte)[:] }
func (p *bufferPool) Put(b []byte) { p.Pool.Put((*[bufferSize]byte)(b)) }
