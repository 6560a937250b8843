package explore

import (
	"context"
	"fmt"
	"math"

	"lorasim/bench/stats"
	"lorasim/internal/format"
	"lorasim/internal/parallel"
)

// A Break is the rate at which the attainment of a policy falls below the target.
type Break struct {
	Policy string  `json:"policy"`
	Holds  float64 `json:"holds"` // first seed: largest rate below the break, requests/s; 0: none was tried
	Fails  float64 `json:"fails"` // first seed: smallest rate that misses the target, requests/s; 0: none was tried
	Words  string  `json:"words"` // by Mean if known, else by Holds and Fails
	// Mean is the mean of the breaks over the seeds. Versus is the difference to the first policy, paired by seed. Both
	// are in requests/s, and nil if unknown.
	Mean   *Interval `json:"mean,omitempty"`
	Versus *Interval `json:"versus,omitempty"`
	// Note says how the intervals were computed, or why there are none.
	Note string `json:"note,omitempty"`
}

// An Interval is a mean over seeds with its 95 % confidence interval.
type Interval struct {
	Seeds int     `json:"seeds"`
	Mean  float64 `json:"mean"`
	Low   float64 `json:"ci95_low"`
	High  float64 `json:"ci95_high"`
}

// intervalOf returns an estimate for the page; nil: it has no interval.
func intervalOf(e stats.Estimate) *Interval {
	if !e.HasInterval() {
		return nil
	}
	return &Interval{Seeds: e.N, Mean: e.Mean, Low: e.Low, High: e.High}
}

const (
	// stride is the ratio of two rates of a search that has not found both sides of a break.
	stride = 1.1
	// searchRuns is the number of runs of a search that the limit of work assumes.
	searchRuns = 6
	// mostSearched limits the runs of one search.
	mostSearched = 24
)

// intervals finds the break of each policy with the other seeds, and tells of the breaks again, with intervals.
func (c *curve) intervals() error {
	if c.breaks == nil {
		return nil
	}
	seeds, sampling := c.plan.seeds, c.plan.base.Sampling()
	note := stats.IntervalNote(sampling, seeds, c.plan.base.Workload.Resample.String())
	if seeds == 1 || sampling == stats.OneWorkload {
		return c.noIntervals(note)
	}
	if why := c.tooMuch(); why != "" {
		return c.noIntervals(why)
	}
	found, err := c.searchAll()
	if err != nil {
		return err
	}
	for i := range c.breaks {
		b := &c.breaks[i]
		b.Note = note
		if missing := countNaN(found[i]); missing > 0 {
			b.Note = fmt.Sprintf("no break found with %d of %d seeds: no interval", missing, seeds)
			continue
		}
		if b.Mean = intervalOf(stats.MeanOf(sampling, found[i])); b.Mean != nil {
			b.Words = fmt.Sprintf("%s of the requests are within the SLO up to %s requests/s, mean of %d seeds",
				c.plan.share(), format.PlusMinus(b.Mean.Mean, (b.Mean.High-b.Mean.Low)/2), seeds)
		}
		if i > 0 && countNaN(found[0]) == 0 {
			b.Versus = intervalOf(stats.PairedOf(sampling, found[i], found[0]))
		}
	}
	return c.tell(KindBreaks, c.breaks)
}

// noIntervals tells of the breaks again, with the reason why they have no intervals.
func (c *curve) noIntervals(why string) error {
	for i := range c.breaks {
		c.breaks[i].Note = why
	}
	return c.tell(KindBreaks, c.breaks)
}

// tooMuch returns the reason why the searches with the other seeds exceed the limit of work; "": they do not.
func (c *curve) tooMuch() string {
	n := len(c.plan.policies)
	mean := c.spent.Load() / c.runs.Load()
	more := int64((c.plan.seeds - 1) * n * searchRuns)
	if c.spent.Load()+more*mean <= c.x.limits.Work {
		return ""
	}
	return fmt.Sprintf("no interval: about %d more runs of %d requests take too long for a page; set fewer seeds or requests",
		more, mean)
}

// searchAll returns the breaks by policy and seed, requests/s; NaN: not found.
func (c *curve) searchAll() ([][]float64, error) {
	n, seeds := len(c.plan.policies), c.plan.seeds
	found := make([][]float64, n)
	for i := range found {
		found[i] = make([]float64, seeds)
		found[i][0] = c.offered * middle(c.around(i))
	}
	err := parallel.Do(c.ctx, n*(seeds-1), func(k int) error {
		policy, seed := k%n, 1+k/n
		factor, err := c.search(c.ctx, policy, seed)
		found[policy][seed] = c.offered * factor
		return err
	}, nil)
	return found, err
}

// search finds the break of a policy with another seed near that of the first seed. It returns the multiple of the rate
// in the middle of the break; NaN: not found.
func (c *curve) search(ctx context.Context, policy, seed int) (float64, error) {
	at := middle(c.around(policy))
	if math.IsNaN(at) {
		return at, nil
	}
	holds, fails, step := 0.0, 0.0, stride
	for range mostSearched {
		share, err := c.attained(policy, seed, at)
		switch {
		case err != nil:
			return math.NaN(), err
		case share < c.plan.target():
			fails = at
		default:
			holds = at
		}
		switch {
		case holds > 0 && fails > 0 && fails/holds < 1+closeEnough:
			return middle(holds, fails), nil
		case holds > 0 && fails > 0:
			at = middle(holds, fails)
		case fails > 0:
			at, step = at/step, step*step
		default:
			at, step = at*step, step*step
		}
		if at < leastFactor || at > mostFactor {
			break
		}
	}
	return math.NaN(), ctx.Err()
}

// attained is the share of requests within the SLO in a run of a policy with a seed at a multiple of the rate.
func (c *curve) attained(policy, seed int, factor float64) (float64, error) {
	sc := c.plan.of(policy, seed)
	c.scale(sc, factor)
	key := workloadKey{sc.Seed, factor}
	res, err := c.simulate(sc, key, false, nil)
	if err != nil {
		return 0, err
	}
	c.forget(key)
	if g := res.Extra.Goodput; g != nil {
		return g.Share, nil
	}
	return 0, nil
}

// middle is the geometric mean of two rates; NaN: one of them is unknown (0).
func middle(holds, fails float64) float64 {
	if holds == 0 || fails == 0 {
		return math.NaN()
	}
	return math.Sqrt(holds * fails)
}

func countNaN(xs []float64) (n int) {
	for _, x := range xs {
		if math.IsNaN(x) {
			n++
		}
	}
	return n
}
