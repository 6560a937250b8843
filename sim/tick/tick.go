// Package tick implements the integer clock of the simulator.
//
// A tick is 10 ps. With integer time, one decode leap of k steps lasts exactly as long as k single steps, whatever the
// order of the additions. Skipping and stepping therefore give identical results on every machine. An int64 holds 2.9
// years of ticks.
package tick

import "math"

// Ticks is a time since the start of a run, or a duration, in units of 10 ps.
type Ticks int64

// Units of time, and limits.
const (
	Microsecond Ticks = 100_000
	Millisecond       = 1000 * Microsecond
	Second            = 1000 * Millisecond

	// Never lies after every event of a run.
	Never Ticks = math.MaxInt64
	// Max is the latest time of a run, about 2.2 years. The room above it keeps sums of times from overflowing.
	Max Ticks = math.MaxInt64 / 4 * 3
)

// Seconds returns t in seconds.
func (t Ticks) Seconds() float64 { return float64(t) / float64(Second) }

// Milliseconds returns t in milliseconds.
func (t Ticks) Milliseconds() float64 { return float64(t) / float64(Millisecond) }

// FromSeconds converts seconds to ticks, rounded to the nearest tick.
func FromSeconds(s float64) Ticks { return Ticks(math.Round(s * float64(Second))) }

// FromMilliseconds converts milliseconds to ticks, rounded to the nearest tick.
func FromMilliseconds(ms float64) Ticks { return Ticks(math.Round(ms * float64(Millisecond))) }
