package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"lorasim/bench/gateway"
	"lorasim/bench/live"
	"lorasim/bench/live/fleet"
	"lorasim/bench/scenario"
	"lorasim/router"
)

// gatewayFlags are the flags of lorasim gateway beside the scenario's.
type gatewayFlags struct {
	gateway.Config
	remote            remoteFlags
	listen, access    string
	headerTime, grace time.Duration
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
	flags(cmd, "Gateway",
		opt(&f.listen, "listen", "127.0.0.1:8000", "`address` to listen on"),
		opt(&f.APIKey, "gateway-key", "", "bearer token that clients must send"),
		opt(&f.MaxBody, "max-body", 32<<20, "how far into a request's body its model is looked for, bytes", ">=1"),
		opt(&f.headerTime, "header-timeout", 10*time.Second, "longest time for a request's header", ">0"),
		opt(&f.FirstByte, "first-token-timeout", 0, "longest wait for a worker's first byte; 0: none", ">=0"),
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
	cfg.Plans, f.Access = access, access
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
