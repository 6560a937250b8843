//go:build linux

// Package spawn starts child processes that end with this process.
package spawn

import (
	"os/exec"
	"runtime"
	"syscall"
)

// Spawner starts children that end with this process, even if it is killed. Linux ends them with
// the thread that started them, so that one thread starts all.
type Spawner struct{ orders chan func() }

// New returns a spawner. It lasts until the process ends.
func New() *Spawner {
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
