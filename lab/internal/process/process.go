//go:build linux

package process

import (
	"bufio"
	"bytes"
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
)

// Process is a child process whose memory is sampled.
type Process struct {
	cmd  *exec.Cmd
	over chan struct{} // closed when it has ended

	mu         sync.Mutex
	urls       []string // in its output, in order
	peak, last float64  // resident memory, MB
	said       bytes.Buffer
}

func newProcess(cmd *exec.Cmd) *Process {
	p := &Process{cmd: cmd, over: make(chan struct{})}
	cmd.Stderr = (*beginning)(p)
	return p
}

// beginning keeps the beginning of a process's stderr, which has the reason of a crash.
type beginning Process

func (b *beginning) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	const most = 64 << 10
	if b.said.Len() < most {
		b.said.Write(text)
	}
	return len(text), nil
}

// Pipes are the ends of a server's pipes.
type Pipes struct {
	Stderr io.Writer       // nil: the process keeps the beginning
	Rest   func(io.Reader) // reads the output after the first line, to its end; nil: it is searched for URLs
}

var urlPattern = regexp.MustCompile(`http://[0-9.:]+`)

// startLimit is the longest time until a server prints its first URL.
const startLimit = 30 * time.Second

// Serve starts a server and waits for the URL in the first line of its output.
func (s *Spawner) Serve(pipes Pipes, name string, args ...string) (*Process, error) {
	p := newProcess(exec.Command(name, args...))
	if pipes.Stderr != nil {
		p.cmd.Stderr = pipes.Stderr
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.Start(p.cmd); err != nil {
		return nil, err
	}
	go func() {
		p.read(bufio.NewReader(out), pipes.Rest)
		p.cmd.Wait() // Ends reports the exit status
		close(p.over)
	}()
	if p.URL(0, startLimit) == "" {
		p.Kill()
		return nil, fmt.Errorf("%s did not start: %s", name, p.Reason())
	}
	go p.sample()
	return p, nil
}

// read reads the output of a server to its end.
func (p *Process) read(out *bufio.Reader, rest func(io.Reader)) {
	for first := true; ; first = false {
		line, err := out.ReadString('\n')
		if u := urlPattern.FindString(line); u != "" {
			p.mu.Lock()
			p.urls = append(p.urls, u)
			p.mu.Unlock()
		}
		if first && rest != nil {
			rest(out)
		}
		if err != nil {
			return
		}
	}
}

// URL waits for the n-th URL in the output, from 0, and returns it; "": there is none within the limit.
func (p *Process) URL(n int, limit time.Duration) string {
	for end := time.Now().Add(limit); ; time.Sleep(10 * time.Millisecond) {
		last := !p.Alive() || time.Now().After(end)
		p.mu.Lock()
		urls := p.urls
		p.mu.Unlock()
		switch {
		case len(urls) > n:
			return urls[n]
		case last:
			return ""
		}
	}
}

// sample samples the memory until the process ends.
func (p *Process) sample() {
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

// Memory returns the resident memory, MB: the current one and the peak. After the end both are those of the last
// sample.
func (p *Process) Memory() (rss, peak float64) {
	if rss, peak := memoryOf(p.cmd.Process.Pid); rss > 0 {
		return rss, peak
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last, p.peak
}

// CPU returns the processor time of the process so far, user and system; 0 if it has ended.
func (p *Process) CPU() time.Duration {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	const user, ticks = 11, 100 // the field after the name and state; USER_HZ, the same on all Linux systems
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) < user+2 {
		return 0
	}
	u, _ := strconv.ParseInt(fields[user], 10, 64)
	s, _ := strconv.ParseInt(fields[user+1], 10, 64)
	return time.Duration(u+s) * time.Second / ticks
}

// LoadAverage returns the machine's load average over one minute; 0: unknown.
func LoadAverage() float64 {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(data), " ")
	v, _ := strconv.ParseFloat(first, 64)
	return v
}

// Over is closed when the process has ended.
func (p *Process) Over() <-chan struct{} { return p.over }

// Alive reports whether the process has not ended.
func (p *Process) Alive() bool {
	select {
	case <-p.over:
		return false
	default:
		return true
	}
}

// Ends waits for the end of the process and returns its exit status, or -1 if it does not end in
// time.
func (p *Process) Ends(limit time.Duration) int {
	select {
	case <-p.over:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(limit):
		return -1
	}
}

// Signal sends a signal. It does nothing if the process has ended.
func (p *Process) Signal(s os.Signal) { p.cmd.Process.Signal(s) }

// Kill ends the process and waits.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL)
	<-p.over
}

// Reason returns the line of stderr with the reason of the end: that of a crash or an error, else the first.
func (p *Process) Reason() string {
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
