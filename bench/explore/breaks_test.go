package explore_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"lorasim/bench/explore"
	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/bench/stats"
	"lorasim/internal/format"
	"lorasim/internal/testutil"
	"lorasim/trace"
	"lorasim/trace/settings"
)

// breakBySearch is the rate at which the attainment of a policy breaks with a seed, by a bisection of its own.
func breakBySearch(t *testing.T, policy string, seed uint64, target float64) float64 {
	t.Helper()
	low, high := 1.0, 100.0
	for high/low > 1.02 {
		sc := scenario.Default()
		sc.Workload.NumPrompts = settings.Some[int64](300)
		sc.Workload.NumAdapters = settings.Some(8)
		sc.Workload.RequestRate = math.Sqrt(low * high)
		sc.Seed = seed
		testutil.Set(t, &sc, "policy", policy)
		res, err := sc.Simulate(t.Context(), scenario.RunOptions{SLO: result.SLO{TTFT: 1000, TPOT: 50}})
		if err != nil {
			t.Fatal(err)
		}
		if res.Extra.Goodput.Share < target {
			high = sc.Workload.RequestRate
		} else {
			low = sc.Workload.RequestRate
		}
	}
	return math.Sqrt(low * high)
}

// TestBreakIntervals: the intervals of the breaks are those of searches by seed, and the difference is paired.
func TestBreakIntervals(t *testing.T) {
	q := small(func(q *explore.Query) { q.SLO, q.Seeds = "ttft:1000 tpot:50 attain:90%", "4" })
	a := ask(t, explore.New(explore.Limits{}, trace.Files{}), q)
	if n := len(a.data[explore.KindBreaks]); n != 2 {
		t.Fatalf("breaks %d times, expected once without and once with intervals", n)
	}
	breaks := last[[]explore.Break](t, a, explore.KindBreaks)
	for i, b := range breaks {
		var values []float64
		for seed := range uint64(4) {
			values = append(values, breakBySearch(t, b.Policy, 1+seed, 0.9))
		}
		want := stats.Mean(values)
		if m := b.Mean; m == nil || m.Seeds != 4 || !(m.Low < m.Mean && m.Mean < m.High) ||
			math.Abs(m.Mean-want.Mean) > 0.1*want.Mean {
			t.Fatalf("%s: %+v (%s), expected about %v of %v", b.Policy, m, b.Note, want, values)
		}
		if !strings.Contains(b.Note, "4 seeds") {
			t.Errorf("%s: note %q", b.Policy, b.Note)
		}
		answer := fmt.Sprintf("90 %% of the requests are within the SLO up to %s ± ", format.Digits(b.Mean.Mean))
		if !strings.HasPrefix(b.Words, answer) || !strings.HasSuffix(b.Words, " requests/s, mean of 4 seeds") {
			t.Errorf("%s: %q is another answer than %+v", b.Policy, b.Words, *b.Mean)
		}
		if v := b.Versus; i == 0 && v != nil || i > 0 && (v == nil ||
			math.Abs(v.Mean-(b.Mean.Mean-breaks[0].Mean.Mean)) > 1e-9) {
			t.Errorf("%s: difference %+v", b.Policy, v)
		}
	}
}

// TestNoBreakIntervals: without several workloads, or beyond the limit of work, the breaks say why they have no
// interval.
func TestNoBreakIntervals(t *testing.T) {
	log := strings.Builder{}
	log.WriteString("time,adapter,prompt_tokens,output_tokens\n")
	for range 100 {
		log.WriteString("1,a,100,20\n2,b,200,30\n")
	}
	file := testutil.File(t, "log.csv", log.String())
	for says, c := range map[string]struct {
		limits explore.Limits
		change func(*explore.Query)
	}{
		"one seed: no interval":     {explore.Limits{}, func(q *explore.Query) { q.Seeds = "1" }},
		"one workload: no interval": {explore.Limits{}, set("workload.file", file)},
		"set fewer seeds":           {explore.Limits{Work: 9000}, func(q *explore.Query) { q.Seeds = "5" }},
	} {
		q := small(c.change)
		if q.Settings["workload.file"] != "" {
			q.Settings = map[string]string{"workload.file": file}
		}
		a := ask(t, explore.New(c.limits, trace.Files{}), q)
		for _, b := range last[[]explore.Break](t, a, explore.KindBreaks) {
			if b.Mean != nil || b.Versus != nil || !strings.Contains(b.Note, says) {
				t.Errorf("%s: %+v, note %q", says, b.Mean, b.Note)
			}
		}
	}
}
