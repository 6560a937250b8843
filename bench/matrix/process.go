package matrix

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is a shell command in a group of its own, so that all it starts can be
// stopped with it.
type process struct {
	cmd  *exec.Cmd
	env  map[string]string
	done chan struct{}
	err  error // once done
}

// start runs a program in the folder of the file, with the environment of this one,
// what the file sets, and the names and the folder of the combination.
func (m *Matrix) start(c *combination, what *Program, output io.Writer) (*process, error) {
	cmd := exec.Command("/bin/sh", "-c", what.Command)
	var err error
	if cmd.Dir, err = filepath.Abs(m.dir); err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return nil, err
	}
	env := map[string]string{}
	for _, e := range os.Environ() {
		k, v, _ := strings.Cut(e, "=")
		env[k] = v
	}
	maps.Copy(env, m.Env)
	maps.Copy(env, what.Env)
	env["MATRIX_SERVER"], env["MATRIX_CLIENT"], env["MATRIX_DIR"] = c.Server, c.Client, dir
	for k, v := range env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// a child of the command that keeps the output open must not hold us up
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, env: env, done: make(chan struct{})}
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
	how := "stopped"
	select {
	case <-p.done:
	case <-time.After(timeout):
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
func (s *Server) awaitReady(ctx context.Context, p *process, log *watched) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.Ready.Timeout, fmt.Errorf("not ready within %v", s.Ready.Timeout))
	defer cancel()
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	answers := func(url string) bool {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, os.Expand(url, func(name string) string { return p.env[name] }), nil)
		if err != nil {
			return false
		}
		resp, err := client.Do(req)
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode/100 == 2
	}
	t := time.NewTicker(lookEvery)
	defer t.Stop()
	for {
		if log.ready() && !slices.ContainsFunc(s.Ready.URLs, func(url string) bool { return !answers(url) }) {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("ended before it was ready: %v", p.cmd.ProcessState)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-t.C:
		}
	}
}
