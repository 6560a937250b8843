package cli

import (
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The server ignores SIGTERM and has a child, the client has one in the background.
const stubborn = `
servers:
  - name: s
    command: trap "" TERM; sleep 1000 & echo $! > grandchild.pid; echo $$ > server.pid; echo ready; sleep 1000; sleep 1000
    ready: {log: ready}
    stop: {timeout: 200ms}
clients:
  - name: c
    command: sleep 1000 & echo $! > background.pid; echo $$ > client.pid; wait
`

// However matrix ends, what it started ends, too.
func TestMatrixKilled(t *testing.T) {
	for _, signals := range [][]syscall.Signal{{syscall.SIGKILL}, {syscall.SIGTERM}, {syscall.SIGINT}, {syscall.SIGHUP},
		{syscall.SIGINT, syscall.SIGINT}} {
		if signals[0] == syscall.SIGHUP && signal.Ignored(syscall.SIGHUP) {
			continue // the tests run under nohup, and so would matrix
		}
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "m.yaml"), []byte(stubborn), 0o644); err != nil {
			t.Fatal(err)
		}
		cmd := lorasimCommand("bench", "matrix", "m.yaml")
		cmd.Dir = dir
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var pids []int
		for _, name := range []string{"client", "background", "server", "grandchild"} {
			pids = append(pids, awaitPID(t, filepath.Join(dir, name+".pid")))
		}
		for _, s := range signals {
			cmd.Process.Signal(s)
			time.Sleep(50 * time.Millisecond) // the second one must find the first one handled
		}
		if err := cmd.Wait(); err == nil {
			t.Errorf("%v: it succeeded", signals)
		}
		for _, pid := range pids {
			for end := time.Now().Add(20 * time.Second); alive(pid); time.Sleep(10 * time.Millisecond) {
				if time.Now().After(end) {
					t.Errorf("%v: process %d still runs", signals, pid)
					syscall.Kill(pid, syscall.SIGKILL)
					break
				}
			}
		}
	}
}

func awaitPID(t *testing.T, path string) int {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		text, _ := os.ReadFile(path)
		if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil &&
			strings.HasSuffix(string(text), "\n") {
			return pid
		}
	}
	t.Fatalf("%s does not come", path)
	return 0
}

// alive says whether a process runs; one that nobody has waited for does not.
func alive(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if _, e := os.Stat("/proc/self"); err != nil && e != nil {
		return syscall.Kill(pid, 0) == nil // no /proc here
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return err == nil && !strings.HasPrefix(state, "Z")
}
