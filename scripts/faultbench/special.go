//go:build linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"lorasim/internal/faultworker"
)

// special is a row with figures of its own, measured under one policy, or under all that are asked for.
type special struct {
	name     string
	what     string
	policies bool // under all
	run      func(c *cell) error
}

func specials() []special {
	return []special{
		{name: "poison", what: "a request that kills its worker, 4 workers", run: poison},
		{name: "retries-0", what: "`--retries 0`, workers drop 30 % after executing, 600 whole replies",
			run: noRetries},
		{name: "redirect", what: "a worker redirects to another host", run: redirected},
		{name: "places", what: "2 workers x 3 places, 8 adapters", policies: true, run: places},
		{name: "two-gateways", what: "two gateways on 2 workers x 3 places, 8 adapters", run: twoGateways},
		{name: "slow-bodies", what: "500 connections that send 209 bytes of 1 MB each", run: slowBodies},
		{name: "large-bodies", what: "bodies of 31 MB, 20 at a time", run: largeBodies},
		{name: "streams", what: "1000 streams for 60 s", run: streams},
		{name: "bogus-models", what: "100,000 unknown model names", run: bogusModels},
		{name: "long-name", what: "a model name of 1 MB", run: longName},
		{name: "hang-ups", what: "510 clients hang up in mid-stream", run: hangUps},
		{name: "half-close", what: "20 clients close their sending side, then read", run: halfClose},
		{name: "sigterm", what: "SIGTERM during 200 streams", run: sigterm},
		{name: "sighup", what: "SIGHUP during 50 streams", run: sighup},
		{name: "stderr", what: "nobody reads standard error, `--access-log -`", run: unreadLog},
		{name: "fds", what: "file descriptors used up by other clients", run: descriptors},
		{name: "idle-connections", what: "workers close 600 idle connections after a burst", run: idleConnections},
		{name: "smuggling", what: "raw requests that must be refused", run: smuggling},
		{name: "data-plane", what: "requests without a key that change or read workers", run: dataPlane},
		{name: "adapters", what: "20,000 adapters on one worker", run: manyAdapters},
		{name: "bench-counts", what: "`lorasim bench`: a worker states 4,000,000,000 tokens", run: benchCounts},
		{name: "bench-metrics", what: "`lorasim bench`, vLLM: `/metrics` is `{}` on one of three", run: benchMetrics},
		{name: "bench-cut", what: "`lorasim bench`: one of three cuts each stream", policies: true, run: benchCut},
		{name: "bench-drop", what: "`lorasim bench --retries 0`: workers drop 30 % after executing", run: benchDrop},
		{name: "bench-places", what: "`lorasim bench`: 2 workers x 3 places, 8 adapters", run: benchPlaces},
	}
}

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
	c.sleep(2500 * time.Millisecond) // of probes
	c.figure("requests that reached the other host", float64(other.Load()))
	return nil
}

// hold opens n streams of so many tokens and reports each one's end.
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
func sighup(c *cell) error  { return stopping(c, syscall.SIGHUP, 50) }

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
	c.gateway.signal(s)
	ends.Wait()
	c.figure("streams", float64(n))
	c.figure("ended well", float64(n-t.lost))
	if s == syscall.SIGTERM {
		c.figure("exit status", float64(c.gateway.ends(5*time.Second)))
	}
	return nil
}

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
		text, err := raw(c.gateway.url, request("POST", "/generate", `{"text":"x","lora_path":"a0","sampling_params":{"max_new_tokens":4}}`), true, 3*time.Second)
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

// raw sends bytes to a gateway and returns what comes back in time.
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

// unreadLog leaves the gateway's standard error unread, and counts the requests that are served.
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
	p, err := startProcess(c.spawner, w, nil, c.lorasim, c.gatewayArgs(c.policy, c.urls(), adapterNames(6),
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

// descriptors lets strangers' connections use up the gateway's file descriptors.
func descriptors(c *cell) error {
	if err := c.work(3, nil); err != nil {
		return err
	}
	const limit, clients, each = 150, 20, 15
	args := append([]string{"-c", fmt.Sprintf(`ulimit -n %d; exec "$0" "$@"`, limit), c.lorasim},
		c.gatewayArgs(c.policy, c.urls(), adapterNames(6))...)
	p, err := startProcess(c.spawner, nil, nil, "/bin/sh", args...)
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
	for range clients { // each has a connection before the others come
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
		if nc, err := net.DialTimeout("tcp", strings.TrimPrefix(p.url, "http://"), time.Second); err == nil {
			strangers = append(strangers, nc)
		}
	}
	close(gate)
	ends.Wait()
	for _, nc := range strangers {
		nc.Close()
	}
	took, ok := c.until(5*time.Second, func() bool { return answers(p.url) })
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

// manyAdapters gives one worker very many adapters and measures how long the gateway takes for its own health.
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
		if resp, err := cl.Get(p.url + "/health"); err == nil {
			resp.Body.Close()
		}
		slowest = max(slowest, time.Since(from))
	}
	cl.CloseIdleConnections()
	c.figure("slowest /health, s", slowest.Seconds())
	_, peak := p.memory()
	c.figure("peak RSS, MB", peak)
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
		early, _ = c.gateway.memory()
		c.sleep(length * 6 / 10)
		late, _ = c.gateway.memory()
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

// slowBodies opens connections whose bodies never come.
func slowBodies(c *cell) error {
	if err := c.work(1, nil); err != nil {
		return err
	}
	if err := c.serve(); err != nil {
		return err
	}
	n, head := pick(c.bench, 500, 100), "POST /generate HTTP/1.1\r\nHost: gateway.example\r\nContent-Type: application/json\r\nContent-Length: 1048576\r\n\r\n"
	head += `{"text": "` + strings.Repeat("x", 209-len(head)-10)
	before, _ := c.gateway.memory()
	var conns []net.Conn
	for range n {
		nc, err := net.Dial("tcp", strings.TrimPrefix(c.gateway.url, "http://"))
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
	_, peak := c.gateway.memory()
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

// zeros are bytes of a JSON string.
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
				req, err := http.NewRequestWithContext(c.ctx, http.MethodPost, c.gateway.url+"/generate", body)
				if err != nil {
					return
				}
				req.ContentLength = int64(len(head)+len(tail)) + size
				resp, err := cl.Do(req)
				if err != nil {
					continue
				}
				io.Copy(io.Discard, resp.Body) // what counts is the status
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
	_, peak := c.gateway.memory()
	c.sleep(pick(c.bench, 30*time.Second, time.Second))
	after, _ := c.gateway.memory()
	c.figure("bodies", float64(n))
	c.figure("served", float64(good.Load()))
	c.figure("refused", float64(refused.Load()))
	c.figure("peak RSS, MB", peak)
	c.figure("RSS 30 s later, MB", after)
	return nil
}

func bogusModels(c *cell) error {
	if err := c.work(1, nil); err != nil {
		return err
	}
	if err := c.serve(); err != nil {
		return err
	}
	before, _ := c.gateway.memory()
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
	after, _ := c.gateway.memory()
	text := c.metricsText()
	c.figure("requests", float64(n))
	c.figure("refused with 404", float64(refused.Load()))
	c.figure("size of /metrics, bytes", float64(len(text)))
	c.figure("RSS grew by, MB", after-before)
	return nil
}

// metricsText is the gateway's /metrics; "" if it has none.
func (c *cell) metricsText() string {
	resp, err := http.Get(c.gateway.operators() + "/metrics")
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
	text, err := raw(c.gateway.url, request("POST", "/v1/completions", `{"model": "`+strings.Repeat("<", 1_000_000)+`", "prompt": "x"}`), false, 3*time.Second)
	if err != nil {
		return err
	}
	c.figure("size of the answer, bytes", float64(len(text)))
	return nil
}
