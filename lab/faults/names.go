//go:build linux

package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"lorasim/bench/serving/faultworker"
)

// manyAdapters gives one worker very many adapters, and measures the time of the gateway's health
// check.
func manyAdapters(c *cell) error {
	n := pick(c.bench, 20000, 4000)
	if err := c.work(1, func(_ int, cfg *faultworker.Config) { cfg.Adapters = adapterNames(n) }); err != nil {
		return err
	}
	p, err := c.startGateway(c.gatewayArgs(c.policy, c.urls(), nil))
	if err != nil {
		return err
	}
	c.gateway = p
	slowest := time.Duration(0)
	cl := http.Client{Timeout: 60 * time.Second}
	for begun := time.Now(); time.Since(begun) < pick(c.bench, 15*time.Second,
		4*time.Second); c.sleep(100 * time.Millisecond) {
		from := time.Now()
		if resp, err := cl.Get(p.URL(0, 0) + "/health"); err == nil {
			resp.Body.Close()
		}
		slowest = max(slowest, time.Since(from))
	}
	cl.CloseIdleConnections()
	c.figure("slowest /health, s", slowest.Seconds())
	_, peak := p.Memory()
	c.figure("peak RSS, MB", peak)
	return nil
}

func bogusModels(c *cell) error {
	if err := c.work(1, nil); err != nil {
		return err
	}
	if err := c.serve(); err != nil {
		return err
	}
	before, _ := c.gateway.Memory()
	n := pick(c.bench, 100_000, 5_000)
	cl := c.client(c.gateway, "/v1/completions", "r")
	var next, refused atomic.Int64
	var ends sync.WaitGroup
	for range 16 {
		ends.Go(func() {
			for i := next.Add(1); i <= int64(n) && c.ctx.Err() == nil; i = next.Add(1) {
				if o := cl.ask(c.ctx, order{adapter: fmt.Sprintf("bogus-%d", i), tokens: 1}); o.status == 404 {
					refused.Add(1)
				}
			}
		})
	}
	ends.Wait()
	after, _ := c.gateway.Memory()
	text := c.metricsText()
	c.figure("requests", float64(n))
	c.figure("refused with 404", float64(refused.Load()))
	c.figure("size of /metrics, bytes", float64(len(text)))
	c.figure("RSS grew by, MB", after-before)
	return nil
}

// metricsText returns the gateway's /metrics, or "" if it has none.
func (c *cell) metricsText() string {
	resp, err := http.Get(operators(c.gateway) + "/metrics")
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if resp.StatusCode != 200 {
		return ""
	}
	return string(text)
}

func longName(c *cell) error {
	if err := c.work(1, nil); err != nil {
		return err
	}
	if err := c.serve(); err != nil {
		return err
	}
	body := `{"model": "` + strings.Repeat("<", 1_000_000) + `", "prompt": "x"}`
	text, err := raw(c.gateway.URL(0, 0), request("POST", "/v1/completions", body), false, 3*time.Second)
	if err != nil {
		return err
	}
	c.figure("size of the answer, bytes", float64(len(text)))
	return nil
}
