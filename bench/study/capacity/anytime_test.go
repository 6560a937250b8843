package capacity

import (
	"bytes"
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"lorasim/bench/result"
)

// TestInterrupted stops searches after each line that they note. The answer is the best one so far, says so, and
// claims no more than was decided.
func TestInterrupted(t *testing.T) {
	sc, s, sees := queue(t, "arrivals=total-exponential", "policy=least-loaded")
	sc.Workload.RequestRate = 2.2 / s
	o := Options{SLO: result.SLO{E2E: 1500 * sees}, Attain: 0.9, MaxWorkers: 16, MaxSeeds: 1000, Budget: 4e6}
	var lines []string
	o.Note = func(line string) { lines = append(lines, line) }
	whole, err := Find(t.Context(), sc, o)
	if err != nil || whole.Interrupted || len(lines) < 3 || !strings.HasPrefix(lines[0], "about ") {
		t.Fatalf("%v: %+v\n%s", err, whole, strings.Join(lines, "\n"))
	}
	for stop := 1; stop <= len(lines); stop++ {
		ctx, cancel := context.WithCancel(t.Context())
		var seen atomic.Int64
		o.Note = func(string) {
			if seen.Add(1) == int64(stop) {
				cancel()
			}
		}
		a, err := Find(ctx, sc, o)
		if err != nil || !a.Interrupted || a.Stopped || a.Failure() != nil {
			t.Fatalf("after %q: %v, %+v", lines[stop-1], err, a)
		}
		if a.Found.Certain || a.Headroom.Seeds > 0 || a.Verdict != Unknown {
			t.Errorf("after %q: %+v", lines[stop-1], a)
		}
		if d := a.Found.Workers - whole.Found.Workers; d < -1 || d > 1 {
			t.Errorf("after %q: %d workers, finally %d", lines[stop-1], a.Found.Workers, whole.Found.Workers)
		}
		var b bytes.Buffer
		if err := a.WriteText(&b); err != nil ||
			strings.Contains(strings.Join(lines[:stop], ""), ": holds") ==
				strings.Contains(b.String(), "So far:      about ") {
			t.Errorf("after %q: %v\n%s", lines[stop-1], err, b.String())
		}
	}
}

// TestProcessorTime: a budget of processor time ends the search, whatever its phase, with at most the runs under way
// beyond it.
func TestProcessorTime(t *testing.T) {
	sc, s, sees := queue(t, "arrivals=total-exponential", "policy=least-loaded")
	sc.Workload.RequestRate = 2.2 / s
	for _, budget := range []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second, time.Minute} {
		var spent atomic.Int64
		o := Options{
			SLO: result.SLO{E2E: 1500 * sees}, Attain: 0.9, MaxWorkers: 16, MaxSeeds: 1000, CPU: budget,
			Used:     func() time.Duration { return time.Duration(spent.Load()) * 10 * time.Microsecond },
			Progress: func(_, requests int64) { spent.Store(max(spent.Load(), requests)) },
		}
		a, err := Find(t.Context(), sc, o)
		if err != nil {
			t.Fatal(budget, err)
		}
		const twoRuns = 2 * 32000 * 10 * time.Microsecond
		if used := o.Used(); used > budget+twoRuns {
			t.Errorf("%v: used %v", budget, used)
		}
		if a.Found.Holds && a.Found.Workers < 5 || budget == time.Minute && a.Verdict == Unknown {
			t.Errorf("%v: %+v", budget, a)
		}
	}
}
