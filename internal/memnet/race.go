//go:build race

package memnet

import "runtime"

// The race detector of Go 1.26 dies when two timers of a bubble fire at once
// (golang.org/issue/78156: "CHECK failed: slot_locked", or a segmentation fault).
// On one processor they cannot; races are found by what happens before what, so
// by few processors too.
func init() { runtime.GOMAXPROCS(1) }
