package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"lorasim/bench/gateway"
	"lorasim/bench/live"
	"lorasim/bench/live/fleet"
	"lorasim/bench/scenario"
	"lorasim/trace"
)

// gatewayFlags are the flags of lorasim gateway beside the scenario's.
type gatewayFlags struct {
	remote                   remoteFlags
	listen, key              string
	loras                    []string
	maxBody                  int64
	headerTime, grace, first time.Duration
	retries                  int
}

func newGateway() *cobra.Command {
	var f gatewayFlags
	cmd := &cobra.Command{
		Use:   "gateway [URL...]",
		Short: "Spread the requests of any client over live workers by a routing policy",
		Long: `Gateway is a reverse proxy before workers that run sglang or vLLM (or lorasim
worker). It serves /generate, /v1/completions, /v1/chat/completions, /v1/models,
/health and /metrics (Prometheus), and /admin/workers, load, unload and drain.
Adapters are those of --lora; an unknown one is refused with status 404. It talks
to no other host than the workers.`,
		Example: `  lorasim gateway --worker-urls gpu0:30000,gpu1:30000 --lora chat=/adapters/chat --lora code=/adapters/code
  lorasim gateway localhost:30001 localhost:30002 --lora lora0=lora0 --policy least-loaded --listen :8000
  curl localhost:8000/v1/completions -d '{"model": "chat", "prompt": "hello", "max_tokens": 20}'`,
		Args: cobra.ArbitraryArgs,
	}
	sf := addScenarioFlags(cmd, "routing")
	addWorkerSettings(cmd, "profile", "max_running_requests", "max_loras_per_batch", "kv_tokens")
	f.remote.add(cmd)
	f.add(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		sc, err := sf.scenario(cmd)
		if err != nil {
			return err
		}
		return f.run(cmd, &sc, args)
	}
	return cmd
}

func (f *gatewayFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.listen, "listen", "127.0.0.1:8000", "`address` to listen on")
	fs.StringVar(&f.key, "gateway-key", "", "bearer token that clients must send")
	fs.Int64Var(&f.maxBody, "max-body", 32<<20, "longest body of a request, bytes")
	fs.DurationVar(&f.headerTime, "header-timeout", 10*time.Second, "longest time for a request's header")
	fs.DurationVar(&f.first, "first-token-timeout", 0, "longest wait for a worker's first byte; 0: none")
	fs.DurationVar(&f.grace, "grace", 30*time.Second, "time for requests in flight when it is stopped")
	fs.IntVar(&f.retries, "retries", 2, "other workers that a request is offered before its first byte")
	group(cmd, "Gateway", "listen", "gateway-key", "max-body", "header-timeout", "first-token-timeout", "grace", "retries")
}

// adapters are those of --lora.
func (f *gatewayFlags) adapters() ([]trace.Adapter, error) {
	var as []trace.Adapter
	seen := map[string]bool{}
	for _, l := range f.remote.loras {
		name, _, ok := strings.Cut(l, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("--lora %q: expected NAME=PATH", l)
		}
		if seen[name] {
			return nil, fmt.Errorf("--lora: adapter %q is given twice", name)
		}
		seen[name] = true
		as = append(as, trace.Adapter{Name: name})
	}
	return as, nil
}

func (f *gatewayFlags) run(cmd *cobra.Command, sc *scenario.Scenario, args []string) error {
	urls, err := f.remote.urls(args)
	if err != nil {
		return usage(err)
	}
	adapters, err := f.adapters()
	if err != nil {
		return usage(err)
	}
	api, transport, header, path, err := f.remote.parse()
	if err != nil {
		return usage(err)
	}
	if f.maxBody < 1 || f.headerTime <= 0 || f.grace < 0 || f.retries < 0 || f.first < 0 {
		return usage(errors.New("--max-body and --header-timeout must be above 0; --grace, --retries and --first-token-timeout not negative"))
	}
	sc.Cluster.NumWorkers = len(urls)
	ps, err := sc.Profiles()
	if err != nil {
		return usage(err)
	}
	rt, err := sc.Router(ps, adapters)
	if err != nil {
		return usage(err)
	}
	log := newProgress(nil).log(cmd.ErrOrStderr())
	clock := live.NewClock(1)
	client := live.NewHTTPClient(transport)
	defer client.CloseIdleConnections()
	fl, err := fleet.New(fleet.Config{URLs: urls, API: api, Client: client, Header: header, Router: rt, Adapters: adapters, Path: path,
		Now: clock.Now, Poll: f.remote.poll, Staleness: sc.Routing.ViewStaleness,
		MaxRunning: ps[0].Engine.MaxRunningRequests, Slots: ps[0].Engine.MaxLorasPerBatch, KVCapacity: ps[0].Memory.KVTokens, Log: log})
	if err != nil {
		return err
	}
	defer fl.Close()
	g, err := gateway.New(gateway.Config{Fleet: fl, URLs: urls, Adapters: adapters, Client: client, Header: header, Now: clock.Now,
		MaxBody: f.maxBody, Retries: f.retries, APIKey: f.key, FirstByte: f.first, Log: log})
	if err != nil {
		return err
	}
	return f.serve(cmd, fl, g)
}

// serve listens until the command is interrupted; then it takes no new requests
// and lets those in flight end.
func (f *gatewayFlags) serve(cmd *cobra.Command, fl *fleet.Fleet, g *gateway.Gateway) error {
	ctx := cmd.Context()
	l, err := net.Listen("tcp", f.listen)
	if err != nil {
		return err
	}
	defer l.Close()
	if err := fl.Start(ctx); err != nil {
		return err
	}
	background, quit := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { fl.Run(background) })
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
	g.Drain()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.grace)
	defer cancel()
	if err := srv.Shutdown(grace); err != nil {
		srv.Close()
		return fmt.Errorf("requests were still in flight after %v and were cut off", f.grace)
	}
	return nil
}
