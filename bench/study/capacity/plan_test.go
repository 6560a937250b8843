package capacity

import (
	"bytes"
	"strings"
	"testing"

	"lorasim/bench/result"
)

// TestPeriods: runs cover whole periods of the rate pattern, or have the rate of its busiest time; a run that ends
// before a flash crowd is no certain answer.
func TestPeriods(t *testing.T) {
	for _, c := range []struct {
		pattern, busiest, partial string
		rate                      float64
		least                     int64 // 0: of fixed length
	}{
		{"constant", "", "", 10, 16000},
		{"on-off:60,40,0.5", "", "", 10, 16000}, // 800 requests a period
		{"on-off:70,40,0.5", "", "", 10, 18000}, // 900
		{"diurnal:1000,0.9", "", "", 10, 40000}, // 10,000
		{"diurnal:86400,0.9", "19 requests/s, the rate at the busiest time of a period of 86400 s (21600 s after its start)",
			"", 19, 16000},
		{"on-off:3600,7200,2", "20 requests/s, the rate at the busiest time of a period of 10800 s (3600 s after", "", 20,
			16000},
		{"flash:600,60,10", "", "--num-prompts 12000 covers it", 10, 0},
	} {
		sc := describe(t, "pattern="+c.pattern, "request_rate=10")
		s := newSearch(t.Context(), sc, Options{SLO: result.SLO{TTFT: 500}, Attain: 0.99, MaxWorkers: 8, MaxSeeds: 9})
		p := &s.plan
		if period := int64(sc.Covers()); c.least > 0 && c.busiest == "" && period > 0 && p.least/4%period != 0 {
			t.Errorf("%s: runs of %d, a cell is no multiple of %d", c.pattern, p.least, period)
		}
		if !strings.HasPrefix(p.busiest, c.busiest) || c.busiest == "" && p.busiest != "" ||
			!strings.Contains(p.partial, c.partial) || c.partial == "" && p.partial != "" ||
			s.base.Workload.RequestRate != c.rate || (p.fixed != "") != (c.least == 0) || p.least != c.least {
			t.Errorf("%s: %+v at %v/s, expected %+v", c.pattern, p, s.base.Workload.RequestRate, c)
		}
	}
}

// TestBusiest: over a long period the answer is that for the rate of its busiest time, and says so.
func TestBusiest(t *testing.T) {
	sc, s, sees := queue(t, "arrivals=total-exponential", "policy=least-loaded")
	if err := sc.Set("pattern", "diurnal:86400,0.5"); err != nil {
		t.Fatal(err)
	}
	sc.Workload.RequestRate = 1.8 / s / 1.5
	a := find(t, sc, Options{SLO: result.SLO{E2E: 1500 * sees}, Attain: 0.9, MaxWorkers: 16})
	sc, _, _ = queue(t, "arrivals=total-exponential", "policy=least-loaded")
	sc.Workload.RequestRate = 1.8 / s
	same, _ := decided(t, sc, Options{SLO: result.SLO{E2E: 1500 * sees}, Attain: 0.9, MaxWorkers: 16})
	var b bytes.Buffer
	if err := a.WriteText(&b); err != nil || a.Found.Workers != same.Workers || !a.Found.Holds ||
		!strings.Contains(b.String(), "Load:        ") || !strings.Contains(b.String(), "period of 86400 s") {
		t.Errorf("%v: %s\nexpected %v", err, b.String(), same.Candidate)
	}
}
