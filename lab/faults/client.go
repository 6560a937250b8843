//go:build linux

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// client is a plain client of a gateway. It checks that each reply is complete, in order, and
// belongs to its request.
type client struct {
	url    string
	path   string // "/generate" or "/v1/completions"
	limit  time.Duration
	http   *http.Client
	prefix string // beginning of request ids
	next   atomic.Int64
}

func newClient(url, path string, limit time.Duration, prefix string) *client {
	t := &http.Transport{MaxIdleConnsPerHost: 4096, DisableCompression: true}
	return &client{url: url, path: path, limit: limit, prefix: prefix,
		http: &http.Client{Transport: t,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

func (c *client) close() { c.http.CloseIdleConnections() }

// order is one request.
type order struct {
	adapter string // "": the base model
	base    string // name of the base model
	tokens  int
	whole   bool   // not streamed
	mark    string // text in the prompt, to recognize the request
}

// outcome is the result of a request.
type outcome struct {
	ok      bool
	refused bool // with status 429 or 503 and Retry-After
	hung    bool // the client gave up
	wrong   bool // part of the reply belongs to another request, or another adapter served it
	worker  string
	tokens  int
	status  int
	err     error
}

func (c *client) body(o order) []byte {
	prompt := "hello " + o.mark
	if c.path == "/generate" {
		b, _ := json.Marshal(map[string]any{"text": prompt, "lora_path": o.adapter, "stream": !o.whole,
			"sampling_params": map[string]any{"max_new_tokens": o.tokens, "ignore_eos": true}})
		return b
	}
	b, _ := json.Marshal(map[string]any{"prompt": prompt, "model": cmp.Or(o.adapter, o.base), "stream": !o.whole,
		"max_tokens": o.tokens, "ignore_eos": true})
	return b
}

// ask sends a request and reads its reply.
func (c *client) ask(ctx context.Context, o order) (out outcome) {
	ctx, cancel := context.WithTimeout(ctx, c.limit)
	defer cancel()
	id := fmt.Sprintf("%s%d", c.prefix, c.next.Add(1))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+c.path, bytes.NewReader(c.body(o)))
	if err != nil {
		return outcome{err: err}
	}
	req.GetBody = nil // the client itself does not retry
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Request-Id", id)
	resp, err := c.http.Do(req)
	defer func() {
		out.hung = errors.Is(out.err, context.DeadlineExceeded) || errors.Is(out.err, os.ErrDeadlineExceeded)
		out.ok = out.err == nil
	}()
	if err != nil {
		return outcome{err: err}
	}
	defer resp.Body.Close()
	out.status, out.worker = resp.StatusCode, resp.Header.Get("X-Worker")
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<16)) // is only printed
		out.refused = resp.Header.Get("Retry-After") != "" && (resp.StatusCode == 503 || resp.StatusCode == 429)
		out.err = fmt.Errorf("status %d: %s", resp.StatusCode, bytes.TrimSpace(text[:min(len(text), 200)]))
		return out
	}
	if model, adapter, ok := strings.Cut(resp.Header.Get("X-Served"), ":"); ok && adapter != o.adapter {
		out.wrong = true
		out.err = fmt.Errorf("adapter %q of model %s served a request for %q", adapter, model, o.adapter)
		return out
	}
	out.read(resp.Body, id, o)
	return out
}

// reply is an event or a complete reply, of either interface.
type reply struct {
	ID   string `json:"id"`
	IDs  []int  `json:"output_ids"`
	Meta struct {
		ID string `json:"id"`
	} `json:"meta_info"`
	Choices []struct {
		IDs []int `json:"token_ids"`
	} `json:"choices"`
	Error json.RawMessage `json:"error"`
}

// read checks a reply: each of the tokens 1, 2, ... once, with the id of the request.
func (out *outcome) read(r io.Reader, id string, o order) {
	done := false
	take := func(text []byte) bool {
		var e reply
		if err := json.Unmarshal(text, &e); err != nil {
			out.err = fmt.Errorf("not the JSON of a reply: %.40q", text)
			return false
		}
		if len(e.Error) > 0 {
			out.err = fmt.Errorf("error event: %s", e.Error)
			return false
		}
		ids := e.IDs
		for _, ch := range e.Choices {
			ids = append(ids, ch.IDs...)
		}
		if said := e.ID + e.Meta.ID; said != id {
			out.wrong, out.err = true, fmt.Errorf("the reply to request %q came for %q", said, id)
			return false
		}
		for _, k := range ids {
			if out.tokens++; k != out.tokens {
				out.wrong, out.err = true, fmt.Errorf("token %d where %d was due", k, out.tokens)
				return false
			}
		}
		return true
	}
	if o.whole {
		text, err := io.ReadAll(io.LimitReader(r, 1<<20))
		if err != nil {
			out.err = err
			return
		}
		done = take(text)
	} else {
		lines := bufio.NewScanner(r)
		for lines.Scan() {
			data, ok := strings.CutPrefix(lines.Text(), "data: ")
			if data == "[DONE]" {
				done = true
			} else if ok && !take([]byte(data)) {
				return
			} else if !ok && lines.Text() != "" {
				out.err = fmt.Errorf("not an event: %.40q", lines.Text())
				return
			}
		}
		if err := lines.Err(); err != nil {
			out.err = err
			return
		}
	}
	if out.err == nil && (!done || out.tokens != o.tokens) {
		out.err = fmt.Errorf("%d of %d tokens came", out.tokens, o.tokens)
	}
}

// tally counts outcomes.
type tally struct {
	mu       sync.Mutex
	requests int
	lost     int // incomplete replies
	refused  int // lost ones with Retry-After
	hung     int // lost ones without an end
	wrong    int // lost ones with data of another request
	reasons  map[string]int
	workers  map[string]int // number of replies by worker
}

func newTally() *tally { return &tally{reasons: map[string]int{}, workers: map[string]int{}} }

func (t *tally) add(o outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requests++
	if o.ok {
		t.workers[o.worker]++
		return
	}
	t.lost++
	for _, c := range []struct {
		is bool
		n  *int
	}{{o.refused, &t.refused}, {o.hung, &t.hung}, {o.wrong, &t.wrong}} {
		if c.is {
			*c.n++
		}
	}
	t.reasons[fmt.Sprintf("%.120v", o.err)]++
}

// of returns the number of replies from a worker.
func (t *tally) of(worker string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.workers[worker]
}

// drive keeps clients requests in flight until more returns false.
func (c *client) drive(ctx context.Context, clients int, t *tally, more func(i int) (order, bool)) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	i := 0
	for range clients {
		wg.Go(func() {
			for ctx.Err() == nil {
				mu.Lock()
				o, ok := more(i)
				i++
				mu.Unlock()
				if !ok {
					return
				}
				out := c.ask(ctx, o)
				if ctx.Err() != nil {
					return // cut off by the end of the cell, not lost
				}
				t.add(out)
				if !out.ok && out.tokens == 0 { // a client that is refused at once pauses
					select {
					case <-time.After(5 * time.Millisecond):
					case <-ctx.Done():
					}
				}
			}
		})
	}
	wg.Wait()
}
