package live

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

const workerEnv = "LORASIM_TEST_WORKER"

// serveProcess is a worker as a process of its own, if this process is to be one;
// it ends with its standard input.
func serveProcess() bool {
	text := os.Getenv(workerEnv)
	if text == "" {
		return false
	}
	var f faults
	if err := json.Unmarshal([]byte(text), &f); err != nil {
		panic(err)
	}
	w, err := newEmulated(f)
	if err != nil {
		panic(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println("http://" + l.Addr().String())
	go http.Serve(l, w)
	io.Copy(io.Discard, os.Stdin)
	return true
}

func startProcess(t testing.TB, f faults) (url string, kill func()) {
	t.Helper()
	text, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), workerEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
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
	t.Cleanup(func() {
		in.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line), func() { cmd.Process.Kill() }
}

// TestProcessKilled: as TestWorkerKilled, but with processes and sockets. How
// long anything takes is nobody's business here.
func TestProcessKilled(t *testing.T) {
	victim, kill := startProcess(t, faults{})
	other, _ := startProcess(t, faults{})
	wl := long(workload(80, 2, 0.02))
	out := liveRun{cluster: &cluster{urls: []string{victim, other}}, wl: wl,
		during: func(sent func() int64) {
			for sent() < 40 {
				time.Sleep(time.Millisecond)
			}
			kill()
		}}.run(context.Background(), t)
	if ok := out.check(t, wl); ok != 80 {
		t.Errorf("%d of 80 succeeded: %v", ok, out.reasons())
	}
}
