package fleet

import (
	"lorasim/internal/guard"
)

// maxStacks is how many panics of one worker are logged with their stacks.
const maxStacks = 3

// Guard runs a piece of work that reads a worker's bytes. If it panics, the worker
// is marked down, as [Fleet.Panicked] does, and the panic is returned as an error.
// It must not be called with Fleet.mu held.
func (f *Fleet) Guard(w int, do func() error) error {
	err := guard.Do(do)
	if p, ok := err.(*guard.Panic); ok { // itself: one that another Guard returned is wrapped
		f.Panicked(w, p)
	}
	return err
}

// Panicked logs and counts a panic while a worker's bytes were handled, and marks
// the worker down until it registers again; w < 0: no worker in particular.
func (f *Fleet) Panicked(w int, p *guard.Panic) {
	defer f.lock()()
	f.stats.Panics++
	name := "fleet"
	stack := f.stats.Panics <= maxStacks
	if w >= 0 {
		k := f.workers[w]
		k.panics++
		name, stack = k.name, k.panics <= maxStacks
		f.down(k, p)
	}
	if stack {
		f.cfg.Log("%s: %v\n%s", name, p, p.Stack)
	}
}

// unlocked runs do without Fleet.mu, which the caller holds, and takes it again,
// also after a panic: the caller's own unlock would end the program otherwise.
func (f *Fleet) unlocked(do func()) {
	f.mu.Unlock()
	defer f.mu.Lock()
	do()
}
