package gateway

import (
	"errors"
	"net/http"

	"lorasim/internal/guard"
)

// guard passes a request on with do. If do panics while it handles data of a worker, guard marks the worker down and
// removes the request from it. The client gets status 502, or its connection is cut if the answer has begun. The
// recovery of net/http marks no worker down and releases nothing.
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
