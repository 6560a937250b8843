package stats

import "fmt"

// A Sampling says what different seeds draw. It determines the meaning of the spread of
// results over seeds.
type Sampling string

const (
	// Fresh: each seed draws its own workload. Results are independent samples.
	Fresh Sampling = ""
	// Resampled: each seed draws from one recorded workload (--resample).
	// The spread of results is the standard error of one workload's result.
	Resampled Sampling = "resample"
	// OneWorkload: all seeds have the same requests. Seeds decide only ties and other random
	// choices in the cluster. So the spread does not show the effect of other requests.
	OneWorkload Sampling = "one workload"
	// WithinRuns: a difference of two single runs, with an interval from the intervals
	// within the runs.
	WithinRuns Sampling = "one run each"
)

// IntervalNote returns a short note on the means of n seeds and their intervals. resample is
// the scenario's setting.
func IntervalNote(of Sampling, n int, resample string) string {
	switch {
	case of == OneWorkload && n == 1:
		return "one workload: no interval (see --resample)"
	case of == OneWorkload:
		return fmt.Sprintf("one workload: no interval (see --resample); means over %d seeds, which only break ties",
			n)
	case of == Resampled && n > 1:
		return fmt.Sprintf(
			"means over %d resamples of one workload (%s); ± half of the 95 %% interval of its mean, from their spread",
			n, resample)
	case of == Resampled:
		return fmt.Sprintf("one resample of a workload (%s): no interval", resample)
	case n > 1:
		return fmt.Sprintf("means over %d seeds, ± half of the 95 %% confidence interval or (low to high)", n)
	}
	return "one seed: no interval"
}
