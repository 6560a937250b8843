package report

import (
	"math"
	"testing"

	"lorasim/bench/stats"
	"lorasim/bench/study/sweep"
)

// The best of a cell is the policy with the largest gain among those whose gain
// is certain; one that is worse, by chance better, or of other requests is not.
func TestBestOf(t *testing.T) {
	point := func(policy string, apart bool, diffs ...float64) sweep.Point {
		return sweep.Point{
			Policy: policy, Metrics: []sweep.PointValue{
				{Name: "p99_ttft_ms", Diff: stats.Mean(diffs), Base: 200, Apart: apart},
			},
		}
	}
	alone := point("plan-and-route:margin=1", false)
	worse := point("p2c", false, 50, 51, 49, 50)
	chance := point("hash", false, -190, 90, -150, -10)
	some := point("plan-and-route:interval=2,busy=0", false, -20, -21, -19, -20)
	more := point("plan-and-route:busy=0,interval=10", false, -60, -61, -59, -60)
	other := point("static", true, -100, -100.1, -99.9, -100)
	if c := bestOf([]sweep.Point{alone, worse, chance, some, more, other}, "p99_ttft_ms"); c.Policy != more.Policy ||
		c.mark != "10 s" || math.Abs(c.Gain-0.3) > 1e-9 {
		t.Errorf("%+v", c)
	}
	// t 3.182 x std 0.8165 / 2
	if c := bestOf([]sweep.Point{alone, worse, some}, "p99_ttft_ms"); c.mark != "2 s" ||
		math.Abs(c.Half-1.299/200) > 1e-4 {
		t.Errorf("%+v", c)
	}
	if c := bestOf([]sweep.Point{alone, worse, chance}, "p99_ttft_ms"); c.Policy != "" {
		t.Errorf("%+v", c)
	}
	// sure alone, but not among so many
	among := []sweep.Point{alone, point("a", false, -20, -10, -30, -10), chance, chance, chance}
	if c := bestOf(among, "p99_ttft_ms"); c.Policy != "" {
		t.Errorf("%+v", c)
	}
}
