package cli

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A gateway that gets a SIGTERM answers 503 to /health and to new requests until
// its streams have ended, and exits with status 0; after --grace it cuts them off.
func TestGatewayStops(t *testing.T) {
	access := filepath.Join(t.TempDir(), "access.jsonl")
	for _, grace := range []string{"10h", "100ms"} {
		cut := grace == "100ms"
		worker := newHeldWorker(t, "chat")
		gateway := serving(t, "gateway", worker.URL, "--lora", "chat=/adapters/chat", "--listen", "127.0.0.1:0",
			"--grace", grace, "--access-log", access)
		gateway.waitReady(t)
		body := `{"model": "chat", "prompt": "hello", "max_tokens": 150, "ignore_eos": true, "stream": true}`
		resp, err := http.Post(gateway.url+"/v1/completions", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		lines := bufio.NewReader(resp.Body)
		if _, err := lines.ReadString('\n'); err != nil || resp.StatusCode != 200 {
			t.Fatal(resp.StatusCode, err)
		}
		if err := gateway.cmd.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if !cut {
			health := func() int {
				r, err := http.Get(gateway.url + "/health")
				if err != nil {
					t.Fatalf("the gateway closed before its stream had ended: %v", err)
				}
				r.Body.Close()
				return r.StatusCode
			}
			for health() != 503 {
				time.Sleep(time.Millisecond) // there is no event to wait for in another process
			}
			r, err := http.Post(gateway.url+"/v1/completions", "application/json", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			r.Body.Close()
			if r.StatusCode != 503 || r.Header.Get("Retry-After") == "" {
				t.Errorf("a new request: status %d, Retry-After %q", r.StatusCode, r.Header.Get("Retry-After"))
			}
			close(worker.release)
		}
		rest, err := io.ReadAll(lines)
		if whole := err == nil && bytes.HasSuffix(rest, []byte("data: [DONE]\n\n")); whole == cut {
			t.Errorf("grace %s: the stream ended with %v and %q", grace, err, rest[max(0, len(rest)-60):])
		}
		state, err := gateway.cmd.Wait()
		if err != nil || state.Success() == cut {
			t.Errorf("grace %s: %v, %v", grace, state, err)
		}
	}
	log, err := os.ReadFile(access)
	if n := bytes.Count(log, []byte(`"path":"/v1/completions","status":200`)); err != nil || n != 2 {
		t.Errorf("%d lines on streams, %v:\n%s", n, err, log)
	}
}

type server struct {
	cmd *os.Process
	url string
}

// serving starts lorasim as a server and waits until it listens.
func serving(t *testing.T, args ...string) *server {
	t.Helper()
	cmd := lorasimCommand(args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() }) // unless it has ended
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	i := strings.Index(line, "http://")
	if i < 0 {
		t.Fatalf("%s says %q", args[0], line)
	}
	return &server{cmd.Process, strings.Fields(fmt.Sprint(line[i:]))[0]}
}

// waitReady waits until a gateway says that nothing is missing.
func (s *server) waitReady(t *testing.T) {
	t.Helper()
	for {
		r, err := http.Get(s.url + "/ready")
		if err != nil {
			t.Fatal(err)
		}
		if r.Body.Close(); r.StatusCode == 200 {
			return
		}
		time.Sleep(time.Millisecond) // there is no event to wait for in another process
	}
}

// An interrupted bench lets requests in flight end, and prints the block of what
// was sent.
func TestBenchInterrupted(t *testing.T) {
	worker := newHeldWorker(t)
	close(worker.release)
	file := filepath.Join(t.TempDir(), "part.csv")
	cmd := lorasimCommand("bench", worker.URL, "--worker-time-scale", "20", "--num-adapters", "4", "--num-prompts",
		"100000",
		"--request-rate", "2", "--lengths", "constant:50,10", "--records", file, "--grace", "10h", "--poll-interval",
		"1h", "--ready-timeout", "1h")
	var stdout bytes.Buffer
	cmd.Stdout = &stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	for worker.finished.Load() < 10 {
		time.Sleep(time.Millisecond) // there is no event to wait for in another process
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if cmd.Wait(); cmd.ProcessState.ExitCode() != exitInterrupted {
		t.Errorf("exit code %d, expected %d", cmd.ProcessState.ExitCode(), exitInterrupted)
	}
	for _, want := range []string{`(?m)^=+ Serving Benchmark Result =+$`, `(?m)^Successful requests: +[1-9]`,
		`(?m)^[0-9]+ of 100000 not sent: the run was stopped$`} {
		if !regexp.MustCompile(want).Match(stdout.Bytes()) {
			t.Errorf("no line %s in\n%s", want, stdout.String())
		}
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}
