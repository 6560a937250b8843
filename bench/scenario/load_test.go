package scenario

import (
	"strings"
	"testing"

	"lorasim/bench/steady"
)

// TestPartOfLoad: a run that ends within the load it is about is not steady, and says how many requests are needed.
func TestPartOfLoad(t *testing.T) {
	for _, c := range []struct {
		pattern, why string // "": all of the load
		until        float64
	}{
		{"constant", "", 1},
		{"diurnal:86400,0.9", "the run covers 200 s of a period of 86400 s of the pattern: needs about 870000 requests", 200},
		{"diurnal:86400,0.9", "", 86000},
		{"diurnal:86400,0.9", "the run covers 1.40 periods of the pattern, expected a whole number: 864000 requests a period",
			1.4 * 86400},
		{"diurnal:100,0.9", "", 1230},
		{"on-off:30,70,0.5", "the run covers 2.50 periods of the pattern, expected a whole number: 650 requests a period", 250},
		{"on-off:3000,7000,0.5", "the run covers 2500 s of a period of 10000 s", 2500},
		{"flash:600,60,10", "the run ends after 200 s, before the flash crowd is over: needs about 12000 requests", 200},
		{"flash:600,60,10", "", 700},
	} {
		sc := Default()
		if err := sc.Set("pattern", c.pattern); err != nil {
			t.Fatal(err)
		}
		sc.Workload.RequestRate = 10
		why := sc.partOfLoad(c.until)
		if !strings.HasPrefix(why, c.why) || c.why == "" && why != "" {
			t.Errorf("%s until %v: %q, expected %q", c.pattern, c.until, why, c.why)
		}
	}
	sc := Default()
	sc.Workload.File, sc.Workload.Window = "w.csv", 86400
	why := sc.partOfLoad(3600)
	if !strings.Contains(why, "3600 s of the window of 86400 s") || sc.partOfLoad(80000) != "" {
		t.Errorf("a log of an hour: %q", why)
	}
}

// TestJudgeLoad: a run of a part of a day is transient, whatever its queue did, unless not even the mean rate is
// sustained.
func TestJudgeLoad(t *testing.T) {
	sc := Default()
	for _, set := range []string{"pattern=diurnal:86400,0.9", "num_prompts=2000", "num_adapters=4"} {
		key, value, _ := strings.Cut(set, "=")
		if err := sc.Set(key, value); err != nil {
			t.Fatal(err)
		}
	}
	for workers, want := range map[string]steady.State{"4": steady.Transient, "1": steady.Overloaded} {
		if err := sc.Set("num_workers", workers); err != nil {
			t.Fatal(err)
		}
		res, err := sc.Simulate(t.Context(), RunOptions{})
		if err != nil || res.Steady.State != want || res.Steady.Intervals != nil ||
			want == steady.Transient && !strings.Contains(res.Steady.Reason, "period of 86400 s") {
			t.Errorf("%s workers: %v, %+v, expected %s", workers, err, res.Steady, want)
		}
	}
}
