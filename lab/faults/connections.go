//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"lorasim/bench/serving/faultworker"
	"lorasim/lab/internal/process"
)

func hangUps(c *cell) error {
	if err := c.work(3, nil); err != nil {
		return err
	}
	if err := c.serve(); err != nil {
		return err
	}
	n := pick(c.bench, 510, 60)
	ctx, hangUp := context.WithCancel(c.ctx)
	cl := c.client(c.gateway, "/generate", "r")
	var ends sync.WaitGroup
	for i := range n {
		ends.Go(func() { cl.ask(ctx, order{adapter: fmt.Sprintf("a%d", i%6), tokens: 5000}) })
	}
	c.begun(n)
	hangUp()
	ends.Wait()
	took, _ := c.until(5*time.Second, func() bool { return c.book.Totals().Aborted >= n })
	c.figure("clients", float64(n))
	c.figure("aborted at the worker", float64(c.book.Totals().Aborted))
	c.figure("after, s", took.Seconds())
	return nil
}

func halfClose(c *cell) error {
	if err := c.work(1, nil); err != nil {
		return err
	}
	if err := c.serve(); err != nil {
		return err
	}
	const n = 20
	good := 0
	for range n {
		const body = `{"text":"x","lora_path":"a0","sampling_params":{"max_new_tokens":4}}`
		text, err := raw(c.gateway.URL(0, 0), request("POST", "/generate", body), true, 3*time.Second)
		if err == nil && strings.Contains(text, `"output_ids":[1,2,3,4]`) {
			good++
		}
	}
	c.figure("clients", n)
	c.figure("answered", float64(good))
	return nil
}

func request(method, path, body string, headers ...string) string {
	return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%sContent-Length: %d\r\n\r\n%s", method, path,
		strings.Join(headers, ""), len(body), body)
}

// raw sends bytes to a gateway and returns the bytes that arrive within the limit.
func raw(url, text string, halfClose bool, limit time.Duration) (string, error) {
	nc, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		return "", err
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(limit)) // fails only on a closed connection
	if _, err := io.WriteString(nc, text); err != nil {
		return "", err
	}
	if halfClose {
		nc.(*net.TCPConn).CloseWrite() // the same
	}
	answer, err := io.ReadAll(io.LimitReader(nc, 8<<20))
	return string(answer), err
}

// unreadLog leaves the gateway's stderr unread, and counts the served requests.
func unreadLog(c *cell) error {
	if err := c.work(1, func(_ int, cfg *faultworker.Config) { cfg.Token = 0 }); err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	defer w.Close()
	p, err := c.spawner.Serve(process.Pipes{Stderr: w}, c.lorasim, c.gatewayArgs(c.policy, c.urls(), adapterNames(6),
		"--access-log", "-")...)
	if err != nil {
		return err
	}
	c.all, c.gateway = append(c.all, p), p
	n := pick(c.bench, 2000, 1000)
	t := newTally()
	cl := c.client(p, "/generate", "r")
	cl.limit = 2 * time.Second
	begun := time.Now()
	cl.drive(c.ctx, 8, t, func(i int) (order, bool) {
		return order{adapter: "a0", tokens: 2, whole: true}, i < n && time.Since(begun) < 10*time.Second
	})
	c.figure("requests", float64(n))
	c.figure("served in 10 s", float64(t.requests-t.lost))
	return nil
}

// descriptors makes other connections use up the gateway's file descriptors.
func descriptors(c *cell) error {
	if err := c.work(3, nil); err != nil {
		return err
	}
	const limit, clients, each = 150, 20, 15
	args := append([]string{"-c", fmt.Sprintf(`ulimit -n %d; exec "$0" "$@"`, limit), c.lorasim},
		c.gatewayArgs(c.policy, c.urls(), adapterNames(6))...)
	p, err := c.spawner.Serve(process.Pipes{}, "/bin/sh", args...)
	if err != nil {
		return err
	}
	c.all, c.gateway = append(c.all, p), p
	if err := c.ready(p); err != nil {
		return err
	}
	cl := c.client(p, "/generate", "r")
	gate, warm := make(chan struct{}), new(sync.WaitGroup)
	warm.Add(clients)
	t, strangers := newTally(), []net.Conn{}
	var ends sync.WaitGroup
	for range clients { // each client has a connection before the other connections are opened
		own := newClient(cl.url, cl.path, c.limit, fmt.Sprintf("c%d-", len(c.clients)))
		c.clients = append(c.clients, own)
		ends.Go(func() {
			own.ask(c.ctx, order{adapter: "a0", tokens: 2})
			warm.Done()
			<-gate
			for i := range each {
				t.add(own.ask(c.ctx, order{adapter: fmt.Sprintf("a%d", i%6), tokens: 2}))
			}
		})
	}
	warm.Wait()
	for range 2 * limit {
		if nc, err := net.DialTimeout("tcp", strings.TrimPrefix(p.URL(0, 0), "http://"), time.Second); err == nil {
			strangers = append(strangers, nc)
		}
	}
	close(gate)
	ends.Wait()
	for _, nc := range strangers {
		nc.Close()
	}
	took, ok := c.until(5*time.Second, func() bool { return answers(p.URL(0, 0)) })
	c.figure("requests of existing clients", clients*each)
	c.figure("served", float64(t.requests-t.lost))
	if ok {
		c.figure("new clients served afterwards, after s", took.Seconds())
	} else {
		c.say("new clients served afterwards, after s", "not within 5")
	}
	c.aliveFigure()
	return nil
}

// idleConnections counts connections that workers have closed and the gateway has not.
func idleConnections(c *cell) error {
	if err := c.work(1, func(_ int, cfg *faultworker.Config) { cfg.Idle = 2 * time.Second }); err != nil {
		return err
	}
	if err := c.serve(); err != nil {
		return err
	}
	n := pick(c.bench, 600, 100)
	t, ends := c.hold(c.client(c.gateway, "/generate", "r"), n, 25)
	ends.Wait()
	c.sleep(8 * time.Second)
	c.figure("lost of the burst", float64(t.lost))
	c.figure("CLOSE_WAIT 8 s later", float64(closeWaits(portOf(c.workers[0].URL()))))
	return nil
}

func streams(c *cell) error {
	if err := c.work(3, func(_ int, cfg *faultworker.Config) { cfg.Token = 250 * time.Millisecond }); err != nil {
		return err
	}
	if err := c.serve(); err != nil {
		return err
	}
	clients, length := pick(c.bench, 1000, 200), pick(c.bench, 60*time.Second, 6*time.Second)
	var early, late float64
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.sleep(length / 3)
		early, _ = c.gateway.Memory()
		c.sleep(length * 6 / 10)
		late, _ = c.gateway.Memory()
	}()
	t, begun := newTally(), time.Now()
	c.client(c.gateway, "/generate", "r").drive(c.ctx, clients, t, func(i int) (order, bool) {
		return order{adapter: fmt.Sprintf("a%d", i%6), tokens: 10}, time.Since(begun) < length
	})
	<-done
	c.figure("streams at a time", float64(clients))
	c.figure("requests", float64(t.requests))
	c.figure("lost", float64(t.lost))
	c.figure("executed twice", float64(c.book.Totals().Twice))
	c.figure("RSS after a third, MB", early)
	c.figure("RSS at the end, MB", late)
	return nil
}
