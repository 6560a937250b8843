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

// pickerFlags are the flags of lorasim gateway that apply with --ext-proc alone.
type pickerFlags struct {
	on                     bool
	healthListen           string
	secure                 bool
	objectives             repeated
	pickedHeader           string
	certificate, secretKey string
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

// pickerListen is the default address of an endpoint picker.
const pickerListen = "127.0.0.1:9002"

func (f *pickerFlags) add(cmd *cobra.Command) {
	flags(cmd, pickerHeading,
		opt(&f.on, "ext-proc", false,
			"Serve Envoy's filter ext_proc (an endpoint picker) instead of a proxy; --listen is 127.0.0.1:9002"),
		opt(&f.healthListen, "health-listen", "", "Listen on a further `address` for health checks, without TLS"),
		opt(&f.secure, "secure-serving", false, "Serve TLS, with a self-signed certificate unless --tls-cert is given"),
		opt(&f.certificate, "tls-cert", "", "Certificate of the server, PEM `file`"),
		opt(&f.secretKey, "tls-key", "", "Key of the certificate, PEM `file`"),
		opt(&f.objectives, "objective", nil,
			"Priority of an objective, `NAME=PRIORITY`; below 0: sheddable; repeatable"),
		opt(&f.pickedHeader, "picked-header", "",
			"Report the worker that was picked in the response header `name`"))
}

// Headings of the flags of lorasim gateway that apply without --ext-proc and with it.
const (
	proxyHeading  = "Proxy (without --ext-proc)"
	pickerHeading = "Endpoint picker for Envoy"
)

// priorities returns the priorities of the objectives, by name.
func (f *pickerFlags) priorities() (map[string]int, error) {
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
func (f *pickerFlags) certificates() (*tls.Config, error) {
	switch {
	case (f.certificate == "") != (f.secretKey == ""):
		return nil, errors.New("--tls-cert and --tls-key: give both or none")
	case f.certificate != "" && !f.secure:
		return nil, errors.New("--tls-cert needs --secure-serving: without it the picker serves plain text")
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

// pick serves Envoy as an endpoint picker.
func (f *gatewayFlags) pick(cmd *cobra.Command, sc *scenario.Scenario, args []string) error {
	objectives, err := f.picker.priorities()
	if err != nil {
		return usage(err)
	}
	secure, err := f.picker.certificates()
	if err != nil {
		return usage(err)
	}
	if !cmd.Flags().Changed("listen") {
		f.listen = pickerListen
	}
	begun := time.Now()
	cfg := fleet.Config{Log: newProgress(cmd.ErrOrStderr()).log(cmd.ErrOrStderr()), MaxPending: f.maxPending,
		Now: func() float64 { return time.Since(begun).Seconds() }}
	err = f.remote.parse(cmd.Context(), args, &cfg)
	if err == nil {
		cfg.Aliases, err = baseAliases(f.aliases)
	}
	if err != nil {
		return usage(err)
	}
	cfg.Outlier = f.outlier.config()
	cfg.Outlier.SlowStart = slowStart
	defer cfg.Client.CloseIdleConnections()
	f.remote.warn(cmd.Context(), cfg.Log, cfg.URLs)
	l, err := f.openPicker(f.listen, "--listen")
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
		QueueTimeout: f.QueueTimeout, Metrics: m})
	s := extproc.New(extproc.Config{Picker: picker, MaxBody: int(f.MaxBody), PickedHeader: f.picker.pickedHeader,
		Log: cfg.Log, Refused: picker.CountRefused, Ready: func() bool { return fl.Up() > 0 }})
	if scraped != nil {
		defer serveMetrics(scraped, m)()
	}
	return f.serveEnvoy(cmd, fl, s, pickerListeners{l, scraped}, secure)
}

// pickerListeners are where a picker serves Envoy and Prometheus.
type pickerListeners struct{ envoy, metrics net.Listener } // metrics is nil if disabled

// openMetrics opens the listener for Prometheus; nil if it is disabled.
func (f *gatewayFlags) openMetrics(envoy net.Addr) (net.Listener, error) {
	switch f.adminListen {
	case "none":
		return nil, nil
	case "":
		return listenDefault("--admin-listen", f.listen, envoy)
	}
	return f.openPicker(f.adminListen, "--admin-listen")
}

// serveMetrics serves /metrics until stop is called.
func serveMetrics(l net.Listener, m *metrics.Metrics) (stop func()) {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", m.Handler())
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: maxHeader}
	go srv.Serve(l) // ends with the listener
	return func() { srv.Close() }
}

// openPicker listens on an address that only this host can reach or, with --insecure, on any address.
func (f *gatewayFlags) openPicker(address, flag string) (net.Listener, error) {
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

// serveEnvoy listens until the command is interrupted. Then health checks fail, and requests in flight may finish.
func (f *gatewayFlags) serveEnvoy(cmd *cobra.Command, fl *fleet.Fleet, s *extproc.Server, ls pickerListeners,
	secure *tls.Config) error {
	ctx := cmd.Context()
	background, quit := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { // while health checks are answered
		if fl.Begin(background) == nil {
			fl.Run(background)
		}
	})
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
	if f.picker.healthListen != "" {
		h, err := f.openPicker(f.picker.healthListen, "--health-listen")
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
