package capacity

import (
	"math"

	"lorasim/bench/result/waits"
)

// Headroom is the factor by which the load of a candidate can grow. Up to this factor of the rate, the mean attainment
// meets the target. Low and High are the 95 % confidence interval: beyond Low the mean may miss the target, beyond
// High it certainly does.
type Headroom struct {
	Factor, Low, High float64
	Seeds             int
}

// most reports whether the candidate held at the largest factor that is tried.
func (h *Headroom) most() bool { return h.Factor >= mostHeadroom/100 }

// reach states which of three values meet the target at a rate factor: the mean, and the lower and the upper end of
// its interval.
type reach struct{ mean, low, high bool }

// prober looks for the headroom of a candidate.
type prober struct {
	s     *search
	t     *Tried
	seeds int
	runs  map[int][]*run // by factor in hundredths
	spent int64          // requests
}

const (
	// headroomWidth is the width of the interval of the headroom that is aimed at, as
	// a share of the headroom.
	headroomWidth = 0.05
	// headroomRates is about how many rates the search for the headroom tries.
	headroomRates = 14
	// headroomShare is the share of the budget for the headroom, in %.
	headroomShare = 4
	// headroomSeeds is the number of seeds at first.
	headroomSeeds = 8
	// headroomCounts is the largest part of a run for the headroom that counts, as a multiple of the shortest warm-up.
	headroomCounts = 3
)

// headroom finds the headroom of a candidate, and what makes it fail beyond. The interval inverts a test (Fieller): it
// holds the factors at which the interval of the mean attainment holds the target. More seeds are added until it is
// narrow, or a quarter of the budget is spent. If the search must stop before, there is no headroom, or that of fewer
// seeds.
func (s *search) headroom(t *Tried) (h Headroom, limit waits.Causes, err error) {
	p := &prober{s: s, t: t, runs: map[int][]*run{}, seeds: min(headroomSeeds, s.opt.MaxSeeds)}
	if s.opt.Hold > 0 {
		// fewer runs say too little even if all hold
		need := 1.5 * math.Log(errorLevel) / math.Log(min(s.opt.Hold, 0.995))
		p.seeds = min(max(firstRuns, int(need)), s.opt.MaxSeeds)
	}
	if s.plan.single {
		p.seeds = min(tieSeeds, s.opt.MaxSeeds)
	}
	if z := max(t.Size.requests, s.plan.stated, 1); !s.plan.single { // a small budget takes fewer
		p.seeds = max(min(p.seeds, int(s.budget()/4/headroomRates/z)), min(2, s.opt.MaxSeeds))
	}
	if s.opt.Hold == 0 && !s.plan.single && len(t.runs) > 1 {
		if h, err = s.newCrossing(t, t.runs).headroom(); err != nil && s.mustStop() != nil {
			return h, t.Causes, nil
		}
	} else {
		h, err = p.search()
	}
	if err != nil {
		return h, limit, err
	}
	if h.Seeds > 0 && t.Certain && t.Holds { // by the runs of the interval, which may be longer
		h.Low, h.Factor, h.High = max(h.Low, 1), max(h.Factor, 1), max(h.High, 1)
	}
	if limit = t.Causes; h.Factor < mostHeadroom/100 && t.Holds && s.mustStop() == nil {
		beyond, err := s.measureAll(t.Candidate, h.Factor+0.01, forInterval, 0, 1, s.headroomSize(t), 1)
		if err != nil {
			return h, limit, err
		}
		limit = waits.Causes{}
		for _, r := range beyond {
			limit.Add(&r.causes)
		}
	}
	return h, limit, nil
}

// search finds the headroom with more and more seeds.
func (p *prober) search() (h Headroom, err error) {
	s := p.s
	for from, step := 100, 13; ; p.seeds = min(2*p.seeds, s.opt.MaxSeeds) {
		next, err := p.find(from, step)
		if err != nil {
			if s.mustStop() != nil {
				err = nil
			}
			return h, err
		}
		if h = next; h.High-h.Low <= headroomWidth*max(h.Factor, 1) || p.seeds == s.opt.MaxSeeds ||
			2*p.spent > s.budget()*headroomShare/100 {
			return h, nil
		}
		from, step = max(int(100*h.Factor+0.5), 1), 2 // more seeds move it by little
	}
}

// find finds the headroom with the prober's number of seeds. The first factor to be tried is from, the next one is
// step above it or below.
func (p *prober) find(from, step int) (h Headroom, err error) {
	first, err := p.at(from)
	if err != nil {
		return h, err
	}
	mean, err := p.last(from, step, first.mean, func(r reach) bool { return r.mean })
	if err != nil {
		return h, err
	}
	low, high := mean, mean
	if !p.s.plan.single && p.seeds > 1 {
		if low, err = p.around(mean, -1, func(r reach) bool { return r.low }); err == nil {
			high, err = p.around(mean, 1, func(r reach) bool { return r.high })
		}
	}
	return Headroom{
		Factor: float64(mean) / 100, Low: float64(low) / 100, High: float64(high) / 100, Seeds: p.seeds,
	}, err
}

// last is the largest factor, in hundredths, that reaches; 0: none does. ok says
// whether from does.
func (p *prober) last(from, step int, ok bool, reaches func(reach) bool) (int, error) {
	lo, most := from, mostHeadroom
	for !ok { // down, in steps that double, to one that does
		most = lo - 1
		if lo = max(lo-step, 0); lo == 0 {
			break
		}
		r, err := p.at(lo)
		if err != nil {
			return 0, err
		}
		ok, step = reaches(r), 2*step
	}
	fails, err := bisect(lo, lo+step, most, func(f int) (bool, error) {
		r, err := p.at(f)
		return !reaches(r), err
	})
	return fails - 1, err
}

// around is the largest factor that reaches, which is close to from: not above it
// for a direction of -1, not below it for 1.
func (p *prober) around(from, direction int, reaches func(reach) bool) (int, error) {
	edge := func(f int) int { return max(0, min(f, mostHeadroom)) }
	near, step := from, 2
	for far := edge(from + direction*step); ; far = edge(far + direction*step) {
		r := reach{true, true, true}
		var err error
		if far > 0 {
			if r, err = p.at(far); err != nil {
				return 0, err
			}
		}
		if reaches(r) == (direction < 0) || far == 0 || far == mostHeadroom {
			lo, hi := min(near, far), max(near, far)
			if direction > 0 && reaches(r) {
				return far, nil
			}
			if direction < 0 {
				hi++ // from may reach itself
			}
			fails, err := bisect(lo, (lo+hi)/2, hi-1, func(f int) (bool, error) {
				r, err := p.at(f)
				return !reaches(r), err
			})
			return fails - 1, err
		}
		near, step = far, 2*step
	}
}

// at simulates the candidate at a factor of the rate, in hundredths.
func (p *prober) at(f int) (reach, error) {
	s, rule, runs := p.s, p.s.rule(), p.runs[f]
	for _, n := range []int{min(quickSeeds, p.seeds), p.seeds} {
		if n <= len(runs) || s.hopeless(runs) {
			continue
		}
		more, err := s.measureAll(p.t.Candidate, float64(f)/100, forInterval, len(runs), n, p.t.Size, 0)
		if err != nil {
			return reach{}, err
		}
		if len(runs)+len(more) < n {
			return reach{}, s.mustStop()
		}
		runs = append(runs, more...)
		p.spent += int64(len(more)) * max(p.t.Size.requests, s.plan.stated)
	}
	if p.runs[f] = runs; s.hopeless(runs) {
		return reach{}, nil
	}
	values, _, growths := columns(samples(runs))
	mean := 0.0
	for _, v := range values {
		mean += v / float64(len(values))
	}
	low, high := rule.interval(values, errorLevel)
	growing, grows := rule.growth(growths, errorLevel)
	grows = grows || s.overloaded(runs)
	r := reach{mean: mean >= rule.target-rounding && !grows}
	r.low = r.mean && low >= rule.target-rounding && !growing
	r.high = r.mean || high >= rule.target-rounding && !grows
	return r, nil
}

// quickSeeds is the number of runs that may show that a rate is far too high.
const quickSeeds = 4

// quickLevel is the error level of the test hopeless.
const quickLevel = errorLevel / 10

// hopeless reports whether the runs show that the mean attainment misses the target.
func (s *search) hopeless(runs []*run) bool { return !s.plan.single && hopeless(runs, s.opt.target()) }

// hopeless reports whether independent runs show that their mean value misses the target, at the level quickLevel.
//
// Each run's share of requests that miss the SLO is divided by the share that may miss. If the mean meets the target,
// the product over independent runs is at most 1 on average: the product is an e-value. By Markov's inequality it then
// exceeds 1/quickLevel with a probability of at most quickLevel.
func hopeless(runs []*run, target float64) bool {
	product := 1.0
	for _, r := range runs {
		product *= (1 - r.value) / (1 - target + rounding)
	}
	return product > 1/quickLevel
}
