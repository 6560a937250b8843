package advise

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"lorasim/bench/result"
	"lorasim/bench/stats"
)

// decide chooses among the finalists with the seeds of the race, and judges the choice
// with fresh ones.
func (s *study) decide(r *race, field []*contestant) error {
	a := s.advice
	d := &decision{race: r, of: s.sampling, margin: s.opt.Objective.fromPercent(s.opt.MinGain), seeds: s.opt.Seeds,
		held: s.sampler(s.sc, 0, true), first: choiceSeeds, most: mostChoiceSeeds, left: s.left(choiceShare)}
	if len(a.Tuned) > 0 {
		d.left = s.left(choiceShareTuned)
	}
	if s.single {
		d.seeds, d.first, d.most = 1, 1, 1
	}
	if err := d.run(field); err != nil {
		return err
	}
	a.Confirmed, a.Attempts, a.ChoiceSeeds = d.confirmed, d.attempts, d.seen
	a.Finalists = s.finalists(d)
	return nil
}

// decision is a choice among finalists and the verdict on it.
type decision struct {
	race        *race
	held        sampler
	of          stats.Sampling
	margin      float64      // score
	first, most int          // seeds of the choice
	seeds       int          // of the verdict
	left        func() int64 // runs that the budget still allows; nil: any number

	field     []*contestant
	pick      *contestant
	seen      int // seeds of the last choice
	confirmed bool
	attempts  int
	tests     []test // of the other finalists against the pick, on the last fresh seeds
}

// test is the paired difference of a finalist to the pick.
type test struct {
	*contestant
	diff stats.Estimate // its score less that of the pick
	p    float64        // by Holm's correction
}

// run chooses and judges.
func (d *decision) run(field []*contestant) error {
	var err error
	for n := d.first; ; n *= 2 {
		d.race.announce(fmt.Sprintf("choice among %d finalists", len(field)))
		if field, err = d.race.measure(field, n); err != nil {
			return err
		}
		d.field, d.seen = field, n
		ch := choose(d.of, d.margin, field, func(c *contestant) []float64 { return c.scores(n) })
		d.pick = ch.pick
		if ch.settled || 2*n > d.most || d.left != nil && d.left() < int64(n*len(field)) {
			break
		}
	}
	return d.judge()
}

// judge tests the pick on fresh seeds. Where another finalist is significantly better
// there, these seeds join those of the choice, which is then repeated. After the last
// attempt the best by the fresh seeds is the pick, and it is not confirmed.
func (d *decision) judge() error {
	seen := map[*contestant][]float64{}
	for _, c := range d.field {
		seen[c] = c.scores(d.seen)
	}
	for d.attempts = 1; ; d.attempts++ {
		d.race.announce("verdict with fresh seeds")
		if err := d.refresh(); err != nil {
			return err
		}
		if d.tests = d.test(); !slices.ContainsFunc(d.tests, func(t test) bool { return t.better() }) {
			d.confirmed = true
			return nil
		}
		if d.attempts == attempts {
			d.pick = slices.MinFunc(d.field, func(a, b *contestant) int {
				return cmp.Compare(mean(scoresOf(a.held)), mean(scoresOf(b.held)))
			})
			d.tests = d.test()
			return nil
		}
		for _, c := range d.field {
			seen[c] = append(seen[c], scoresOf(c.held)...)
		}
		d.seen += d.seeds
		d.pick = choose(d.of, d.margin, d.field, func(c *contestant) []float64 { return seen[c] }).pick
	}
}

// refresh measures all finalists on seeds that none has seen.
func (d *decision) refresh() error {
	wants := make([]want, len(d.field))
	for i, c := range d.field {
		wants[i] = want{c.Candidate, 0, d.seeds}
	}
	figures, err := d.held(forVerdict+d.attempts-1, wants)
	if err != nil {
		return err
	}
	for i, c := range d.field {
		c.held = figures[i]
		for _, f := range c.held {
			if f.Err != nil {
				return fmt.Errorf("%s: %w", c.Spec, f.Err)
			}
		}
	}
	return nil
}

// test compares all other finalists with the pick: paired t-tests with Holm's
// correction.
func (d *decision) test() (tests []test) {
	var ps []float64
	for _, c := range d.field {
		if c != d.pick {
			t := test{contestant: c, diff: stats.PairedOf(d.of, scoresOf(c.held), scoresOf(d.pick.held))}
			tests, ps = append(tests, t), append(ps, t.diff.P())
		}
	}
	for i, p := range stats.Holm(ps) {
		tests[i].p = p
	}
	return tests
}

// better reports whether the finalist is significantly better than the pick.
func (t test) better() bool { return t.p < stats.Level && t.diff.Mean < 0 }

// finalists are the figures of the pick, and of the others, the best first.
func (s *study) finalists(d *decision) []*Finalist {
	out := []*Finalist{s.finalist(d.pick, stats.Mean(nil), math.NaN())}
	slices.SortStableFunc(d.tests, func(a, b test) int { return cmp.Compare(a.diff.Mean, b.diff.Mean) })
	for _, t := range d.tests {
		out = append(out, s.finalist(t.contestant, t.diff, t.p))
	}
	return out
}

func (s *study) finalist(c *contestant, diff stats.Estimate, p float64) *Finalist {
	of := func(value func(f *Figures) float64) stats.Estimate {
		values := make([]float64, len(c.held))
		for i := range c.held {
			values[i] = value(&c.held[i])
		}
		return stats.MeanOf(s.sampling, values)
	}
	latency := func(id result.ID, value func(f *Figures) float64) stats.Estimate {
		metric := id.Metric().Name
		return result.OverRuns(s.sampling, metric, func(name string) []float64 {
			values := make([]float64, len(c.held))
			for i := range c.held {
				if values[i] = result.ValueOf(c.held[i].Steady, name); name == metric {
					values[i] = value(&c.held[i])
				}
			}
			return values
		})
	}
	f := &Finalist{Candidate: c.Candidate, Diff: diff, P: p, Worse: p < stats.Level && diff.Mean > 0,
		TTFT:         latency(result.MeanTTFT, func(f *Figures) float64 { return f.TTFT }),
		P99TTFT:      of(func(f *Figures) float64 { return f.P99TTFT }),
		E2E:          latency(result.MeanE2E, func(f *Figures) float64 { return f.E2E }),
		Good:         of(func(f *Figures) float64 { return f.Good }),
		Completed:    of(func(f *Figures) float64 { return f.Completed }),
		Regret:       of(func(f *Figures) float64 { return f.Regret }),
		Stationarity: stationarity(c.held)}
	if c.Spec == canonical(s.sc.Routing.Policy.String()) {
		f.Roles = append(f.Roles, "default")
	}
	if slices.Contains(plainPolicies, c.Spec) {
		f.Roles = append(f.Roles, "plain")
	}
	if slices.ContainsFunc(s.advice.Tuned, func(t *Tuned) bool { return t.best == c }) {
		f.Roles = append(f.Roles, tunedRole)
	}
	return f
}
