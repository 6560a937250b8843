package advise

import (
	"testing"

	"lorasim/bench/stats"
)

// TestWhyNot: the answer says why a policy with a better mean is not recommended.
func TestWhyNot(t *testing.T) {
	for _, c := range []struct {
		pick, other string
		diff        float64 // of the other one, as a share
		sampling    stats.Sampling
		want        string
	}{
		{"least-loaded", "plan-and-route", -0.011, stats.Fresh, "Why not plan-and-route, better by 1.1 %: " +
			"least-loaded is the simplest within 2 % (--min-gain 0 for the best)."},
		{"least-loaded", "plan-and-route", -0.03, stats.Fresh, "Why not plan-and-route, better by 3.0 %: " +
			"least-loaded is simpler, and on the seeds of the choice the difference was below 2 %."},
		{"plan-and-route", "least-loaded", -0.01, stats.Fresh, "Why not least-loaded, better by 1.0 %: " +
			"the seeds of the choice showed the opposite, so this may be chance."},
		{"least-loaded", "plan-and-route", 0.01, stats.Fresh, ""},
		{"least-loaded", "plan-and-route", -0.01, stats.OneWorkload, ""},
	} {
		objective, err := ParseObjective("e2e")
		if err != nil {
			t.Fatal(err)
		}
		a := &Advice{Options: Options{Objective: objective, MinGain: 2}, Sampling: c.sampling, Finalists: []*Finalist{
			{Candidate: Candidate{c.pick}}, {Candidate: Candidate{c.other}, Diff: stats.Estimate{Mean: c.diff}},
			{Candidate: Candidate{"static"}, Diff: stats.Estimate{Mean: 0.5}}}}
		if got := a.simplest(); got != c.want {
			t.Errorf("%s, %s: %q, expected %q", c.pick, c.other, got, c.want)
		}
	}
}
