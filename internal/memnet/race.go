//go:build race

package memnet

import "runtime"

// The race detector of Go 1.26 crashes when two timers of a bubble fire at once (golang.org/issue/78156: "CHECK
// failed: slot_locked", or a segmentation fault). On one processor they cannot. The detector finds races by the
// happens-before relation, so it finds them on one processor, too.
func init() { runtime.GOMAXPROCS(1) }
