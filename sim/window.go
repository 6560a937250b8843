package sim

import (
	"fmt"
	"math"

	"lorasim/internal/record"
	"lorasim/internal/tick"
)

// unfinishedReason is why requests end as record.Unfinished.
const unfinishedReason = "cut off at the end of the window"

// windowEnd checks Config.Window and returns its end, tick.Never without one.
func (c *Config) windowEnd() (tick.Ticks, error) {
	switch w := c.Window; {
	case w == 0:
		return tick.Never, nil
	case !(w > 0) || math.IsInf(w, 0) || w >= tick.Max.Seconds():
		return 0, fmt.Errorf("sim: window is %v s, expected 0 (none) to %.0f", w, tick.Max.Seconds())
	default:
		return tick.FromSeconds(w), nil
	}
}

// cutOff ends the run at the end of its window: steps that are over by then
// count, and what is in flight ends unfinished. Requests that were not sent by
// then, in a closed loop say, have no part in the run.
func (s *sim) cutOff() {
	s.watch(s.window)
	s.now = s.window
	for i := range s.workers {
		w := &s.workers[i]
		if k := w.stepsDone(); k > 0 {
			w.run.Count = k
			w.advance()
		}
		if w.phase != idle {
			w.stats.Busy += s.now - w.begun
		}
	}
	for i := range s.reqs {
		if s.reqs[i].id >= 0 {
			s.finish(int32(i), record.Unfinished, unfinishedReason, s.now)
		}
	}
	if s.headT != tick.Never {
		s.requests-- // read, but not sent
	}
}
