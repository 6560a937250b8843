//go:build linux

package main

import (
	"fmt"
	"sync"
	"syscall"
	"time"
)

// hold opens n streams with the given number of tokens, and records the end of each.
func (c *cell) hold(cl *client, n, tokens int) (t *tally, ends *sync.WaitGroup) {
	t, ends = newTally(), new(sync.WaitGroup)
	for i := range n {
		ends.Go(func() { t.add(cl.ask(c.ctx, order{adapter: fmt.Sprintf("a%d", i%6), tokens: tokens})) })
	}
	return t, ends
}

// begun waits until n requests are being executed.
func (c *cell) begun(n int) {
	c.until(10*time.Second, func() bool { return c.book.Totals().Executed >= n })
}

func sigterm(c *cell) error { return stopping(c, syscall.SIGTERM, 200) }

func sighup(c *cell) error { return stopping(c, syscall.SIGHUP, 50) }

func stopping(c *cell, s syscall.Signal, n int) error {
	if err := c.work(3, nil); err != nil {
		return err
	}
	if err := c.serve(); err != nil {
		return err
	}
	cl := c.client(c.gateway, "/generate", "r")
	t, ends := c.hold(cl, n, 100)
	c.begun(n)
	c.sleep(200 * time.Millisecond)
	c.gateway.Signal(s)
	ends.Wait()
	c.figure("streams", float64(n))
	c.figure("ended well", float64(n-t.lost))
	if s == syscall.SIGTERM {
		c.figure("exit status", float64(c.gateway.Ends(5*time.Second)))
	}
	return nil
}
