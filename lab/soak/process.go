//go:build linux

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"lorasim/lab/internal/spawn"
)

// process is a child process.
type process struct {
	cmd   *exec.Cmd
	over  chan struct{} // closed when it has ended
	mu    sync.Mutex
	urls  []string // URLs in its output, in order
	ended error
	text  bytes.Buffer // the beginning of stderr
}

var urlPattern = regexp.MustCompile(`http://[0-9.:]+`)

// startProcess starts a child and waits for the first line of its output that has a URL.
func startProcess(s *spawn.Spawner, name string, args ...string) (*process, error) {
	p := &process{cmd: exec.Command(name, args...), over: make(chan struct{})}
	p.cmd.Stderr = p
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.Start(p.cmd); err != nil {
		return nil, err
	}
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if u := urlPattern.FindString(lines.Text()); u != "" {
				p.mu.Lock()
				p.urls = append(p.urls, u)
				p.mu.Unlock()
			}
		}
		p.ended = p.cmd.Wait()
		close(p.over)
	}()
	if p.line(0) == "" {
		p.kill()
		return nil, fmt.Errorf("%s %s did not start: %s", name, args[0], p.said())
	}
	return p, nil
}

// Write keeps the beginning of stderr, which has the reason of a crash.
func (p *process) Write(b []byte) (int, error) {
	const most = 16 << 10
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.text.Len() < most {
		p.text.Write(b)
	}
	return len(b), nil
}

func (p *process) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// line waits for the n-th URL in the output and returns it.
func (p *process) line(n int) string {
	for range 3000 {
		p.mu.Lock()
		urls := p.urls
		p.mu.Unlock()
		if len(urls) > n {
			return urls[n]
		}
		select {
		case <-p.over:
			return ""
		case <-time.After(10 * time.Millisecond):
		}
	}
	return ""
}

func (p *process) signal(s os.Signal) { p.cmd.Process.Signal(s) } // fails when it has ended

// kill ends the process and waits.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.over
}

// ends waits for the end and returns the exit status, or -1 if the process does not end in time.
func (p *process) ends(limit time.Duration) int {
	select {
	case <-p.over:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(limit):
		return -1
	}
}

// rss returns the resident memory, MB; 0 if the process has ended.
func (p *process) rss() float64 {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid)) // ended: empty
	for line := range strings.Lines(string(data)) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == "VmRSS:" {
			kb, _ := strconv.ParseFloat(words[1], 64)
			return kb / 1000
		}
	}
	return 0
}
