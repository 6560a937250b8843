//go:build linux

// Soak runs `lorasim gateway` for minutes. Its emulated workers join, leave and die (kill -9), all of them are updated
// to another base model one after the other (SIGTERM; the engine may change, too), and some clients disconnect early.
// It fails if a request is lost beyond the streams that had begun on a worker that ended, if another model or adapter
// serves a request, or if the gateway's memory or goroutines grow.
//
//	go run ./soak                                                 # ten minutes, policy plan-and-route
//	go run ./soak --for 1m --every 2s --policy least-loaded       # shorter, more changes, another policy
//	go run ./soak --lorasim OLD                                   # another program
//
// All processes that it starts end with it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"lorasim/lab/internal/process"
	"lorasim/lab/internal/repo"
)

// options are the flags.
type options struct {
	lorasim, policy  string
	folder           string // for the access log and the file of workers
	length, every    time.Duration
	update           time.Duration
	clients, workers int
	growth           float64
	seed             uint64
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == "worker-process" {
		if err := workerMain(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(1)
		}
		return
	}
	var o options
	flag.StringVar(&o.lorasim, "lorasim", "", "`program` to run (default: built from the source)")
	flag.StringVar(&o.policy, "policy", "plan-and-route", "routing policy")
	flag.DurationVar(&o.length, "for", 10*time.Minute, "length of the run")
	flag.DurationVar(&o.every, "every", 4*time.Second, "time between two changes of the workers")
	flag.DurationVar(&o.update, "update", time.Minute, "time between two rolling updates; 0: none")
	flag.IntVar(&o.clients, "clients", 16, "clients, each with one request at a time")
	flag.IntVar(&o.workers, "workers", 6, "workers at most; at least 2 stay")
	flag.Float64Var(&o.growth, "growth", 8, "most that the gateway's memory may grow after the first fifth, MB")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the changes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := repo.InFolder(ctx, "soak", o.lorasim, func(folder, lorasim string) error {
		o.folder, o.lorasim = folder, lorasim
		return o.run(ctx)
	})
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

func (o *options) run(ctx context.Context) (err error) {
	s := process.NewSpawner()
	c := newCluster(s, o)
	defer c.stop()
	for range 2 {
		if _, err := c.start(); err != nil {
			return err
		}
	}
	if err := c.write(); err != nil {
		return err
	}
	g, err := s.Serve(process.Pipes{}, o.lorasim, "gateway", "--workers-file", c.file, "--listen", "127.0.0.1:0",
		"--policy", o.policy, "--poll-interval", "500ms", "--access-log", filepath.Join(o.folder, "access.jsonl"),
		"--base-alias", baseNames[0]+"="+baseNames[1], "--base-alias", baseNames[1]+"="+baseNames[0])
	if err != nil {
		return err
	}
	defer g.Kill()
	c.admin = g.URL(1, 30*time.Second)
	t := newTraffic(g.URL(0, 0), c)
	var m memory
	if m.before, err = c.goroutines(); err != nil {
		return err
	}
	fmt.Printf("gateway %s, policy %s, %d clients, %v\n%8s %9s %6s %6s %6s %6s %8s %8s\n", g.URL(0, 0), o.policy,
		o.clients, o.length, "time", "whole", "left", "cut", "lost", "alive", "changes", "RSS, MB")
	ctx, cancel := context.WithTimeout(ctx, o.length)
	defer cancel()
	wait := t.begin(ctx, o.clients)
	changed := c.begin(ctx, o.every)
	begun := time.Now()
	for tick := range 1 << 30 {
		rss, _ := g.Memory()
		m.add(time.Since(begun).Seconds()/o.length.Seconds(), rss)
		if tick%int(max(o.length/20/time.Second, 1)) == 0 {
			fmt.Printf("%8v %s %6d %8s %8.1f\n", time.Since(begun).Round(time.Second), t.counts(), c.alive(),
				c.changes(), rss)
		}
		select {
		case <-time.After(time.Second):
			continue
		case <-g.Over():
			return fmt.Errorf("the gateway has ended: %s", g.Reason())
		case <-ctx.Done():
		}
		break
	}
	if err := context.Cause(ctx); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	wait()
	changed()
	time.Sleep(8 * time.Second) // idle connections end
	if m.after, err = c.goroutines(); err != nil {
		return err
	}
	g.Signal(syscall.SIGTERM)
	code := g.Ends(40 * time.Second)
	return o.verdict(t, c, &m, code)
}

// verdict prints the results of the run, and returns an error if a check failed.
func (o *options) verdict(t *traffic, c *cluster, m *memory, code int) error {
	early, late := m.growth()
	n := c.book.Totals()
	fmt.Printf("\n%s\nexecuted: %d requests, %d twice, at most %d times\n"+
		"workers: %d joined, %d left, %d killed, %d updated in %d rolling updates, %d did not end within %v\n"+
		"memory: %.1f MB early, %.1f MB late, %.1f MB at most\ngoroutines: %d before (2 workers), %d after (%d workers)\n"+
		"end: exit status %d\n", t.summary(), n.Requests, n.Twice, n.Most, c.joined.Load(), c.left.Load(),
		c.killed.Load(), c.updated.Load(), c.bases, c.stuck.Load(), patience, early, late, m.peak, m.before, m.after,
		c.alive(), code)
	var bad []string
	check := func(ok bool, format string, args ...any) {
		if !ok {
			bad = append(bad, fmt.Sprintf(format, args...))
		}
	}
	check(t.lost.Load() == 0, "%d requests were lost that no dead worker had begun to answer: %s", t.lost.Load(),
		t.example())
	check(t.whole.Load() >= 100, "only %d requests were served", t.whole.Load())
	check(c.joined.Load() > 0 && c.left.Load() > 0 && c.killed.Load() > 0, "too few changes of the workers")
	check(late-early <= o.growth, "memory grew by %.1f MB, at most %.1f are allowed", late-early, o.growth)
	check(t.wrong.Load() == 0, "another model or adapter served: %s", t.example())
	check(n.Most <= 2, "a request was executed %d times", n.Most)
	check(c.stuck.Load() == 0, "%d workers did not end after SIGTERM", c.stuck.Load())
	check(m.after-m.before <= 10*c.options.workers, "%d goroutines more than at the start", m.after-m.before)
	check(code == 0, "the gateway ended with status %d", code)
	check(c.failures() == "", "changes that failed: %s", c.failures())
	if len(bad) > 0 {
		fmt.Println("verdict: FAILED")
		return errors.New(strings.Join(bad, "; "))
	}
	fmt.Println("verdict: passed")
	return nil
}

// memory is the samples of a process's resident memory, MB.
type memory struct {
	before, after int // goroutines
	early, late   []float64
	peak          float64
}

// add adds a sample at a share of the run: the second tenth is early, the last tenth late.
func (m *memory) add(share, rss float64) {
	m.peak = max(m.peak, rss)
	switch {
	case share >= 0.1 && share < 0.2:
		m.early = append(m.early, rss)
	case share >= 0.9:
		m.late = append(m.late, rss)
	}
}

// growth returns the mean memory early and late in the run.
func (m *memory) growth() (early, late float64) { return mean(m.early), mean(m.late) }

func mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(max(len(x), 1))
}
