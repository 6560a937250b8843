package cli

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"
)

// listenEnv is the environment variable with the default of the gateway's --listen. It is for
// container images, whose loopback no other host can reach.
const listenEnv = "LORASIM_LISTEN"

func defaultListen() string { return cmp.Or(os.Getenv(listenEnv), "127.0.0.1:8000") }

// healthTimeout is the longest wait for the answer to a health check.
const healthTimeout = 3 * time.Second

// checkHealth asks a gateway or an emulated worker whether it can serve requests.
func checkHealth(cmd *cobra.Command, args []string) error {
	address := defaultListen()
	if len(args) > 1 {
		return usage(fmt.Errorf("--health: %d addresses, expected one HOST:PORT or none", len(args)))
	}
	if len(args) == 1 {
		address = args[0]
	}
	address, err := local(address)
	if err != nil {
		return usage(err)
	}
	text, err := healthOf(cmd, address, healthTimeout)
	if err == nil {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", address, text)
	}
	return err
}

// local returns the address at which this host reaches a listener. A listener on all addresses is
// reached on loopback.
func local(address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", fmt.Errorf("%s: expected HOST:PORT", address)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
		if ip != nil && ip.To4() == nil {
			host = "::1"
		}
	}
	return net.JoinHostPort(host, port), nil
}

// healthOf requests /health directly, without a proxy. Any status but 200 is an error.
func healthOf(cmd *cobra.Command, address string, timeout time.Duration) (string, error) {
	r, err := http.NewRequestWithContext(cmd.Context(), http.MethodGet, "http://"+address+"/health", nil)
	if err != nil {
		return "", usage(err)
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Timeout: timeout, Transport: transport}).Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	const most = 1 << 10
	body, err := io.ReadAll(io.LimitReader(resp.Body, most))
	if err != nil {
		return "", err
	}
	text := resp.Status
	if body = bytes.TrimSpace(body); len(body) > 0 {
		text += ", " + string(body)
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", address, text)
	}
	return text, nil
}
