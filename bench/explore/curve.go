package explore

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/bench/steady"
	"lorasim/internal/format"
	"lorasim/internal/parallel"
)

// A Point is one run of a policy at a multiple of the rate.
type Point struct {
	Policy   string       `json:"policy"`
	Factor   float64      `json:"factor"`
	Rate     float64      `json:"rate"`     // requests/s
	Attained float64      `json:"attained"` // share of requests within the SLO
	P99TTFT  float64      `json:"p99_ttft"` // ms
	MeanE2E  float64      `json:"mean_e2e"` // ms
	State    steady.State `json:"state"`
}

// factors are the multiples of the rate that are tried first, those closest to 1 first.
var factors = [][]float64{{1, 0.75, 1.33}, {0.5, 1.75}, {0.25, 2.5, 4}}

const (
	gridPoints = 8 // of factors
	// refinements is the number of further runs of a policy that close in on the break.
	refinements = 4
	// closeEnough is how close the rates around the break are at the end, as a share.
	closeEnough = 0.04
	// leastFactor and mostFactor bound the search.
	leastFactor, mostFactor = 0.01, 64
)

// curve finds the attainment over the rate, and where it breaks.
type curve struct {
	*study
	points [][]Point // by policy, by rate
	breaks []Break   // by policy; nil: there is no curve
}

func (c *curve) run() error {
	if why := c.noCurve(); why != "" {
		return c.tell(KindNote, "No attainment over the rate: "+why+".")
	}
	for _, some := range factors {
		var grid []at
		for _, f := range some {
			for i := range c.plan.policies {
				grid = append(grid, at{i, f})
			}
		}
		if err := c.measure(grid); err != nil {
			return err
		}
	}
	for range refinements {
		var next []at
		for i := range c.plan.policies {
			if f := c.next(i); f > 0 {
				next = append(next, at{i, f})
			}
		}
		if err := c.measure(next); err != nil {
			return err
		}
	}
	for i := range c.plan.policies {
		c.breaks = append(c.breaks, c.breakOf(i))
	}
	return c.tell(KindBreaks, slices.Clone(c.breaks))
}

// noCurve returns the reason why there is no curve of attainment over the rate; "": there is one.
func (s *study) noCurve() string {
	w := &s.plan.base.Workload
	runs := int64((gridPoints + refinements) * len(s.plan.policies))
	mean := s.spent.Load() / int64(len(s.plan.policies)*s.plan.seeds)
	switch {
	case s.plan.slo.Empty():
		return "there is no SLO"
	case math.IsInf(w.RequestRate, 1) || s.offered == 0:
		return "all requests arrive at once"
	case s.plan.base.Client.MaxConcurrency > 0:
		return "max_concurrency limits the requests in flight, whatever the rate"
	case runs*mean > s.x.limits.Work:
		return fmt.Sprintf("%d runs of %d requests take too long for a page; lorasim capacity does it", runs, mean)
	}
	return ""
}

// at is a policy at a multiple of the rate.
type at struct {
	policy int
	factor float64
}

// measure runs policies at multiples of the rate, and tells of the points together, so that the page draws once.
func (c *curve) measure(list []at) error {
	out := make([]Point, len(list))
	err := parallel.Do(c.ctx, len(list), func(k int) (err error) {
		out[k], err = c.point(list[k])
		return err
	}, nil)
	if err != nil || len(list) == 0 {
		return err
	}
	for k, p := range out {
		i := list[k].policy
		c.points[i] = append(c.points[i], p)
		slices.SortFunc(c.points[i], func(a, b Point) int { return cmp.Compare(a.Rate, b.Rate) })
	}
	return c.tell(KindPoints, out)
}

// point is the run of a policy at a multiple of the rate.
func (c *curve) point(a at) (Point, error) {
	res := c.results[a.policy][0]
	if a.factor != 1 {
		sc := c.plan.of(a.policy, 0)
		c.scale(sc, a.factor)
		var err error
		if res, err = c.simulate(sc, workloadKey{sc.Seed, a.factor}, false, nil); err != nil {
			return Point{}, err
		}
	}
	p := Point{Policy: c.plan.policies[a.policy], Factor: a.factor, Rate: c.offered * a.factor}
	if res.Steady != nil {
		p.State = res.Steady.State
	}
	if g := res.Extra.Goodput; g != nil {
		p.Attained = g.Share
	}
	p.P99TTFT, _ = res.Metrics.Get(result.P99TTFT)
	p.MeanE2E, _ = res.Metrics.Get(result.MeanE2E)
	return p, nil
}

// scale multiplies the rate of a scenario.
func (c *curve) scale(sc *scenario.Scenario, factor float64) {
	w := &sc.Workload
	if w.RampUpStrategy != "" {
		w.RampUpStartRPS *= factor
		w.RampUpEndRPS *= factor
	}
	w.RequestRate *= factor
	w.RateScale *= factor
}

// next returns the multiple of the rate to run next, to narrow the break of policy i; 0: the break is known well
// enough.
func (c *curve) next(i int) float64 {
	holds, fails := c.around(i)
	switch {
	case fails == 0 && holds*2 <= mostFactor:
		return holds * 2
	case holds == 0 && fails/2 >= leastFactor:
		return fails / 2
	case fails == 0 || holds == 0 || fails/holds < 1+closeEnough:
		return 0
	}
	return math.Round(1000*math.Sqrt(holds*fails)) / 1000
}

// around are the multiples of the rate next to the break of policy i: the smallest that misses the target, and the
// largest below it; 0: there is none.
func (c *curve) around(i int) (holds, fails float64) {
	for _, p := range c.points[i] {
		if p.Attained < c.plan.target() {
			return holds, p.Factor
		}
		holds = p.Factor
	}
	return holds, 0
}

func (c *curve) breakOf(i int) Break {
	holds, fails := c.around(i)
	b := Break{Policy: c.plan.policies[i], Holds: holds * c.offered, Fails: fails * c.offered}
	share := c.plan.share()
	switch {
	case fails == 0:
		b.Words = fmt.Sprintf("%s of the requests are within the SLO at every rate tried, up to %s requests/s", share,
			format.Digits(b.Holds))
	case holds == 0:
		b.Words = fmt.Sprintf("fewer than %s of the requests are within the SLO at every rate tried, down to %s requests/s",
			share, format.Digits(b.Fails))
	default:
		b.Words = fmt.Sprintf("%s of the requests are within the SLO up to %s requests/s, fewer from %s requests/s on",
			share, format.Digits(b.Holds), format.Digits(b.Fails))
	}
	return b
}

// share returns the share of requests that must be within the SLO, as text.
func (p *plan) share() string {
	if p.target() > 0.99 {
		return format.Percent(p.target(), 2)
	}
	return format.Percent(p.target(), 0)
}
