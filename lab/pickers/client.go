//go:build linux

package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"time"
)

// clientOf is a client with its own connections.
type clientOf struct{ http.Transport }

// result is the result of a request.
type result struct {
	upstream string // the server that served it
	took     time.Duration
	err      error // also set for a status other than 200
}

// post sends a completion and reads the whole reply.
func (c *clientOf) post(w *way, body []byte) (r result) {
	req, err := http.NewRequest(http.MethodPost, w.url(), bytes.NewReader(body))
	if err != nil {
		return result{err: err}
	}
	req.Header.Set("Content-Type", "application/json")
	begun := time.Now()
	resp, err := c.RoundTrip(req)
	if err != nil {
		return result{err: err}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	r = result{resp.Header.Get("x-upstream"), time.Since(begun), err}
	if resp.StatusCode != http.StatusOK {
		r.err = fmt.Errorf("status %d: %.200s", resp.StatusCode, text)
	}
	return r
}

func (c *clientOf) close() { c.CloseIdleConnections() }
