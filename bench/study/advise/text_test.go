package advise

import (
	"testing"

	"lorasim/bench/stats"
	"lorasim/bench/steady"
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

// TestFewLines: the answer has at most four lines without the command that follows, and says where its runs are too
// short.
func TestFewLines(t *testing.T) {
	objective, err := ParseObjective("balanced")
	if err != nil {
		t.Fatal(err)
	}
	diff := func(mean float64) stats.Estimate {
		return stats.Estimate{N: 20, Mean: mean, Low: mean - 0.002, High: mean + 0.002}
	}
	short := steady.Stationarity{State: steady.Steady,
		TooShort: []steady.TooShort{{Metric: "mean_e2e_latency_ms", Needed: 9000}}}
	a := &Advice{Options: Options{Objective: objective, MinGain: 2, Seeds: 20}, Confirmed: true, Requests: 2000,
		Finalists: []*Finalist{
			{Candidate: Candidate{"plan-and-route:interval=5,busy=0.125,margin=0.1"}, Stationarity: short},
			{Candidate: Candidate{"plan-and-route"}, Roles: []string{"default"}, Diff: diff(0.001)},
			{Candidate: Candidate{"static"}, Roles: []string{"plain"}, Diff: diff(0.022), Worse: true},
			{Candidate: Candidate{"least-loaded"}, Roles: []string{"plain"}, Diff: diff(0.73), Worse: true}}}
	const want = `Recommendation: --policy plan-and-route:interval=5,busy=0.125,margin=0.1
How sure: significantly better than 2 of 3 finalists on 20 fresh seeds; others gain 0.1 % at most.
Worse: static +2.2 % ±0.2, least-loaded +107.5 % ±0.4; not significantly: plan-and-route +0.1 % ±0.2
Too short for intervals of mean E2E: a run has 2000 requests, about 9000 are needed.`
	if got := a.String(); got != want {
		t.Errorf("%s", got)
	}
}
