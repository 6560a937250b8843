package cli

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"lorasim/bench/serving/emulate"
	"lorasim/bench/serving/httpapi"
	"lorasim/router"
	"lorasim/sim/profile"
)

// epp says where it serves Envoy and metrics, and its metrics name the program's version and the workers.
func TestEPPMetrics(t *testing.T) {
	p := profile.Default()
	p.Memory.KVTokens = 10000
	w, err := emulate.New(emulate.Config{Costs: p.Compile(), API: httpapi.VLLM, Home: router.Disk})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	srv := httptest.NewServer(w)
	defer srv.Close()
	ctx, stop := context.WithCancel(t.Context())
	said, out := io.Pipe()
	var stderr bytes.Buffer
	ended := make(chan int)
	go func() {
		code := run(ctx, []string{"gateway", "--ext-proc", srv.URL, "--listen", "127.0.0.1:0",
			"--admin-listen", "127.0.0.1:0", "--policy", "least-loaded", "--metrics-max-adapters", "5"},
			strings.NewReader(""), out, &stderr)
		out.Close()
		ended <- code
	}()
	var lines []string
	for s := bufio.NewScanner(said); len(lines) < 2 && s.Scan(); {
		lines = append(lines, s.Text())
	}
	if len(lines) < 2 || !strings.HasPrefix(lines[0], "listening on 127.0.0.1:") {
		t.Fatalf("%q, status %d: %s", lines, <-ended, stderr.String())
	}
	url := strings.TrimPrefix(lines[1], "metrics on ")
	up := `lorasim_epp_worker_up{worker="` + srv.URL + `"} 1`
	for begun, text := time.Now(), ""; !strings.Contains(text, up); { // the worker joins soon after the start
		resp, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		all, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if text = string(all); !strings.Contains(text, `lorasim_build_info{component="epp",`) ||
			time.Since(begun) > time.Minute {
			t.Fatalf("%s: no %s, or no build, in\n%s", url, up, text)
		}
	}
	resp, err := http.Post(url, "", nil)
	if err != nil || resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %v, %v", resp, err)
	}
	stop()
	if code := <-ended; code != exitOK {
		t.Errorf("status %d: %s", code, stderr.String())
	}
}
