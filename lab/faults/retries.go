//go:build linux

package main

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"lorasim/bench/serving/faultworker"
)

// poison sends one request that kills whichever worker executes it.
func poison(c *cell) error {
	if err := c.work(4, nil); err != nil {
		return err
	}
	for _, w := range c.workers {
		if err := w.Break(faultworker.Rule{On: faultworker.Generate, Mark: "poison",
			Do: faultworker.Crash}); err != nil {
			return err
		}
	}
	if err := c.serve(); err != nil {
		return err
	}
	cl := c.client(c.gateway, "/generate", "r")
	cl.ask(c.ctx, order{adapter: "a0", tokens: 2, mark: "poison"})
	dead := 0
	for _, w := range c.workers {
		if !answers(w.URL()) {
			dead++
		}
	}
	t := newTally()
	cl.drive(c.ctx, 4, t, func(i int) (order, bool) {
		return order{adapter: fmt.Sprintf("a%d", i%6), tokens: 2},
			i < 40
	})
	c.figure("workers killed", float64(dead))
	c.figure("lost of 40 later requests", float64(t.lost))
	return nil
}

func answers(url string) bool {
	cl := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := cl.Get(url + "/health")
	if err == nil {
		resp.Body.Close()
	}
	return err == nil
}

func noRetries(c *cell) error {
	if err := c.work(3, nil); err != nil {
		return err
	}
	for _, w := range c.workers {
		if err := w.Break(faultworker.Rule{On: faultworker.Generate, Do: faultworker.Drop, Share: 0.3}); err != nil {
			return err
		}
	}
	if err := c.serve("--retries", "0"); err != nil {
		return err
	}
	t := newTally()
	c.client(c.gateway, "/generate", "r").drive(c.ctx, 20, t, func(i int) (order, bool) {
		return order{adapter: fmt.Sprintf("a%d", i%6), tokens: 2, whole: true}, i < pick(c.bench, 600, 200)
	})
	n := c.book.Totals()
	c.figure("requests", float64(t.requests))
	c.figure("executed twice or more", float64(n.Twice))
	c.figure("most executions of one", float64(n.Most))
	c.figure("lost", float64(t.lost))
	return nil
}

func redirected(c *cell) error {
	var other atomic.Int64
	host, err := faultworker.New(faultworker.Config{Asked: func(string, string, http.Header) { other.Add(1) }})
	if err != nil {
		return err
	}
	defer host.Close()
	if err := host.Listen("127.0.0.1:0"); err != nil {
		return err
	}
	if err := c.work(1, nil); err != nil {
		return err
	}
	if err := c.serve("--api-key", "workers-key"); err != nil {
		return err
	}
	if err := c.workers[0].Break(faultworker.Rule{Do: faultworker.Redirect,
		Text: host.URL() + "/generate"}); err != nil {
		return err
	}
	t := newTally()
	c.client(c.gateway, "/generate", "r").drive(c.ctx, 4, t,
		func(i int) (order, bool) { return order{adapter: "a0", tokens: 2}, i < 20 })
	c.sleep(2500 * time.Millisecond) // time for probes
	c.figure("requests that reached the other host", float64(other.Load()))
	return nil
}
