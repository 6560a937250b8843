package gateway

import (
	"bytes"
	"io"
	"net/http"
	"strings"

	"lorasim/bench/live/fleet"
)

// mostEvicted limits how often a request is sent again because its adapter was evicted.
const mostEvicted = 100

// evicted says whether a worker refused the request because another client had its
// adapter evicted, as a second gateway does that is short of places. The worker has not
// begun the request then: it is to be sent again, once the adapter is back. The answer is
// left as it came otherwise.
func (d *dispatch) evicted(resp *http.Response, w int) bool {
	workers := d.g.cfg.Fleet
	if d.want.adapter < 0 || d.evictions >= mostEvicted || !workers.Contested(w) || d.want.spent.Load() {
		return false
	}
	var start []byte
	switch {
	case resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusBadRequest:
		start, _ = io.ReadAll(io.LimitReader(resp.Body, 1<<16)) // what is there of it is good enough for a message
	case resp.StatusCode == http.StatusOK && strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream"):
		// sglang refuses a streamed request in the first event
		start = make([]byte, 4<<10)
		n, _ := resp.Body.Read(start) // an error comes again with the next read
		start = start[:n]
	default:
		return false
	}
	if !refusedAdapter(resp.StatusCode, start) {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(start), resp.Body), resp.Body}
		return false
	}
	resp.Body.Close()
	d.evictions++
	workers.Forget(w, d.want.adapter)
	return true
}

// refusedAdapter says whether an answer begins with the refusal of an adapter that is
// not loaded.
func refusedAdapter(status int, start []byte) bool {
	text := start
	if status == http.StatusOK {
		event, ok := bytes.CutPrefix(start, []byte("data:"))
		event = bytes.TrimSpace(event)
		if !ok || !bytes.HasPrefix(event, []byte(`{"error"`)) {
			return false
		}
		text, _, _ = bytes.Cut(event, []byte("\n"))
	}
	said := fleet.ErrorText(text)
	return fleet.IsNotLoaded(said) && !notServed.MatchString(said)
}
