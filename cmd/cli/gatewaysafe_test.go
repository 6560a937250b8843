package cli

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// startUnread starts a gateway before a worker, whose stderr is a pipe, and returns
// its address and the pipe, which nobody reads.
func startUnread(t *testing.T, args ...string) (url string, stderr io.ReadCloser, process *os.Process) {
	t.Helper()
	worker := newHeldWorker(t, "chat")
	close(worker.release)
	cmd := lorasimCommand(append([]string{"gateway", worker.URL, "--listen", "127.0.0.1:0", "--grace", "10h"},
		args...)...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Process.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(strings.TrimPrefix(line, "listening on ")), stderr, cmd.Process
}

func health(t *testing.T, url string, n int) {
	t.Helper()
	client := http.Client{Timeout: 30 * time.Second}
	defer client.CloseIdleConnections()
	for range n {
		resp, err := client.Get(url + "/health")
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
}

// Requests are served though nobody reads stderr, and after its reader has gone.
func TestGatewayUnreadLog(t *testing.T) {
	url, stderr, process := startUnread(t)
	health(t, url, 2000) // some 300 fit into the pipe
	stderr.Close()
	health(t, url, 50)
	if err := process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if state, err := process.Wait(); err != nil || !state.Success() {
		t.Errorf("%v, %v", state, err)
	}
}

// SIGHUP ends nothing, and makes the gateway open its log anew, as logrotate wants.
func TestGatewayHangup(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "access.jsonl")
	url, stderr, process := startUnread(t, "--access-log", name)
	go io.Copy(io.Discard, stderr)
	lines := func(name string) int {
		data, _ := os.ReadFile(name)
		return strings.Count(string(data), `"path":"/health"`)
	}
	wait := func(name string, n int) {
		for begun := time.Now(); lines(name) != n; time.Sleep(5 * time.Millisecond) {
			if time.Since(begun) > 30*time.Second {
				t.Fatalf("%s has %d lines, expected %d", name, lines(name), n)
			}
		}
	}
	health(t, url, 3)
	wait(name, 3)
	if err := os.Rename(name, name+".1"); err != nil {
		t.Fatal(err)
	}
	if err := process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	for begun := time.Now(); time.Since(begun) < 30*time.Second; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(name); err == nil {
			break
		}
	}
	health(t, url, 4)
	wait(name, 4)
	wait(name+".1", 3)
}

// Fifty streams survive SIGHUP.
func TestGatewayHangupStreams(t *testing.T) {
	worker := newHeldWorker(t, "chat")
	gateway := serving(t, "gateway", worker.URL, "--lora", "chat=/adapters/chat", "--listen", "127.0.0.1:0",
		"--access-log", "none")
	gateway.waitReady(t)
	const streams = 50
	var begun, done sync.WaitGroup
	begun.Add(streams)
	for range streams {
		done.Go(func() {
			resp, err := http.Post(gateway.url+"/v1/completions", "application/json",
				strings.NewReader(`{"model": "chat", "prompt": "x", "max_tokens": 5, "stream": true, "ignore_eos": true}`))
			if err != nil {
				t.Error(err)
				begun.Done()
				return
			}
			defer resp.Body.Close()
			in := bufio.NewReader(resp.Body)
			in.ReadString('\n')
			begun.Done()
			if rest, err := io.ReadAll(in); err != nil || !strings.HasSuffix(string(rest), "data: [DONE]\n\n") {
				t.Errorf("%q, %v", rest, err)
			}
		})
	}
	begun.Wait()
	gateway.cmd.Signal(syscall.SIGHUP)
	close(worker.release)
	done.Wait()
}

// A client that closes its side after the request gets its answer, whole or streamed.
func TestGatewayHalfClosed(t *testing.T) {
	worker := newHeldWorker(t, "chat")
	close(worker.release)
	gateway := serving(t, "gateway", worker.URL, "--lora", "chat=/adapters/chat", "--listen", "127.0.0.1:0",
		"--access-log", "none")
	gateway.waitReady(t)
	for _, stream := range []bool{false, true} {
		c, err := net.Dial("tcp", strings.TrimPrefix(gateway.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		body := fmt.Sprintf(`{"model": "chat", "prompt": "x", "max_tokens": 100, "ignore_eos": true, "stream": %v}`,
			stream)
		fmt.Fprintf(c, "POST /v1/completions HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s",
			len(body), body)
		c.(*net.TCPConn).CloseWrite()
		in := bufio.NewReader(c)
		resp, err := http.ReadResponse(in, nil)
		for err == nil && resp.StatusCode == 100 {
			resp, err = http.ReadResponse(in, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != 200 || !strings.Contains(string(text), `"length"`) {
			t.Errorf("stream %v: %d %.200q, %v", stream, resp.StatusCode, text, err)
		}
	}
}

// A header longer than 64 KiB is refused.
func TestGatewayLongHeader(t *testing.T) {
	url, stderr, _ := startUnread(t)
	go io.Copy(io.Discard, stderr)
	req, _ := http.NewRequest(http.MethodGet, url+"/health", nil)
	req.Header.Set("X-Long", strings.Repeat("x", 100<<10))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("status %d", resp.StatusCode)
	}
}
