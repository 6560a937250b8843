// Package tick is the integer clock of the simulator.
//
// Time is counted in ticks of 10 ps. Integer time makes a decode leap of k
// steps last exactly as long as k single steps, whatever the order of the
// additions, so that skipping and stepping give identical results on every
// machine. An int64 holds 2.9 years of ticks.
package tick

import "math"

// Ticks is a point in time since the start of a run, or a duration.
type Ticks int64

// Per-unit factors.
const (
	Microsecond Ticks = 100_000
	Millisecond       = 1000 * Microsecond
	Second            = 1000 * Millisecond

	// Never lies after every event of a run.
	Never Ticks = math.MaxInt64
	// Max is the largest time a run may reach (about 2.9 years); the headroom
	// above it keeps sums of times from overflowing.
	Max Ticks = math.MaxInt64 / 4 * 3
)

// Seconds returns t in seconds.
func (t Ticks) Seconds() float64 { return float64(t) / float64(Second) }

// Milliseconds returns t in milliseconds.
func (t Ticks) Milliseconds() float64 { return float64(t) / float64(Millisecond) }

// FromSeconds converts seconds to ticks, to the nearest tick.
func FromSeconds(s float64) Ticks { return Ticks(math.Round(s * float64(Second))) }

// FromMilliseconds converts milliseconds to ticks, to the nearest tick.
func FromMilliseconds(ms float64) Ticks { return Ticks(math.Round(ms * float64(Millisecond))) }
