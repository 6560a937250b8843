package live

import (
	"fmt"
	"slices"
	"testing"

	"lorasim/bench/serving/fleet"
	"lorasim/sim/profile"
)

// What is assumed of workers is said once, with the limits that a worker does not report.
func TestAssumedIsSaid(t *testing.T) {
	p := profile.Default()
	p.Name, p.Hardware = "mine", "one GPU"
	told := fleet.Limits{MaxRunning: 1, Slots: 2, KVCapacity: 3}
	reports := []fleet.Report{{URL: "u0", Info: fleet.Info{Limits: told}},
		{URL: "u1", Info: fleet.Info{LoRA: fleet.Off}}}
	var lines []string
	log := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	noteAssumed(log, []*profile.Profile{&p, &p}, reports, fleet.Limits{KVCapacity: 5})
	want := []string{"step times of profile mine (calibrated, one GPU) are assumed; --profile selects another",
		fmt.Sprintf("worker 1 (u1) does not report its limits; values of the profile: "+
			"limit of running requests %d (raised if it runs more)", p.Engine.MaxRunningRequests)}
	if !slices.Equal(lines, want) {
		t.Errorf("%q, expected %q", lines, want)
	}
}
