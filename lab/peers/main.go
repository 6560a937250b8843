// Peers compares the processor time of simulators on the same requests: `lorasim sim` and the offline replay of NVIDIA
// Dynamo (package ai-dynamo of PyPI). The simulators take turns.
//
//	go run ./peers                       # installs Dynamo into a folder of its own
//	go run ./peers --sizes 1000,10000 --rounds 5
//
// All of them get the same arrivals and lengths, two workers in turn (round robin), the scheduler of vLLM with the same
// limits, no prefix cache, and steps of the same fixed time. So they must finish the same requests with the same tokens
// after about the same simulated time, which the table shows. A simulator that is not to be had is left out, with the
// reason.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"lorasim/lab/internal/process"
	"lorasim/lab/internal/repo"
)

// options are the flags.
type options struct {
	lorasim, python, venv, sizes string
	rounds                       int
	rate                         float64
}

func main() {
	var o options
	flag.StringVar(&o.lorasim, "lorasim", "", "`program` lorasim (default: built from the source)")
	flag.StringVar(&o.python, "python", "python3", "`program` Python, 3.10 or later, that makes the environment")
	flag.StringVar(&o.venv, "venv", "", "`folder` of Dynamo's Python environment (default: in the user's cache)")
	flag.StringVar(&o.sizes, "sizes", "1000,10000,100000", "`numbers` of requests, comma-separated")
	flag.IntVar(&o.rounds, "rounds", 7, "number of rounds")
	flag.Float64Var(&o.rate, "rate", 10, "requests/s")
	flag.Parse()
	ctx := context.Background()
	err := repo.InFolder(ctx, "peers", o.lorasim, func(folder, program string) error {
		return o.run(ctx, folder, program, os.Stdout)
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

// run measures and prints the table. The folder is for files.
func (o *options) run(ctx context.Context, folder, lorasim string, out io.Writer) error {
	if o.venv == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return err
		}
		o.venv = filepath.Join(cache, "lorasim-peers")
	}
	list := []simulator{newLorasim(lorasim), newDynamo(o.python, o.venv)}
	ready := list[:0]
	for _, s := range list {
		if err := s.prepare(ctx, folder); err != nil {
			fmt.Fprintf(os.Stderr, "without %s: %v\n", s.name(), err)
			continue
		}
		ready = append(ready, s)
	}
	fmt.Fprintf(out, "the least of %d rounds; load average %.1f before\n\n", o.rounds, process.LoadAverage())
	fmt.Fprintln(out, "| requests | simulator | processor time, s | ratio | start, s | without it, µs per request | ratio | "+
		"memory, MB | done | prompt tokens | output tokens | simulated, s | mean TTFT, ms | mean TPOT, ms |")
	fmt.Fprintln(out, "|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
	for text := range strings.SplitSeq(o.sizes, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 2 {
			return fmt.Errorf("--sizes: %q, expected numbers from 2 on", text)
		}
		if err := o.measure(ctx, out, folder, ready, n); err != nil {
			return err
		}
	}
	return nil
}

// measure prints the rows of a number of requests. A simulator's start is its run of a single request.
func (o *options) measure(ctx context.Context, out io.Writer, folder string, list []simulator, n int) error {
	work := generate(n, o.rate)
	all, one := make([]string, len(list)), make([]string, len(list))
	for i, s := range list {
		all[i], one[i] = filepath.Join(folder, "all"+s.format()), filepath.Join(folder, "one"+s.format())
		if err := cmp.Or(s.write(all[i], work), s.write(one[i], work[:1])); err != nil {
			return err
		}
	}
	costs, results := make([]cost, len(list)), make([]result, len(list))
	for round := range o.rounds {
		for j := range list {
			i := (j + round) % len(list) // none is always first
			start, _, _, err := execute(ctx, list[i], one[i])
			if err != nil {
				return err
			}
			cpu, memory, got, err := execute(ctx, list[i], all[i])
			if err != nil {
				return err
			}
			c := &costs[i]
			if round == 0 {
				*c = cost{cpu: cpu, start: start, memory: memory}
			}
			c.cpu, c.start, c.memory = min(c.cpu, cpu), min(c.start, start), min(c.memory, memory)
			results[i] = got
		}
	}
	var first cost // lorasim's
	for i, s := range list {
		c, r := costs[i], results[i]
		c.each = (c.cpu - c.start) / float64(n)
		if s.name() == lorasimName {
			first = c
		}
		fmt.Fprintf(out, "| %d | %s | %.3f | %s | %.3f | %.2f | %s | %.0f | %d | %d | %d | %.1f | %.1f | %.2f |\n", n, s.name(),
			c.cpu, ratio(c.cpu, first.cpu), c.start, 1e6*c.each, ratio(c.each, first.each), c.memory, r.done, r.prompt,
			r.output, r.duration, r.ttft, r.tpot)
	}
	return nil
}

// cost is what a simulator has taken: the least of all rounds.
type cost struct {
	cpu, start float64 // s; start: of a run of one request
	memory     float64 // MB
	each       float64 // s per request, without the start
}

// ratio returns a quotient, or "-" if the second number is too small or unknown.
func ratio(a, b float64) string {
	if b <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", a/b)
}

// execute runs a simulator. It returns the processor time in s, user and system, the peak memory in MB, and the result.
func execute(ctx context.Context, s simulator, trace string) (cpu, memory float64, r result, err error) {
	cmd := s.command(ctx, trace)
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return 0, 0, r, fmt.Errorf("%s: %w", s.name(), err)
	}
	if r, err = s.read(text); err != nil {
		return 0, 0, r, fmt.Errorf("%s: %w", s.name(), err)
	}
	state := cmd.ProcessState
	if usage, ok := state.SysUsage().(*syscall.Rusage); ok {
		memory = float64(usage.Maxrss) / 1000
	}
	return (state.UserTime() + state.SystemTime()).Seconds(), memory, r, nil
}
