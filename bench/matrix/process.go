package matrix

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is a shell command in a group of its own, so that all it starts can be
// stopped with it.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // once done
}

func start(command, dir string, env []string, output io.Writer) (*process, error) {
	cmd := exec.Command("/bin/sh", "-c", command)
	cmd.Dir, cmd.Env = dir, env
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// a child of the command that keeps the output open must not hold us up
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

func (p *process) signal(s syscall.Signal) { syscall.Kill(-p.cmd.Process.Pid, s) } // it may be gone already

// stop signals the group and kills it after the timeout. It says how it ended.
func (p *process) stop(s syscall.Signal, timeout time.Duration) string {
	select {
	case <-p.done:
		return "had ended by itself"
	default:
	}
	p.signal(s)
	t := time.NewTimer(timeout)
	defer t.Stop()
	how := "stopped"
	select {
	case <-p.done:
	case <-t.C:
		how = fmt.Sprintf("killed: it did not stop within %v", timeout)
	}
	p.signal(syscall.SIGKILL) // what is left of the group
	<-p.done
	return how
}

// wait waits for the end of a client; it is stopped when ctx ends.
func (p *process) wait(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		p.stop(syscall.SIGTERM, 5*time.Second)
		return context.Cause(ctx)
	}
}

// watched is a log that is searched for a pattern as it is written.
type watched struct {
	mu    sync.Mutex
	file  *os.File
	what  *regexp.Regexp // nil: nothing is looked for
	line  []byte         // the one under way
	found bool
}

// longestLine limits how much of a line is kept to look at.
const longestLine = 1 << 16

func (w *watched) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.what != nil && !w.found {
		for part := range bytes.SplitAfterSeq(b, []byte("\n")) {
			if len(w.line) < longestLine {
				w.line = append(w.line, part...)
			}
			w.found = w.found || w.what.Match(w.line)
			if bytes.HasSuffix(part, []byte("\n")) {
				w.line = w.line[:0]
			}
		}
	}
	return w.file.Write(b)
}

func (w *watched) ready() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.what == nil || w.found
}

// lookEvery is the time between two looks at a server that is starting.
const lookEvery = 100 * time.Millisecond

// awaitReady returns when the server is ready, or why it never will be.
func (s *Server) awaitReady(ctx context.Context, p *process, log *watched, env []string) error {
	var urls []string
	for _, u := range s.Ready.URLs {
		urls = append(urls, os.Expand(u, func(name string) string { return lookup(env, name) }))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.Ready.Timeout, fmt.Errorf("not ready within %v", s.Ready.Timeout))
	defer cancel()
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	t := time.NewTicker(lookEvery)
	defer t.Stop()
	for {
		if log.ready() && answer(ctx, client, urls) {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("ended before it was ready: %v", exitText(p.err))
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-t.C:
		}
	}
}

// lookup finds a variable in an environment, in which later entries win.
func lookup(env []string, name string) (value string) {
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			value = v
		}
	}
	return value
}

func answer(ctx context.Context, client *http.Client, urls []string) bool {
	for _, url := range urls {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return false
		}
		resp, err := client.Do(req)
		if err != nil {
			return false
		}
		resp.Body.Close()
		if resp.StatusCode/100 != 2 {
			return false
		}
	}
	return true
}

func exitText(err error) string {
	if err == nil {
		return "exit status 0"
	}
	var e *exec.ExitError
	if errors.As(err, &e) {
		return e.Error()
	}
	return err.Error()
}
