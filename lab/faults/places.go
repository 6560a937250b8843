//go:build linux

package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"lorasim/bench/serving/faultworker"
)

const (
	placesEach   = 3
	manyAdapter  = 8
	placesAnswer = 30 * time.Second // waiting time of clients
)

func scarce(_ int, cfg *faultworker.Config) {
	cfg.Adapters, cfg.Places, cfg.LoadTime = nil, placesEach, 20*time.Millisecond
}

// places uses more adapters than the workers can hold, with few and many clients.
func places(c *cell) error {
	if err := c.work(2, scarce); err != nil {
		return err
	}
	if err := c.serveFor(c.urls(), adapterNames(manyAdapter)); err != nil {
		return err
	}
	for _, clients := range []int{2, 8, 40} {
		t := newTally()
		cl := c.client(c.gateway, "/generate", fmt.Sprintf("r%d-", clients))
		cl.limit = placesAnswer
		n := pick(c.bench, map[int]int{2: 100, 8: 300, 40: 1000}[clients], 15*clients/10+20)
		cl.drive(c.ctx, clients, t, func(i int) (order, bool) {
			return order{adapter: fmt.Sprintf("a%d", i%manyAdapter), tokens: tokensEach}, i < n
		})
		c.figure(fmt.Sprintf("%d clients: lost, %%", clients), float64(t.lost*1000/max(t.requests, 1))/10)
	}
	c.figure("executed twice", float64(c.book.Totals().Twice))
	return nil
}

// twoGateways makes two gateways compete for the adapter places of the same workers.
func twoGateways(c *cell) error {
	if err := c.work(2, scarce); err != nil {
		return err
	}
	var served [2]*tally
	for range served {
		p, err := c.startGateway(c.gatewayArgs(c.policy, c.urls(), adapterNames(manyAdapter)))
		if err != nil {
			return err
		}
		c.gateway = p
		if err := c.ready(p); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(c.ctx, pick(c.bench, 20*time.Second, 4*time.Second))
	defer cancel()
	var ends sync.WaitGroup
	for g := range served {
		served[g] = newTally()
		cl := c.client(c.all[g], "/generate", fmt.Sprintf("g%d-", g))
		cl.limit = placesAnswer
		ends.Go(func() {
			cl.drive(ctx, 20, served[g], func(i int) (order, bool) {
				return order{adapter: fmt.Sprintf("a%d", i%manyAdapter), tokens: tokensEach}, true
			})
		})
	}
	ends.Wait()
	for g, t := range served {
		c.figure(fmt.Sprintf("gateway %d: served in %.0f s", g+1, pick(c.bench, 20, 4.0)), float64(t.requests-t.lost))
		c.figure(fmt.Sprintf("gateway %d: lost", g+1), float64(t.lost))
	}
	return nil
}
