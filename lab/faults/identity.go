//go:build linux

package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"lorasim/bench/serving/faultworker"
	"lorasim/bench/serving/httpapi"
)

// Rows of workers that become others behind their URLs, or whose adapters do.

const (
	downTime  = 2500 * time.Millisecond // between two processes at an address: several polls
	adapters4 = 4
)

// become replaces a worker's process by another one at the same address.
func (c *cell) become(w int, cfg faultworker.Config) error {
	old := c.workers[w]
	addr := strings.TrimPrefix(old.URL(), "http://")
	old.Stop()
	c.sleep(downTime)
	cfg.Name, cfg.Token, cfg.Book = fmt.Sprintf("w%d", w), tokenTime, c.book
	next, err := faultworker.New(cfg)
	if err == nil {
		err = next.Listen(addr)
	}
	if err == nil {
		c.workers[w] = next
		c.workers = append(c.workers, old) // to be closed
	}
	return err
}

// phase is the outcome of requests while a row did something.
type phase struct {
	*tally
	gap time.Duration // longest time without a whole reply
}

// steady keeps up requests while do runs.
func (c *cell) steady(cl *client, next func(i int) order, do func() error) (p phase, err error) {
	p.tally = newTally()
	driven := make(chan struct{})
	var over atomic.Bool
	go func() {
		defer close(driven)
		cl.drive(c.ctx, 8, p.tally, func(i int) (order, bool) { return next(i), !over.Load() })
	}()
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		served, since := 0, time.Now()
		for !over.Load() {
			if n := p.served(); n > served {
				served, since = n, time.Now()
			}
			p.gap = max(p.gap, time.Since(since))
			c.sleep(5 * time.Millisecond)
		}
	}()
	err = do()
	over.Store(true)
	<-driven
	<-watched
	return p, err
}

func (t *tally) served() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.requests - t.lost
}

// ofAdapters are requests for four adapters.
func ofAdapters(i int) order {
	return order{adapter: fmt.Sprintf("a%d", i%adapters4), tokens: tokensEach}
}

// bareVLLM are vLLM workers of a base model without adapters.
func bareVLLM(model string) func(int, *faultworker.Config) {
	return func(_ int, cfg *faultworker.Config) { *cfg = vllmOf(model, cfg) }
}

func vllmOf(model string, of *faultworker.Config) faultworker.Config {
	return faultworker.Config{Name: of.Name, Token: of.Token, Book: of.Book, API: httpapi.VLLM, Model: model,
		LoadTime: 50 * time.Millisecond}
}

// rollingBase gives both workers another base model, one after the other.
func rollingBase(c *cell) error {
	if err := c.work(2, bareVLLM("old")); err != nil {
		return err
	}
	var flags []string
	if strings.Contains(c.help, "--base-alias ") {
		flags = []string{"--base-alias", "old=new"}
	}
	if err := c.serveFor(c.urls(), adapterNames(adapters4), flags...); err != nil {
		return err
	}
	cl := c.client(c.gateway, "/v1/completions", "r")
	step := pick(c.bench, 6*time.Second, 2*time.Second)
	p, err := c.steady(cl, ofAdapters, func() error {
		for w := range 2 {
			c.sleep(step / 2)
			if err := c.become(w, vllmOf("new", new(faultworker.Config))); err != nil {
				return err
			}
			c.sleep(step / 2)
		}
		return nil
	})
	if err != nil {
		return err
	}
	c.figure("longest time without a reply, s", p.gap.Seconds())
	c.figure("served by another adapter", float64(p.wrong))
	n := pick(c.bench, 200, 20)
	models, adapters := newTally(), newTally()
	cl.drive(c.ctx, 8, models, func(i int) (order, bool) { return order{base: "new", tokens: tokensEach}, i < n })
	cl.drive(c.ctx, 8, adapters, func(i int) (order, bool) { return ofAdapters(i), i < n })
	c.figure(fmt.Sprintf("afterwards lost, of %d requests for the new model", n), float64(models.lost))
	c.figure(fmt.Sprintf("afterwards lost, of %d requests for adapters", n), float64(adapters.lost))
	return nil
}

// engineSwap makes a vLLM worker an sglang one, and back.
func engineSwap(c *cell) error {
	if err := c.work(1, bareVLLM("base")); err != nil {
		return err
	}
	if err := c.serveFor(c.urls(), adapterNames(adapters4)); err != nil {
		return err
	}
	cl := c.client(c.gateway, "/v1/completions", "r")
	for _, api := range []httpapi.Kind{httpapi.SGLang, httpapi.VLLM} {
		p, err := c.steady(cl, ofAdapters, func() error {
			cfg := vllmOf("base", new(faultworker.Config))
			cfg.API, cfg.Adapters = api, adapterNames(adapters4)
			err := c.become(0, cfg)
			c.sleep(pick(c.bench, 8*time.Second, 3*time.Second))
			return err
		})
		if err != nil {
			return err
		}
		c.figure(fmt.Sprintf("to %s: longest time without a reply, s", api), p.gap.Seconds())
		c.figure(fmt.Sprintf("to %s: served by the base model", api), float64(p.wrong))
	}
	return nil
}

// unhealthy lets one of three workers say at /health that it takes no requests, and at all other paths nothing of it.
func unhealthy(c *cell) error {
	if err := c.work(3, nil); err != nil {
		return err
	}
	if err := c.serve(); err != nil {
		return err
	}
	if err := c.workers[0].Break(faultworker.Rule{On: faultworker.Health, Do: faultworker.Answer,
		Status: http.StatusServiceUnavailable}); err != nil {
		return err
	}
	c.sleep(3 * time.Second) // several polls
	t := newTally()
	n := pick(c.bench, 600, 90)
	c.client(c.gateway, "/generate", "r").drive(c.ctx, 8, t, func(i int) (order, bool) {
		return order{adapter: fmt.Sprintf("a%d", i%6), tokens: tokensEach}, i < n
	})
	c.figure("requests", float64(t.requests))
	c.figure("lost", float64(t.lost))
	c.figure("served by the worker that drains", float64(t.of("w0")))
	return nil
}

// slowStart starts a gateway while a worker takes seconds for each adapter.
func slowStart(c *cell) error {
	took := pick(c.bench, 3*time.Second, time.Second)
	if err := c.work(2, func(i int, cfg *faultworker.Config) {
		if cfg.API, cfg.Adapters = httpapi.VLLM, nil; i == 1 {
			cfg.LoadTime = took
		}
	}); err != nil {
		return err
	}
	begun := time.Now()
	p, err := c.startGateway(c.gatewayArgs(c.policy, c.urls(), adapterNames(6)))
	if err != nil {
		return err
	}
	c.gateway = p
	cl := c.client(p, "/v1/completions", "r")
	cl.limit = time.Minute
	for {
		resp, err := cl.http.Get(p.URL(0, 0) + "/health")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				break
			}
		}
		if c.sleep(20 * time.Millisecond); c.ctx.Err() != nil {
			return c.ctx.Err()
		}
	}
	c.figure("/health is 200 after, s", time.Since(begun).Seconds())
	for i := range adapters4 {
		if out := cl.ask(c.ctx, order{adapter: fmt.Sprintf("a%d", i), tokens: tokensEach}); !out.ok {
			return fmt.Errorf("a request for adapter a%d: %w", i, out.err)
		}
	}
	c.figure("four adapters served after, s", time.Since(begun).Seconds())
	return nil
}

// unloadHangs unloads an adapter on one of two workers, which does not answer, while clients use the adapter.
func unloadHangs(c *cell) error {
	if err := c.work(2, nil); err != nil {
		return err
	}
	if err := c.serve(); err != nil {
		return err
	}
	if err := c.workers[0].Break(faultworker.Rule{On: faultworker.Unload, Do: faultworker.Hang}); err != nil {
		return err
	}
	cl := c.client(c.gateway, "/generate", "r")
	cl.limit = pick(c.bench, 20*time.Second, 4*time.Second)
	unload := make(chan int, 1)
	go func() {
		resp, err := http.Post(operators(c.gateway)+"/admin/unload", "application/json",
			strings.NewReader(`{"worker": 0, "adapter": "a0"}`))
		if err != nil {
			unload <- 0
			return
		}
		resp.Body.Close()
		unload <- resp.StatusCode
	}()
	c.sleep(100 * time.Millisecond)
	t := newTally()
	var slowest atomic.Int64
	n := pick(c.bench, 100, 20)
	cl.drive(c.ctx, 4, t, func(i int) (order, bool) { return order{adapter: "a1", tokens: tokensEach}, i < n })
	others := t.lost
	for range n {
		begun := time.Now()
		t.add(cl.ask(c.ctx, order{adapter: "a0", tokens: tokensEach}))
		slowest.Store(max(slowest.Load(), int64(time.Since(begun))))
		if time.Duration(slowest.Load()) >= cl.limit {
			break // one is enough
		}
	}
	c.figure("requests for other adapters: lost", float64(others))
	c.figure("requests for the adapter: lost", float64(t.lost-others))
	c.figure("slowest one, s", time.Duration(slowest.Load()).Seconds())
	select {
	case status := <-unload:
		c.figure("status of /admin/unload", float64(status))
	case <-time.After(time.Minute):
		c.say("status of /admin/unload", "none within a minute")
	}
	return nil
}

// twoPaths has two workers hold an adapter of one name from two folders.
func twoPaths(c *cell) error {
	if err := c.work(2, func(i int, cfg *faultworker.Config) {
		cfg.Adapters, cfg.Root = []string{"a0"}, fmt.Sprintf("/weights/%d/", i)
	}); err != nil {
		return err
	}
	if err := c.serveFor(c.urls(), nil); err != nil {
		return err
	}
	t := newTally()
	n := pick(c.bench, 200, 40)
	c.client(c.gateway, "/generate", "r").drive(c.ctx, 4, t, func(i int) (order, bool) {
		return order{adapter: "a0", tokens: tokensEach}, i < n
	})
	c.figure("requests", float64(t.requests))
	c.figure("lost", float64(t.lost))
	c.figure("replies with other weights", float64(min(t.of("w0"), t.of("w1"))))
	return nil
}

// unloadable asks for an adapter that no worker can load.
func unloadable(c *cell) error {
	var loads atomic.Int64
	if err := c.work(2, func(_ int, cfg *faultworker.Config) {
		cfg.Adapters = nil
		cfg.Asked = func(method, path string, _ http.Header) {
			if method == http.MethodPost && strings.HasSuffix(path, "/load_lora_adapter") {
				loads.Add(1)
			}
		}
	}); err != nil {
		return err
	}
	for _, w := range c.workers {
		if err := w.Break(faultworker.Rule{On: faultworker.Load, Do: faultworker.Answer, Status: http.StatusBadRequest,
			Text: `{"error_message": "wrong shape"}`}); err != nil {
			return err
		}
	}
	if err := c.serveFor(c.urls(), []string{"a0"}); err != nil {
		return err
	}
	loads.Store(0)
	begun := time.Now()
	t := newTally()
	c.client(c.gateway, "/generate", "r").drive(c.ctx, 4, t, func(int) (order, bool) {
		return order{adapter: "a0", tokens: tokensEach}, time.Since(begun) < 5*time.Second
	})
	c.figure("loads in 5 s", float64(loads.Load()))
	c.figure("served", float64(t.requests-t.lost))
	return nil
}
