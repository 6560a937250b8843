//go:build linux

package process

import (
	"bufio"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// serve starts a script of the shell as a server.
func serve(t *testing.T, pipes Pipes, script string) *Process {
	t.Helper()
	p, err := NewSpawner().Serve(pipes, "/bin/sh", "-c", script)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

// TestServe: URLs are those of the output in order, memory is known while the process runs and after its end.
func TestServe(t *testing.T) {
	p := serve(t, Pipes{}, "trap 'exit 3' TERM; echo at http://127.0.0.1:1; echo a line; echo and http://127.0.0.1:2; "+
		"while :; do sleep 0.02; done")
	if a, b := p.URL(0, 0), p.URL(1, 10*time.Second); a != "http://127.0.0.1:1" || b != "http://127.0.0.1:2" {
		t.Errorf("URLs %q and %q", a, b)
	}
	if rss, peak := p.Memory(); rss <= 0 || peak < rss {
		t.Errorf("%v MB, at most %v", rss, peak)
	}
	if got := p.URL(2, 20*time.Millisecond); got != "" {
		t.Errorf("a third URL %q", got)
	}
	p.Signal(syscall.SIGTERM)
	if code := p.Ends(10 * time.Second); code != 3 || p.Alive() {
		t.Errorf("status %d, alive %v", code, p.Alive())
	}
	if got := p.URL(2, time.Hour); got != "" {
		t.Errorf("a third URL %q after the end", got)
	}
}

// TestRest: the reader of the rest gets all lines after the first.
func TestRest(t *testing.T) {
	lines := make(chan string, 2)
	p := serve(t, Pipes{Rest: func(r io.Reader) {
		for s := bufio.NewScanner(r); s.Scan(); {
			lines <- s.Text()
		}
	}}, "echo http://127.0.0.1:1; echo a; echo b")
	if got := <-lines + <-lines; got != "ab" {
		t.Errorf("the rest is %q", got)
	}
	if code := p.Ends(10 * time.Second); code != 0 {
		t.Errorf("status %d", code)
	}
}

// TestNoStart: a program that ends without a URL is an error with the reason.
func TestNoStart(t *testing.T) {
	_, err := NewSpawner().Serve(Pipes{}, "/bin/sh", "-c", "echo log >&2; echo Error: no port >&2; exit 1")
	if err == nil || !strings.Contains(err.Error(), "Error: no port") {
		t.Errorf("%v", err)
	}
}

func TestKillAndRun(t *testing.T) {
	p := serve(t, Pipes{Stderr: os.Stderr}, "echo http://127.0.0.1:1; exec sleep 60")
	p.Kill()
	if code := p.Ends(0); code != -1 || p.Alive() { // ended by a signal
		t.Errorf("status %d, alive %v", code, p.Alive())
	}
	out, p, err := NewSpawner().Run(t.Context(), "/bin/sh", "-c", "echo out; echo why >&2; exit 2")
	if out != "out\n" || err == nil || p.Reason() != "why" {
		t.Errorf("%q, %v, %q", out, err, p.Reason())
	}
}
