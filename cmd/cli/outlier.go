package cli

import (
	"time"

	"github.com/spf13/cobra"

	"lorasim/bench/serving/fleet"
)

// outlierFlags configure the ejection of failing workers.
type outlierFlags struct {
	after             int
	share, maxEjected float64
	time, hung        time.Duration
}

func (f *outlierFlags) add(cmd *cobra.Command) {
	flags(cmd, "Outlier detection",
		opt(&f.after, "eject-after", 5,
			"Consecutive failed requests that eject a worker for some time (0 disables)", ">=0 <=1e6"),
		opt(&f.share, "eject-share", 0.3, "Share of failed requests that ejects a worker, of 20 or more within 30 s (0 disables)", ">=0 <=1"),
		opt(&f.time, "eject-time", 10*time.Second,
			"Duration of a first ejection; doubles with each in a row, up to 5m (0 disables all ejections)", ">=0"),
		opt(&f.maxEjected, "max-ejected", 0.5,
			"Maximum share of ejected workers; the last is never ejected (0 disables ejections)",
			">=0 <=1"),
		opt(&f.hung, "hung-after", 10*time.Second,
			"Time without answer to probes after which a worker's silent requests are cut (0 disables)", ">=0"))
}

// slowStart is the largest number of requests in flight on a worker that has not served one yet, if
// a request that breaks is lost.
const slowStart = 32

// config returns the values of the flags; 0 disables.
func (f *outlierFlags) config() fleet.Outlier {
	return fleet.Outlier{Consecutive: orOff(f.after), Share: orOff(f.share), BaseTime: orOff(f.time),
		MaxEjected: orOff(f.maxEjected), Hung: orOff(f.hung)}
}

func orOff[T int | float64 | time.Duration](x T) T {
	if x == 0 {
		return -1
	}
	return x
}
