package gateway

import (
	"errors"
	"net/http"

	"lorasim/internal/guard"
)

// guard passes a request on with do. If the bytes of a worker make that panic, the
// worker is marked down, the request leaves it, and the client is answered with
// status 502, or cut off where its answer has begun. net/http recovers panics of
// handlers by itself, but knows no worker and releases nothing.
func (d *dispatch) guard(do func()) {
	err := guard.Do(func() error { do(); return nil })
	if _, ok := errors.AsType[*guard.Panic](err); !ok {
		return
	}
	d.g.cfg.Fleet.Panicked(d.asked, err)
	if a := d.answer; a != nil {
		guard.Do(a.Close)
	}
	if d.line.status != 0 {
		panic(http.ErrAbortHandler)
	}
	d.g.reject(d.line, http.StatusBadGateway, "the worker's answer could not be handled",
		http.StatusText(http.StatusBadGateway))
}
