package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"lorasim/bench/scenario"
	"lorasim/bench/serving/extproc"
	"lorasim/bench/serving/fleet"
	"lorasim/bench/serving/live"
	"lorasim/bench/serving/metrics"
)

// eppFlags are the flags of lorasim epp beside the scenario's.
type eppFlags struct {
	remote                 remoteFlags
	outlier                outlierFlags
	listen, healthListen   string
	secure, insecure       bool
	objectives             repeated
	maxBody                int
	queueTimeout, grace    time.Duration
	pickedHeader           string
	maxPending             int
	certificate, secretKey string
	metricsListen          string
	labels                 labelFlags
}

// labelFlags bound the label values of metrics.
type labelFlags struct{ adapters, workers int }

func (f *labelFlags) add(cmd *cobra.Command, heading string) {
	flags(cmd, heading,
		opt(&f.adapters, "metrics-max-adapters", metrics.DefaultMax,
			"Limit of values of the metrics label adapter; further adapters share the value other", ">=1 <=1e5"),
		opt(&f.workers, "metrics-max-workers", metrics.DefaultMax,
			"Limit of values of the metrics label worker; further workers share the value other", ">=1 <=1e5"))
}

func newEPP() *cobra.Command {
	var f eppFlags
	cmd := &cobra.Command{
		Use:   "epp [URL...]",
		Short: "Pick workers for an Envoy-based gateway: an endpoint picker with any policy",
		Long: `Epp answers the requests of Envoy's filter ext_proc: for each request it picks a
worker by a routing policy and names it in the header and the metadata
x-gateway-destination-endpoint. Envoy sends the request there. The filter must
send bodies in the mode FULL_DUPLEX_STREAMED.

It knows adapters as lorasim gateway does: those of --lora, --lora-file and
--lora-dir, and those that the workers hold. A request for any other model gets
status 404. The service grpc.health.v1.Health says whether a worker is up.
Prometheus scrapes /metrics on a listener of its own (--metrics-listen).`,
		Example: `  lorasim epp --worker-urls gpu0:8000,gpu1:8000 --policy epp:file=config.yaml
  lorasim epp gpu0:8000 gpu1:8000 --policy plan-and-route --listen :9002 --secure-serving --insecure
  lorasim epp gpu0:8000 gpu1:8000 --objective batch=-1 --objective chat=10`,
		Args: cobra.ArbitraryArgs,
	}
	sf := addScenarioFlags(cmd, "routing")
	addWorkerSettings(cmd, "profile", "max_running_requests", "max_loras_per_batch", "max_loaded_loras", "kv_tokens")
	f.remote.add(cmd)
	f.outlier.add(cmd)
	flags(cmd, "Picker",
		opt(&f.listen, "listen", "127.0.0.1:9002", "Listen on `address` for Envoy"),
		opt(&f.healthListen, "health-listen", "", "Listen on a further `address` for health checks, without TLS"),
		opt(&f.metricsListen, "metrics-listen", "",
			"Listen on `address` for /metrics, or none (default: 127.0.0.1, port of --listen + 1000)"),
		opt(&f.secure, "secure-serving", false, "Serve TLS, with a self-signed certificate unless --tls-cert is given"),
		opt(&f.certificate, "tls-cert", "", "Certificate of the server, PEM `file`"),
		opt(&f.secretKey, "tls-key", "", "Key of the certificate, PEM `file`"),
		opt(&f.insecure, "insecure", false, "Listen on addresses that other hosts reach"),
		opt(&f.objectives, "objective", nil,
			"Priority of an objective, `NAME=PRIORITY`; below 0: sheddable; repeatable"),
		opt(&f.maxBody, "max-body", 32<<20, "Longest body of a request, bytes; a longer one gets status 413", ">=1"),
		opt(&f.queueTimeout, "queue-timeout", time.Minute,
			"Longest wait for an adapter slot on a full worker, then 503 (0: no limit)", ">=0"),
		opt(&f.maxPending, "max-pending-requests", 1024,
			"Limit of requests per worker that wait for an adapter slot; more get 503 (0: no limit)", ">=0 <=1e6"),
		opt(&f.grace, "grace", 30*time.Second, "Time for requests in flight after SIGTERM", ">=0"),
		opt(&f.pickedHeader, "picked-header", "",
			"Report the worker that was picked in the response header `name`"))
	f.labels.add(cmd, "Picker")
	cmd.RunE = sf.with(f.run)
	return cmd
}

// priorities returns the priorities of the objectives, by name.
func (f *eppFlags) priorities() (map[string]int, error) {
	of := map[string]int{}
	for _, o := range f.objectives {
		name, text, _ := strings.Cut(o, "=")
		n, err := strconv.Atoi(text)
		if name == "" || err != nil {
			return nil, fmt.Errorf("--objective %q: expected NAME=PRIORITY, a whole number", o)
		}
		of[name] = n
	}
	return of, nil
}

// certificates returns the server's TLS configuration, or nil for plain text.
func (f *eppFlags) certificates() (*tls.Config, error) {
	switch {
	case (f.certificate == "") != (f.secretKey == ""):
		return nil, errors.New("--tls-cert and --tls-key: give both or none")
	case f.certificate != "" && !f.secure:
		return nil, errors.New("--tls-cert needs --secure-serving: without it epp serves plain text")
	case !f.secure:
		return nil, nil
	}
	c, err := extproc.SelfSigned(time.Now())
	if f.certificate != "" {
		c, err = tls.LoadX509KeyPair(f.certificate, f.secretKey)
	}
	if err != nil {
		return nil, fmt.Errorf("--tls-cert, --tls-key: %w", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{c}, MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2"}}, nil
}

func (f *eppFlags) run(cmd *cobra.Command, sc *scenario.Scenario, args []string) error {
	objectives, err := f.priorities()
	if err != nil {
		return usage(err)
	}
	secure, err := f.certificates()
	if err != nil {
		return usage(err)
	}
	begun := time.Now()
	cfg := fleet.Config{Log: newProgress(cmd.ErrOrStderr()).log(cmd.ErrOrStderr()), MaxPending: f.maxPending,
		Now: func() float64 { return time.Since(begun).Seconds() }}
	if err := f.remote.parse(cmd.Context(), args, &cfg); err != nil {
		return usage(err)
	}
	cfg.Outlier = f.outlier.config()
	cfg.Outlier.SlowStart = slowStart
	defer cfg.Client.CloseIdleConnections()
	f.remote.warn(cmd.Context(), cfg.Log, cfg.URLs)
	l, err := f.open(f.listen, "--listen")
	if err != nil {
		return err
	}
	defer l.Close()
	scraped, err := f.openMetrics(l.Addr())
	if err != nil {
		return err
	}
	if scraped != nil {
		defer scraped.Close()
	}
	fl, rt, err := live.NewFleet(cmd.Context(), sc, cfg, 0, true)
	if err != nil && rt == nil {
		return usage(err)
	} else if err != nil {
		return err
	}
	defer fl.Close()
	m := metrics.New(metrics.Config{Component: "epp", Fleet: fl, Build: build(), MaxAdapters: f.labels.adapters,
		MaxWorkers: f.labels.workers})
	picker := extproc.NewFleetPicker(extproc.FleetConfig{Fleet: fl, Now: cfg.Now, Objectives: objectives,
		QueueTimeout: f.queueTimeout, Metrics: m})
	s := extproc.New(extproc.Config{Picker: picker, MaxBody: f.maxBody, PickedHeader: f.pickedHeader, Log: cfg.Log,
		Refused: picker.CountRefused, Ready: func() bool { return fl.Up() > 0 }})
	if scraped != nil {
		defer serveMetrics(scraped, m)()
	}
	return f.serve(cmd, fl, s, eppListeners{l, scraped}, secure)
}

// eppListeners are where epp serves Envoy and Prometheus.
type eppListeners struct{ envoy, metrics net.Listener } // metrics is nil if disabled

// openMetrics opens the listener for Prometheus; nil if it is disabled.
func (f *eppFlags) openMetrics(envoy net.Addr) (net.Listener, error) {
	switch f.metricsListen {
	case "none":
		return nil, nil
	case "":
		return listenDefault("--metrics-listen", f.listen, envoy)
	}
	return f.open(f.metricsListen, "--metrics-listen")
}

// serveMetrics serves /metrics until stop is called.
func serveMetrics(l net.Listener, m *metrics.Metrics) (stop func()) {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", m.Handler())
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: maxHeader}
	go srv.Serve(l) // ends with the listener
	return func() { srv.Close() }
}

// open listens on an address that only this host can reach or, with --insecure, on any address.
func (f *eppFlags) open(address, flag string) (net.Listener, error) {
	l, err := listenTCP(flag, address)
	if err != nil {
		return nil, err
	}
	if exposed(l.Addr()) && !f.insecure {
		l.Close()
		return nil, usage(fmt.Errorf("%s %s: other hosts can reach it, and it takes no key: give --insecure", flag,
			address))
	}
	return l, nil
}

// serve listens until the command is interrupted. Then health checks fail, and requests in flight
// may finish.
func (f *eppFlags) serve(cmd *cobra.Command, fl *fleet.Fleet, s *extproc.Server, ls eppListeners,
	secure *tls.Config) error {
	ctx := cmd.Context()
	if err := fl.Start(ctx); err != nil {
		return err
	}
	background, quit := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { fl.Run(background) })
	defer wg.Wait()
	defer quit()
	failed := make(chan error, 2)
	start := func(l net.Listener, secure *tls.Config) func() {
		srv := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second, TLSConfig: secure}
		extproc.Configure(srv)
		go func() {
			if secure != nil {
				failed <- srv.ServeTLS(l, "", "")
			} else {
				failed <- srv.Serve(l)
			}
		}()
		return func() { srv.Close() }
	}
	defer start(ls.envoy, secure)()
	fmt.Fprintf(cmd.OutOrStdout(), "listening on %s\n", ls.envoy.Addr())
	if ls.metrics != nil {
		fmt.Fprintf(cmd.OutOrStdout(), "metrics on http://%s/metrics\n", ls.metrics.Addr())
	}
	if f.healthListen != "" {
		h, err := f.open(f.healthListen, "--health-listen")
		if err != nil {
			return err
		}
		defer start(h, nil)()
	}
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	s.Drain()
	for end := time.Now().Add(f.grace); s.Open() > 0 && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	if n := s.Open(); n > 0 {
		return fmt.Errorf("%d requests were still in flight after %v and were cut off", n, f.grace)
	}
	return nil
}
