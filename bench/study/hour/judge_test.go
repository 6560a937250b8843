package hour

import (
	"math"
	"os"
	"slices"
	"strconv"
	"testing"
)

// TestJudge lets the package see the logs of fleets with profiles that it does not know, and noise. It compares what
// the package says of three changes with running them, and expects that it refuses an hour with a throttled worker.
// HOURS=10 judges ten whole hours, METRICS=1 with metrics in place of the log (lab/docs/bad-hour.md).
func TestJudge(t *testing.T) {
	hours, err := strconv.Atoi(os.Getenv("HOURS"))
	if err != nil {
		t.Skip("HOURS is not set: TestExplain has a short hour")
	}
	changes := []struct {
		text   string
		change func(*hidden)
	}{
		{"policy least-loaded instead of static", func(f *hidden) { f.policy = "least-loaded" }},
		{"1 worker more", func(f *hidden) { f.workers++ }},
		{"12 adapter slots instead of 4", func(f *hidden) { f.slots = 12 }},
	}
	for seed := range hours {
		f := common
		f.seed, f.seconds = uint64(seed+1), 3600
		a := explain(t, f)
		limit, drawn := 15.0, os.Getenv("METRICS") != ""
		if drawn {
			a, limit = explainMetrics(t, f), 50
		}
		if len(a.Refused) > 0 && drawn {
			t.Logf("hour %d: refused: %q", f.seed, a.Refused)
			continue
		}
		if len(a.Refused) > 0 {
			t.Errorf("hour %d: refused: %q", f.seed, a.Refused)
			continue
		}
		percent := func(got, want float64) float64 { return 100 * (got/want - 1) }
		for i := range a.Proof.Rows[:deciding] {
			r := &a.Proof.Rows[i]
			off := percent(r.Recorded, r.Measured)
			t.Logf("hour %d: %s of the second half %+.1f %%", f.seed, r.Metric, off)
			if math.Abs(off) > 10 && !drawn {
				t.Errorf("hour %d: %s is %+.1f %% off", f.seed, r.Metric, off)
			}
		}
		for _, c := range changes {
			g := f
			c.change(&g)
			want := g.outcome(t)
			i := slices.IndexFunc(a.Changes, func(x Change) bool { return x.Text == c.text })
			if i < 0 {
				t.Errorf("hour %d: no change %q", f.seed, c.text)
				continue
			}
			got := &a.Changes[i]
			ttft, e2e := percent(got.Hour.TTFT, want.TTFT), percent(got.Hour.E2E, want.E2E)
			was := f.outcome(t)
			real := want.TTFT/was.TTFT - 1
			within := real >= got.TTFT.Low && real <= got.TTFT.High
			t.Logf("hour %d: %s: mean TTFT %.0f ms, really %.0f ms (%+.1f %%), mean E2E %+.1f %%, in the interval: %v",
				f.seed, c.text, got.Hour.TTFT, want.TTFT, ttft, e2e, within)
			if math.Abs(ttft) > limit || math.Abs(e2e) > limit {
				t.Errorf("hour %d: %s: off by more than %.0f %%", f.seed, c.text, limit)
			}
		}
		if drawn {
			continue
		}
		f.slow = 1.5
		slow := explain(t, f)
		t.Logf("hour %d, throttled: %q", f.seed, slow.Refused)
		if len(slow.Refused) == 0 {
			t.Errorf("hour %d: a throttled worker is not refused", f.seed)
		}
	}
}
