package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lorasim/bench/serving/bearer"
)

// Environment variables with keys.
const (
	clientKeyEnv = "LORASIM_GATEWAY_KEY"
	adminKeyEnv  = "LORASIM_ADMIN_KEY"
	workerKeyEnv = "LORASIM_WORKER_KEY"
	uiKeyEnv     = "LORASIM_UI_KEY"
)

// keyFlags are the sources of a key: a flag, a file, an environment variable.
type keyFlags struct {
	name, env   string // names of the flag and of the variable
	value, file string
	set         *pflag.FlagSet
	warn        func(text string) // prints a warning; nil: none

	once sync.Once // a file may be a pipe, which can be read only once
	keys []string
	err  error
}

// add adds --NAME and --NAME-file to a command.
func (k *keyFlags) add(cmd *cobra.Command, heading, name, env, what, file string) {
	k.name, k.env, k.set = name, env, cmd.Flags()
	k.warn = func(text string) { warn(cmd, text) }
	flags(cmd, heading,
		opt(&k.value, name, "", what+"; ps shows it, so prefer --"+name+"-file or $"+env),
		opt(&k.file, name+"-file", "", file))
}

// read returns the keys; none is not an error.
func (k *keyFlags) read(ctx context.Context) ([]string, error) {
	k.once.Do(func() { k.keys, k.err = k.find(ctx) })
	return k.keys, k.err
}

func (k *keyFlags) find(ctx context.Context) ([]string, error) {
	flag, file := "--"+k.name, "--"+k.name+"-file"
	given := func(name string) bool { return k.set != nil && k.set.Changed(name) }
	byFlag, byFile := k.value != "" || given(k.name), k.file != "" || given(k.name+"-file")
	if byFlag && byFile {
		return nil, fmt.Errorf("%s and %s: give one of the two", flag, file)
	}
	if byFile {
		keys, err := bearer.ReadFile(ctx, k.file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if text := openKeyWarning(k.file); text != "" && k.warn != nil {
			k.warn(file + ": " + text)
		}
		return keys, nil
	}
	from, key := flag, k.value
	if !byFlag {
		if from = "$" + k.env; k.env == "" {
			return nil, nil
		}
		var ok bool
		if key, ok = os.LookupEnv(k.env); !ok {
			return nil, nil
		}
	}
	if err := bearer.Check(key); err != nil {
		return nil, fmt.Errorf("%s: %w", from, err)
	}
	return []string{key}, nil
}

// readOne returns the key, or "" without one.
func (k *keyFlags) readOne(ctx context.Context) (string, error) {
	keys, err := k.read(ctx)
	if err != nil || len(keys) == 0 {
		return "", err
	}
	if len(keys) > 1 {
		return "", fmt.Errorf("--%s-file: %s holds %d keys, expected one", k.name, k.file, len(keys))
	}
	return keys[0], nil
}

// openKeyWarning returns a warning if other users can read a file of keys, or "".
func openKeyWarning(file string) string {
	info, err := os.Stat(file)
	if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o044 == 0 {
		return ""
	}
	return fmt.Sprintf("other users can read %s (mode %04o); chmod 600 %[1]s prevents that", file, info.Mode().Perm())
}

// clearKeyWarning returns a warning with the workers that get a key unencrypted over a network, or
// "".
func clearKeyWarning(urls []string) string {
	first, more := "", 0
	for _, text := range urls {
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "http" || isLoopback(u.Hostname()) {
			continue
		}
		if first == "" {
			first = text
		} else {
			more++
		}
	}
	if first == "" {
		return ""
	}
	if more > 0 {
		first += fmt.Sprintf(" and %d more workers", more)
	}
	return "the workers' key goes unencrypted to " + first + ": use https:// unless you trust the network"
}

// isLoopback reports whether a host is this one, by its address or as localhost. Other names are
// not looked up: they may resolve to another host later.
func isLoopback(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// exposed reports whether other hosts can reach a listener.
func exposed(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return !ok || !tcp.AddrPort().Addr().Unmap().IsLoopback()
}

// access states how a listener is protected, and the names of the flags for that.
type access struct {
	keyed, insecure       bool // a key is required; none is, on purpose
	keyFlag, insecureFlag string
}

// checkExposed returns an error if other hosts can reach a listener without a key.
func checkExposed(flag string, at net.Addr, a access) error {
	if a.keyed || a.insecure || !exposed(at) {
		return nil
	}
	return usage(fmt.Errorf("%s: other hosts can reach %s, and no key is required: give --%s-file FILE, or --%s to serve them without a key",
		flag, at, a.keyFlag, a.insecureFlag))
}

// checkHostName checks the value of a flag that allows a name in the Host header.
func checkHostName(flag, name string) error {
	if _, err := netip.ParseAddr(name); err == nil {
		return nil
	}
	if name == "" || strings.ContainsFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-' ||
			r == '_')
	}) {
		return fmt.Errorf("%s %q: %w", flag, name,
			errors.New("expected a host name or address, without scheme and port"))
	}
	return nil
}
