//go:build linux

package main

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"lorasim/bench/serving/faultworker"
	"lorasim/bench/serving/httpapi"
)

// fault is a row of the table of faults and policies: traffic over three workers, the first one
// faulty.
type fault struct {
	name  string
	what  string
	vllm  bool                                  // the workers are vLLM's
	rules []faultworker.Rule                    // for the first worker
	begin func(c *cell) (end func(), err error) // instead of rules, called during traffic
	set   func(i int, cfg *faultworker.Config)
	own   bool // the first worker is a process of its own, for signals
	early bool // the rules apply before the gateway starts
	every bool // the rules apply to all workers

	requests int           // number of requests; 0: 600
	quick    int           // number in a quick run; 0: 90
	atLeast  time.Duration // least duration of the fault
	whole    bool          // replies are not streamed
	patience bool          // requests hang: the gateway's timeouts are below those of the clients
	key      bool          // the gateway has a key for workers
}

const (
	clientsAtOnce = 60
	tokensEach    = 4
	recoveryLimit = 30 * time.Second
)

func generate(r faultworker.Rule) []faultworker.Rule {
	r.On = faultworker.Generate
	return []faultworker.Rule{r}
}

// probes returns a rule for each way to probe a worker.
func probes(r faultworker.Rule) (list []faultworker.Rule) {
	for _, k := range []faultworker.Kind{faultworker.Health, faultworker.Metrics, faultworker.Models} {
		r.On = k
		list = append(list, r)
	}
	return list
}

func metrics(text, header string) []faultworker.Rule {
	return []faultworker.Rule{{On: faultworker.Metrics, Do: faultworker.Answer, Text: text,
		Header: "Content-Type: text/plain\r\n" + header}}
}

// faults returns the rows.
func faults() []fault {
	const few, some = 300, 90 // numbers of requests if each failure lasts until the client's timeout
	load := func(r faultworker.Rule) []faultworker.Rule {
		r.On = faultworker.Load
		return []faultworker.Rule{r}
	}
	lacking := func(i int, cfg *faultworker.Config) {
		if i == 0 {
			cfg.Adapters = nil
		}
	}
	polls := 4 * time.Second // several polls of the workers
	return []fault{
		{name: "none", what: "no fault"},
		{name: "cut", what: "closes each stream after 1 token (FIN)", requests: 2000,
			rules: generate(faultworker.Rule{Do: faultworker.Cut, Tokens: 1})},
		{name: "reset", what: "resets each stream after 1 token (RST)", requests: 2000,
			rules: generate(faultworker.Rule{Do: faultworker.Reset, Tokens: 1})},
		{name: "cut-whole", what: "closes each whole reply half-way", requests: 2000, whole: true,
			rules: generate(faultworker.Rule{Do: faultworker.Cut})},
		{name: "cut-some", what: "resets 30 % of its streams after 1 token", requests: 2000,
			rules: generate(faultworker.Rule{Do: faultworker.Reset, Tokens: 1, Share: 0.3})},
		{name: "cut-adapter", what: "resets the streams of one adapter of six after 1 token", requests: 2000,
			rules: generate(faultworker.Rule{Do: faultworker.Reset, Tokens: 1, Mark: `"a0"`})},
		{name: "cut-all", what: "all three reset 30 % of their streams after 1 token", requests: 2000, every: true,
			rules: generate(faultworker.Rule{Do: faultworker.Reset, Tokens: 1, Share: 0.3})},
		{name: "cut-head", what: "sends the head of each stream, then closes (FIN)", requests: 2000,
			rules: generate(faultworker.Rule{Do: faultworker.Cut})},
		{name: "reset-first", what: "resets each connection before a reply",
			rules: generate(faultworker.Rule{Do: faultworker.ResetFirst})},
		{name: "drop", what: "executes each request, then closes without a reply",
			rules: generate(faultworker.Rule{Do: faultworker.Drop})},
		{name: "hang", patience: true, what: "never answers requests; probes are good", requests: few, quick: some,
			rules: generate(faultworker.Rule{Do: faultworker.Hang})},
		{name: "stall", patience: true, what: "sends the head and 1 token, then nothing", requests: few, quick: some,
			rules: generate(faultworker.Rule{Do: faultworker.Stall, Tokens: 1})},
		{name: "stall-head", patience: true, what: "sends the head of each stream, then nothing", requests: few,
			quick: some, rules: generate(faultworker.Rule{Do: faultworker.Stall})},
		{name: "freeze", patience: true, what: "takes connections, answers nothing, probes included", requests: few,
			quick: some, begin: func(c *cell) (func(), error) {
				c.workers[0].Freeze()
				return c.workers[0].Thaw, nil
			}},
		{name: "trickle", patience: true, what: "sends a byte every 100 ms", requests: few, quick: some,
			rules: generate(faultworker.Rule{Do: faultworker.Trickle, After: 100 * time.Millisecond})},
		{name: "garbage", what: "status 200 and a body that is no reply",
			rules: generate(faultworker.Rule{Do: faultworker.Garbage})},
		{name: "not-http", what: "bytes that are no HTTP", rules: generate(faultworker.Rule{Do: faultworker.NotHTTP})},
		{name: "counts", what: "states 4,000,000,000 tokens",
			rules: generate(faultworker.Rule{Do: faultworker.Counts, Tokens: 1, Number: 4e9})},
		{name: "second", what: "a second reply 3 ms after each", whole: true,
			rules: generate(faultworker.Rule{Do: faultworker.Second, After: 3 * time.Millisecond})},
		{name: "too-short", what: "Content-Length promises more than comes", whole: true,
			rules: generate(faultworker.Rule{Do: faultworker.TooShort})},
		{name: "too-long", what: "more comes than Content-Length says", whole: true,
			rules: generate(faultworker.Rule{Do: faultworker.TooLong})},
		{name: "endless-head", what: "a head without end", requests: few, quick: some,
			rules: generate(faultworker.Rule{Do: faultworker.EndlessHead})},
		{name: "endless-1xx", what: "provisional replies without end", requests: few, quick: some,
			rules: generate(faultworker.Rule{Do: faultworker.Endless1xx})},
		{name: "5xx-half", what: "status 500 for half of the requests",
			rules: generate(faultworker.Rule{Do: faultworker.Answer, Status: 500, Share: 0.5})},
		{name: "5xx", what: "status 503 for all requests",
			rules: generate(faultworker.Rule{Do: faultworker.Answer, Status: 503})},
		{name: "retry-after", what: "status 503 with Retry-After: 2 for all requests", atLeast: polls,
			rules: generate(faultworker.Rule{Do: faultworker.Answer, Status: 503, Header: "Retry-After: 2\r\n"})},
		{name: "401", what: "status 401 to the gateway's key for all requests", key: true,
			rules: generate(faultworker.Rule{Do: faultworker.Answer, Status: 401})},
		{name: "flapping", what: "dies and comes back every second", atLeast: polls, begin: flap},
		{name: "slow-probes", what: "probes are answered after 3 s", atLeast: 2 * polls,
			rules: probes(faultworker.Rule{Do: faultworker.Slow, After: 3 * time.Second})},
		{name: "probes-500", what: "probes are answered with 500, requests are good", atLeast: polls,
			rules: probes(faultworker.Rule{Do: faultworker.Answer, Status: 500})},
		{name: "metrics-{}", what: "vLLM; `/metrics` is `{}`", vllm: true, atLeast: polls, rules: metrics("{}", "")},
		{name: "metrics-nan", what: "vLLM; `/metrics` has NaN, +Inf and 2^63", vllm: true, atLeast: polls,
			rules: metrics("# TYPE vllm:num_requests_running gauge\n"+
				"vllm:num_requests_running NaN\n# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting 9223372036854775808\n"+
				"# TYPE vllm:lora_requests_info gauge\nvllm:lora_requests_info{max_lora=\"-1\"} +Inf\n", "")},
		{name: "metrics-endless", what: "vLLM; `/metrics` never ends", vllm: true, atLeast: polls,
			rules: []faultworker.Rule{{On: faultworker.Metrics, Do: faultworker.Endless, Text: "# HELP x y\n"}}},
		{name: "metrics-gzip", what: "vLLM; `/metrics` is 1 GB of zeros in 1 MB of gzip", vllm: true, atLeast: polls,
			begin: bomb},
		{name: "loads-refused", early: true, what: "holds no adapter and refuses to load any", set: lacking,
			rules: load(faultworker.Rule{Do: faultworker.Answer, Status: 400, Text: `{"error_message": "no"}`})},
		{name: "loads-slow", early: true, atLeast: polls, what: "holds no adapter and takes 3 s to load one",
			set: lacking, rules: load(faultworker.Rule{Do: faultworker.Slow, After: 3 * time.Second})},
		{name: "kill", what: "`kill -9`; started again afterwards", requests: 2000, own: true, begin: killed},
		{name: "kill-whole", what: "`kill -9`, replies not streamed", requests: 2000, own: true, begin: killed,
			whole: true},
		{name: "sigstop", patience: true, what: "SIGSTOP; SIGCONT afterwards", requests: few, quick: some, own: true,
			begin: stopped},
	}
}

// bomb makes the first worker's metrics a bomb.
func bomb(c *cell) (end func(), err error) {
	w := c.workers[0]
	err = w.Break(metrics(gzipBomb(1<<30), "Content-Encoding: gzip\r\n")...)
	return func() { w.Break() }, err
}

// flap stops and restarts the first worker until the fault ends.
func flap(c *cell) (end func(), err error) {
	ctx, cancel := context.WithCancel(c.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			c.workers[0].Stop()
			wait(ctx, time.Second)
			c.workers[0].Restart() // fails only if another process has the port: the worker then stays down
			wait(ctx, time.Second)
		}
	}()
	return func() { cancel(); <-done }, nil
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// killed kills the first worker's process, and starts another one at the end.
func killed(c *cell) (end func(), err error) {
	p := c.all[0]
	p.Kill()
	return func() {
		_, err = c.startWorker(workerSettings{Config: c.ownConfig(), Listen: p.URL(0, 0)[len("http://"):]})
	}, nil
}

// stopped stops the first worker's process, and continues it at the end.
func stopped(c *cell) (end func(), err error) {
	c.all[0].Signal(syscall.SIGSTOP)
	return func() { c.all[0].Signal(syscall.SIGCONT) }, nil
}

func (c *cell) ownConfig() faultworker.Config {
	return faultworker.Config{Name: "w0", Adapters: adapterNames(6), Token: tokenTime}
}

// run measures a fault under the cell's policy.
func (f *fault) run(c *cell) error {
	api, path := httpapi.SGLang, "/generate"
	if f.vllm {
		api, path = httpapi.VLLM, "/v1/completions"
	}
	set := func(i int, cfg *faultworker.Config) {
		cfg.API = api
		if f.set != nil {
			f.set(i, cfg)
		}
	}
	var urls []string
	n := 3
	if f.own {
		p, err := c.startWorker(workerSettings{Config: c.ownConfig(), Listen: "127.0.0.1:0"})
		if err != nil {
			return err
		}
		urls, n = []string{p.URL(0, 0)}, 2
		inner := set
		set = func(i int, cfg *faultworker.Config) { inner(i, cfg); cfg.Name = fmt.Sprintf("w%d", i+1) }
	}
	if err := c.work(n, set); err != nil {
		return err
	}
	var args []string
	if f.patience && strings.Contains(c.help, "--idle-timeout ") {
		args = []string{"--first-token-timeout", "2s", "--idle-timeout", "2s"}
	}
	if f.key {
		args = append(args, "--api-key", "workers-key")
	}
	if f.early {
		if err := c.workers[0].Break(f.rules...); err != nil {
			return err
		}
	}
	if err := c.serveFor(append(urls, c.urls()...), adapterNames(6), args...); err != nil {
		return err
	}
	cl := c.client(c.gateway, path, "r")
	next := func(i int) order { return order{adapter: fmt.Sprintf("a%d", i%6), tokens: tokensEach, whole: f.whole} }

	if !f.early {
		cl.drive(c.ctx, 6, newTally(), func(i int) (order, bool) { return next(i), i < 30 })
	}
	end, err := f.start(c)
	if err != nil {
		return err
	}
	t, begun := newTally(), time.Now()
	requests := pick(c.bench, max(f.requests, 600*b2i(f.requests == 0)), max(f.quick, 90*b2i(f.quick == 0)))
	cl.drive(c.ctx, clientsAtOnce, t, func(i int) (order, bool) {
		return next(i), i < requests || c.gateway.Alive() && time.Since(begun) < pick(c.bench, f.atLeast, f.atLeast/2)
	})
	end()
	recovered, ok := f.recovery(c, cl, next)
	c.summary(t)
	switch {
	case !c.gateway.Alive():
		c.say("recovery, s", "never")
	case !ok:
		c.say("recovery, s", fmt.Sprintf("> %.0f", recovered.Seconds()))
	default:
		c.figure("recovery, s", math.Round(recovered.Seconds()*10)/10)
	}
	c.memoryFigures()
	c.aliveFigure()
	return c.ctx.Err()
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// start begins the fault. end ends it.
func (f *fault) start(c *cell) (end func(), err error) {
	if f.begin == nil {
		broken := c.workers[:1]
		if f.every {
			broken = c.workers
		}
		for _, w := range broken {
			if err := w.Break(f.rules...); err != nil {
				return nil, err
			}
		}
		return func() {
			for _, w := range broken {
				w.Break() // no rules
			}
		}, nil
	}
	end, begun := func() {}, make(chan struct{})
	go func() {
		defer close(begun)
		c.sleep(100 * time.Millisecond) // during traffic
		if stop, err := f.begin(c); err != nil {
			c.say("fault", err.Error())
		} else {
			end = stop
		}
	}()
	return func() { <-begun; end() }, nil
}

// recovery keeps up traffic until the first worker has answered again, and returns the time until
// then.
func (f *fault) recovery(c *cell, cl *client, next func(i int) order) (time.Duration, bool) {
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	t := newTally()
	driven := make(chan struct{})
	var over atomic.Bool
	go func() {
		defer close(driven)
		cl.drive(ctx, clientsAtOnce/2, t, func(i int) (order, bool) { return next(i), !over.Load() })
	}()
	took, ok := c.until(pick(c.bench, recoveryLimit, 2*time.Second), func() bool {
		return t.of("w0") > 0 ||
			!c.gateway.Alive()
	})
	over.Store(true)
	cancel()
	<-driven
	return took, ok && c.gateway.Alive()
}

// summary adds the figures of traffic.
func (c *cell) summary(t *tally) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.figure("requests", float64(t.requests))
	c.figure("lost", float64(t.lost))
	c.figure("refused", float64(t.refused))
	c.figure("executed twice", float64(c.book.Totals().Twice))
	c.figure("wrong", float64(t.wrong))
	c.figure("hung", float64(t.hung))
	reason, most := "", 0
	for r, n := range t.reasons {
		if n > most {
			reason, most = r, n
		}
	}
	if most > 0 {
		c.say("reason", fmt.Sprintf("%d x %s", most, reason))
	}
}
