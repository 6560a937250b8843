package main

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"lorasim/bench/live"
	"lorasim/bench/live/fleet"
	"lorasim/internal/textfile"
	"lorasim/trace"
)

// remoteFlags say how live workers are reached.
type remoteFlags struct {
	workers                     []string
	api, apiKey, caCert         string
	insecure                    bool
	loras, headers              repeated
	loraFile, loraDir, template string
	poll, connect               time.Duration
}

const (
	remoteHeading = "Live workers"
	readyHelp     = "wait so long for workers that do not answer yet"
)

// addConnection adds the flags with which workers are reached.
func (f *remoteFlags) addConnection(cmd *cobra.Command) {
	flags(cmd, remoteHeading,
		opt(&f.workers, "worker-urls", nil, "base `URLs` of the workers, separated by commas or spaces"),
		opt(&f.api, "worker-api", string(fleet.Auto), "their administrative interface: auto, sglang, vllm"),
		opt(&f.apiKey, "api-key", os.Getenv("OPENAI_API_KEY"), "bearer token for the workers (default: $OPENAI_API_KEY)"),
		opt(&f.headers, "header", nil, "further HTTP header, `NAME:VALUE`; repeatable"),
		opt(&f.insecure, "insecure", false, "do not verify the workers' TLS certificates"),
		opt(&f.caCert, "cacert", "", "`file` with the certificates to trust (PEM)"),
		opt(&f.connect, "connect-timeout", 5*time.Second, "longest time to connect", ">0"))
	cmd.Flags().Lookup("api-key").DefValue = "" // help shows no secrets
}

// add adds these and how workers and their adapters are looked after.
func (f *remoteFlags) add(cmd *cobra.Command) {
	f.addConnection(cmd)
	flags(cmd, remoteHeading,
		opt(&f.poll, "poll-interval", time.Second, "time between two looks at a worker's health and load", ">0"),
		opt(&f.loras, "lora", nil, "where workers find an adapter, `NAME=PATH`; repeatable"),
		opt(&f.loraFile, "lora-file", "", "`file` with lines NAME=PATH, as many --lora"),
		opt(&f.loraDir, "lora-dir", "", "`folder` of PEFT adapters, each a subfolder with adapter_config.json"),
		opt(&f.template, "lora-path", "{name}", "where they find the others; {name} and {rank} stand for the adapter's"))
}

// urls are the workers of --worker-urls and the arguments.
func (f *remoteFlags) urls(args []string) ([]string, error) {
	var urls []string
	for _, s := range slices.Concat(f.workers, strings.Split(strings.Join(args, ","), ",")) {
		if s == "" {
			continue
		}
		u, err := fleet.ParseURL(s)
		if err != nil {
			return nil, err
		}
		urls = append(urls, u)
	}
	if len(urls) == 0 {
		return nil, errors.New("no workers: give --worker-urls (lorasim worker serves emulated ones)")
	}
	return urls, nil
}

// parse enters what the flags amount to: how the workers are reached, the adapters
// that they name, and where workers find those and others.
func (f *remoteFlags) parse(args []string, c *fleet.Config) (err error) {
	if c.URLs, err = f.urls(args); err != nil {
		return err
	}
	if c.API, err = fleet.ParseAPI(f.api); err != nil {
		return fmt.Errorf("--worker-api: %w", err)
	}
	t, err := f.transport()
	if err != nil {
		return err
	}
	c.Client, c.Header, c.Poll = live.NewHTTPClient(t), http.Header{}, f.poll
	if f.apiKey != "" {
		c.Header.Set("Authorization", "Bearer "+f.apiKey)
	}
	for _, s := range f.headers {
		name, value, ok := strings.Cut(s, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return fmt.Errorf("--header %q: expected NAME:VALUE", s)
		}
		c.Header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	loras, err := f.adapters()
	paths := map[string]string{}
	for _, a := range loras {
		paths[a.Name] = a.Path
		c.Adapters = append(c.Adapters, trace.Adapter{Name: a.Name, Rank: a.Rank})
	}
	c.Path = func(a trace.Adapter) string {
		return cmp.Or(paths[a.Name], strings.NewReplacer("{name}", a.Name, "{rank}", strconv.Itoa(a.Rank)).Replace(f.template))
	}
	return err
}

// adapters are those that flags name, in the order of --lora, --lora-file and
// --lora-dir.
func (f *remoteFlags) adapters() (all []fleet.LoRA, err error) {
	from := map[string]string{}
	add := func(flag string, list []fleet.LoRA, err error) error {
		if err != nil {
			return fmt.Errorf("%s: %w", flag, err)
		}
		for _, a := range list {
			if was, ok := from[a.Name]; ok && was == flag {
				return fmt.Errorf("%s: adapter %q is given twice", flag, a.Name)
			} else if ok {
				return fmt.Errorf("%s: adapter %q is given by %s too", flag, a.Name, was)
			}
			from[a.Name] = flag
			all = append(all, a)
		}
		return nil
	}
	for _, text := range f.loras {
		a, err := fleet.ParseLoRA(text)
		if err != nil {
			return nil, fmt.Errorf("--lora %w", err)
		}
		if err := add("--lora", []fleet.LoRA{a}, nil); err != nil {
			return nil, err
		}
	}
	if f.loraFile != "" {
		list, err := textfile.Read(f.loraFile, fleet.ReadLoRAs)
		if err := add("--lora-file", list, err); err != nil {
			return nil, err
		}
	}
	if f.loraDir != "" {
		list, err := fleet.FindLoRAs(f.loraDir)
		err = add("--lora-dir", list, err)
		return all, err
	}
	return all, nil
}

func (f *remoteFlags) transport() (*http.Transport, error) {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Proxy = nil // only hosts that are configured
	t.DialContext = (&net.Dialer{Timeout: f.connect, KeepAlive: 30 * time.Second}).DialContext
	t.TLSClientConfig = &tls.Config{InsecureSkipVerify: f.insecure}
	if f.caCert != "" {
		pem, err := os.ReadFile(f.caCert)
		if err != nil {
			return nil, fmt.Errorf("--cacert: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--cacert: %s holds no certificate", f.caCert)
		}
		t.TLSClientConfig.RootCAs = pool
	}
	return t, nil
}

// cpuTime is the processor time that the program has used so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
