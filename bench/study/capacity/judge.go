package capacity

import (
	"slices"

	"lorasim/bench/result"
	"lorasim/bench/result/waits"
	"lorasim/bench/stats"
)

// exhausted reports whether the budget for deciding candidates is spent. The rest is for intervals and headroom.
func (s *search) exhausted() bool { return s.spent.Load() >= s.budget()*5/8 }

// allowance is the number of requests that the decision on one candidate may take.
func (s *search) allowance() int64 {
	budget := s.budget()
	return min(budget/3, max(budget*5/8-s.spent.Load(), 0))
}

// rule is the rule of the search's decisions.
func (s *search) rule() *rule {
	return &rule{target: s.opt.target(), binary: s.opt.Hold > 0, spread: s.plan.spread,
		closed: s.plan.closed || s.plan.fixed != ""}
}

// judge decides whether a candidate holds. One that cannot be has no attainment.
func (s *search) judge(c Candidate) (*Tried, error) {
	if t := s.judged[c]; t != nil {
		return t, nil
	}
	t := &Tried{Candidate: c, Decision: Undecided, Size: s.plan.size()}
	var err error
	switch {
	case s.plan.single || s.opt.MaxSeeds == 1:
		err = s.byMean(t)
	case s.opt.Hold > 0:
		err = s.byRuns(t)
	default:
		err = s.byAttainment(t, s.allowance())
	}
	if s.cannotBe(c, err) {
		t, err = &Tried{Candidate: c, Decision: Fails}, nil
	}
	if err != nil {
		return nil, err
	}
	t.Holds = t.Decision == Holds || t.Decision == Likely
	s.judged[c] = t
	if t.Attainment.N > 0 {
		s.note("%s: %s, %s %s (%d runs)", c, t.Decision, percent(t.Mean), s.opt.demand(), t.Attainment.N)
	}
	return t, nil
}

// byAttainment decides by the mean attainment of several runs.
func (s *search) byAttainment(t *Tried, allowance int64) error {
	if s.plan.fixed != "" {
		return s.bySeeds(t, allowance)
	}
	return s.byLength(t, allowance)
}

// tieSeeds is the number of runs of a workload if seeds only break ties.
const tieSeeds = 3

// byMean decides by the mean of a few runs, if there is no confidence interval.
func (s *search) byMean(t *Tried) error {
	runs, err := s.measureAll(t.Candidate, 1, forDecision, 0, min(tieSeeds, s.opt.MaxSeeds), t.Size, 0)
	if err != nil || len(runs) == 0 {
		return err
	}
	t.sum(runs)
	switch {
	case s.overloaded(runs):
		t.Decision = Overloaded
	case t.Attainment.Mean >= s.opt.target()-rounding:
		t.Decision = Holds
	default:
		t.Decision = Fails
	}
	return nil
}

// overloaded reports whether queues grow in most of the given runs, by each run's own assessment.
func (s *search) overloaded(runs []*run) bool {
	if s.plan.closed {
		return false
	}
	n := 0
	for _, r := range runs {
		if r.overloaded || s.plan.fixed != "" && r.backlog > backlogged {
			n++
		}
	}
	return 2*n > len(runs)
}

// resamples is the number of resamples of one workload that decide. More of them would
// tell no more about other workloads.
const resamples = 20

// level is the error level of a look at n runs. The last look that max_seeds allows uses the remaining level.
func (s *search) level(look, n int) float64 {
	if s.plan.spread { // the only look
		return errorLevel
	}
	if n < s.opt.MaxSeeds {
		return lookLevel(look, maxLooks)
	}
	left := errorLevel
	for earlier := range look {
		left -= lookLevel(earlier, maxLooks)
	}
	return left
}

// bySeeds runs a workload of fixed length with more and more seeds until the rule decides. Each look has twice the runs
// of the one before.
func (s *search) bySeeds(t *Tried, allowance int64) error {
	rule := s.rule()
	n, spent := min(firstSeeds, s.opt.MaxSeeds), int64(0)
	if s.plan.spread {
		n = s.opt.MaxSeeds
	}
	var runs []*run
	for look := 0; look < maxLooks; look, n = look+1, min(2*n, s.opt.MaxSeeds) {
		cost := int64(n-len(runs)) * s.plan.stated
		if look > 0 && spent+cost > allowance || look == 0 && s.exhausted() {
			if s.likely(rule, runs) {
				t.Decision = Likely
			}
			break
		}
		spent += cost
		more, err := s.measureAll(t.Candidate, 1, forDecision, len(runs), n, t.Size, 0)
		if err != nil {
			return err
		}
		if runs = append(runs, more...); len(runs) > 0 {
			t.sum(runs)
		}
		if len(runs) < n {
			break
		}
		rule.level, rule.unseen = s.level(look, n), badTime(rule.target, t.Size.requests-t.Size.warm)
		if t.Decision, _ = rule.look(samples(runs)); t.Decision == Holds && s.overloaded(runs) {
			t.Decision = Overloaded
		}
		if t.Decision != Undecided || n == s.opt.MaxSeeds || s.plan.spread {
			break
		}
	}
	return nil
}

// byLength runs a candidate with a few seeds, for longer and longer, until the rule decides. After each look the part
// that counts is twice as long, or the warm-up, if the attainment or the queues still change.
func (s *search) byLength(t *Tried, allowance int64) error {
	rule := s.rule()
	rule.binary, rule.target = false, s.opt.asked()
	defer s.drop(t.Candidate)
	var runs []*run
	spent := int64(0)
	looks := s.lengthLooks()
	for look, n, z := 0, min(quickSeeds, s.opt.MaxSeeds), t.Size; look < looks; {
		p := s.tracks(t.Candidate, n)
		cost := p.cost(z.requests)
		if t.Size != z && spent+cost > allowance || len(runs) == 0 && s.exhausted() ||
			z.requests > s.longest() {
			if s.likely(rule, runs) {
				t.Decision = Likely
			}
			break
		}
		spent += cost
		more, err := p.runs(s.ctx, z)
		if err != nil {
			return err
		}
		if len(more) < n {
			if len(runs) == 0 && len(more) > 0 {
				t.sum(more)
			}
			break
		}
		runs, t.Size = more, z
		t.panel = runs
		t.sum(runs)
		if most := min(panelRuns, s.opt.MaxSeeds); n < most { // the test may look as often as it likes
			if t.Decision = s.hopelessly(rule, runs); t.Decision != Undecided {
				break
			}
			n = min(2*n, most)
			continue
		}
		var transient bool
		rule.level, rule.unseen = lookLevel(look, looks), badTime(rule.target, z.requests-z.warm)
		if t.Decision, transient = rule.look(samples(runs)); t.Decision == Holds {
			over, err := p.overloaded(s)
			if err != nil && s.mustStop() == nil {
				return err
			}
			if over {
				t.Decision = Overloaded
			}
		}
		if t.Decision != Undecided {
			break
		}
		if look++; transient && !s.gainsOnly(rule, runs) {
			z = half(2 * z.requests)
		} else {
			z.requests += z.requests - z.warm
		}
	}
	return nil
}

// gainsOnly reports whether runs that change meet the target already, and only get better. They need no longer warm-up:
// it would but raise the mean.
func (s *search) gainsOnly(r *rule, runs []*run) bool {
	values, trends, growths := columns(samples(runs))
	_, better := trend(trends)
	growing, _ := r.growth(growths, r.level)
	return better && !growing && stats.Mean(values).Mean >= r.target
}

// hopelessly decides about a candidate that a few runs show to be far from the target, unless they get better.
func (s *search) hopelessly(r *rule, runs []*run) Decision {
	better := make([]*run, len(runs))
	trends := 0.0
	for _, x := range runs {
		trends += x.trend / float64(len(runs))
	}
	for i, x := range runs {
		up := *x
		up.value = min(x.attainment+2*max(trends, 0), 1)
		better[i] = &up
	}
	_, _, growths := columns(samples(runs))
	if _, grows := r.growth(growths, quickLevel/2); grows { // one of two looks
		return Overloaded
	}
	if hopeless(better, r.target) {
		return Fails
	}
	return Undecided
}

// likely reports whether the plain interval of some runs is above the target, with no sign of growing queues. It has
// neither the strict levels of looks nor rare bad times.
func (s *search) likely(r *rule, runs []*run) bool {
	if len(runs) < firstSeeds || s.overloaded(runs) {
		return false
	}
	values, _, growths := columns(samples(runs))
	growing, _ := r.growth(growths, errorLevel)
	return r.lower(values, errorLevel) >= r.target-rounding && !growing
}

// firstRuns is the number of runs at the first look at the share of runs that hold.
const firstRuns = 64

// byRuns decides whether enough of the runs of the workload's own length hold. It
// looks for the warm-up first.
func (s *search) byRuns(t *Tried) error {
	z, spent := t.Size, int64(0)
	if s.plan.fixed == "" {
		before := s.spent.Load()
		if err := s.byLength(t, s.allowance()/4); err != nil || t.Decision == Overloaded || t.Attainment.N == 0 {
			return err
		}
		spent = s.spent.Load() - before
		z = size{requests: t.Size.warm + s.plan.stated, warm: t.Size.warm}
	}
	t.Decision, t.Size, t.panel = Undecided, z, nil
	rule := s.rule()
	var runs []*run
	for look, n := 0, firstRuns; look < maxLooks; look, n = look+1, 2*n {
		n = min(n, s.opt.MaxSeeds)
		cost := int64(n-len(runs)) * max(z.requests, s.plan.stated)
		if look > 0 && spent+cost > s.budget()/6 {
			break
		}
		spent += cost
		more, err := s.measureAll(t.Candidate, 1, forDecision, len(runs), n, z, 0)
		if err != nil {
			return err
		}
		if runs = append(runs, more...); len(runs) > 0 {
			t.sum(runs)
		}
		if len(runs) < n {
			break
		}
		rule.level = s.level(look, n)
		if t.Decision, _ = rule.look(samples(runs)); t.Decision == Holds && s.overloaded(runs) {
			t.Decision = Overloaded
		}
		if t.Decision != Undecided || n == s.opt.MaxSeeds {
			break
		}
	}
	return nil
}

// confirm gives a candidate a confidence interval from held-out seeds.
func (s *search) confirm(t *Tried) error {
	if s.plan.single || s.opt.MaxSeeds == 1 || t.Attainment.N == 0 {
		runs, err := s.measureAll(t.Candidate, 1, forDecision, 0, min(tieSeeds, s.opt.MaxSeeds), t.Size, watchedRuns)
		if err != nil {
			return err
		}
		if len(runs) > 0 {
			t.sum(runs)
		}
		t.Attainment = stats.Estimate{N: t.Attainment.N, Mean: t.Attainment.Mean}
		return nil
	}
	if t.panel == nil {
		return s.confirmAlone(t)
	}
	// The interval has the runs of the decision and fresh ones. If it then contains the target, it gets more.
	least := min(freshRuns, s.opt.MaxSeeds)
	for n := least; ; n = s.moreFresh(t) {
		have := len(t.runs)
		more, err := s.measureAll(t.Candidate, 1, forInterval, have, n, t.Size, watchedRuns)
		if err != nil {
			return err
		}
		t.runs = append(t.runs, more...)
		if len(t.runs) < least { // stopped: what the decision has seen has no interval
			t.Attainment = stats.Estimate{N: t.Attainment.N, Mean: t.Attainment.Mean}
			return nil
		}
		all := slices.Concat(t.runs, t.panel)
		s.enter(t, all[:min(len(all), max(s.opt.MaxSeeds, len(t.runs)))])
		if t.Certain || n > least || have+len(more) < n || s.moreFresh(t) <= n {
			return nil
		}
	}
}

// confirmAlone gives a candidate an interval without the runs of its decision.
func (s *search) confirmAlone(t *Tried) error {
	n := min(s.intervalSize(t), s.opt.MaxSeeds)
	runs, err := s.measureAll(t.Candidate, 1, forInterval, 0, n, t.Size, watchedRuns)
	if err != nil {
		return err
	}
	if len(runs) < 2 { // stopped: what the decision has seen has no interval
		t.Attainment = stats.Estimate{N: t.Attainment.N, Mean: t.Attainment.Mean}
		return nil
	}
	t.runs = runs
	s.enter(t, runs)
	return nil
}

// enter enters the runs of the interval.
func (s *search) enter(t *Tried, runs []*run) {
	t.sum(runs)
	rule := s.rule()
	values, _, _ := columns(samples(runs))
	e := &t.Attainment
	e.Low, e.High = rule.interval(values, 0.025)
	switch t.Decision {
	case Holds:
		t.Certain = s.plan.partial == "" && e.Low >= rule.target-rounding && rule.target < 1
	case Fails:
		t.Certain = e.High < rule.target-rounding
	case Overloaded:
		t.Certain = true
	}
}

// moreFresh is the number of fresh runs of an interval that contains the target after its first ones, as far as the
// budget allows.
func (s *search) moreFresh(t *Tried) int {
	return min(int(s.budget()/freshShare/max(t.Size.requests, 1)), mostFresh, s.opt.MaxSeeds)
}

// intervalSize is the number of runs of the interval of a candidate whose decision has no runs of the same length.
func (s *search) intervalSize(t *Tried) (n int) {
	share := max(s.budget()/40, min(s.budget()/8, fixedSeeds*shortest/2))
	z := max(t.Size.requests, s.plan.stated, 1)
	switch {
	case t.Decision == Overloaded: // it has no mean that an interval could be about
		return watchedRuns
	case t.Decision == Fails && t.Attainment.N <= firstSeeds: // far from the target
		return max(min(int(share/z), freshRuns), watchedRuns)
	}
	if n = max(2*t.Attainment.N, fixedSeeds); int64(n)*z > share {
		n = max(int(share/z), fewestSeeds)
	}
	return n
}

// sum enters what some runs showed.
func (t *Tried) sum(runs []*run) {
	n := float64(len(runs))
	t.Mean, t.Rejected, t.Causes, t.Worst = 0, 0, waits.Causes{}, result.Worst{}
	values := make([]float64, len(runs))
	for i, r := range runs {
		values[i] = r.value
		t.Mean += r.attainment / n
		t.Rejected += r.rejected / n
		t.Causes.Add(&r.causes)
		t.last = r.last
		if r.worst.Share < t.Worst.Share || t.Worst.Requests == 0 {
			t.Worst = r.worst
		}
	}
	t.Attainment = stats.Mean(values)
}

func samples(runs []*run) []sample {
	list := make([]sample, len(runs))
	for i, r := range runs {
		list[i] = r.sample
	}
	return list
}
