package cli

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"lorasim/bench/serving/fleet"
	"lorasim/trace"
)

// setPorts gives a script free ports on loopback: $PORT1 to $PORT3 follow each
// other, as the ports of several workers do. They are below those that systems
// give to connections, so that none takes them before the script does.
func setPorts(e *testscript.Env) error {
	for range 100 {
		first := 10000 + rand.IntN(20000)
		var taken error
		for i := range 3 {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", first+i))
			if err != nil {
				taken = err
				break
			}
			l.Close()
			e.Setenv(fmt.Sprintf("PORT%d", i+1), fmt.Sprint(first+i))
		}
		if taken == nil {
			return nil
		}
	}
	return fmt.Errorf("no three free ports in a row")
}

// TestRemote reaches a worker by TLS with a certificate of its own, an API key
// and a further header, and no other way.
func TestRemote(t *testing.T) {
	srv := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer k" || r.Header.Get("X-Team") != "a b" {
			rw.WriteHeader(http.StatusUnauthorized)
		}
	}))
	defer srv.Close()
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	pemFile := filepath.Join(t.TempDir(), "ca.pem")
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	if err := os.WriteFile(pemFile, cert, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		flags *remoteFlags
		want  int // status, 0: no connection
	}{
		{&remoteFlags{caCert: pemFile, key: keyFlags{value: "k"}, headers: []string{"X-Team: a b"}}, 200},
		{&remoteFlags{insecure: true, key: keyFlags{value: "k"}, headers: []string{"X-Team: a b"}}, 200},
		{&remoteFlags{caCert: pemFile}, 401},
		{&remoteFlags{key: keyFlags{value: "k"}}, 0},
	} {
		c.flags.api, c.flags.poll, c.flags.connect = "auto", time.Second, time.Hour
		var workers fleet.Config
		err := c.flags.parse(t.Context(), []string{srv.URL}, &workers)
		if err != nil {
			t.Fatal(err)
		}
		client := workers.Client
		req, err := http.NewRequest(http.MethodGet, srv.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header = workers.Header
		status := 0
		if resp, err := client.Do(req); err == nil {
			status = resp.StatusCode
			resp.Body.Close()
		}
		if status != c.want {
			t.Errorf("CA %q, insecure %v, key %q: status %d, expected %d", c.flags.caCert, c.flags.insecure,
				c.flags.key.value, status, c.want)
		}
		client.CloseIdleConnections()
	}

	f := remoteFlags{api: "auto", poll: time.Second, connect: time.Second, loras: []string{"b=/x/b"},
		template: "/y/{name}-r{rank}"}
	var cfg fleet.Config
	err := f.parse(t.Context(), []string{"x"}, &cfg)
	if err != nil {
		t.Fatal(err)
	}
	for a, want := range map[trace.Adapter]string{{Name: "a", Rank: 8}: "/y/a-r8", {Name: "b", Rank: 8}: "/x/b"} {
		if got := cfg.Path(a); got != want {
			t.Errorf("path of %v: %s, expected %s", a, got, want)
		}
	}
}

// A server that answers all requests with an empty object is no engine.
func TestCheckOtherServer(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "{}")
	}))
	defer srv.Close()
	var out, errs bytes.Buffer
	code := run(t.Context(), []string{"check", srv.URL}, strings.NewReader(""), &out, &errs)
	if code != exitFailed || !strings.Contains(out.String(), "it is no inference engine") ||
		!strings.Contains(errs.String(), "1 of 1 workers cannot be used") {
		t.Errorf("exit code %d\n%s%s", code, &out, &errs)
	}
}
