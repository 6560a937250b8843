//go:build unix

package cli

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// pipeCommands read the file PIPE or PIPE.csv, by every way from a command line to a file.
var pipeCommands = []string{
	"sim -f PIPE", "sim PIPE", "sim --trace-path PIPE", "sim --trace-path PIPE --trace-name azure_v2",
	"sim --trace-path PIPE --trace-name azure_v1", "sim --trace-path PIPE --trace-name azure_llm",
	"sim --trace-path PIPE --trace-name alibaba_genai", "sim --workload PIPE.csv --num-adapters 2",
	"sim --profile PIPE",
	"sim --lengths table:PIPE", "sim --lengths copula:PIPE", "sim --policy epp:file=PIPE",
	"sim --policy explicit:file=PIPE", "sim --policy script:file=PIPE", "explore PIPE", "sweep plan PIPE",
	"bench matrix PIPE", "compare --blocks PIPE", "compare PIPE", "report PIPE -o REPORT", "trace info PIPE",
	"profile show PIPE",
	"solve PIPE", "advise -f PIPE", "capacity -f PIPE", "advise --parts PIPE", "profile fit records PIPE.csv",
	"profile fit kernels PIPE", "profile fit vllm-runs PIPE --output PROFILES", "profile fit logs PIPE",
	"profile check records PIPE.csv --profile llama-3.1-8b-h100-64gb-vllm-0.8.5",
	"profile check runs PIPE --histograms PIPE", "profile check vllm-runs PIPE",
	"profile check logs PIPE", "bench http://127.0.0.1:1 --lora-file PIPE", "bench https://127.0.0.1:1 --cacert PIPE",
	"bench http://127.0.0.1:1 --api-key-file PIPE", "gateway --workers-file PIPE",
}

// An interrupt ends a command that waits for a pipe, and one that has yet to open it.
func TestInterruptAtPipe(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "pipe")
	if err := errors.Join(syscall.Mkfifo(plain, 0o600), syscall.Mkfifo(plain+".csv", 0o600)); err != nil {
		t.Skip(err)
	}
	t.Chdir(dir)
	for _, line := range pipeCommands {
		t.Run(line, func(t *testing.T) {
			args, pipe := strings.Fields(strings.ReplaceAll(line, "PIPE", plain)), plain
			if strings.Contains(line, "PIPE.csv") {
				pipe += ".csv"
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := runInBackground(ctx, t, args)
			silent := awaitReader(t, pipe, ended)
			defer silent.Close()
			cancel()
			mustBeInterrupted(t, ended)
			mustBeInterrupted(t, runInBackground(ctx, t, args)) // ctx has ended: before the pipe is opened
		})
	}
}

// ending is how a run of the program ended.
type ending struct {
	code   int
	output string
}

func runInBackground(ctx context.Context, t *testing.T, args []string) <-chan ending {
	ended := make(chan ending, 1)
	go func() {
		var out bytes.Buffer
		code := run(ctx, args, strings.NewReader(""), &out, &out)
		ended <- ending{code, out.String()}
	}()
	return ended
}

// awaitReader opens a named pipe for writing as soon as a reader has opened it.
func awaitReader(t *testing.T, pipe string, ended <-chan ending) *os.File {
	t.Helper()
	for {
		w, err := os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		if err == nil {
			return w
		}
		if !errors.Is(err, syscall.ENXIO) {
			t.Fatal(err)
		}
		select {
		case e := <-ended:
			t.Fatalf("ended without opening the pipe, with exit code %d:\n%s", e.code, e.output)
		case <-time.After(time.Millisecond): // a pipe does not tell of its readers
		}
	}
}

func mustBeInterrupted(t *testing.T, ended <-chan ending) {
	t.Helper()
	select {
	case e := <-ended:
		if e.code != exitInterrupted || !strings.HasSuffix(e.output, "lorasim: interrupted\n") {
			t.Errorf("exit code %d, expected %d and the message:\n%s", e.code, exitInterrupted, e.output)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("waits for the pipe")
	}
}

// One interrupt ends the program, whenever it comes: from the first millisecond, in which the program has not opened
// the pipe, to a wait for the pipe's writer. An interrupt before the program listens to interrupts ends it by the
// signal.
func TestOneInterrupt(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skip(err)
	}
	for _, ms := range []time.Duration{0, 1, 2, 5, 10, 20, 40, 80, 160} {
		cmd := lorasimCommand("sim", "--trace-path", pipe)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(ms * time.Millisecond) // the point of the test: at any instant
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		overdue := time.AfterFunc(20*time.Second, func() { cmd.Process.Kill() })
		err := cmd.Wait()
		overdue.Stop()
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			t.Fatal(err)
		}
		status := exit.Sys().(syscall.WaitStatus)
		if status.ExitStatus() != exitInterrupted && status.Signal() != syscall.SIGINT {
			t.Errorf("after %d ms: %v, expected exit code %d\n%s", ms, exit, exitInterrupted, &stderr)
		}
	}
}
