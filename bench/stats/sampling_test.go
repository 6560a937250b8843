package stats

import "testing"

func TestIntervalNote(t *testing.T) {
	for _, c := range []struct {
		of   Sampling
		n    int
		want string
	}{
		{Fresh, 1, "one seed: no interval"},
		{Fresh, 3, "means over 3 seeds, ± half of the 95 % confidence interval or (low to high)"},
		{Resampled, 1, "one resample of a workload (block:5): no interval"},
		{Resampled, 2, "means over 2 resamples of one workload (block:5); ± half of the 95 % interval of its mean, from their spread"},
		{OneWorkload, 1, "one workload: no interval (see --resample)"},
		{OneWorkload, 2, "one workload: no interval (see --resample); means over 2 seeds, which only break ties"},
	} {
		if got := IntervalNote(c.of, c.n, "block:5"); got != c.want {
			t.Errorf("%q, %d seeds: %q, expected %q", c.of, c.n, got, c.want)
		}
	}
}
