//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"lorasim/bench/serving/faultworker"
	"lorasim/bench/serving/httpapi"
)

// Rows with lorasim bench as the client.

const memoryLimit = 3 << 20 // kB of address space: a bench that needs more ends itself instead of the machine

// block is the part of the result of lorasim bench that is read.
type block struct {
	Completed int `json:"completed"`
}

// runBench sends n requests to the cell's workers.
func (c *cell) runBench(n int, more ...string) error {
	ctx, cancel := context.WithTimeout(c.ctx, 90*time.Second)
	defer cancel()
	args := append([]string{"bench", "--worker-urls", strings.Join(c.urls(), ","), "--policy", c.policy,
		"--num-prompts", fmt.Sprint(n),
		"--request-rate", "200", "--lengths", "constant:16,4", "--no-warmup", "--json"}, more...)
	shell := append([]string{"-c", fmt.Sprintf(`ulimit -v %d; exec "$0" "$@"`, memoryLimit), c.lorasim}, args...)
	out, p, err := c.spawner.Run(ctx, "/bin/sh", shell...)
	var b block
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if json.Unmarshal([]byte(out), &b) != nil {
		json.Unmarshal([]byte(lines[len(lines)-1]), &b) // without a result nothing was completed
	}
	if p == nil {
		return err
	}
	_, peak := p.Memory()
	c.figure("requests", float64(n))
	c.figure("completed", float64(b.Completed))
	if peak > 10 { // else it ended before the first sample
		c.figure("peak RSS, MB", peak)
	}
	switch {
	case ctx.Err() != nil:
		c.say("bench", "did not end within 90 s")
	case err != nil && b.Completed == 0:
		c.say("bench", fmt.Sprintf("ended, %v: %.40s", err, p.Reason()))
	default:
		c.say("bench", "ended with a result")
	}
	return c.ctx.Err()
}

func loras(n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("lora%d", i))
	}
	return list
}

// benchWorkers starts workers for lorasim bench, whose adapters are lora0 to lora5.
func (c *cell) benchWorkers(n int, set func(i int, cfg *faultworker.Config)) error {
	return c.work(n, func(i int, cfg *faultworker.Config) {
		cfg.Adapters, cfg.Token = loras(6), 5*time.Millisecond
		if set != nil {
			set(i, cfg)
		}
	})
}

func benchCounts(c *cell) error {
	if err := c.benchWorkers(1, nil); err != nil {
		return err
	}
	if err := c.workers[0].Break(faultworker.Rule{On: faultworker.Generate, Do: faultworker.Counts, Tokens: 1,
		Number: 4e9, Share: 0.05}); err != nil {
		return err
	}
	return c.runBench(100, "--num-adapters", "6")
}

func benchMetrics(c *cell) error {
	if err := c.benchWorkers(3, func(_ int, cfg *faultworker.Config) { cfg.API = httpapi.VLLM }); err != nil {
		return err
	}
	if err := c.workers[0].Break(metrics("{}", "")...); err != nil {
		return err
	}
	return c.runBench(600, "--num-adapters", "6", "--backend", "vllm", "--worker-api", "vllm", "--engine-args",
		"max_loaded_loras=6")
}

func benchCut(c *cell) error {
	if err := c.benchWorkers(3, nil); err != nil {
		return err
	}
	if err := c.workers[0].Break(faultworker.Rule{On: faultworker.Generate, Do: faultworker.Cut,
		Tokens: 1}); err != nil {
		return err
	}
	if err := c.runBench(pick(c.bench, 1000, 200), "--num-adapters", "6"); err != nil {
		return err
	}
	return nil
}

func benchDrop(c *cell) error {
	if err := c.benchWorkers(3, nil); err != nil {
		return err
	}
	for _, w := range c.workers {
		if err := w.Break(faultworker.Rule{On: faultworker.Generate, Do: faultworker.Drop, Share: 0.3}); err != nil {
			return err
		}
	}
	err := c.runBench(600, "--num-adapters", "6", "--retries", "0", "--no-failover")
	n := c.book.Totals()
	c.figure("executed twice or more", float64(n.Twice))
	return err
}

func benchPlaces(c *cell) error {
	if err := c.benchWorkers(2, func(i int, cfg *faultworker.Config) { scarce(i, cfg) }); err != nil {
		return err
	}
	return c.runBench(pick(c.bench, 2000, 300), "--num-adapters", fmt.Sprint(manyAdapter), "--request-rate", "inf",
		"--max-concurrency", "40")
}
