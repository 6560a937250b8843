package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"lorasim/bench/emulate"
	"lorasim/bench/gateway"
	"lorasim/bench/live"
	"lorasim/bench/live/fleet"
	"lorasim/bench/scenario"
	"lorasim/router"
	"lorasim/sim/profile"
	"lorasim/trace"
	"lorasim/trace/synth"
)

// gatewayFlags are the flags of lorasim gateway beside the scenario's.
type gatewayFlags struct {
	gateway.Config
	remote            remoteFlags
	listen, access    string
	headerTime, grace time.Duration
	maxPending        int
}

func newGateway() *cobra.Command {
	var f gatewayFlags
	cmd := &cobra.Command{
		Use:   "gateway [URL...]",
		Short: "Spread the requests of any client over live workers by a routing policy",
		Long: `Gateway is a reverse proxy before workers that run sglang or vLLM (or lorasim
worker). It passes on whatever they serve, routed by the adapter or model that a
request names, and has /v1/models, /health and /metrics (Prometheus) of its own,
and /admin/workers, load, unload and drain. Adapters are
those of --lora, --lora-file and --lora-dir, and those that the workers hold; any
other is refused with status 404. It talks to no other host than the workers. On
SIGTERM it takes no new requests and lets those in flight end.`,
		Example: `  lorasim gateway --worker-urls gpu0:30000,gpu1:30000 --lora chat=/adapters/chat --lora code=/adapters/code
  lorasim gateway gpu0:30000 gpu1:30000 --lora-dir /adapters --access-log access.jsonl
  lorasim gateway localhost:30001 localhost:30002 --lora lora0=lora0 --policy least-loaded --listen :8000
  curl localhost:8000/v1/completions -d '{"model": "chat", "prompt": "hello", "max_tokens": 20}'`,
		Args: cobra.ArbitraryArgs,
	}
	sf := addScenarioFlags(cmd, "routing")
	addWorkerSettings(cmd, "profile", "max_running_requests", "max_loras_per_batch", "max_loaded_loras", "kv_tokens")
	f.remote.add(cmd)
	f.add(cmd)
	cmd.RunE = sf.with(f.run)
	return cmd
}

func (f *gatewayFlags) add(cmd *cobra.Command) {
	flags(cmd, "Gateway",
		opt(&f.listen, "listen", "127.0.0.1:8000", "`address` to listen on"),
		opt(&f.APIKey, "gateway-key", "", "bearer token that clients must send"),
		opt(&f.MaxBody, "max-body", 32<<20, "how far into a request's body its model is looked for, bytes", ">=1"),
		opt(&f.headerTime, "header-timeout", 10*time.Second, "longest time for a request's header", ">0"),
		opt(&f.FirstByte, "first-token-timeout", 0, "longest wait for a worker's first byte; 0: none", ">=0"),
		opt(&f.QueueTimeout, "queue-timeout", time.Minute, "longest wait for a place for an adapter on a full worker; then 503; 0: no limit", ">=0"),
		opt(&f.maxPending, "max-pending-requests", 1024, "requests that may wait for such a place, per worker; beyond it 503; 0: no limit", ">=0 <=1e6"),
		opt(&f.grace, "grace", 30*time.Second, "time for requests in flight when it is stopped (SIGTERM)", ">=0"),
		opt(&f.access, "access-log", "-", "a line per request and per plan: JSON appended to `file`, -: text on stderr, none"),
		opt(&f.Retries, "retries", 2, "other workers that a request is offered before its first byte", ">=0 <=1000"))
}

// accessLog opens the log of requests and plans: lines of text on stderr, of
// JSON in a file; nil: none.
func (f *gatewayFlags) accessLog(stderr io.Writer) (*slog.Logger, io.Closer, error) {
	switch f.access {
	case "-":
		return slog.New(slog.NewTextHandler(stderr, nil)), io.NopCloser(nil), nil
	case "none":
		return nil, io.NopCloser(nil), nil
	}
	file, err := os.OpenFile(f.access, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, nil, fmt.Errorf("--access-log: %w", err)
	}
	return slog.New(slog.NewJSONHandler(file, nil)), file, nil
}

func (f *gatewayFlags) run(cmd *cobra.Command, sc *scenario.Scenario, args []string) error {
	cfg := fleet.Config{Log: newProgress(nil).log(cmd.ErrOrStderr())}
	if err := f.remote.parse(args, &cfg); err != nil {
		return usage(err)
	}
	defer cfg.Client.CloseIdleConnections()
	access, accessFile, err := f.accessLog(cmd.ErrOrStderr())
	if err != nil {
		return usage(err)
	}
	defer accessFile.Close()
	cfg.Plans, f.Access, cfg.MaxPending = access, access, f.maxPending
	var rt *router.Router
	if f.Fleet, rt, err = live.NewFleet(cmd.Context(), sc, cfg, 0, true); err != nil && rt == nil {
		return usage(err)
	} else if err != nil {
		return err
	}
	defer f.Fleet.Close()
	g, err := gateway.New(f.Config)
	if err != nil {
		return err
	}
	defer g.Close()
	return f.serve(cmd, g)
}

// serve listens until the command is interrupted; then it answers new requests
// and /health with status 503 until those in flight have ended, and closes.
func (f *gatewayFlags) serve(cmd *cobra.Command, g *gateway.Gateway) error {
	ctx := cmd.Context()
	l, err := net.Listen("tcp", f.listen)
	if err != nil {
		return fmt.Errorf("--listen %s: %w", f.listen, err)
	}
	defer l.Close()
	if err := f.Fleet.Start(ctx); err != nil {
		return err
	}
	background, quit := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { f.Fleet.Run(background) })
	defer wg.Wait()
	defer quit()
	srv := &http.Server{Handler: g, ReadHeaderTimeout: f.headerTime, IdleTimeout: 2 * time.Minute}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()
	fmt.Fprintf(cmd.OutOrStdout(), "listening on http://%s\n", l.Addr())
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	idle := g.Drain()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.grace)
	defer cancel()
	select {
	case <-idle: // until then, who asks is told that the gateway is going
	case <-grace.Done():
	}
	if err := srv.Shutdown(grace); err != nil {
		srv.Close()
		select {
		case <-idle:
		case <-time.After(time.Second): // for the end of the log
		}
		return fmt.Errorf("requests were still in flight after %v and were cut off", f.grace)
	}
	return nil
}

// workerFlags are the flags of lorasim worker beside the scenario's.
type workerFlags struct {
	emulate.Config           // of every worker
	listen, host, api, ranks string
	port, numAdapters        int
	loras                    repeated
}

func newWorker() *cobra.Command {
	var f workerFlags
	cmd := &cobra.Command{
		Use:   "worker",
		Short: "Serve an emulated worker: sglang's and vLLM's HTTP interfaces without a GPU",
		Long: `Worker serves the interfaces of sglang or vLLM with the simulator's engine behind
them, in real time or faster. Replies are made of tokens that depend only on the
prompt. Several workers listen on consecutive ports.

` + engineNamesText(engineNames...),
		Example: `  lorasim worker --listen 127.0.0.1:30001 --profile llama2-7b-24gb
  lorasim worker --num-workers 2 --num-adapters 4          # ports 30001 and 30002, lora0 to lora3 loaded
  lorasim worker --lora chat=adapters/chat-r16 --max-loaded-loras 8
  lorasim worker --api vllm --time-scale 10                # ten times as fast`,
	}
	sf := addScenarioFlags(cmd, "cluster")
	cmd.Flags().Lookup("num-workers").DefValue = "1"
	cmd.Flags().Lookup("num-workers").Usage = "number of workers, on consecutive ports"
	f.add(cmd)
	cmd.RunE = sf.with(func(cmd *cobra.Command, sc *scenario.Scenario, _ []string) error {
		if sc.Cluster.Elastic != "" {
			return usage(errors.New("--elastic is for simulated runs: start and stop workers yourself"))
		}
		if sc.Cluster.NumWorkers == 0 && !strings.Contains(sc.Cluster.Profile, "*") {
			sc.Cluster.NumWorkers = 1
		}
		cfgs, err := f.configs(sc)
		if err != nil {
			return usage(err)
		}
		return f.serve(cmd, cfgs)
	})
	return cmd
}

func (f *workerFlags) add(cmd *cobra.Command) {
	flags(cmd, "Server",
		opt(&f.listen, "listen", "127.0.0.1:30001", "`address` to listen on; port 0: any free one"),
		opt(&f.host, "host", "", "host to listen on, as the engines spell it (default: that of --listen)"),
		opt(&f.port, "port", -1, "port of the first worker, as the engines spell it (default: that of --listen)", ">=0 <=65535"),
		opt(&f.api, "api", string(emulate.SGLang), "interface: sglang or vllm"),
		opt(&f.Speed, "time-scale", 1, "how much faster than the wall clock the worker's time passes", ">0 <=1e6"),
		opt(&f.ModelName, "served-model-name", "", "name of the base model (default: the profile's)"),
		opt(&f.APIKey, "api-key", "", "bearer token that clients must send"),
		opt(&f.EOSEvery, "eos-every", 0, "replies that do not ignore EOS end after so many tokens on average; 0: at their budget", ">=0 <=1e9"),
		opt(&f.StreamInterval, "stream-interval", 1, "tokens per streamed event", ">=1 <=1e6"),
		opt(&f.StreamOutput, "stream-output", false, "stream only what is new instead of the whole reply so far"))
	flags(cmd, "Adapters",
		opt(&f.loras, "lora", nil, "adapter loaded from the start, `NAME=PATH`; a rank at the path's end (-r16, ?rank=16) counts; repeatable"),
		opt(&f.numAdapters, "num-adapters", 0, "load so many adapters lora0, lora1, ... from the start", ">=0 <=1e6"),
		opt(&f.ranks, "lora-ranks", "", "their ranks, in turn (default: those of 8,16,32,64 that the profile allows)"))
}

// configs are the configurations of the workers.
func (f *workerFlags) configs(sc *scenario.Scenario) ([]emulate.Config, error) {
	ps, err := sc.Profiles()
	if err != nil {
		return nil, err
	}
	if f.API, err = emulate.ParseAPI(f.api); err != nil {
		return nil, fmt.Errorf("--api: %w", err)
	}
	if f.Adapters, err = f.adapters(sc.Seed, ps); err != nil {
		return nil, err
	}
	f.Home = map[bool]router.Tier{true: router.Remote, false: router.Disk}[sc.Cluster.AdapterHome == "remote"]
	cfgs := make([]emulate.Config, len(ps))
	for i, p := range ps {
		cfgs[i] = f.Config
		cfgs[i].Costs = p.Compile()
	}
	return cfgs, nil
}

func (f *workerFlags) adapters(seed uint64, ps []*profile.Profile) ([]emulate.Adapter, error) {
	ranks, err := synth.ParseRanks(cmp.Or(f.ranks, scenario.DefaultRanksFor(ps)))
	if err != nil {
		return nil, fmt.Errorf("--lora-ranks: %w", err)
	}
	var as []emulate.Adapter
	named := trace.Names(f.numAdapters, ranks.For(f.numAdapters, seed))
	for _, p := range ps {
		if err := scenario.CheckRanks(p, named); err != nil {
			return nil, err
		}
	}
	for _, a := range named {
		as = append(as, emulate.Adapter{Name: a.Name, Path: a.Name, Rank: a.Rank})
	}
	for _, l := range f.loras {
		name, path, ok := strings.Cut(l, "=")
		if name == "" {
			return nil, fmt.Errorf("--lora %q: expected NAME=PATH", l)
		}
		if !ok {
			path = name
		}
		as = append(as, emulate.Adapter{Name: name, Path: path})
	}
	return as, nil
}

// serve listens until the command is interrupted, then lets requests in flight
// end for a moment.
func (f *workerFlags) serve(cmd *cobra.Command, cfgs []emulate.Config) error {
	ctx := cmd.Context()
	servers := make([]*http.Server, 0, len(cfgs))
	failed := make(chan error, len(cfgs))
	defer func() {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		for _, s := range servers {
			if s.Shutdown(grace) != nil {
				s.Close()
			}
			s.Handler.(*emulate.Worker).Close()
		}
	}()
	for i, cfg := range cfgs {
		addr, err := f.address(i)
		if err != nil {
			return usage(fmt.Errorf("--listen: %w", err))
		}
		w, err := emulate.New(cfg)
		if err != nil {
			return usage(err)
		}
		s := &http.Server{Handler: w, ReadHeaderTimeout: 10 * time.Second}
		servers = append(servers, s)
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return fmt.Errorf("--listen %s: %w", addr, err)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "listening on http://%s\n", l.Addr())
		go func() { failed <- s.Serve(l) }()
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	}
}

// address is where the worker of an index listens: --listen, in which --host and
// --port replace a part, or so many ports after it; port 0 stays.
func (f *workerFlags) address(n int) (string, error) {
	host, port, err := net.SplitHostPort(f.listen)
	if err != nil {
		return "", err
	}
	if f.port >= 0 {
		port = strconv.Itoa(f.port)
	}
	p, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return "", fmt.Errorf("port %q, expected a number from 0 to 65535", port)
	}
	if p > 0 {
		p += uint64(n)
	}
	return net.JoinHostPort(cmp.Or(f.host, host), strconv.FormatUint(p, 10)), nil
}
