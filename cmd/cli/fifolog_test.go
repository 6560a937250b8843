package cli

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A log can be a named pipe, also one that nobody reads yet.
func TestLogToPipe(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Skip(err)
	}
	done := make(chan *gatewayLog, 1)
	go func() {
		l, err := openLog(name, io.Discard)
		if err != nil {
			t.Error(err)
		}
		done <- l
	}()
	select {
	case l := <-done:
		l.Info("hello")
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if line, err := bufio.NewReader(f).ReadString('\n'); err != nil || !strings.Contains(line, "hello") {
			t.Errorf("%q, %v", line, err)
		}
		l.close()
	case <-time.After(10 * time.Second):
		t.Fatal("the opening waits for a reader")
	}
}
