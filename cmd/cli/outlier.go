package cli

import (
	"time"

	"github.com/spf13/cobra"

	"lorasim/bench/serving/fleet"
)

// outlierFlags say when workers that fail requests are ejected.
type outlierFlags struct {
	after             int
	share, maxEjected float64
	time, hung        time.Duration
}

func (f *outlierFlags) add(cmd *cobra.Command) {
	flags(cmd, "Outlier detection",
		opt(&f.after, "eject-after", 5, "failed requests in a row that eject a worker: it gets no new ones for some time (0 disables)", ">=0 <=1e6"),
		opt(&f.share, "eject-share", 0.3, "share of failed requests that ejects a worker, of 20 or more within 30 s (0 disables)", ">=0 <=1"),
		opt(&f.time, "eject-time", 10*time.Second,
			"duration of a first ejection; doubles with each in a row, up to 5m (0 disables all ejections)", ">=0"),
		opt(&f.maxEjected, "max-ejected", 0.5,
			"share of workers from which on no further one is ejected; never the last (0 disables all ejections)",
			">=0 <=1"),
		opt(&f.hung, "hung-after", 10*time.Second,
			"cut silent requests of a worker whose probes get no answer for this time (0 disables)", ">=0"))
}

// slowStart is how many requests a worker may have in flight before it has served one, where a request that breaks is
// lost.
const slowStart = 32

// config is what the flags say, where 0 disables.
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
