//go:build linux

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
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

// process is a child process whose memory is sampled.
type process struct {
	cmd  *exec.Cmd
	url  string        // in its first line
	over chan struct{} // closed when it has ended

	mu         sync.Mutex
	peak, last float64 // resident memory, MB
	second     string  // URL in a later line: the listener for operators; "": none so far
	said       bytes.Buffer
	status     error // set when it has ended
}

// Write keeps the beginning of stderr, which has the reason of a crash.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	const most = 64 << 10
	if p.said.Len() < most {
		p.said.Write(b)
	}
	return len(b), nil
}

var urlPattern = regexp.MustCompile(`http://[0-9.:]+`)

// startProcess starts a child and waits for the line of its output that has a URL. rest reads what follows.
func startProcess(
	s *spawn.Spawner, stderr io.Writer, rest func(io.Reader), name string, args ...string,
) (*process, error) {
	p := &process{cmd: exec.Command(name, args...), over: make(chan struct{})}
	p.cmd.Stderr = p
	if stderr != nil {
		p.cmd.Stderr = stderr
	}
	pipe, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.Start(p.cmd); err != nil {
		return nil, err
	}
	lines := bufio.NewReader(pipe)
	found := make(chan string, 1)
	var reading sync.WaitGroup
	reading.Go(func() {
		line, _ := lines.ReadString('\n') // without one there is no URL
		found <- urlPattern.FindString(line)
		if rest != nil {
			rest(lines)
		}
		for line, err := lines.ReadString('\n'); err == nil; line, err = lines.ReadString('\n') {
			p.mu.Lock()
			p.second = cmp.Or(p.second, urlPattern.FindString(line))
			p.mu.Unlock()
		}
	})
	go func() {
		reading.Wait()
		err := p.cmd.Wait()
		p.mu.Lock()
		p.status = err
		p.mu.Unlock()
		close(p.over)
	}()
	select {
	case p.url = <-found:
	case <-time.After(30 * time.Second):
	}
	if p.url == "" {
		p.kill()
		return nil, fmt.Errorf("%s did not start: %s", name, p.firstWords())
	}
	go p.watch()
	return p, nil
}

// operators returns the URL of the listener for operators, or of the only listener.
func (p *process) operators() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return cmp.Or(p.second, p.url)
}

// watch samples the memory until the process ends.
func (p *process) watch() {
	for {
		rss, peak := memoryOf(p.cmd.Process.Pid)
		p.mu.Lock()
		if rss > 0 {
			p.last, p.peak = rss, max(p.peak, peak)
		}
		p.mu.Unlock()
		select {
		case <-p.over:
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// memoryOf returns the current and the peak resident memory of a process, MB; 0 if it has ended.
func memoryOf(pid int) (rss, peak float64) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0
	}
	for line := range strings.Lines(string(data)) {
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		kb, _ := strconv.ParseFloat(words[1], 64)
		switch words[0] {
		case "VmRSS:":
			rss = kb / 1000
		case "VmHWM:":
			peak = kb / 1000
		}
	}
	return rss, peak
}

// memory returns the resident memory, MB: the latest sample and the peak.
func (p *process) memory() (rss, peak float64) {
	if rss, peak := memoryOf(p.cmd.Process.Pid); rss > 0 {
		return rss, peak
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last, p.peak
}

func (p *process) alive() bool {
	select {
	case <-p.over:
		return false
	default:
		return true
	}
}

// ends waits for the end of the process and returns its exit status, or -1 if it does not end in
// time.
func (p *process) ends(limit time.Duration) int {
	select {
	case <-p.over:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(limit):
		return -1
	}
}

func (p *process) signal(s os.Signal) { p.cmd.Process.Signal(s) } // fails when it has ended

// kill ends the process and waits.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.over
}

// firstWords returns the line of stderr with the reason of the end.
func (p *process) firstWords() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := ""
	for line := range strings.Lines(p.said.String()) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:") ||
			strings.HasPrefix(line, "Error:") {
			return line
		}
		if first == "" {
			first = line
		}
	}
	return first
}

// closeWaits returns the number of this machine's connections to a port in state CLOSE_WAIT: the
// other end has closed them, and this end has not.
func closeWaits(port int) (n int) {
	data, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return -1
	}
	const closeWait = "08"
	remote := fmt.Sprintf(":%04X", port)
	for line := range strings.Lines(string(data)) {
		words := strings.Fields(line)
		if len(words) > 3 && words[3] == closeWait && strings.HasSuffix(words[2], remote) {
			n++
		}
	}
	return n
}

// loadAverage returns the machine's load average over one minute.
func loadAverage() float64 {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(data), " ")
	v, _ := strconv.ParseFloat(first, 64)
	return v
}

// runToEnd runs a child and returns its output. The child ends with the context.
func runToEnd(
	ctx context.Context, s *spawn.Spawner, name string, args ...string,
) (stdout string, p *process, err error) {
	p = &process{cmd: exec.CommandContext(ctx, name, args...), over: make(chan struct{})}
	var out bytes.Buffer
	p.cmd.Stdout, p.cmd.Stderr = &out, p
	if err := s.Start(p.cmd); err != nil {
		return "", nil, err
	}
	go p.watch()
	err = p.cmd.Wait()
	close(p.over)
	return out.String(), p, err
}
