//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"lorasim/bench/serving/emulate"
	"lorasim/bench/serving/faultworker"
	"lorasim/bench/serving/httpapi"
	"lorasim/lab/internal/process"
)

// cluster is the emulated workers. Some join and leave through the gateway's file of workers,
// others through its /admin/workers.
type cluster struct {
	*options
	spawn *process.Spawner
	admin string // URL
	file  string
	rng   *rand.Rand

	joined, left, killed, updated, stuck atomic.Int64

	book  *faultworker.Book // executions by request
	bases int               // base models of updates so far

	mu      sync.Mutex
	workers []*member
	deaths  []death
	failed  []string
	api     int
}

// member is a worker.
type member struct {
	*process.Process
	url    string
	listed bool // whether it is in the file
}

// death is the end of a worker: from the signal until its process has ended.
type death struct{ from, to time.Time }

func newCluster(s *process.Spawner, o *options) *cluster {
	return &cluster{options: o, spawn: s, file: filepath.Join(o.folder, "workers.txt"),
		rng: rand.New(rand.NewPCG(o.seed, 0)), book: new(faultworker.Book)}
}

// baseNames are the names of the base models, in turn.
var baseNames = [2]string{"base-a", "base-b"}

// serve starts a worker's process. The interfaces of the workers alternate.
func (c *cluster) serve(listen string) (*process.Process, error) {
	c.api++
	endings := []emulate.Ending{emulate.Abort, emulate.Fail, emulate.Silence}
	settings, err := json.Marshal(workerSettings{API: []httpapi.Kind{httpapi.VLLM, httpapi.SGLang}[c.api%2],
		Ending: endings[c.rng.IntN(len(endings))], Model: baseNames[c.bases%len(baseNames)], Listen: listen})
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	read := func(r io.Reader) { c.book.Read(r) } // a killed worker may leave half a line
	return c.spawn.Serve(process.Pipes{Rest: read}, self, "worker-process", string(settings))
}

// start starts a worker.
func (c *cluster) start() (*member, error) {
	p, err := c.serve("127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w := &member{p, p.URL(0, 0), true}
	c.mu.Lock()
	c.workers = append(c.workers, w)
	c.mu.Unlock()
	return w, nil
}

// write writes the file of workers.
func (c *cluster) write() error {
	var text bytes.Buffer
	c.mu.Lock()
	for _, w := range c.workers {
		if w.listed {
			fmt.Fprintln(&text, w.url)
		}
	}
	c.mu.Unlock()
	return os.WriteFile(c.file, text.Bytes(), 0o644)
}

// begin changes the workers at the given interval until ctx ends. wait waits for the latest change.
func (c *cluster) begin(ctx context.Context, every time.Duration) (wait func()) {
	var wg sync.WaitGroup
	wg.Go(func() {
		updated := time.Now()
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(every/2 + time.Duration(c.rng.Int64N(int64(every)))):
			}
			change := c.change
			if c.options.update > 0 && time.Since(updated) >= c.options.update {
				change = func() error { return c.update(ctx) }
			}
			err := change()
			if c.options.update > 0 && time.Since(updated) >= c.options.update {
				updated = time.Now()
			}
			if err != nil {
				c.mu.Lock()
				c.failed = append(c.failed, err.Error())
				c.mu.Unlock()
			}
		}
	})
	return wg.Wait
}

// change makes a worker join, leave or die.
func (c *cluster) change() error {
	n := c.alive()
	switch kind := c.rng.IntN(4); {
	case n <= 2 || kind <= 1 && n < c.options.workers:
		return c.join()
	case kind == 2:
		return c.die()
	}
	return c.leave()
}

// patience is how long an updated worker has to end, as Kubernetes gives a pod (terminationGracePeriodSeconds).
const patience = 30 * time.Second

// update gives all workers the other base model, one after the other, at their addresses: a rolling update.
func (c *cluster) update(ctx context.Context) error {
	c.bases++
	c.mu.Lock()
	all := slices.Clone(c.workers)
	c.mu.Unlock()
	for _, w := range all {
		d := death{from: time.Now()}
		w.Signal(syscall.SIGTERM)
		c.mu.Lock()
		c.deaths = append(c.deaths, d)
		mine := len(c.deaths) - 1
		c.mu.Unlock()
		if w.Ends(patience) < 0 {
			c.stuck.Add(1)
			w.Kill()
		}
		c.mu.Lock()
		c.deaths[mine].to = time.Now()
		c.mu.Unlock()
		p, err := c.serve(strings.TrimPrefix(w.url, "http://"))
		if err != nil {
			return err
		}
		c.mu.Lock()
		w.Process = p
		c.mu.Unlock()
		c.updated.Add(1)
		select {
		case <-time.After(2 * time.Second): // until it is ready
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

func (c *cluster) alive() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.workers)
}

// join starts a worker and makes it a member.
func (c *cluster) join() error {
	w, err := c.start()
	if err != nil {
		return err
	}
	c.joined.Add(1)
	if w.listed = c.rng.IntN(2) == 0; w.listed {
		return c.write()
	}
	return c.ask(http.MethodPost, map[string]any{"url": w.url})
}

// leave removes a worker, and ends it once the gateway has released it.
func (c *cluster) leave() error {
	w := c.take()
	c.left.Add(1)
	err := c.write()
	if !w.listed {
		err = c.ask(http.MethodDelete, map[string]any{"url": w.url})
	}
	go func() {
		for range 600 {
			time.Sleep(100 * time.Millisecond)
			if text, err := c.members(); err == nil && !strings.Contains(text, w.url+`"`) {
				break
			}
		}
		w.Kill()
	}()
	return err
}

// die kills a worker, and removes it after some seconds, like an operator.
func (c *cluster) die() error {
	w := c.take()
	c.killed.Add(1)
	c.mu.Lock()
	c.deaths = append(c.deaths, death{time.Now(), time.Now()})
	c.mu.Unlock()
	w.Kill()
	time.Sleep(2 * time.Second)
	if w.listed {
		return c.write()
	}
	return c.ask(http.MethodDelete, map[string]any{"url": w.url})
}

// take removes a worker from the list and returns it.
func (c *cluster) take() *member {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := c.rng.IntN(len(c.workers))
	w := c.workers[i]
	c.workers = append(c.workers[:i:i], c.workers[i+1:]...)
	return w
}

// died reports whether a worker died while a request was in flight, or shortly before: the gateway
// needs a moment to notice.
func (c *cluster) died(from, to time.Time) bool {
	const moment = 2 * time.Second
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range c.deaths {
		end := d.to
		if end.IsZero() { // it has not ended yet
			end = to
		}
		if !end.Before(from.Add(-moment)) && !d.from.After(to) && to.Sub(end) < 2*moment {
			return true
		}
	}
	return false
}

// ask sends a change to the gateway.
func (c *cluster) ask(method string, body map[string]any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequest(method, c.admin+"/admin/workers", bytes.NewReader(data))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s /admin/workers %s: %d %.200s", method, data, resp.StatusCode, text)
	}
	return err
}

// members returns the gateway's list of its workers.
func (c *cluster) members() (string, error) {
	resp, err := http.Get(c.admin + "/admin/workers")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}

var goroutinesLine = regexp.MustCompile(`(?m)^go_goroutines (\d+)$`)

// goroutines returns the number of the gateway's goroutines.
func (c *cluster) goroutines() (int, error) {
	resp, err := http.Get(c.admin + "/metrics")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	m := goroutinesLine.FindSubmatch(text)
	if m == nil {
		return 0, errors.New("/metrics has no go_goroutines")
	}
	return strconv.Atoi(string(m[1]))
}

func (c *cluster) changes() string {
	return fmt.Sprintf("+%d-%d!%d~%d", c.joined.Load(), c.left.Load(), c.killed.Load(), c.updated.Load())
}

func (c *cluster) failures() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.failed, "; ")
}

// stop ends all workers.
func (c *cluster) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.workers {
		w.Kill()
	}
}
