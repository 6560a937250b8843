package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

// Live runs send one request at a time, so that what a policy sees does not depend on the clock of this machine.
// Compared are workers, adapters, tokens, replies and counts.

// liveClock matches values that are times, or follow from them.
var liveClock = regexp.MustCompile(`(_ms|_s|\.mean_ms|throughput|duration|^\S+ concurrency|max_concurrent_requests|` +
	`offered_rate|normalized_latency|max_output_tokens_per_s|worker_urls\.\d+|completed_set)$|steady\.|p\d+_`)

// clocked are the policies whose decisions follow the clock, or polls of the workers, also with one request at a
// time.
var clocked = []string{"plan-and-route", "route-only", "auto", "rank-group", "min-cost-flow", "llumnix",
	"dlora_period_mig", "k-shard", "epp", "epp:file=pickers/gie.yaml"}

// liveRuns returns a run of bench against three emulated workers for each policy that does not follow the clock.
func liveRuns(policies []policy) []run {
	var runs []run
	serve := parse("", "worker --listen 127.0.0.1:0 --num-workers 3 --num-adapters 6 --time-scale 20").steps[0]
	for _, p := range policyValues(policies) {
		name, _, _ := strings.Cut(p, ":")
		if slices.Contains(clocked, p) {
			continue
		}
		r := parse("bench/"+p, "bench --ready-timeout 1h --poll-interval 1h --worker-time-scale 20 --num-adapters 6 "+
			"--num-prompts 40 --request-rate inf --max-concurrency 1 --lengths random --random-input-len 200 "+
			"--random-output-len 8 --policy "+p+" --records records.csv --replies replies.jsonl --json")
		r.workers, r.clock = &serve, liveClock
		r.quick = slices.Contains([]string{"static", "affinity", "least-loaded"}, name)
		runs = append(runs, r)
	}
	return runs
}

// servers are emulated workers of one build.
type servers struct {
	urls []string
	cmd  *exec.Cmd
}

var listening = regexp.MustCompile(`^listening on (http://\S+)`)

// serve starts workers and waits until each has printed its address.
func (b *build) serve(ctx context.Context, dir string, s step) (*servers, error) {
	args, err := b.args(s)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, b.path, args...)
	cmd.Dir = dir
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	log, err := os.Create(filepath.Join(dir, "..", "worker.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stderr = log
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	started := &servers{cmd: cmd}
	for lines := bufio.NewScanner(stdout); len(started.urls) < 3 && lines.Scan(); {
		if match := listening.FindStringSubmatch(lines.Text()); match != nil {
			started.urls = append(started.urls, match[1])
		}
	}
	if len(started.urls) < 3 {
		started.stop()
		return nil, errors.New(fmt.Sprint("workers: only ", len(started.urls), " of 3 have started"))
	}
	return started, nil
}

func (s *servers) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	_ = s.cmd.Wait()
}
