//go:build linux

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"lorasim/bench/serving/faultworker"
	"lorasim/lab/internal/process"
)

// bench is the data that all cells share.
type bench struct {
	lorasim string // path of the program to measure
	help    string // help text of its gateway command
	self    string // path of this program, for workers in processes of their own
	spawner *process.Spawner
	quick   bool
	extra   []string // further flags of every gateway
	limit   time.Duration
}

// pick returns a number of a full or a quick run.
func pick[T any](b *bench, full, quick T) T {
	if b.quick {
		return quick
	}
	return full
}

// cell is one measurement: workers, gateways and results.
type cell struct {
	*bench
	ctx     context.Context
	policy  string
	book    *faultworker.Book
	workers []*faultworker.Worker
	gateway *process.Process // the first gateway
	all     []*process.Process
	clients []*client
	figures []Figure
}

// Figure is one number of a result.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Text  string  `json:"text,omitempty"` // replaces the number
}

func (f Figure) String() string {
	if f.Text != "" {
		return f.Text
	}
	return strconv.FormatFloat(f.Value, 'f', -1, 64)
}

func (c *cell) figure(name string, value float64) {
	unit := 1.0 // reciprocal of the precision
	if math.Abs(value) < 10 {
		unit = 100
	}
	c.figures = append(c.figures, Figure{Name: name, Value: math.Round(value*unit) / unit})
}

func (c *cell) say(name, text string) {
	c.figures = append(c.figures, Figure{Name: name, Text: text})
}

// close ends all processes and workers of the cell.
func (c *cell) close() {
	for _, cl := range c.clients {
		cl.close()
	}
	for _, p := range c.all {
		p.Kill()
	}
	for _, w := range c.workers {
		w.Close()
	}
}

const tokenTime = 20 * time.Millisecond

// adapterNames returns a0, a1, ...
func adapterNames(n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("a%d", i))
	}
	return list
}

// work starts n workers w0, w1, ... that share a book. set changes their configurations.
func (c *cell) work(n int, set func(i int, cfg *faultworker.Config)) error {
	for i := range n {
		cfg := faultworker.Config{Name: fmt.Sprintf("w%d", i), Adapters: adapterNames(6), Token: tokenTime,
			Book: c.book}
		if set != nil {
			set(i, &cfg)
		}
		w, err := faultworker.New(cfg)
		if err != nil {
			return err
		}
		c.workers = append(c.workers, w)
		if err := w.Listen("127.0.0.1:0"); err != nil {
			return err
		}
	}
	return nil
}

func (c *cell) urls() (list []string) {
	for _, w := range c.workers {
		list = append(list, w.URL())
	}
	return list
}

// gatewayArgs returns the command line of a gateway for the workers.
func (b *bench) gatewayArgs(policy string, urls []string, adapters []string, more ...string) []string {
	args := []string{"gateway", "--worker-urls", strings.Join(urls, ","), "--listen", "127.0.0.1:0", "--policy", policy}
	for _, a := range adapters {
		args = append(args, "--lora", a+"="+a)
	}
	if strings.Contains(b.help, "--admin-listen ") {
		args = append(args, "--admin-listen", "127.0.0.1:0")
	}
	args = append(append(args, more...), b.extra...)
	for _, a := range more {
		if a == "--access-log" {
			return args
		}
	}
	return append(args, "--access-log", "none")
}

// serve starts a gateway for the cell's workers.
func (c *cell) serve(more ...string) error { return c.serveFor(c.urls(), adapterNames(6), more...) }

func (c *cell) serveFor(urls, adapters []string, more ...string) error {
	p, err := c.startGateway(c.gatewayArgs(c.policy, urls, adapters, more...))
	if err != nil {
		return err
	}
	if c.gateway == nil {
		c.gateway = p
	}
	return c.ready(p)
}

// startGateway runs a gateway, and reads its standard error.
func (c *cell) startGateway(args []string) (*process.Process, error) {
	p, err := c.spawner.Serve(process.Pipes{}, c.lorasim, args...)
	if err == nil {
		c.all = append(c.all, p)
	}
	return p, err
}

// ready waits until the gateway reports that it is healthy.
func (c *cell) ready(p *process.Process) error {
	cl := newClient(p.URL(0, 0), "", time.Second, "")
	defer cl.close()
	for range 200 {
		resp, err := cl.http.Get(p.URL(0, 0) + "/health")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == 200 {
				return nil
			}
		}
		select {
		case <-c.ctx.Done():
			return c.ctx.Err()
		case <-p.Over():
			return fmt.Errorf("the gateway ended: %s", p.Reason())
		case <-time.After(50 * time.Millisecond):
		}
	}
	return fmt.Errorf("the gateway is not healthy after 10 s: %s", p.Reason())
}

// client returns a client of a gateway. prefix is the beginning of its request ids.
func (c *cell) client(p *process.Process, path, prefix string) *client {
	cl := newClient(p.URL(0, 0), path, c.limit, prefix)
	c.clients = append(c.clients, cl)
	return cl
}

// sleep waits for d, or until the cell ends.
func (c *cell) sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case <-c.ctx.Done():
	}
}

// until waits for a condition, at most limit. It returns the waiting time, and false if the
// condition did not hold in time.
func (c *cell) until(limit time.Duration, is func() bool) (time.Duration, bool) {
	begun := time.Now()
	for !is() {
		if time.Since(begun) > limit || c.ctx.Err() != nil {
			return time.Since(begun), false
		}
		c.sleep(10 * time.Millisecond)
	}
	return time.Since(begun), true
}

// memoryFigures adds the gateway's peak and current memory.
func (c *cell) memoryFigures() {
	rss, peak := c.gateway.Memory()
	c.figure("peak RSS, MB", peak)
	c.figure("RSS afterwards, MB", rss)
}

// aliveFigure adds whether the gateway still runs, or how it ended.
func (c *cell) aliveFigure() {
	if c.gateway.Alive() {
		c.say("gateway", "alive")
		return
	}
	c.say("gateway", fmt.Sprintf("ended, status %d", c.gateway.Ends(0)))
	c.say("its last words", fmt.Sprintf("%.80s", c.gateway.Reason()))
}

// workerSettings are the settings of a worker in a process of its own.
type workerSettings struct {
	Config faultworker.Config
	Listen string
	Rules  []faultworker.Rule
}

// workerMain is the main function of a worker in a process of its own. Its first line of output is its URL, the
// others are the events of its book. It returns only on errors.
func workerMain(text string) error {
	var s workerSettings
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	s.Config.Book = faultworker.NewEcho(os.Stdout)
	w, err := faultworker.New(s.Config)
	if err != nil {
		return err
	}
	if err := w.Break(s.Rules...); err != nil {
		return err
	}
	if err := w.Listen(s.Listen); err != nil {
		return err
	}
	fmt.Println(w.URL())
	select {} // until the process is killed, at the latest with its parent
}

// startWorker starts a worker in a process of its own, whose events go to the cell's book.
func (c *cell) startWorker(s workerSettings) (*process.Process, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	read := func(r io.Reader) { c.book.Read(r) } // a killed worker may leave half a line
	p, err := c.spawner.Serve(process.Pipes{Rest: read}, c.self, "worker-process", string(text))
	if err == nil {
		c.all = append(c.all, p)
	}
	return p, err
}

func portOf(url string) int {
	n, _ := strconv.Atoi(url[strings.LastIndexByte(url, ':')+1:])
	return n
}

// operators returns the URL of the gateway's listener for operators, or of its only listener.
func operators(p *process.Process) string { return cmp.Or(p.URL(1, time.Second), p.URL(0, 0)) }

// closeWaits returns the number of this machine's connections to a port in state CLOSE_WAIT: the
// other end has closed them, and this end has not.
func closeWaits(port int) (n int) {
	data, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return -1
	}
	const closeWait = "08"
	remote := fmt.Sprintf(":%04X", port)
	for line := range strings.Lines(string(data)) {
		words := strings.Fields(line)
		if len(words) > 3 && words[3] == closeWait && strings.HasSuffix(words[2], remote) {
			n++
		}
	}
	return n
}
