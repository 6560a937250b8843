//go:build linux

// Package process starts programs that end with this process. It reads the URLs that servers print, and samples the
// memory of what it started.
package process

import (
	"bytes"
	"context"
	"os/exec"
	"runtime"
	"syscall"
)

// Spawner starts children that end with this process, even if it is killed. Linux ends them with
// the thread that started them, so that one thread starts all.
type Spawner struct{ orders chan func() }

// NewSpawner returns a spawner. It lasts until the process ends.
func NewSpawner() *Spawner {
	s := &Spawner{make(chan func())}
	go func() {
		runtime.LockOSThread()
		for do := range s.orders {
			do()
		}
	}()
	return s
}

// Start starts cmd, which must not have been started. It sets cmd.SysProcAttr.
func (s *Spawner) Start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	s.orders <- func() { started <- cmd.Start() }
	return <-started
}

// Run runs a program to its end and returns its output. The program ends with the context.
func (s *Spawner) Run(ctx context.Context, name string, args ...string) (stdout string, p *Process, err error) {
	p = newProcess(exec.CommandContext(ctx, name, args...))
	var out bytes.Buffer
	p.cmd.Stdout = &out
	if err := s.Start(p.cmd); err != nil {
		return "", nil, err
	}
	go p.sample()
	err = p.cmd.Wait()
	close(p.over)
	return out.String(), p, err
}
