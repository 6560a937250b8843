package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"lorasim/bench/explore"
	"lorasim/bench/explore/web"
	"lorasim/bench/scenario"
	"lorasim/internal/textfile"
	"lorasim/scenarios"
	"lorasim/trace/columnar"
)

func newExplore() *cobra.Command {
	var listen string
	var open bool
	cmd := &cobra.Command{
		Use:   "explore [SCENARIO.yaml]",
		Short: "Turn knobs in the browser, and watch what changes",
		Long: `Explore serves a page on this machine with the settings of a scenario, one to three
policies, and an SLO. The results follow each change: latency distributions,
attainment over the rate with the point where it breaks, what requests wait for,
whether the workers keep up, cost, and differences with intervals. The page gives
what it shows as a command line, YAML, JSON, SVG, PNG and a link.

The page begins with the scenario or sweep file, else with the defaults. Its address
has a secret part: pages of other origins can neither read nor change anything.`,
		Example: `  lorasim explore
  lorasim explore --open
  lorasim explore scenarios/skewed.yaml --listen 127.0.0.1:8080`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			begin := explore.DefaultPreset()
			if len(args) > 0 {
				var err error
				if begin, err = loadPreset(cmd.Context(), args[0]); err != nil {
					return usage(err)
				}
			}
			l, err := listenLocal(listen)
			if err != nil {
				return err
			}
			defer l.Close()
			return serveExplorer(cmd, l, begin, open)
		},
	}
	flags(cmd, "",
		opt(&listen, "listen", "127.0.0.1:0", "Loopback address `HOST:PORT` of the page; port 0: any free port"),
		opt(&open, "open", false, "Open the page in the browser"))
	return cmd
}

// loadPreset reads the initial query of the page. Relative paths in the file are relative to its
// folder.
func loadPreset(ctx context.Context, file string) (explore.Preset, error) {
	data, err := textfile.ReadFile(ctx, file, textfile.MaxSettings)
	if err != nil {
		return explore.Preset{}, err
	}
	p, err := explore.ParsePreset(data, file)
	if err != nil {
		return p, err
	}
	p.MapPaths(func(path string) string {
		in := scenario.In(filepath.Dir(file))(path)
		if abs, err := filepath.Abs(in); err == nil && path != "" {
			return abs
		}
		return in
	})
	return p, nil
}

// listenLocal listens on an address that only this machine reaches.
func listenLocal(address string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	ip, ipErr := netip.ParseAddr(host)
	if err != nil || host != "localhost" && (ipErr != nil || !ip.Unmap().IsLoopback()) {
		return nil, usage(fmt.Errorf("--listen: %q, expected a loopback address with a port, such as 127.0.0.1:8080; "+
			"to reach it from elsewhere, forward the port: ssh -L 8080:127.0.0.1:8080 HOST", address))
	}
	return listenTCP("--listen", address)
}

// serveExplorer serves the page until the command is interrupted, which is its normal end.
func serveExplorer(cmd *cobra.Command, l net.Listener, begin explore.Preset, open bool) error {
	presets, err := explore.Presets(scenarios.Files)
	if err != nil {
		return err
	}
	logs, err := os.MkdirTemp("", "lorasim-explore-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(logs)
	x := explore.New(explore.Limits{}, columnar.Files())
	page := web.New(web.Config{Explorer: x, Presets: presets, Query: begin.Query, Keep: keepIn(logs), Replay: x.Replay})
	srv := &http.Server{Handler: page, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: maxHeader,
		ErrorLog:    log.New(cmd.ErrOrStderr(), "lorasim: ", 0),
		BaseContext: func(net.Listener) context.Context { return cmd.Context() }}
	stop := context.AfterFunc(cmd.Context(), func() { srv.Close() })
	defer stop()
	address := "http://" + l.Addr().String() + page.Path()
	fmt.Fprintf(cmd.OutOrStdout(), "explore at %s\nCtrl-C ends it\n", address)
	if open {
		if err := openBrowser(cmd.Context(), address); err != nil {
			say(cmd, "note: --open: %v; open the address above", err)
		}
	}
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// keepIn stores uploaded logs in a folder. Each log has a subfolder of its own, so that it keeps
// its name.
func keepIn(folder string) func(name string, content io.Reader) (string, error) {
	var n atomic.Int64
	return func(name string, content io.Reader) (string, error) {
		own := filepath.Join(folder, strconv.FormatInt(n.Add(1), 10))
		if err := os.Mkdir(own, 0o700); err != nil {
			return "", err
		}
		if name = filepath.Base(name); name == "." || name == ".." || name == string(filepath.Separator) {
			name = "log"
		}
		f, err := os.Create(filepath.Join(own, name))
		if err != nil {
			return "", err
		}
		_, err = io.Copy(f, content)
		if err = errors.Join(err, f.Close()); err != nil {
			os.RemoveAll(own)
			return "", err
		}
		return f.Name(), nil
	}
}

// openBrowser opens an address in the user's browser.
func openBrowser(ctx context.Context, address string) error {
	command := []string{"xdg-open"}
	switch runtime.GOOS {
	case "darwin":
		command = []string{"open"}
	case "windows":
		command = []string{"rundll32", "url.dll,FileProtocolHandler"}
	}
	c := exec.CommandContext(ctx, command[0], append(command[1:], address)...)
	if err := c.Start(); err != nil {
		return err
	}
	go c.Wait() // the child ends after it has notified the browser
	return nil
}
