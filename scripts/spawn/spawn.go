//go:build linux

// Package spawn starts child processes that end with this process.
package spawn

import (
	"os/exec"
	"runtime"
	"syscall"
)

// Spawner starts children that end with this process, also when it is killed: Linux ends them with the thread that
// started them, so one thread starts all.
type Spawner struct{ orders chan func() }

// New makes a spawner, which lasts as long as the process.
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

// Start starts a command that has not been started. It sets the command's SysProcAttr.
func (s *Spawner) Start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	s.orders <- func() { started <- cmd.Start() }
	return <-started
}
