package gateway

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"time"

	"lorasim/bench/serving/fleet"
)

// Limits of how often a request is sent again because its adapter was evicted, and the
// pauses before, which double: an engine may be busy with the unload for a while.
const (
	mostEvicted  = 100
	evictedPause = 5 * time.Millisecond
	longestPause = 500 * time.Millisecond
)

// evicted reports whether a worker refused the request because another client had its adapter evicted. A second
// gateway does so if it lacks places. The worker has not begun the request then, so the request is sent again once the
// adapter is loaded again. Otherwise the answer stays unchanged.
func (d *dispatch) evicted(resp *http.Response, w int) bool {
	workers := d.g.cfg.Fleet
	if d.parsed.adapter < 0 || d.evictions >= mostEvicted || !workers.LoRAs.Contested(w) || d.parsed.spent.Load() {
		return false
	}
	var start []byte
	switch {
	case resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusBadRequest:
		start, _ = io.ReadAll(io.LimitReader(resp.Body, 1<<16)) // what is there of it is good enough for a message
	case resp.StatusCode == http.StatusOK && strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream"):
		// sglang refuses a streamed request in the first event
		start = firstEvent(resp.Body)
	default:
		return false
	}
	if !refusedAdapter(resp.StatusCode, start) {
		resp.Body = putBack(start, resp.Body)
		return false
	}
	resp.Body.Close()
	workers.LoRAs.Forget(w, d.parsed.adapter)
	t := time.NewTimer(min(evictedPause<<min(d.evictions, 10), longestPause))
	defer t.Stop()
	select {
	case <-t.C:
	case <-d.r.Context().Done():
	}
	d.evictions++
	return true
}

// firstEvent reads the beginning of a stream: the whole event if it is an error, else the first bytes. An error of the
// stream occurs again at the next read.
func firstEvent(body io.Reader) []byte {
	start := make([]byte, 0, 1<<10)
	for len(start) < cap(start) {
		n, err := body.Read(start[len(start):cap(start)])
		start = start[:len(start)+n]
		got := min(len(start), len(errorEvent))
		if err != nil || string(start[:got]) != errorEvent[:got] || bytes.Contains(start, []byte("\n\n")) {
			break
		}
	}
	return start
}

// errorEvent is the beginning of an event with an error.
const errorEvent = `data: {"error"`

// eventData returns the data of an event of one line at the beginning of a stream.
func eventData(stream []byte) []byte {
	data, _, _ := bytes.Cut(bytes.TrimPrefix(stream, []byte("data: ")), []byte("\n"))
	return data
}

// refusedAdapter reports whether an answer begins with the refusal of an adapter that is not loaded.
func refusedAdapter(status int, start []byte) bool {
	text := start
	if status == http.StatusOK {
		if !bytes.HasPrefix(start, []byte(errorEvent)) {
			return false
		}
		text = eventData(start)
	}
	said := fleet.ErrorText(text)
	return fleet.IsNotLoaded(said) && !notServed.MatchString(said)
}
