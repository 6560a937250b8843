package scenario

import (
	"fmt"
	"strconv"

	"lorasim/bench/result"
)

// parseWarmup reads the time that figures leave out: seconds, or auto.
func parseWarmup(text string) (result.Warmup, error) {
	if text == autoWord {
		return result.Warmup{Auto: true}, nil
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v >= 0 && v <= 1e9) {
		return result.Warmup{}, fmt.Errorf("%q is neither auto nor a number of seconds from 0 to 1e9", text)
	}
	return result.Warmup{Seconds: v}, nil
}

// Warmup returns the time at the start of a run that its metrics leave out.
func (s *Scenario) Warmup() result.Warmup { return s.Client.Warmup.Value() }

// checkWarmup returns an error if the warm-up covers the whole run.
func (s *Scenario) checkWarmup(res *result.Result) error {
	if a := res.Steady; a.Excluded > 0 && res.Extra.Requests == 0 {
		return fault(fmt.Errorf("warmup: %g s leave no request: the last one arrives after %.1f s", a.Excluded,
			a.LastArrival))
	}
	return nil
}
