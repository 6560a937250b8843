//go:build linux

package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// slowBodies opens connections that never send their bodies.
func slowBodies(c *cell) error {
	if err := c.work(1, nil); err != nil {
		return err
	}
	if err := c.serve(); err != nil {
		return err
	}
	n := pick(c.bench, 500, 100)
	head := "POST /generate HTTP/1.1\r\nHost: gateway.example\r\nContent-Type: application/json\r\n" +
		"Content-Length: 1048576\r\n\r\n"
	head += `{"text": "` + strings.Repeat("x", 209-len(head)-10)
	before, _ := c.gateway.Memory()
	var conns []net.Conn
	for range n {
		nc, err := net.Dial("tcp", strings.TrimPrefix(c.gateway.URL(0, 0), "http://"))
		if err != nil {
			return err
		}
		defer nc.Close()
		if _, err := io.WriteString(nc, head); err != nil {
			return err
		}
		conns = append(conns, nc)
	}
	c.sleep(2 * time.Second)
	_, peak := c.gateway.Memory()
	t := newTally()
	c.client(c.gateway, "/generate", "r").drive(c.ctx, 10, t,
		func(i int) (order, bool) { return order{adapter: "a0", tokens: 2}, i < 100 })
	closed, wait := 0, pick(c.bench, 45*time.Second, 2*time.Second)
	deadline := time.Now().Add(wait)
	for _, nc := range conns {
		nc.SetReadDeadline(deadline) // fails only on a closed connection
		if _, err := bufio.NewReader(nc).ReadByte(); err == nil || !os.IsTimeout(err) {
			closed++
		}
	}
	c.figure("connections", float64(n))
	c.figure("RSS before, MB", before)
	c.figure("peak RSS, MB", peak)
	c.figure("lost of 100 other requests", float64(t.lost))
	c.figure(fmt.Sprintf("closed by the gateway within %.0f s", wait.Seconds()), float64(closed))
	return nil
}

// zeros is an endless reader of bytes of a JSON string.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '0'
	}
	return len(p), nil
}

func largeBodies(c *cell) error {
	if err := c.work(1, nil); err != nil {
		return err
	}
	if err := c.serve(); err != nil {
		return err
	}
	n, size, at := pick(c.bench, 60, 8), int64(31_000_000), pick(c.bench, 20, 4)
	var next, good, refused atomic.Int64
	var ends sync.WaitGroup
	cl := http.Client{Timeout: 60 * time.Second, Transport: &http.Transport{}}
	for range at {
		ends.Go(func() {
			for c.ctx.Err() == nil && next.Add(1) <= int64(n) {
				head, tail := `{"max_new_tokens": 2, "text": "`, `", "lora_path": "a0"}`
				body := io.MultiReader(strings.NewReader(head), io.LimitReader(zeros{}, size), strings.NewReader(tail))
				req, err := http.NewRequestWithContext(c.ctx, http.MethodPost, c.gateway.URL(0, 0)+"/generate", body)
				if err != nil {
					return
				}
				req.ContentLength = int64(len(head)+len(tail)) + size
				resp, err := cl.Do(req)
				if err != nil {
					continue
				}
				io.Copy(io.Discard, resp.Body) // only the status counts
				resp.Body.Close()
				switch resp.StatusCode {
				case 200:
					good.Add(1)
				case 413, 429, 503:
					refused.Add(1)
				}
			}
		})
	}
	ends.Wait()
	cl.CloseIdleConnections()
	_, peak := c.gateway.Memory()
	c.sleep(pick(c.bench, 30*time.Second, time.Second))
	after, _ := c.gateway.Memory()
	c.figure("bodies", float64(n))
	c.figure("served", float64(good.Load()))
	c.figure("refused", float64(refused.Load()))
	c.figure("peak RSS, MB", peak)
	c.figure("RSS 30 s later, MB", after)
	return nil
}

// gzipBomb returns size bytes, all alike, compressed by gzip.
func gzipBomb(size int64) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	io.CopyN(z, zeros{}, size) // into memory
	z.Close()
	return b.String()
}
